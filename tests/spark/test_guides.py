"""The examples of the pages about the source, the sink, metrics and clusters, in a real Spark.

`spark_guides` lists the examples and the tests that check them.
"""

from __future__ import annotations

import ast
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from guides import blocks, commands, example, examples, names, tables
from http_answers import get
from machine import WAIT_S
from prometheus_client.parser import text_string_to_metric_families

import cykafka

READING, WRITING = "docs/spark.md", "docs/spark-sink.md"
STREAMS = "docs/spark-streams.md"
OBSERVING = "docs/spark-observing.md"
CLUSTERS = "docs/spark-clusters.md"
YARN, KUBERNETES = "docs/spark-yarn.md", "docs/spark-kubernetes.md"


@pytest.fixture
def own(cluster: Any, topic: str, tmp_path: Path) -> Callable[[str], str]:
    """Replace a page's brokers, topic and folders by those of this test."""

    def own(text: str) -> str:
        text = text.replace("broker:9092", cluster.bootstrap_servers)
        text = re.sub(r"""(["'])events\1""", rf"\g<1>{topic}\1", text)
        return text.replace('"/', f'"{tmp_path}/')

    return own


@pytest.fixture
def send(cluster: Any) -> Callable[..., None]:
    """Send records to a topic, by columns."""

    def send(topic: str, values: list[str], **columns: Any) -> None:
        with cykafka.Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.publish(topic, values, **columns).wait(WAIT_S)

    return send


def run(text: str, known: dict[str, Any]) -> list[Any]:
    """Run a block of Python, and return the values of its expressions."""
    found = []
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Expr):
            found.append(eval(compile(ast.Expression(statement.value), "page", "eval"), known))
        else:
            exec(compile(ast.Module([statement], []), "page", "exec"), known)
    return found


# -- docs/spark.md


def test_first_example_shows_records(
    own: Callable[[str], str], topic: str, send: Any, spark: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    send(topic, ["tea", "milk"], keys=["k", None], partitions=2)

    run(own(example(READING, 'offset").show()')), {})

    head, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
        if "|" in line
    ]
    assert head == ["key", "value", "offset"]
    assert rows == [["k", "tea", "0"], ["NULL", "milk", "1"]]


def test_view_reads_records(
    own: Callable[[str], str], topic: str, send: Any, spark: Any
) -> None:  # fmt: skip
    send(topic, ["tea"])
    (statement,) = blocks(READING, "sql")
    as_table = statement.replace("TEMPORARY VIEW events", "TABLE events_as_table")
    try:
        spark.sql(own(statement))
        assert spark.sql("SELECT string(value) FROM events").collect() == [("tea",)]
        spark.sql(own(as_table))
        with pytest.raises(Exception, match=r"missing|expected exactly one"):
            spark.sql("SELECT * FROM events_as_table").collect()
    finally:
        spark.catalog.dropTempView("events")
        spark.sql("DROP TABLE IF EXISTS events_as_table")


def test_stream_writes_what_the_topic_has(
    own: Callable[[str], str], topic: str, send: Any, spark: Any, tmp_path: Path
) -> None:
    block = own(example(STREAMS, "stream = ("))
    for count in (1, 2):
        send(topic, [f"v{count}"])
        run(block, {"spark": spark})

        rows = spark.read.parquet(str(tmp_path / "data/events")).collect()
        assert {row.value for row in rows} == {b"v%d" % number for number in range(1, count + 1)}
        assert len(rows) == count


def test_pushdown_reads_only_what_the_filters_select(
    own: Callable[[str], str], topic: str, send: Any, spark: Any
) -> None:
    noon = 1_769_860_800_000
    send(topic, [f"v{n}" for n in range(1200)], partitions=3, timestamps=noon - 1,
         keys=["customer-7"] * 1200)  # fmt: skip
    send(topic, ["late", "other"], keys=["customer-7", "customer-8"], timestamps=noon)
    try:
        frames = run(own(example(READING, "filterPushdown")), {"spark": spark})[1:]
        rows = [frame.collect() for frame in frames]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    first, second = rows
    assert [row.offset for row in first] == [*range(1000, 1100)]
    assert [row.value for row in second] == [b"late"]
    assert [rows_of_the_source(frame) for frame in frames] == [100, 1]


def rows_of_the_source(frame: Any) -> int:
    """The rows that the source has given to a collected DataFrame."""
    (scan,) = iterated(frame._jdf.queryExecution().executedPlan().collectLeaves())
    count: int = scan.metrics().apply("numOutputRows").value()
    return count


