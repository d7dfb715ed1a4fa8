"""Intended differences from Spark's own Kafka connector, as listed in docs/spark.md."""

from __future__ import annotations

from collections.abc import Callable
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
        "a batch checks options of streams; the JVM ignores them",
        {"subscribe": "SHRUNK", "maxOffsetsPerTrigger": "x"},
        30,
        None,
    ),
)
STREAMS = (
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


@pytest.mark.parametrize("difference", BATCHES, ids=lambda each: each.what)
def test_batch(read: Callable[..., Any], topics: Any, difference: Difference) -> None:
    given = asked(difference.options, topics)
    found = [outcome(lambda by=by: len(read(by, **given).collect())) for by in (JVM, OURS)]

    assert found == [difference.theirs, difference.ours]


@pytest.mark.parametrize("difference", STREAMS, ids=lambda each: each.what)
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
    """The JVM makes a task for each range. In Python a task costs more than 1,000 records."""
    tasks = [
        read(by, subscribe=f"{topics.mixed},{topics.shrunk}").rdd.getNumPartitions()
        for by in (JVM, OURS)
    ]

    assert tasks == [5, 1]


def write(connector: str, query: str, spark: Any, cluster: Any, **options: str) -> None:
    writer = spark.sql(query).write.format(connector).mode("append").options(**options)
    writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).save()


def test_misspelled_sink_column_is_refused(spark: Any, cluster: Any, topic: str) -> None:
    """The JVM connector ignores it."""
    from pyspark.errors import PySparkException

    query = "select 'v' as value, 'x' as keys"
    write(JVM, query, spark, cluster, topic=topic)
    with pytest.raises(PySparkException, match=r"did you mean .key"):
        write(OURS, query, spark, cluster, topic=topic)


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
