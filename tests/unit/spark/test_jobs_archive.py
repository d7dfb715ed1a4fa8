"""Files of an archive with names that tell their offsets: what is in the way of a batch."""

from __future__ import annotations

from typing import Any

import pytest

from cykafka.spark.jobs.archive import Files, _File


class Memory:
    """A folder that remembers names."""

    def __init__(self, *names: str) -> None:
        self.there = set(names)

    def names(self, folder: str) -> list[str]:
        return [name.removeprefix(f"{folder}/") for name in sorted(self.there)
                if name.startswith(f"{folder}/")]  # fmt: skip

    def delete(self, name: str) -> None:
        self.there.remove(name)


def files(folder: Memory) -> Files:
    made: Any = object.__new__(Files)
    made._folder, made._found = folder, {}
    return made  # type: ignore[no-any-return]


def batch(*spans: tuple[int, int], partition: int = 0, topic: str = "t-1") -> set[_File]:
    return {
        _File("d", f"{topic}-{partition}-{start}-{end}.parquet", topic, partition, start, end)
        for start, end in spans
    }


def test_what_is_contained_in_a_batch_goes_and_all_else_stays() -> None:
    others = {"d/t-1-0-0-9.parquet", "d/t-1-0-30-30.parquet", "d/t-1-1-10-15.parquet",
              "d/t-0-10-15.parquet", "d/notes.txt", "e/t-1-0-10-15.parquet"}  # fmt: skip
    folder = Memory("d/t-1-0-10-15.parquet", "d/t-1-0-16-29.parquet", *others)

    files(folder)._clear(batch((10, 29)))

    assert folder.there == others


def test_what_has_the_same_name_is_left_to_be_replaced() -> None:
    folder = Memory("d/t-1-0-10-19.parquet")

    files(folder)._clear(batch((10, 19)))

    assert folder.there == {"d/t-1-0-10-19.parquet"}


@pytest.mark.parametrize("name", ["d/t-1-0-5-15.parquet", "d/t-1-0-15-25.parquet",
                                  "d/t-1-0-0-99.parquet"])  # fmt: skip
def test_what_overlaps_a_batch_in_part_is_an_error(name: str) -> None:
    folder = Memory(name)

    with pytest.raises(RuntimeError, match=f"{name} holds offsets"):
        files(folder)._clear(batch((10, 19)))

    assert folder.there == {name}


def test_a_refusal_leaves_the_archive_as_it_is() -> None:
    there = {"d/t-1-0-10-14.parquet", "d/t-1-0-15-30.parquet"}
    folder = Memory(*there)

    with pytest.raises(RuntimeError, match="holds offsets"):
        files(folder)._clear(batch((10, 19)))

    assert folder.there == there


def test_a_later_batch_heeds_what_was_there_before_the_run() -> None:
    folder = Memory("d/t-1-0-0-9.parquet", "d/t-1-0-10-12.parquet", "d/t-1-1-0-3.parquet")
    made = files(folder)

    made._clear(batch((0, 9)))
    folder.there.add("d/t-1-1-50-59.parquet")  # what the run itself has written
    made._clear(batch((10, 19)))
    made._clear(batch((0, 59), partition=1))

    assert folder.there == {"d/t-1-0-0-9.parquet", "d/t-1-1-50-59.parquet"}