def iterated(sequence: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


# -- docs/spark-sink.md


@pytest.mark.usefixtures("stop_queries")
def test_stream_writes_to_a_topic(
    own: Callable[[str], str], topic: str, unique: Any, send: Any, spark: Any, stream: Any,
    batch: Any,
) -> None:  # fmt: skip
    source = unique("source")
    send(source, ["login"], keys=["ada"])
    frame = stream(subscribe=source, startingOffsets="earliest")
    known = {"frame": frame.selectExpr("string(key) AS user", "string(value) AS action")}

    run(own(example(WRITING, 'writeStream.format("cykafka")')), known)
    known["query"].processAllAvailable()

    (row,) = batch(subscribe=topic).collect()
    assert row.key == b"ada"
    assert json.loads(row.value) == {"user": "ada", "action": "login"}


@pytest.mark.usefixtures("stop_queries")
def test_mode_update_writes_by_foreach_batch(
    topic: str, unique: Any, send: Any, spark: Any, stream: Any, batch: Any, cluster: Any,
) -> None:  # fmt: skip
    source = unique("source")
    send(source, ["login", "logout"], keys=["ada", "ada"])
    counts = stream(subscribe=source, startingOffsets="earliest").groupBy("key").count()
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    known = {"counts": counts.selectExpr("key", "string(count) AS value"), "options": options}

    run(example(WRITING, "def write(batch, number)"), known)
    (query,) = spark.streams.active
    query.processAllAvailable()

    rows = batch(subscribe=topic).collect()
    assert [(row.key, row.value) for row in rows] == [(b"ada", b"2")]


def test_error_is_like_that_of_the_page(
    topic: str, spark: Any, cluster: Any
) -> None:  # fmt: skip
    (words, _) = blocks(WRITING, "text")
    pattern = re.sub(r"\d+", r"\\d+", re.escape(" ".join(words.split())))
    rows = spark.range(0, 40, 1, 1).selectExpr(
        "repeat('x', IF(id IN (7, 9), 2000000, 1)) AS value", "3 AS partition"
    )
    writer = rows.write.format("cykafka").mode("append").option("topic", topic)

    with pytest.raises(Exception, match=pattern.replace("events", topic)):
        writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).save()


# -- docs/spark-observing.md


@pytest.mark.usefixtures("stop_queries")
def test_queries_are_observed(
    topic: str, unique: Any, send: Any, spark: Any, stream: Any, cluster: Any, tmp_path: Path,
    wait_until: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from cykafka.spark.metrics import QueryMetrics

    registry = prometheus_client.CollectorRegistry()
    metrics = QueryMetrics(registry=registry)
    start, servers = prometheus_client.start_http_server, []
    monkeypatch.setattr("cykafka.spark.metrics.QueryMetrics", lambda: metrics)
    monkeypatch.setattr(
        "prometheus_client.start_http_server",
        lambda port, host: servers.append((port, *start(0, host, registry))),
    )
    source = unique("source")
    send(source, ["a", "b"])
    known = {
        "spark": spark,
        "frame": stream("value binary", subscribe=source, startingOffsets="earliest"),
        "options": {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic,
                    "checkpointLocation": str(tmp_path)},
    }  # fmt: skip
    found: dict[str, float] = {}

    def scrape() -> None:
        status, text = get(f"http://127.0.0.1:{servers[0][1].server_port}/metrics")
        assert status == 200
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                assert sample.labels["query"] == "orders"
                found[sample.name] = sample.value

    try:
        run(example(OBSERVING, "QueryMetrics"), known)
        query = known["query"]
        query.processAllAvailable()
        send(source, ["c"])  # the progress of a query's first micro-batch has no start
        query.processAllAvailable()
        wait_until(lambda: found.get("cykafka_query_records_total") == 3, scrape)
        report = json.loads(query.lastProgress.json)
        query.stop()
        wait_until(lambda: found["cykafka_query_active"] == 0, scrape)
    finally:
        spark.streams.removeListener(metrics)
        for _, server, thread in servers:
            server.shutdown()
            server.server_close()
            thread.join(WAIT_S)

    assert servers[0][0] == 9464
    assert found["cykafka_query_output_records_total"] == 3
    check_progress(report)


def check_progress(report: dict[str, Any]) -> None:
    """Check that a report of a query has the fields of the page."""
    fields = [name for row in tables(OBSERVING, "What Spark itself shows")[0]
              for name in names(row[0])]  # fmt: skip
    (source,) = report["sources"]
    parents = {"sources[]": source, "sink": report["sink"], "": {**source, **report}}
    found = {}
    for field in fields:
        parent, _, name = field.rpartition(".")
        found[field] = bool(parents[parent].get(name))

    assert len(fields) == 7
    assert {field for field in fields if not found[field]} == {
        "sources[].metrics", "observedMetrics",  # the query has no observe()
    }  # fmt: skip
    assert report["sink"]["numOutputRows"] == report["numInputRows"] == 1


# -- docs/spark-clusters.md


def test_worker_tells_its_python_and_package(spark: Any) -> None:
    known = {"spark": spark, "__name__": "__main__"}

    (found,) = run(example(CLUSTERS, "def where"), known)

    assert found == {(platform.node(), sys.executable, cykafka.__file__, cykafka.version())}


def test_commands_for_spark_submit_are_valid(spark: Any) -> None:
    found = [
        words
        for page in (CLUSTERS, YARN, KUBERNETES)
        for example in examples(page)
        if "spark-submit" in example.text
        for words in commands(example.text)
        if words[0] == "spark-submit"
    ]
    jvm = spark._jvm.org.apache.spark
    python = jvm.api.python.PythonUtils

    assert len(found) == 4
    for words in found:
        arguments = python.toSeq(words[1:]), python.toScalaMap({"HADOOP_CONF_DIR": "/etc"})
        # An unknown option or a missing one is an error here.
        parsed = jvm.deploy.SparkSubmitArguments(*arguments)
        assert parsed.isPython()
