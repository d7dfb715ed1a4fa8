"""Statistics: librdkafka's JSON as typed objects."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cykafka import stats


def parsed(**fields: Any) -> stats.Statistics:
    return stats.parse(json.dumps(fields))


def test_parse_gives_the_objects_and_their_units() -> None:
    window = {"min": 1, "max": 9, "avg": 5, "sum": 20, "cnt": 4, "p50": 5, "p99_99": 9}
    statistics = parsed(
        name="orders#consumer-3",
        age=2_500_000,
        brokers={"b:9092/2": {"nodeid": 2, "rtt": window, "req": {"Fetch": 7}, "txidle": -1}},
        topics={
            "orders": {
                "age": 12,
                "batchcnt": window,
                "partitions": {"-1": {"partition": -1}, "3": {"consumer_lag": 8, "desired": True}},
            }
        },
        cgrp={"join_state": "steady", "rebalance_cnt": 2},
    )

    assert statistics.age_us == 2_500_000
    broker = statistics.brokers["b:9092/2"]
    assert (broker.id, broker.rtt_us.mean, broker.rtt_us.count) == (2, 5, 4)
    assert broker.requests == {"Fetch": 7}
    topic = statistics.topics["orders"]
    assert (topic.age_ms, topic.batch_count.p99_99) == (12, 9)
    assert set(topic.partitions) == {-1, 3}
    assert topic.partitions[3].lag == 8
    assert topic.partitions[3].desired
    assert statistics.group == stats.ConsumerGroup(join_state="steady", rebalances=2)
    assert statistics.producer_id is None


def test_parse_skips_fields_of_later_versions() -> None:
    assert parsed(name="x", quantum={"state": [1, None]}) == stats.Statistics(name="x")


@pytest.mark.parametrize("text", ['say "no"', r"DOMAIN\user", "two\nlines", '"', ""])
@pytest.mark.parametrize("encode", [str, str.encode])
def test_parse_reads_texts_that_librdkafka_does_not_escape(text: str, encode: Any) -> None:
    # As rd_kafka_stats_emit_all() writes them.
    statistics = stats.parse(
        encode(
            f'{{ "name": "{text}#consumer-1", "client_id": "{text}", "type": "consumer", "ts":5, '
            '"brokers":{ }, "topics":{ } , "cgrp": { "state": "up", "stateage": 1, '
            f'"join_state": "init", "rebalance_reason": "{text}", "assignment_size": 3 }}, '
            f'"fatal": {{ "error": "{text}", "reason": "{text}", "cnt": 1 }}, "rx":7}}'
        )
    )

    assert statistics == stats.Statistics(
        name=f"{text}#consumer-1",
        client_id=text,
        type="consumer",
        clock_us=5,
        group=stats.ConsumerGroup(
            state="up",
            state_age_ms=1,
            join_state="init",
            rebalance_reason=text,
            assigned_partitions=3,
        ),
        fatal=stats.FatalError(error=text, reason=text, count=1),
        responses_received=7,
    )


def test_parse_takes_bytes() -> None:
    assert stats.parse(b'{"type": "producer"}').type == "producer"


def test_missing_offsets_are_unknown() -> None:
    partition = parsed(topics={"t": {"partitions": {"0": {}}}}).topics["t"].partitions[0]

    assert {partition.committed_offset, partition.high_watermark} == {-1001}
    assert (partition.lag, partition.stored_lag) == (-1, -1)


@pytest.mark.parametrize(
    ("text", "culprit"),
    [("", "truncated"), ("{'a'}", "malformed"), ('{"topics": {"t": {"age": "old"}}}', "age")],
)
def test_parse_of_something_else_names_the_culprit(text: str, culprit: str) -> None:
    with pytest.raises(ValueError, match=f"not librdkafka's statistics.*{culprit}"):
        stats.parse(text)


def test_statistics_cannot_be_changed() -> None:
    statistics = parsed(name="x")

    with pytest.raises(AttributeError):
        statistics.name = "y"  # type: ignore[misc]


@pytest.mark.parametrize("name", [name for name in stats.__all__ if name != "parse"])
def test_every_attribute_states_its_unit(name: str) -> None:
    # A field of librdkafka that is a time has no unit in its name; ours has one.
    times = ("age", "latency", "rtt", "idle", "throttle", "clock", "time")
    for field in msgspec.structs.fields(getattr(stats, name)):
        words = field.name.split("_")
        if any(word in times for word in words):
            assert words[-1] in ("us", "ms", "s"), field.name
