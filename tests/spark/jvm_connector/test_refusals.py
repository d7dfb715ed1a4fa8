"""Refusals of Spark's own Kafka connector: cykafka also refuses, and names the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

T0 = 1_700_000_000_000
JVM, OURS = "kafka", "cykafka"

# The options, and the word that cykafka's error must have. TOPIC and SHRUNK stand for topics.
BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing to read": ({}, "subscribe"),
    "two ways": ({"subscribe": "TOPIC", "assign": {"TOPIC": [0]}}, "subscribe"),
    "assign without JSON": ({"assign": "TOPIC"}, "assign"),
    "assign with offsets": ({"assign": {"TOPIC": {"0": 1}}}, "assign"),
    "subscribe to nothing": ({"subscribe": ""}, "subscribe"),
    "pattern of nothing": ({"subscribePattern": ""}, "subscribePattern"),
    "invalid pattern": ({"subscribePattern": "(a"}, "subscribePattern"),
    "starting latest": ({"startingOffsets": "latest"}, "startingOffsets"),
    "starting with a latest": (
        {"startingOffsets": {"TOPIC": {"0": -1, "1": 0, "2": 0, "3": 0}}},
        "startingOffsets",
    ),
    "ending earliest": ({"endingOffsets": "earliest"}, "endingOffsets"),
    "ending with an earliest": (
        {"endingOffsets": {"TOPIC": {"0": -2, "1": 0, "2": 0, "3": 0}}},
        "endingOffsets",
    ),
    "starting word": ({"startingOffsets": "sometime"}, "startingOffsets"),
    "invalid offset": ({"startingOffsets": {"TOPIC": {"0": "a"}}}, "startingOffsets"),
    "invalid partition": ({"startingOffsets": {"TOPIC": {"a": 1}}}, "startingOffsets"),
    "missing partition": ({"startingOffsets": {"TOPIC": {"0": 1}}}, "startingOffsets"),
    "extra partition": (
        {"startingOffsets": {"TOPIC": dict.fromkeys("01234", 0)}},
        "startingOffsets",
    ),
    "ending with a missing partition": ({"endingOffsets": {"TOPIC": {"0": 1}}}, "endingOffsets"),
    "invalid timestamp": ({"startingTimestamp": "now"}, "startingTimestamp"),
    "timestamps without JSON": ({"startingOffsetsByTimestamp": "1"}, "startingOffsetsByTimestamp"),
    "timestamp after the last record": ({"startingTimestamp": T0 + 10**9}, "startingTimestamp"),
    "timestamp after the last record of some": (
        {"startingOffsetsByTimestamp": {"TOPIC": {"0": T0, "1": T0 + 10**9, "2": T0, "3": T0}}},
        "startingOffsetsByTimestamp",
    ),
    "unknown strategy": (
        {"startingTimestamp": T0, "startingOffsetsByTimestampStrategy": "maybe"},
        "startingOffsetsByTimestampStrategy",
    ),
    "minPartitions 0": ({"minPartitions": 0}, "minPartitions"),
    "invalid minPartitions": ({"minPartitions": "many"}, "minPartitions"),
    "maxRecordsPerPartition 0": ({"maxRecordsPerPartition": 0}, "maxRecordsPerPartition"),
    "failOnDataLoss maybe": ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
    "includeHeaders maybe": ({"includeHeaders": "maybe"}, "includeHeaders"),
    "auto.offset.reset": ({"kafka.auto.offset.reset": "earliest"}, "auto.offset.reset"),
    "enable.auto.commit": ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
    "interceptor.classes": ({"kafka.interceptor.classes": "a.B"}, "interceptor.classes"),
    "key.deserializer": ({"kafka.key.deserializer": "a.B"}, "key.deserializer"),
    "value.deserializer": ({"kafka.value.deserializer": "a.B"}, "value.deserializer"),
    "isolation.level": ({"kafka.isolation.level": "committed"}, "isolation.level"),
    "security.protocol": ({"kafka.security.protocol": "TLS"}, "security.protocol"),
    "no such topic": ({"subscribe": "no-such-topic"}, "no-such-topic"),
    "start before the first offset": (
        {"subscribe": "SHRUNK", "startingOffsets": {"SHRUNK": {"0": 5}}},
        "SHRUNK",
    ),
    "start after the end": (
        {"subscribe": "SHRUNK", "startingOffsets": {"SHRUNK": {"0": 60}}},
        "SHRUNK",
    ),
    "end before the start": (
        {
            "subscribe": "SHRUNK",
            "startingOffsets": {"SHRUNK": {"0": 40}},
            "endingOffsets": {"SHRUNK": {"0": 30}},
        },
        "from 40 to 30",
    ),
    "end time before the start": (
        {"assign": {"TOPIC": [0]}, "startingTimestamp": T0 + 50_000, "endingTimestamp": T0},
        "from 50 to 0",
    ),
    "end before the first offset": (
        {"subscribe": "SHRUNK", "endingOffsets": {"SHRUNK": {"0": 10}}},
        "begins at 20",
    ),
    "end after the last offset": (
        {
            "subscribe": "SHRUNK",
            "endingOffsets": {"SHRUNK": {"0": 60}},
            "kafkaConsumer.pollTimeoutMs": "1000",
        },
        "SHRUNK",
    ),
}
SHORT_LIVED = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}

STREAMS: dict[str, tuple[dict[str, Any], str]] = {
    "endingOffsets": ({"endingOffsets": "latest"}, "endingOffsets"),
    "endingOffsetsByTimestamp": (
        {"endingOffsetsByTimestamp": {"TOPIC": dict.fromkeys("0123", T0)}},
        "endingOffsetsByTimestamp",
    ),
    "nothing to read": ({}, "subscribe"),
    "starting word": ({"startingOffsets": "sometime"}, "startingOffsets"),
    "invalid maxOffsetsPerTrigger": ({"maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger"),
    "minOffsetsPerTrigger over the maximum": (
        {"minOffsetsPerTrigger": 10, "maxOffsetsPerTrigger": 5},
        "minOffsetsPerTrigger",
    ),
    "maxTriggerDelay": ({"minOffsetsPerTrigger": 5, "maxTriggerDelay": "soon"}, "maxTriggerDelay"),
    "auto.offset.reset": ({"kafka.auto.offset.reset": "earliest"}, "auto.offset.reset"),
}


def fill_in(value: Any, topics: Any) -> Any:
    """Replace the placeholders of topics by their names."""
    if isinstance(value, dict):
        return {fill_in(key, topics): fill_in(inner, topics) for key, inner in value.items()}
    names = {"TOPIC": topics.mixed, "SHRUNK": topics.shrunk}
    return names.get(value, value) if isinstance(value, str) else value


def asked(options: dict[str, Any], topics: Any, name: str) -> dict[str, Any]:
    options = fill_in(options, topics)
    if not name.startswith(("nothing", "assign", "subscribe", "pattern")) and not any(
        key in options for key in ("subscribe", "assign", "subscribePattern")
    ):
        options = {"subscribe": topics.mixed, **options}
    return options


@pytest.fixture
def refused() -> Callable[[Callable[[], object]], str]:
    """Return the error text of a refused action."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    def refused(action: Callable[[], object]) -> str:
        with pytest.raises((PySparkException, Py4JJavaError)) as raised:
            action()
        return str(raised.value)

    return refused


@pytest.mark.parametrize("name", BATCHES)
def test_batch_is_refused(
    read: Callable[..., Any], topics: Any, refused: Callable[..., str], name: str
) -> None:
    options, names = BATCHES[name]
    given = {**SHORT_LIVED, **asked(options, topics, name)}

    refused(lambda: read(JVM, **given).collect())
    assert fill_in(names, topics) in refused(lambda: read(OURS, **given).collect())


@pytest.mark.parametrize("name", STREAMS)
def test_stream_is_refused(
    stream: Callable[..., Any], topics: Any, refused: Callable[..., str], name: str
) -> None:
    options, names = STREAMS[name]
    given = asked(options, topics, name)

    refused(lambda: stream("theirs", **given).run(JVM))
    assert names in refused(lambda: stream("ours", **given).run(OURS))
