"""Intended differences from Spark's own Kafka connector, as listed in docs/spark.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

T0 = 1_700_000_000_000
JVM, OURS = "kafka", "cykafka"


class Difference(NamedTuple):
    """The number of rows that each connector reads with these options; ``None``: refused."""

    what: str
    options: dict[str, Any]
    theirs: int | None
    ours: int | None


# SHRUNK stands for a topic with 30 records, PREFIX for the prefix of the topics' names.
BATCHES = (
    Difference(
        "a pattern matches whole names; the JVM's matches any part of a name",
        {"subscribePattern": "PREFIX-shru"},
        30,
        0,
    ),
    Difference(
        "a misspelled option is refused; the JVM ignores it",
        {"subscribe": "SHRUNK", "startingOfsets": "earliest"},
        30,
        None,
    ),
    Difference(
        "a property that consumers lack is refused; the JVM warns",
        {"subscribe": "SHRUNK", "kafka.no.such.property": "1"},
        30,
        None,
    ),
    Difference(
        "missing topics are skipped with failOnDataLoss=false; the JVM refuses them",
        {
            "subscribe": "SHRUNK,no-such-topic",
            "failOnDataLoss": "false",
            "fetchOffset.numRetries": "1",
        },
        None,
        30,
    ),
    Difference(
        "starts of other partitions are ignored with failOnDataLoss=false; the JVM refuses them",
        {
            "subscribe": "SHRUNK",
            "startingOffsets": '{"SHRUNK":{"0":20},"other":{"0":1}}',
            "failOnDataLoss": "false",
            "fetchOffset.numRetries": "1",
        },
        None,
        30,
    ),
    Difference(
        "a start after the last record is no error with failOnDataLoss=false; the JVM refuses it",
        {
            "subscribe": "SHRUNK",
            "startingOffsets": '{"SHRUNK":{"0":60}}',
            "failOnDataLoss": "false",
        },
        None,
        0,
    ),
    Difference(
        "an empty list of partitions is refused; the JVM reads nothing",
        {"assign": "{}"},
        0,
        None,
    ),
    Difference(
        "a negative time is refused; the JVM reads nothing",
        {"subscribe": "SHRUNK", "startingTimestamp": -1},
        0,
        None,
    ),
    Difference(
        "a batch checks options of streams; the JVM ignores them",
        {"subscribe": "SHRUNK", "maxOffsetsPerTrigger": "x"},
        30,
        None,
    ),
)
STREAMS = (
    Difference(
        "a minimum of zero offsets per trigger is refused; the JVM ignores it",
        {"subscribe": "SHRUNK", "minOffsetsPerTrigger": 0, "startingOffsets": "earliest"},
        30,
        None,
    ),
    Difference(
        "every end of a stream is refused; the JVM ignores endingTimestamp",
        {"subscribe": "SHRUNK", "endingTimestamp": T0, "startingOffsets": "earliest"},
        30,
        None,
    ),
    Difference(
        "zero offsets per trigger are refused; the JVM reads nothing forever",
        {"subscribe": "SHRUNK", "maxOffsetsPerTrigger": 0, "startingOffsets": "earliest"},
        0,
        None,
    ),
)


def asked(options: dict[str, Any], topics: Any) -> dict[str, Any]:
    def fill(text: Any) -> Any:
        if not isinstance(text, str):
            return text
        names = {"SHRUNK": topics.shrunk, "PREFIX": topics.prefix}
        for name, value in names.items():
            text = text.replace(name, value)
        return text

    return {key: fill(value) for key, value in options.items()}


def outcome(action: Callable[[], int]) -> int | None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return action()
    except (PySparkException, Py4JJavaError):
        return None


@pytest.mark.parametrize("difference", BATCHES, ids=lambda item: item.what)
def test_batch(read: Callable[..., Any], topics: Any, difference: Difference) -> None:
    given = asked(difference.options, topics)
    found = [outcome(lambda by=by: len(read(by, **given).collect())) for by in (JVM, OURS)]

    assert found == [difference.theirs, difference.ours]


@pytest.mark.parametrize("difference", STREAMS, ids=lambda item: item.what)
def test_stream(stream: Callable[..., Any], topics: Any, difference: Difference) -> None:
    given = asked(difference.options, topics)

    def run(by: str) -> int:
        started = stream(by, **given)
        started.run(by)
        return len(started.rows())

    assert [outcome(lambda by=by: run(by)) for by in (JVM, OURS)] == [
        difference.theirs,
        difference.ours,
    ]


def test_small_ranges_share_a_task(read: Callable[..., Any], topics: Any) -> None:
    """The JVM makes a task for each range. In Python a task costs more than reading them."""
    tasks = [
        read(by, subscribe=f"{topics.mixed},{topics.shrunk}").rdd.getNumPartitions()
        for by in (JVM, OURS)
    ]

    assert tasks == [5, 1]


def test_batch_is_planned_once(
    read: Callable[..., Any], topic: str, fill: Callable[..., None]
) -> None:
    """The JVM connector looks for new records at each use of a DataFrame."""
    frames = [read(by, subscribe=topic) for by in (JVM, OURS)]
    found = []
    for _ in range(2):
        fill(topic, 3)
        found.append([frame.count() for frame in frames])

    assert found == [[3, 3], [6, 3]]


def test_min_offsets_have_no_effect_with_available_now(
    stream: Callable[..., Any], topics: Any
) -> None:
    """The JVM connector leaves the last records, if they are fewer."""
    options = {"minOffsetsPerTrigger": 20, "maxOffsetsPerTrigger": 20}
    counts = []
    for by in (JVM, OURS):
        query = stream(by, subscribe=topics.shrunk, startingOffsets="earliest", **options)
        query.run(by)
        counts.append(len(query.rows()))

    assert counts == [20, 30]


def test_partition_minus_1_of_the_sink_is_no_partition(
    spark: Any,
    twins: Callable[..., dict[str, str]],
    write: Callable[..., None],
    stored: Callable[..., list[Any]],
) -> None:
    """The JVM connector refuses it."""
    from py4j.protocol import Py4JJavaError

    names = twins(1)
    frame = spark.sql("select 'v' as value, -1 as partition")
    with pytest.raises(Py4JJavaError, match="Invalid partition"):
        write(JVM, frame, topic=names[JVM])
    write(OURS, frame, topic=names[OURS])

    assert len(stored(names[OURS])) == 1


def test_records_without_headers(read: Callable[..., Any], topics: Any) -> None:
    """The JVM's source has null for them, and so has ours with nullHeaders=true."""
    options = {"subscribe": topics.shrunk, "includeHeaders": "true"}
    kinds = {
        name: any(row.headers is None for row in read(by, **options, **more).collect())
        for name, by, more in (
            ("theirs", JVM, {}), ("ours", OURS, {}), ("null", OURS, {"nullHeaders": "true"}),
        )
    }  # fmt: skip
    assert kinds == {"theirs": True, "ours": False, "null": True}


