"""Offsets and calculations with them."""

from __future__ import annotations

import json

import pytest

from cykafka.spark.source.offsets import (
    PartitionRange,
    divide,
    format_offsets,
    pack,
    parse_offsets,
    parse_partitions,
    rate_limit,
    split,
    take_start,
    with_start,
)


def part(name: str, start: int, end: int, partition: int = 0) -> PartitionRange:
    return PartitionRange(name, partition, start, end)


def test_offsets_are_written_as_the_jvm_does() -> None:
    offsets = {("b", 10): 3, ("b", 2): 2**62, ("a", 0): 0}

    text = json.dumps(format_offsets(offsets), separators=(",", ":"))

    assert text == '{"a":{"0":0},"b":{"2":4611686018427387904,"10":3}}'
    assert parse_offsets(text, "x") == offsets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "earliest",
        "[]",
        "1",
        '{"a":1}',
        '{"a":[0]}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"0":"1"}}',
        '{"a":{"0":1.5}}',
        '{"a":{"0":true}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":9223372036854775808}}',
        '{"a":{"2147483648":1}}',
    ],
)
def test_offsets_of_another_form_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"option startingOffsets: .*topicA"):
        parse_offsets(text, "option startingOffsets")


def test_repeated_partitions_are_merged() -> None:
    assert parse_partitions('{"b":[1,0,1],"a":[2]}', "x") == (("a", 2), ("b", 0), ("b", 1))


@pytest.mark.parametrize("text", ["{}", '{"a":[]}', '{"a":{"0":1}}', '{"a":["x"]}', '{"a":[-1]}'])
def test_partitions_of_another_form_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="option assign: "):
        parse_partitions(text, "option assign")


def test_end_of_the_first_batch_contains_its_start() -> None:
    end = with_start({("a", 0): 5}, {("a", 0): 3})

    again = json.loads(json.dumps(end))

    assert take_start(again) == ({"a": {"0": 5}}, {("a", 0): 3})
    assert take_start({"a": {"0": 5}}) == ({"a": {"0": 5}}, None)
    # A reader without knowledge of it fails, instead of taking it for a topic.
    with pytest.raises(ValueError, match="the first batch began at"):
        parse_offsets(again, "x")


def test_rate_limit_is_proportional_and_starves_no_partition() -> None:
    start = {("a", 0): 0, ("a", 1): 100, ("a", 2): 0}
    end = {("a", 0): 90, ("a", 1): 109, ("a", 2): 1}

    assert rate_limit(50, start, end) == {("a", 0): 45, ("a", 1): 104, ("a", 2): 1}
    assert rate_limit(1000, start, end) == end
    assert rate_limit(1, start, end) == {("a", 0): 1, ("a", 1): 101, ("a", 2): 1}


def test_rate_limit_ignores_partitions_without_start_or_records() -> None:
    end = {("a", 0): 90, ("a", 1): 5, ("a", 2): 7}

    assert rate_limit(10, {("a", 0): 0, ("a", 1): 9}, end) == {**end, ("a", 0): 10}


def test_rate_limit_of_huge_offsets_stays_in_range() -> None:
    end = {("a", 0): 2**63 - 1}

    assert rate_limit(2**62, {("a", 0): 2**63 - 100}, end) == end


def test_ranges_are_divided_evenly() -> None:
    assert [each.size for each in divide(part("a", 5, 15), 3)] == [3, 3, 4]
    assert [each.size for each in divide(part("a", 5, 7), 3)] == [1, 1]


def test_max_records_bound_every_range() -> None:
    pieces = split([part("a", 0, 1000), part("b", 0, 100)], max_records=300)

    assert [each.size for each in pieces] == [250, 250, 250, 250, 100]
    assert all(each.size <= 300 for each in pieces)


def test_min_partitions_divide_the_large_ranges_only() -> None:
    ranges = [part("a", 0, 1), part("b", 0, 1), part("c", 0, 10_000)]

    assert split(ranges, 6) == [
        part("a", 0, 1),
        part("b", 0, 1),
        part("c", 0, 2500),
        part("c", 2500, 5000),
        part("c", 5000, 7500),
        part("c", 7500, 10_000),
    ]
    assert split(ranges, 3) == ranges
    assert split([part("a", 5, 5), part("b", 5, 3)], 4) == []


def test_small_ranges_share_a_task() -> None:
    ranges = [part("a", 0, 4, number) for number in range(5)]

    assert [len(task) for task in pack(ranges, 10)] == [2, 2, 1]
    assert [len(task) for task in pack(ranges, 3)] == [1, 1, 1, 1, 1]
    assert [len(task) for task in pack(ranges, 100, min_tasks=5)] == [1, 1, 1, 1, 1]
    assert len(pack(ranges, 100, min_tasks=3)) >= 3


def test_parts_of_one_partition_never_share_a_task() -> None:
    ranges = divide(part("a", 0, 10), 5)

    assert [len(task) for task in pack(ranges, 100)] == [1, 1, 1, 1, 1]
