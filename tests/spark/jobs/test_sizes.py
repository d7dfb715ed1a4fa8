"""Records of the size that Java's producer and the brokers' defaults allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S
from spark_jobs import Bench

VALUE = b"x" * 1_048_000


def values(bench: Bench, topic: str) -> list[bytes]:
    return [message.value() for message in bench.read(topic)]


@pytest.fixture
def large(bench: Bench, topic: str) -> str:
    """A topic with a large record, which the sink has written as a batch."""
    frame = bench.spark.createDataFrame([(b"k", VALUE)], "key binary, value binary")
    writer = frame.write.format("cykafka").mode("append").option("topic", topic)
    writer.option("kafka.bootstrap.servers", bench.servers).save()
    assert values(bench, topic) == [VALUE]
    return topic


def test_a_stream_writes_it(bench: Bench, large: str, other_topic: str, checkpoint: str) -> None:
    servers = {"kafka.bootstrap.servers": bench.servers}
    reader = bench.spark.readStream.format("cykafka").options(**servers)
    rows = reader.options(subscribe=large, startingOffsets="earliest").load()
    writer = rows.select("key", "value").writeStream.format("cykafka").options(**servers)
    writer = writer.options(topic=other_topic, checkpointLocation=checkpoint)
    query = writer.trigger(availableNow=True).start()

    assert query.awaitTermination(WAIT_S)
    assert values(bench, other_topic) == [VALUE]


@pytest.mark.parametrize("way", [{}, {"transform": "SELECT value FROM records"}])
def test_mirror_copies_it(
    bench: Bench, large: str, other_topic: str, checkpoint: str, way: dict[str, str]
) -> None:
    bench.run("mirror", topics=large, to=other_topic, checkpoint=checkpoint, **way)

    assert values(bench, other_topic) == [VALUE]


@pytest.mark.parametrize("way", [{}, {"where": "true"}])
def test_replay_sends_it(
    bench: Bench, large: str, other_topic: str, places: dict[str, str], way: dict[str, str]
) -> None:
    bench.run("archive", topics=large, file_names="deterministic", **places)
    bench.run("replay", path=places["path"], to=other_topic, **way)

    assert values(bench, other_topic) == [VALUE]


def test_it_becomes_a_dead_letter_and_goes_back(
    bench: Bench, large: str, other_topic: str, dead: str, tmp_path: Path
) -> None:
    bench.run("mirror", topics=large, to=other_topic, dead_letter_topic=dead, schema="id BIGINT",
              checkpoint=str(tmp_path / "mirror"))  # fmt: skip
    bench.run("redrive", topics=dead, checkpoint=str(tmp_path / "redrive"))

    assert (values(bench, other_topic), values(bench, dead)) == ([], [VALUE])
    assert values(bench, large) == [VALUE, VALUE]


def test_the_limit_of_the_topic_is_the_only_one(
    bench: Bench, cluster: Any, unique: Any, checkpoint: str
) -> None:
    """What copies records has no limit of its own."""
    topic, other = unique("huge"), unique("huge")
    for name in (topic, other):
        cluster.create_topic(name, 1, config={"max.message.bytes": 10_000_000})
    frame = bench.spark.createDataFrame([(5 * VALUE,)], "value binary")
    writer = frame.write.format("cykafka").mode("append").option("topic", topic)
    writer = writer.option("kafka.max.request.size", "10000000")
    writer.option("kafka.bootstrap.servers", bench.servers).save()

    bench.run("mirror", topics=topic, to=other, checkpoint=checkpoint)

    assert values(bench, other) == [5 * VALUE]
