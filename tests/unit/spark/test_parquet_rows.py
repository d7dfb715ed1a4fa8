"""What the job replay finds in Parquet files, and the order in which it reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the group spark is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the group spark is not installed")

from cykafka.spark.jobs.replay import parquet_rows  # noqa: E402
from cykafka.spark.jobs.replay.parquet_rows import (  # noqa: E402
    MOST,
    File,
    ReplayLimits,
    UnfitFileError,
    UnreadableError,
    describe_file,
    rows_in_order,
)

START_US = 1_700_000_000_000_000
FOLDERS = {"topic": "t", "date": "2026-01-01"}


def limits(**given: Any) -> ReplayLimits:
    given = {"topics": None, "partitions": None, "offsets": (0, MOST), "times": None, "done": {},
             **given}  # fmt: skip
    return ReplayLimits(**given)


def partitions(number: int, count: int) -> Any:
    return pa.array([number] * count, pa.int32())


def headers(element: str = "element") -> Any:
    kind = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.list_(pa.field(element, kind))


def write(path: Path, offsets: Iterable[int], **columns: Any) -> Path:
    """Write a file whose record at an offset has this offset as its value, and in microseconds as
    its time; columns that are None are left out."""
    offsets = list(offsets)
    own = {
        "key": pa.nulls(len(offsets), pa.binary()),
        "value": pa.array([b"%d" % each for each in offsets], pa.binary()),
        "headers": pa.nulls(len(offsets), headers()),
        "partition": pa.array([0] * len(offsets), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([START_US + each for each in offsets], pa.timestamp("us", "UTC")),
        **columns,
    }
    table = pa.table({name: column for name, column in own.items() if column is not None})
    pq.write_table(table, path, row_group_size=10, write_page_checksum=True, store_schema=False)
    return path


def looked(path: Path, wanted: ReplayLimits | None = None) -> File:
    found = describe_file(str(path), FOLDERS, wanted or limits())
    assert found is not None
    return found


def sent(files: list[File], start: int = 0, end: int = MOST, times: Any = None) -> list[int]:
    batches = list(rows_in_order(files, start, end, times))
    assert all(batch.num_rows for batch in batches)
    offsets = [each for batch in batches for each in batch.column("offset").to_pylist()]
    values = [int(each) for batch in batches for each in batch.column("value").to_pylist()]
    assert values == offsets
    return offsets


def test_a_file_is_described_by_its_records(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", range(100, 140), partition=partitions(3, 40))

    whole = looked(path)
    part = looked(path, limits(offsets=(110, MOST), done={("t", 3): 120, ("t", 0): 130}))
    by_time = looked(path, limits(times=(START_US + 105, START_US + 107)))
    others = [looked(path, limits(partitions=frozenset({2}))),
              looked(path, limits(topics=frozenset({"u"})))]  # fmt: skip

    assert whole == File(str(path), "t", 3, 40, 100, 40, 100, 140)
    assert (part.rows, part.first, part.records, part.start, part.end) == (40, 100, 20, 120, 140)
    assert (by_time.records, by_time.start, by_time.end) == (2, 105, 107)
    assert [each.records for each in others] == [0, 0]


def test_the_place_of_records_may_be_in_columns_or_in_folders(tmp_path: Path) -> None:
    topics = pa.array(["007"] * 3)
    path = str(write(tmp_path / "a.parquet", range(3), partition=partitions(4, 3), topic=topics))
    bare = str(write(tmp_path / "b.parquet", range(3), partition=None))

    by_columns = describe_file(path, {}, limits())
    by_folders = describe_file(bare, {"topic": "007", "partition": "4"}, limits())

    for found in (by_columns, by_folders):
        assert found is not None
        assert (found.topic, found.partition) == ("007", 4)


def test_a_file_may_have_one_record(tmp_path: Path) -> None:
    file = looked(write(tmp_path / "a.parquet", [7]))

    assert (file.records, file.start, file.end) == (1, 7, 8)
    assert sent([file]) == [7]


def test_an_empty_file_has_nothing(tmp_path: Path) -> None:
    assert describe_file(str(write(tmp_path / "a.parquet", [])), FOLDERS, limits()) is None


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"offsets": [1, 2, 2]}, "order of their offsets"),
        ({"offsets": [*range(65_536), 5]}, "order of their offsets"),
        ({"partition": pa.array([0, 0, 1], pa.int32())}, "several partitions"),
        ({"partition": pa.array([None] * 3, pa.int32())}, "without a topic or a partition"),
        ({"headers": None}, "column headers of type None"),
        ({"key": pa.array(["k"] * 3)}, "column key of type string"),
        ({"timestamp": pa.array([1] * 3, pa.timestamp("us"))}, "column timestamp"),
        ({"timestamp": pa.array([1] * 3, pa.timestamp("ns", "UTC"))}, "column timestamp"),
        ({"offset": pa.array([1, None, 3], pa.int64())}, "order of their offsets"),
        ({"offset": pa.array([None, 2, 3], pa.int64())}, "order of their offsets"),
    ],
)
def test_other_files_are_unfit(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "a.parquet", columns.pop("offsets", range(3)), **columns)

    with pytest.raises(UnfitFileError, match=words):
        describe_file(str(path), FOLDERS, limits())


def test_a_column_that_is_also_a_folder_is_unfit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", range(3))

    with pytest.raises(UnfitFileError, match="column key"):
        describe_file(str(path), {**FOLDERS, "key": "k"}, limits())
    with pytest.raises(UnfitFileError, match="without a topic"):
        describe_file(str(path), {"topic": "__HIVE_DEFAULT_PARTITION__"}, limits())


@pytest.mark.parametrize("element", ["element", "array", "item"])
@pytest.mark.parametrize("int96", [False, True])
def test_columns_of_all_writers_become_the_same(tmp_path: Path, element: str, int96: bool) -> None:
    given = [[("n", b"1"), ("n", None)], None, []]
    path = write(tmp_path / "a.parquet", range(3), headers=pa.array(given, headers(element)))
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=int96,
                   store_schema=False, use_compliant_nested_type=False)  # fmt: skip

    (batch,) = rows_in_order([looked(path)], 0, MOST, None)

    assert batch.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [START_US, START_US + 1,
                                                                      START_US + 2]  # fmt: skip
    assert batch.column("headers").to_pylist() == [
        [{"key": "n", "value": b"1"}, {"key": "n", "value": None}], None, []
    ]  # fmt: skip


def test_files_that_overlap_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "_ROWS", 7)
    given = [range(0, 100, 2), range(1, 60, 2), range(61, 100, 2), range(100, 130), [150, 151]]
    files = [looked(write(tmp_path / f"{number}.parquet", offsets))
             for number, offsets in enumerate(given)]  # fmt: skip

    assert sent(files[::-1]) == [*range(130), 150, 151]
    assert sent(files, 37, 151) == [*range(37, 130), 150]
    assert sent([files[0], files[0]], 0, 5) == [0, 0, 2, 2, 4, 4]


@pytest.mark.parametrize("most_open", [2, 3, 100])
def test_few_files_are_open_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_open: int
) -> None:
    monkeypatch.setattr(parquet_rows, "_MOST_OPEN", most_open)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    files = [looked(write(tmp_path / f"{number}.parquet", range(number, 200, 20)))
             for number in range(20)]  # fmt: skip
    files += [looked(write(tmp_path / f"late-{element}.parquet", range(200 + number, 220, 2),
                           headers=pa.array([[("n", b"1")]] * 10, headers(element))))
              for number, element in enumerate(("element", "array"))]  # fmt: skip
    before = open_files()
    most, offsets = 0, []

    for batch in rows_in_order(files[::-1], 0, MOST, None):
        offsets += batch.column("offset").to_pylist()
        most = max(most, open_files() - before)

    assert offsets == list(range(220))
    assert most <= min(most_open, 20)
    assert open_files() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_temporary_files_are_deleted_if_nobody_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_rows, "_MOST_OPEN", 2)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    files = [looked(write(tmp_path / f"{number}.parquet", range(number, 200, 5)))
             for number in range(5)]  # fmt: skip
    rows = rows_in_order(files, 0, MOST, None)
    next(rows)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] != []

    rows.close()  # type: ignore[attr-defined]

    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_files_of_several_writers_are_merged(tmp_path: Path) -> None:
    files = []
    for first, element, kind in ((0, "element", "us"), (1, "array", "ms")):
        columns = {
            "headers": pa.array([[("n", b"%d" % first)]] * 3, headers(element)),
            "timestamp": pa.array([0] * 3, pa.timestamp(kind, "UTC")),
        }
        path = write(tmp_path / f"{element}.parquet", range(first, 6, 2), **columns)
        pq.write_table(pq.read_table(path), path, store_schema=False,
                       use_compliant_nested_type=False)  # fmt: skip
        files.append(looked(path))

    assert sent(files) == list(range(6))


def test_limits_hold_within_a_file(tmp_path: Path) -> None:
    file = looked(write(tmp_path / "a.parquet", [*range(25), *range(40, 60)]))

    assert sent([file], 12, 42) == [*range(12, 25), 40, 41]
    assert sent([file], 26, 40) == []
    assert sent([file], 10, 100, (START_US + 23, START_US + 41)) == [23, 24, 40]


def test_records_without_a_time_are_outside_all_limits_of_times(tmp_path: Path) -> None:
    times = pa.array([START_US, None, START_US + 2], pa.timestamp("us", "UTC"))
    path = write(tmp_path / "a.parquet", range(3), timestamp=times)
    wanted = (-MOST, MOST)

    assert looked(path, limits(times=wanted)).records == 2
    assert sent([looked(path)], times=wanted) == [0, 2]
    assert sent([looked(path)]) == [0, 1, 2]


def damage(path: Path, row_group: int) -> None:
    """Destroy the values of a row group."""
    column = pq.read_metadata(path).row_group(row_group).column(1)
    assert column.path_in_schema == "value"
    start = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(path.read_bytes())
    for each in range(
        start + column.total_compressed_size // 2, start + column.total_compressed_size
    ):
        content[each] ^= 0xFF
    path.write_bytes(content)


def test_row_groups_outside_of_the_limits_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", range(30))
    damage(path, 0)
    damage(path, 2)
    file = looked(path)

    assert sent([file], 10, 20) == list(range(10, 20))
    with pytest.raises(UnreadableError, match=f"cannot read {path}: "):
        sent([file], 9, 20)


def test_a_damaged_value_that_no_codec_notices_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", range(30))
    pq.write_table(pq.read_table(path), path, compression="none", use_dictionary=False,
                   write_page_checksum=True, store_schema=False)  # fmt: skip
    content = path.read_bytes()
    path.write_bytes(content.replace(b"29", b"92"))

    with pytest.raises(UnreadableError, match="could not verify page integrity, CRC checksum"):
        sent([looked(path)])


def test_a_file_that_has_changed_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", range(30))
    file = looked(path)
    write(path, range(29))

    with pytest.raises(UnreadableError, match=f"{path} has changed"):
        sent([file])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UnreadableError, match=f"cannot read {path}: "):
        sent([file])
    path.unlink()
    with pytest.raises(UnreadableError, match=f"cannot read {path}: "):
        sent([file])


def test_batches_of_large_values_have_few_rows(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(parquet_rows, "_BYTES", 2_000)
    values = pa.array([bytes([each]) * 500 for each in range(20)], pa.binary())
    file = looked(write(tmp_path / "a.parquet", range(20), value=values))

    rows = [batch.num_rows for batch in rows_in_order([file], 0, MOST, None)]

    assert sum(rows) == 20
    assert max(rows) <= 4
