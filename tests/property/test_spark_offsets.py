"""Properties of all offsets and ranges."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from cykafka.spark.source.offsets import (
    PartitionRange,
    format_offsets,
    pack,
    parse_offsets,
    rate_limit,
    split,
    take_start,
    with_start,
)

topics = st.text("abc.-_", min_size=1, max_size=3)
partitions = st.tuples(topics, st.integers(0, 5))
offsets = st.dictionaries(partitions, st.integers(0, 2**62), max_size=8)
counts = st.one_of(st.none(), st.integers(1, 50))


@st.composite
def ranges(draw: st.DrawFn) -> list[PartitionRange]:
    made = []
    for topic, number in sorted(draw(st.sets(partitions, max_size=8))):
        start = draw(st.integers(0, 10**6))
        made.append(PartitionRange(topic, number, start, start + draw(st.integers(0, 1000))))
    return made


def covered(pieces: list[PartitionRange]) -> set[tuple[str, int, int]]:
    return {
        (piece.topic, piece.partition, at)
        for piece in pieces
        for at in range(piece.start, piece.end)
    }


@given(offsets, offsets)
def test_offsets_survive_their_json(end: dict, start: dict) -> None:  # type: ignore[type-arg]
    assert parse_offsets(json.dumps(format_offsets(end)), "x") == end
    rest, carried = take_start(json.loads(json.dumps(with_start(end, start))))
    assert parse_offsets(rest, "x") == end
    assert carried == start


@given(ranges(), counts, counts)
def test_split_neither_loses_nor_duplicates_offsets(
    whole: list[PartitionRange], least: int | None, most: int | None
) -> None:
    pieces = split(whole, least, most)

    assert sum(piece.size for piece in pieces) == sum(item.size for item in whole)
    assert covered(pieces) == covered(whole)
    assert all(piece.size > 0 for piece in pieces)
    if most is not None:
        assert all(piece.size <= most for piece in pieces)


@given(ranges(), counts, counts, st.integers(1, 2000))
def test_tasks_have_every_range_once_and_each_partition_at_most_once(
    whole: list[PartitionRange], least: int | None, most: int | None, per_task: int
) -> None:
    pieces = split(whole, least, most)
    tasks = pack(pieces, per_task, least)

    assert [item for task in tasks for item in task] == pieces
    for task in tasks:
        assert len({(item.topic, item.partition) for item in task}) == len(task)
        assert len(task) == 1 or sum(item.size for item in task) <= per_task
    if least is not None:
        assert len(tasks) >= min(least, len(pieces))


@given(st.integers(1, 10**6), ranges())
def test_rate_limit_advances_within_its_bounds(limit: int, whole: list[PartitionRange]) -> None:
    start = {(item.topic, item.partition): item.start for item in whole}
    end = {(item.topic, item.partition): item.end for item in whole}

    limited = rate_limit(limit, start, end)

    assert limited.keys() == end.keys()
    assert all(start[item] <= at <= end[item] for item, at in limited.items())
    taken = sum(limited[item] - start[item] for item in limited)
    left = sum(end[item] - limited[item] for item in limited)
    assert taken <= limit + len(limited)
    # Every partition with records advances, so that a limited stream ends.
    assert all(limited[item] > start[item] for item in end if end[item] > start[item])
    assert left == 0 or taken > 0
