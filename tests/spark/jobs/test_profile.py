"""The job profile on a real broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spark_jobs import Bench

import cykafka
from cykafka.spark.jobs import profile


def test_profile_describes_topics(bench: Bench, topic: str, other_topic: str) -> None:
    bench.send(
        topic,
        [
            {"key": f"k{number % 5}", "value": json.dumps({"id": number}), "partition": number % 2,
             "timestamp": 1_700_000_000_000 + number, "headers": [("h", b"1")]}
            for number in range(40)
        ]
        + [{"key": None, "value": None, "partition": 0, "timestamp": 1_700_000_000_000}],
    )  # fmt: skip
    bench.send(other_topic, [{"value": b"\xff", "partition": 3}])

    summary = bench.run("profile", topic_pattern=f"{topic}|{other_topic}", sample=10)

    assert summary.records == 42
    assert summary.ranges == {(topic, 0): (0, 21), (topic, 1): (0, 20), (other_topic, 3): (0, 1)}
    found = json.loads(json.dumps(summary.as_dict()))
    result = found["topics"][topic]
    assert (result["records"], result["partitions"], result["keys"]) == (41, 4, 5)
    # Half of the partitions are empty; they count too.
    assert (result["skew"], found["topics"][other_topic]["skew"]) == (2.05, 4.0)
    assert (result["null_keys"], result["null_values"], result["missing"]) == (1, 1, 0)
    assert (result["first_ms"], result["last_ms"]) == (1_700_000_000_000, 1_700_000_000_039)
    assert result["value_bytes"] == sum(len(json.dumps({"id": n})) for n in range(40))
    assert (result["values"]["kind"], result["values"]["schema"]) == ("JSON objects", "id BIGINT")
    assert result["values"]["sampled"] == 20
    assert result["headers"] == ["h"]
    assert found["topics"][other_topic]["values"]["kind"] == "binary"
    first = next(row for row in found["partitions"] if row["topic"] == topic)
    assert (first["value_min"], first["value_max"]) == (len('{"id": 0}'), len('{"id": 38}'))
    text = "\n".join(summary.lines())
    assert "JSON objects" in text
    assert "█" in text


def test_gaps_are_found(bench: Bench, cluster: Any, unique: Any) -> None:
    name = unique("gaps")
    cluster.create_topic(name, 1)
    # Each transaction marker takes an offset: 0-2, marker, 4-6, marker, 8-9, marker.
    config = {"bootstrap.servers": bench.servers, "transactional.id": name}
    with cykafka.Producer(config) as producer:
        producer.init_transactions(30)
        for count in (3, 3, 2):
            producer.begin_transaction()
            for number in range(count):
                producer.produce(name, str(number), partition=0)
            producer.commit_transaction(30)
    bench.send(name, [{"value": b"x", "partition": 0}])

    summary = bench.run("profile", topics=name, sample=0)

    (row,) = summary.details["partitions"]
    assert (row["records"], row["first_offset"], row["last_offset"]) == (9, 0, 11)
    assert (row["missing"], row["gaps"], row["largest_gap"]) == (3, 3, 1)
    assert row["first_gaps"] == [[3, 3], [7, 7], [10, 10]]
    assert "3 offsets are missing in 3 gaps, the largest of 1: 3-3, 7-7, 10-10" in "\n".join(
        summary.lines()
    )


def test_an_empty_topic_has_a_profile(bench: Bench, topic: str) -> None:
    summary = bench.run("profile", topics=topic)

    assert (summary.records, summary.lines()[-1]) == (0, "  no records")
    found = summary.details["topics"][topic]
    assert (found["partitions"], found["records"], found["skew"]) == (4, 0, None)
    assert len(summary.details["partitions"]) == 4


def test_profile_succeeds_if_retention_deletes_records_meanwhile(
    bench: Bench, topic: str, delete_before: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(topic, 20)
    keys_of_topics = profile._keys_of_topics

    def late(*given: Any) -> Any:
        delete_before(topic, 0, 15)
        return keys_of_topics(*given)

    monkeypatch.setattr(profile, "_keys_of_topics", late)

    summary = bench.run("profile", topics=topic)

    assert summary.records == 80
    assert summary.details["topics"][topic]["values"]["sampled"] == 65


def test_times_that_spark_and_python_do_not_have_are_shown(
    bench: Bench, cluster: Any, unique: Any
) -> None:
    name = unique("far")
    cluster.create_topic(
        name, 2, config={"retention.ms": -1, "message.timestamp.after.max.ms": 2**63 - 1}
    )
    bench.send(name, [{"value": b"x", "partition": partition, "timestamp": at} for partition, at in
                      ((0, 1_000), (0, 1_700_000_000_000_000), (1, 10**16))])  # fmt: skip

    summary = bench.run("profile", topics=name)

    found = summary.details["topics"][name]
    assert (found["first_ms"], found["last_ms"]) == (1_000, 1_700_000_000_000_000)
    assert (found["records"], found["no_times"]) == (3, 1)
    text = "\n".join(summary.lines())
    assert "1,700,000,000,000,000 ms" in text
    assert f"{name}: 1 record(s) have no time, or a time outside Spark's range" in text


def test_large_values_are_not_sampled(bench: Bench, topic: str) -> None:
    large = json.dumps({"id": 1, "large": "x" * 70_000})
    bench.send(topic, [{"value": value, "partition": 0} for value in
                       (large, '{"id": 2}', '{"id": 3}', None)])  # fmt: skip

    found = bench.run("profile", topics=topic).details["topics"][topic]

    assert (found["records"], found["values"]["sampled"]) == (4, 3)
    assert found["values"]["schema"] == "id BIGINT"


def test_a_part_of_a_topic_is_profiled(bench: Bench, topic: str) -> None:
    bench.fill(topic, 10)
    window = {"source__startingOffsets": json.dumps({topic: {"0": 4, "1": -2, "2": 10, "3": 10}})}

    summary = bench.run("profile", topics=topic, **window)

    assert summary.ranges == {(topic, 0): (4, 10), (topic, 1): (0, 10)}
    assert summary.details["topics"][topic]["values"]["kind"] == "text"