def test_sink_without_headers(
    spark: Any,
    twins: Callable[..., dict[str, str]],
    write: Callable[..., None],
    stored: Callable[..., list[Any]],
) -> None:
    """The JVM's sink ignores includeHeaders."""
    frame = spark.sql(
        "select 'v' as value, array(struct('k' as key, binary('h') as value)) as headers"
    )
    names = twins(1)
    for by, name in names.items():
        write(by, frame, topic=name, includeHeaders="false")

    assert [row[4] for row in stored(names[JVM])] == [[("k", b"h")]]
    assert [row[4] for row in stored(names[OURS])] == [None]


def test_output_mode_update_needs_foreach_batch(
    spark: Any,
    cluster: Any,
    topics: Any,
    twins: Callable[..., dict[str, str]],
    write: Callable[..., None],
    stored: Callable[..., list[Any]],
    tmp_path: Path,
    stop_queries: None,
) -> None:
    """Spark has no output mode "update" for sinks in Python."""
    from pyspark.errors import PySparkException

    names = twins(1)
    servers = cluster.bootstrap_servers

    def start(by: str, target: Callable[[Any], Any]) -> None:
        source = spark.readStream.format(by).option("kafka.bootstrap.servers", servers)
        source = source.option("assign", f'{{"{topics.mixed}": [0]}}')
        source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)
        counts = source.load().groupBy("value").count().selectExpr("value as key", "count")
        counts = counts.selectExpr("key", "string(count) as value").coalesce(1)
        writer = target(counts.writeStream).outputMode("update").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / by)).start()
        assert query.awaitTermination(120)

    def direct(by: str) -> Callable[[Any], Any]:
        return lambda writer: writer.format(by).options(
            **{"kafka.bootstrap.servers": servers, "topic": names[by]}
        )

    start(JVM, direct(JVM))
    with pytest.raises(PySparkException, match="does not support Update mode"):
        start(OURS, direct(OURS))
    start(
        OURS,
        lambda writer: writer.foreachBatch(lambda frame, _: write(OURS, frame, topic=names[OURS])),
    )

    rows = stored(names[OURS])
    assert rows == stored(names[JVM])
    assert len(rows) > len({row[2] for row in rows})  # both micro-batches have counts


def test_misspelled_sink_column_is_refused(
    spark: Any, write: Callable[..., None], topic: str
) -> None:
    """The JVM connector ignores it."""
    from pyspark.errors import PySparkException

    frame = spark.sql("select 'v' as value, 'x' as keys")
    write(JVM, frame, topic=topic)
    with pytest.raises(PySparkException, match=r"did you mean .key"):
        write(OURS, frame, topic=topic)


def test_save_mode_is_required(spark: Any, cluster: Any, topic: str) -> None:
    """Spark refuses its default, "errorifexists", for sources in Python."""
    from pyspark.errors import PySparkException

    for connector in (JVM, OURS):
        writer = spark.sql("select 'v' as value").write.format(connector)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        writer = writer.option("topic", topic)
        if connector == JVM:
            writer.save()
        else:
            with pytest.raises(PySparkException, match="Append"):
                writer.save()
