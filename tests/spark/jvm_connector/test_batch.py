"""Batches have the rows of Spark's own Kafka connector, for each option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

T0 = 1_700_000_000_000
JVM, OURS = "kafka", "cykafka"
LATEST, EARLIEST = -1, -2

Same = Callable[..., list[Any]]


def at_each(partitions: int, value: int) -> dict[str, int]:
    return {str(number): value for number in range(partitions)}


def offsets(rows: list[Any], partition: int = 0) -> list[int]:
    return [row.offset for row in rows if row.partition == partition]


# -- records


@pytest.mark.parametrize("headers", ["false", "true"])
def test_every_kind_of_key_value_and_headers(same: Same, topics: Any, headers: str) -> None:
    rows = same(subscribe=topics.mixed, includeHeaders=headers, nullHeaders="true")

    assert len(rows) == 121
    assert ("headers" in rows[0]) == (headers == "true")


def test_assign(same: Same, topics: Any) -> None:
    rows = same(assign={topics.mixed: [1, 3], topics.shrunk: [0]})

    assert {(row.topic, row.partition) for row in rows} == {(topics.mixed, 1), (topics.shrunk, 0)}


def test_subscribe_to_several_with_blanks(same: Same, topics: Any) -> None:
    rows = same(subscribe=f"{topics.stamped} , {topics.shrunk}, {topics.empty}")

    assert {row.topic for row in rows} == {topics.stamped, topics.shrunk}


def test_subscribe_pattern(same: Same, topics: Any) -> None:
    rows = same(subscribePattern=f"{topics.prefix}-(stam|shr|pen).*")

    assert {row.topic for row in rows} == {topics.stamped, topics.shrunk, topics.pending}


def test_empty_topic(same: Same, topics: Any) -> None:
    assert same(subscribe=topics.empty) == []


def test_times_of_the_broker(same: Same, topics: Any) -> None:
    rows = same(subscribe=topics.stamped)

    assert {row.timestampType for row in rows} == {1}


def test_compacted_topic(same: Same, topics: Any) -> None:
    rows = same(subscribe=topics.compacted, startingOffsets={topics.compacted: {"0": 3}})

    assert offsets(rows)[0] == 54


def test_every_codec(same: Same, topics: Any) -> None:
    rows = same(subscribe=topics.codecs)

    assert {(row.partition, bytes(row.key)) for row in rows} == {
        (number, codec)
        for number, codec in enumerate((b"none", b"gzip", b"snappy", b"lz4", b"zstd"))
    }


def test_values_larger_than_a_fetch(same: Same, topics: Any) -> None:
    rows = same(subscribe=topics.large)

    assert [len(row.value) for row in rows] == [5_000_000] * 3


@pytest.mark.parametrize(
    ("level", "found"), [(None, 25), ("read_uncommitted", 25), ("read_committed", 15)]
)
def test_transactions(same: Same, topics: Any, level: str | None, found: int) -> None:
    options = {} if level is None else {"kafka.isolation.level": level}

    assert len(same(subscribe=topics.committed, **options)) == found


@pytest.mark.parametrize(("level", "found"), [("read_uncommitted", 10), ("read_committed", 5)])
def test_pending_transaction(same: Same, topics: Any, level: str, found: int) -> None:
    assert len(same(subscribe=topics.pending, kafka__isolation__level=level)) == found


def test_missing_partition(same: Same, topics: Any) -> None:
    rows = same(assign={topics.shrunk: [0, 7]})

    assert {row.partition for row in rows} == {0}


# -- starts and ends


def test_named_offsets(same: Same, topics: Any) -> None:
    rows = same(subscribe=topics.shrunk, startingOffsets="earliest", endingOffsets="latest")

    assert offsets(rows) == list(range(20, 50))


def test_offsets_of_each_partition(same: Same, topics: Any) -> None:
    rows = same(
        subscribe=topics.mixed,
        startingOffsets={topics.mixed: {"0": 10, "1": EARLIEST, "2": 1, "3": 0}},
        endingOffsets={topics.mixed: {"0": 12, "1": LATEST, "2": LATEST, "3": LATEST}},
    )

    assert (offsets(rows), len(offsets(rows, 1)), offsets(rows, 2)) == ([10, 11], 60, [])


def test_offsets_of_several_topics(same: Same, topics: Any) -> None:
    rows = same(
        assign={topics.mixed: [0], topics.shrunk: [0]},
        startingOffsets={topics.mixed: {"0": 58}, topics.shrunk: {"0": 48}},
        endingOffsets={topics.mixed: {"0": LATEST}, topics.shrunk: {"0": 49}},
    )

    assert [row.offset for row in rows] == [58, 59, 48]


def test_equal_offsets_read_no_records(same: Same, topics: Any) -> None:
    ends = {topics.mixed: at_each(4, 0)}

    assert same(subscribe=topics.mixed, startingOffsets=ends, endingOffsets=ends) == []


def test_offsets_in_gaps_and_markers(same: Same, topics: Any) -> None:
    rows = same(
        subscribe=topics.committed,
        startingOffsets={topics.committed: {"0": 5}},
        endingOffsets={topics.committed: {"0": 17}},
        kafka__isolation__level="read_committed",
    )

    assert {bytes(row.value)[:5] for row in rows} == {b"plain"}
    assert len(rows) == 5


@pytest.mark.parametrize("second", [0, 29, 29.5, 58])
def test_starting_timestamp(same: Same, topics: Any, second: float) -> None:
    rows = same(assign={topics.mixed: [0, 1]}, startingTimestamp=T0 + int(second * 1000))

    assert min(row.timestamp.timestamp() for row in rows) * 1000 >= T0 + second * 1000


def test_ending_timestamp(same: Same, topics: Any) -> None:
    rows = same(subscribe=topics.mixed, endingTimestamp=T0 + 10_001)

    assert (offsets(rows)[-1], offsets(rows, 1)[-1], offsets(rows, 2)) == (10, 9, [0])


def test_ending_timestamp_after_the_last_record(same: Same, topics: Any) -> None:
    assert len(same(subscribe=topics.mixed, endingTimestamp=T0 + 10**9)) == 121


def test_timestamps_of_each_partition(same: Same, topics: Any) -> None:
    rows = same(
        assign={topics.mixed: [0, 1]},
        startingOffsetsByTimestamp={topics.mixed: {"0": T0 + 5_000, "1": T0}},
        endingOffsetsByTimestamp={topics.mixed: {"0": T0 + 7_000, "1": T0 + 10**9}},
    )

    assert (offsets(rows), len(offsets(rows, 1))) == ([5, 6], 60)


def test_timestamp_overrides_timestamps_and_timestamps_override_offsets(
    same: Same, topics: Any
) -> None:
    two = same(
        assign={topics.mixed: [0]},
        startingOffsets={topics.mixed: {"0": 50}},
        startingOffsetsByTimestamp={topics.mixed: {"0": T0 + 20_000}},
        endingOffsets={topics.mixed: {"0": 55}},
        endingOffsetsByTimestamp={topics.mixed: {"0": T0 + 30_000}},
    )
    assert offsets(two) == list(range(20, 30))

    three = same(
        assign={topics.mixed: [0]},
        startingTimestamp=T0 + 10_000,
        startingOffsets={topics.mixed: {"0": 50}},
        startingOffsetsByTimestamp={topics.mixed: {"0": T0 + 20_000}},
        endingTimestamp=T0 + 12_000,
        endingOffsets={topics.mixed: {"0": 55}},
        endingOffsetsByTimestamp={topics.mixed: {"0": T0 + 30_000}},
    )
    assert offsets(three) == [10, 11]


def test_start_later_than_the_last_record_is_the_end(same: Same, topics: Any) -> None:
    rows = same(
        subscribe=topics.mixed,
        startingTimestamp=T0 + 50_000,
        startingOffsetsByTimestampStrategy="latest",
    )

    assert (offsets(rows), offsets(rows, 2)) == (list(range(50, 60)), [])


# -- lost records


def test_start_before_the_first_offset_is_skipped_unless_failondataloss(
    same: Same, topics: Any
) -> None:
    rows = same(
        subscribe=topics.shrunk,
        startingOffsets={topics.shrunk: {"0": 5}},
        failOnDataLoss="false",
    )

    assert offsets(rows) == list(range(20, 50))


def test_end_after_the_last_offset_is_cut_unless_fail_on_data_loss(
    same: Same, topics: Any
) -> None:
    rows = same(
        subscribe=topics.shrunk,
        endingOffsets={topics.shrunk: {"0": 60}},
        failOnDataLoss="false",
        kafkaConsumer__pollTimeoutMs=2000,
    )

    assert offsets(rows) == list(range(20, 50))


# -- number of tasks


@pytest.mark.parametrize(
    "options",
    [
        {"minPartitions": 7},
        {"maxRecordsPerPartition": 7},
        {"maxRecordsPerPartition": 25, "minPartitions": 9},
    ],
    ids=str,
)
def test_split_into_tasks(same: Same, topics: Any, options: dict[str, int]) -> None:
    assert len(same(subscribe=topics.mixed, **options)) == 121


def test_more_tasks_than_records(same: Same, topics: Any) -> None:
    assert len(same(subscribe=topics.stamped, minPartitions=9)) == 5


# -- options without effect on the rows


@pytest.mark.parametrize(
    "options",
    [
        {
            "kafka.group.id": "mine",
            "kafka.client.id": "mine",
            "kafka.fetch.min.bytes": "1",
            "kafka.receive.buffer.bytes": "65536",
            "kafka.max.poll.records": "3",
            "kafka.check.crcs": "true",
            "kafka.session.timeout.ms": "45000",
        },
        {
            "groupIdPrefix": "mine",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "20",
            "kafkaConsumer.pollTimeoutMs": "60000",
            "kafka.request.timeout.ms": "30000",
            "kafka.max.partition.fetch.bytes": "1000",
        },
        {"startingoffsets": "EARLIEST", "EndingOffsets": "Latest"},
    ],
    ids=["clients", "groups and retries", "upper and lower case"],
)
def test_other_options(same: Same, topics: Any, options: dict[str, str]) -> None:
    assert len(same(SUBSCRIBE=topics.mixed, **options)) == 121
