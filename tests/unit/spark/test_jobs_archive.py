"""Files of an archive whose names have offsets: conflicts with a batch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cykafka.spark.jobs.archive.batch_writers import NamedFiles, file_name
from cykafka.spark.jobs.archive.write_files import Staged
from cykafka.spark.jobs.run.checkpoint import Undone, find_undone
from cykafka.spark.source.offsets import START_KEY


class Memory:
    """A folder in memory: names, and the texts of some files."""

    address = "memory:/"

    def __init__(self, *names: str, **texts: str) -> None:
        self.there = {*names, *texts}
        self.texts = texts

    def names(self, folder: str) -> list[str]:
        lead = f"{folder.rstrip('/')}/".lstrip("/")
        return sorted({name.removeprefix(lead).partition("/")[0] for name in self.there
                       if name.startswith(lead)})  # fmt: skip

    def take(self, source: Memory, from_name: str, name: str) -> None:
        source.there.remove(from_name)
        self.there.add(name)

    def delete(self, name: str) -> None:
        self.there.remove(name)

    def read(self, name: str) -> str:
        return self.texts[name]


def files(
    folder: Memory, again: tuple[int, int] | None = None, number: int = 7, topic: str = "t-1"
) -> NamedFiles:
    """The NamedFiles of a run; `again` has the offsets that batch 7 planned before a crash."""
    made: Any = object.__new__(NamedFiles)
    made._folder, made._found, made._made = folder, {}, set()
    spans = {} if again is None else {(topic, 0): again}
    made._undone = None if again is None else Undone(number, spans)
    return made  # type: ignore[no-any-return]


def batch(*spans: tuple[int, int], partition: int = 0, topic: str = "t-1") -> list[Staged]:
    return [staged("d", topic, partition, start, end) for start, end in spans]


def staged(folder: str, topic: str, partition: int, start: int, end: int) -> Staged:
    return Staged("path", folder, topic, partition, start, end, end - start + 1, 0)


def test_only_the_files_of_a_first_attempt_are_deleted() -> None:
    others = {"d/t-1-0-0-9.parquet", "d/t-1-0-30-30.parquet", "d/t-1-1-10-15.parquet",
              "d/t-0-10-15.parquet", "d/notes.txt", "e/t-1-0-10-15.parquet"}  # fmt: skip
    folder = Memory("d/t-1-0-10-15.parquet", "d/t-1-0-16-29.parquet", *others)

    files(folder, (10, 29))._clear(batch((10, 29)), 7)

    assert folder.there == others


@pytest.mark.parametrize(("old", "new"), [("good", "bad"), ("bad", "good")])
def test_records_that_were_judged_otherwise_are_there_once(old: str, new: str) -> None:
    kept = f"status={old}/d/t-1-0-0-9.parquet"
    folder = Memory(f"status={old}/d/t-1-0-12-12.parquet", kept)

    files(folder, (10, 29))._clear([staged(f"status={new}/d", "t-1", 0, 10, 29)], 7)

    assert folder.there == {kept}


def test_file_with_the_same_name_is_kept_to_be_replaced() -> None:
    folder = Memory("d/t-1-0-10-19.parquet")

    files(folder, (10, 19))._clear(batch((10, 19)), 7)

    assert folder.there == {"d/t-1-0-10-19.parquet"}


def test_first_attempt_may_have_read_records_compacted_since() -> None:
    folder = Memory("d/t-1-0-0-99.parquet", "d/t-1-0-100-100.parquet")

    files(folder, (0, 99))._clear(batch((5, 90)), 7)

    assert folder.there == {"d/t-1-0-100-100.parquet"}


@pytest.mark.parametrize("name", ["d/t-1-0-5-15.parquet", "d/t-1-0-15-25.parquet",
                                  "d/t-1-0-0-99.parquet"])  # fmt: skip
def test_file_that_partly_overlaps_the_plan_is_an_error(name: str) -> None:
    folder = Memory(name)

    with pytest.raises(RuntimeError, match=f"{name} holds offsets"):
        files(folder, (10, 19))._clear(batch((10, 19)), 7)

    assert folder.there == {name}


@pytest.mark.parametrize("again", [None, (10, 19)])
@pytest.mark.parametrize("name", ["d/t-1-0-10-19.parquet", "d/t-1-0-12-13.parquet",
                                  "d/t-1-0-0-10.parquet"])  # fmt: skip
def test_new_batch_replaces_no_files(name: str, again: tuple[int, int] | None) -> None:
    folder = Memory(name)

    with pytest.raises(RuntimeError, match=f"{name} holds offsets"):
        files(folder, again)._clear(batch((10, 19)), 8)

    assert folder.there == {name}


def test_refusal_leaves_the_archive_unchanged() -> None:
    there = {"d/t-1-0-10-14.parquet", "d/t-1-0-15-30.parquet"}
    folder = Memory(*there)

    with pytest.raises(RuntimeError, match="holds offsets"):
        files(folder, (10, 19))._clear(batch((10, 19)), 7)

    assert folder.there == there


def test_later_batch_checks_the_files_from_before_the_run() -> None:
    folder = Memory("d/t-1-0-0-9.parquet", "d/t-1-1-50-53.parquet")
    made = files(folder, (0, 9))

    made._clear(batch((0, 9)), 7)
    made._remember(batch((0, 9)))
    made._clear(batch((10, 19)), 8)
    made._remember(batch((10, 19)))
    with pytest.raises(RuntimeError, match=r"d/t-1-1-50-53\.parquet holds offsets"):
        made._clear(batch((0, 59), partition=1), 9)

    assert folder.there == {"d/t-1-0-0-9.parquet", "d/t-1-1-50-53.parquet"}


@pytest.mark.parametrize("span", [(0, 4), (4, 9), (15, 30), (19, 19)])
def test_batch_never_replaces_files_of_the_same_run(span: tuple[int, int]) -> None:
    # The topic was recreated during the run.
    made = files(Memory())
    for number, each in enumerate([(0, 9), (10, 12), (14, 19)]):
        made._clear(batch(each), number)
        made._remember(batch(each))

    with pytest.raises(RuntimeError, match="holds offsets"):
        made._clear(batch(span), 3)


def test_memory_of_written_files_stays_small() -> None:
    made = files(Memory())

    for number in range(1000):
        made._clear(batch((number, number)), number)
        made._remember(batch((number, number)))
    for number in range(2000):
        folder = [staged(f"day-{number}", "t", 0, 0, 0)]
        made._clear(folder, 1000 + number)
        made._remember(folder)

    assert len(made._found) == 1000
    assert "d" not in made._found
    assert all(len(there) == 1 for found in made._found.values() for there in found.values())


# -- names that readers would skip


@pytest.mark.parametrize(("topic", "name"), [
    ("_t", "+_t-0-10-19.parquet"), (".t", "+.t-0-10-19.parquet"),
    ("__t-1", "+__t-1-0-10-19.parquet"), ("t_.", "t_.-0-10-19.parquet"),
    ("-t", "-t-0-10-19.parquet"), ("t", "t-0-10-19.parquet"),
])  # fmt: skip
def test_file_names_are_not_hidden_from_readers(topic: str, name: str) -> None:
    assert file_name(staged("d", topic, 0, 10, 19)) == name


@pytest.mark.parametrize("topic", ["_t", ".t", "._", "__t-1"])
def test_files_with_a_name_prefix_belong_to_their_topic(topic: str) -> None:
    first = {f"d/+{topic}-0-10-14.parquet", f"d/+{topic}-0-15-19.parquet"}
    others = {f"d/+{topic}-0-0-9.parquet", f"d/+{topic}-1-10-19.parquet",
              "d/t-0-10-19.parquet", "d/+x-0-10-19.parquet"}  # fmt: skip
    folder = Memory(*first, *others)

    with pytest.raises(RuntimeError, match="holds offsets"):
        files(folder)._clear(batch((10, 19), topic=topic), 7)
    assert folder.there == first | others
    files(folder, (10, 19), topic=topic)._clear(batch((10, 19), topic=topic), 7)

    assert folder.there == others


# -- repeated batches


def planned(start: Any = None, **offsets: int) -> str:
    document: Any = {"t": {name[1:]: offset for name, offset in offsets.items()}}
    if start is not None:
        document[START_KEY] = {"t": start}
    return f'v1\n{{"batchTimestampMs":1}}\n{json.dumps(document)}'


def checkpoint(commits: int, *offsets: str) -> Any:
    texts = {f"offsets/{number}": text for number, text in enumerate(offsets)}
    return Memory(*(f"commits/{n}" for n in range(commits)), "commits/.0.crc", **texts)


def test_committed_batch_is_not_repeated() -> None:
    assert find_undone(Memory()) is None  # type: ignore[arg-type]
    assert find_undone(checkpoint(2, planned(_0=5), planned(_0=9))) is None


def test_uncommitted_batch_is_repeated_with_its_planned_offsets() -> None:
    found = find_undone(checkpoint(1, planned(_0=5, _1=3, _3=4), planned(_0=9, _1=3, _2=2, _3=1)))

    # Partition 1 has no new offsets, 2 is new, and 3 was recreated.
    assert found == Undone(1, {("t", 0): (5, 8), ("t", 2): (0, 1)})


def test_first_batch_starts_at_its_planned_offsets() -> None:
    first = planned({"0": 2, "1": 3}, _0=5, _1=3)

    assert find_undone(checkpoint(0, first)) == Undone(0, {("t", 0): (2, 4)})
    assert find_undone(checkpoint(0, planned(_0=5))) == Undone(0, {("t", 0): (0, 4)})


@pytest.mark.parametrize("text", ["v2\n{}\n{}", "v1\n{}", "v1\n{}\n{}\n{}"])
def test_a_plan_in_another_form_is_an_error(text: str) -> None:
    with pytest.raises(RuntimeError, match="offsets/0 has an unknown format"):
        find_undone(checkpoint(0, text))
