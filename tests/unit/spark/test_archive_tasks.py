"""The files that an archive's tasks write."""

from __future__ import annotations

import random
import resource
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cykafka.spark.jobs.archive import write_files
from cykafka.spark.jobs.archive.archiving import local_path
from cykafka.spark.jobs.archive.write_files import Staged, WriteFiles, knows_zone

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("topic", pa.string()),
    ]
)
DAY_US = 86_400_000_000


def rows(*places: tuple[str, int, int, int | None]) -> pa.RecordBatch:
    """Rows with these topics, partitions, offsets and times, us."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": b"k" if offset % 2 else None,
                "value": b"v%d" % offset,
                "headers": [{"key": "n", "value": None}] if offset % 3 else None,
                "partition": partition,
                "offset": offset,
                "timestamp": time,
                "timestampType": 0,
                "topic": topic,
            }
            for topic, partition, offset, time in places
        ],
        schema=SCHEMA,
    )


def write(folder: Path, *batches: pa.RecordBatch, **other: Any) -> list[Staged]:
    work = WriteFiles(
        **{
            "folder": str(folder),
            "folders": ("topic", "date"),
            "time_zone": "UTC",
            "compression": "zstd",
            "by_partition": True,
            "int96": False,
            **other,
        }
    )
    reports = [row for batch in work.run_task(iter(batches)) for row in batch.to_pylist()]
    return sorted(Staged(**row) for row in reports)


def test_each_topic_partition_and_date_has_a_file(tmp_path: Path) -> None:
    places = [
        (topic, partition, offset, day * DAY_US)
        for offset in range(6)
        for topic in ("a", "b")
        for partition in range(2)
        for day in [offset // 3]
    ]

    files = write(tmp_path, rows(*places[:10]), rows(*places[10:]))

    assert len(files) == 8
    for file in files:
        day = file.start // 3
        assert file.folder == f"topic={file.topic}/date=1970-01-0{day + 1}"
        assert file.path.startswith(file.folder + "/part-")
        assert (file.start, file.end, file.records) == (3 * day, 3 * day + 2, 3)
        table = pq.read_table(tmp_path / file.path, partitioning=None)
        offsets = range(file.start, file.end + 1)
        given = rows(*((file.topic, file.partition, n, day * DAY_US) for n in offsets))
        assert table.equals(pa.Table.from_batches([given.drop_columns(["topic"])]))
        assert file.bytes == sum(2 + n % 2 for n in offsets)


def test_partitions_share_a_file_where_its_name_has_no_offsets(tmp_path: Path) -> None:
    (file,) = write(tmp_path, rows(("a", 0, 7, 0), ("a", 1, 3, 0)), by_partition=False)

    table = pq.read_table(tmp_path / file.path, partitioning=None)
    assert (file.topic, file.partition, file.records) == ("a", 0, 2)
    assert table["partition"].to_pylist() == [0, 1]


def test_readers_get_the_types_of_spark_and_no_schema_of_arrow(tmp_path: Path) -> None:
    (file,) = write(tmp_path, rows(("a", 0, 1, 0)))

    found = pq.ParquetFile(tmp_path / file.path)
    assert {*found.schema_arrow.metadata} == {
        b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata",
    }  # fmt: skip
    assert [found.schema.column(n).path for n in range(len(found.schema))] == [
        "key", "value", "headers.list.element.key", "headers.list.element.value", "partition",
        "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(
        found.schema.column(6).logical_type
    )
    assert found.metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "lz4"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    (file,) = write(tmp_path, rows(("a", 0, 1, 0)), compression=codec)

    ending = ".parquet.unfinished"  # until it is in the archive
    assert file.path.endswith(ending if codec == "none" else f".{codec}{ending}")
    found = pq.ParquetFile(tmp_path / file.path).metadata.row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED", "lz4": "LZ4"}.get(codec, codec.upper())


@pytest.mark.parametrize(
    ("time", "zone", "date"),
    [
        (-1_000, "UTC", "1969-12-31"),
        (DAY_US - 1, "UTC", "1970-01-01"),
        (DAY_US - 1, "Europe/Berlin", "1970-01-02"),
        (0, "America/New_York", "1969-12-31"),
        # 00:30 in summer time, whose rules hold on after the last entry in a zone's file.
        (2_540_262_600_000_000, "America/New_York", "2050-07-01"),
        # Until 2011 clocks went back at 00:01, to the day before.
        (1_289_097_060_000_000 - 1, "America/St_Johns", "2010-11-07"),
        (1_289_097_060_000_000, "America/St_Johns", "2010-11-06"),
        (253_402_300_800_000_000 - 1, "UTC", "9999-12-31"),
        (253_402_300_800_000_000 - 1, "Asia/Tokyo", "__HIVE_DEFAULT_PARTITION__"),
        (253_402_300_800_000_000, "UTC", "__HIVE_DEFAULT_PARTITION__"),
        (2**63 - 1, "America/St_Johns", "__HIVE_DEFAULT_PARTITION__"),
        (-(2**63), "UTC", "__HIVE_DEFAULT_PARTITION__"),
        (-9_223_372_036_854_720_001, "UTC", "__HIVE_DEFAULT_PARTITION__"),
        (-9_223_372_036_854_720_000, "UTC", "__HIVE_DEFAULT_PARTITION__"),
        (None, "UTC", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_dates_are_those_of_spark(tmp_path: Path, time: int | None, zone: str, date: str) -> None:
    (file,) = write(tmp_path, rows(("a", 0, 1, time)), time_zone=zone)

    assert file.folder == f"topic=a/date={date}"


def test_levels_of_folders_follow_their_order(tmp_path: Path) -> None:
    (by_date,) = write(tmp_path, rows(("a", 0, 1, 0)), folders=("date", "topic"))
    (by_topic,) = write(tmp_path, rows(("a", 0, 1, 0), ("a", 0, 2, DAY_US)), folders=("topic",))

    assert by_date.folder == "date=1970-01-01/topic=a"
    assert (by_topic.folder, by_topic.records) == ("topic=a", 2)


def test_topic_stays_a_column_unless_it_is_a_folder(tmp_path: Path) -> None:
    (file,) = write(
        tmp_path, rows(("a", 0, 1, 0), ("b", 0, 1, 0)), folders=("date",), by_partition=False
    )

    assert (file.folder, file.records) == ("date=1970-01-01", 2)
    table = pq.read_table(tmp_path / file.path, partitioning=None)
    assert table["topic"].to_pylist() == ["a", "b"]


def groups(path: Path) -> list[int]:
    """The rows of each row group of a file."""
    found = pq.ParquetFile(path).metadata
    return [found.row_group(n).num_rows for n in range(found.num_row_groups)]


def test_rows_wait_for_a_large_row_group_but_not_without_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_files, "_TASK_BYTES", 4 * rows(("a", 0, 0, 0)).nbytes)

    (alone,) = write(tmp_path, *(rows(("a", 0, n, 0)) for n in range(8)))
    mixed = write(tmp_path, *(rows(("b", n % 2, n, 0)) for n in range(8)))

    assert len(groups(tmp_path / alone.path)) in (2, 3)
    assert sum(groups(tmp_path / alone.path)) == 8
    for file in mixed:
        assert len(groups(tmp_path / file.path)) in (2, 3)
        assert sum(groups(tmp_path / file.path)) == 4


def test_rows_of_mixed_dates_are_one_row_group_in_their_order(tmp_path: Path) -> None:
    batches = [rows(*(("a", 0, n, n % 3 * DAY_US) for n in range(s, s + 10))) for s in (0, 10, 20)]

    files = write(tmp_path, *batches, rows())

    assert [groups(tmp_path / file.path) for file in files] == [[10]] * 3
    for file in files:
        table = pq.read_table(tmp_path / file.path, partitioning=None)
        offsets = list(range(file.start, 30, 3))
        day = file.start % 3
        given = rows(*(("a", 0, n, day * DAY_US) for n in offsets))
        assert table.equals(pa.Table.from_batches([given.drop_columns(["topic"])]))


def test_rare_rows_keep_no_batches_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, most = 100_000, 0
    monkeypatch.setattr(write_files, "_TASK_BYTES", 4 * size)

    def batches() -> Any:
        nonlocal most
        for start in range(0, 100, 2):
            batch = rows(("a", 0, start, 0), ("a", 0, start + 1, DAY_US))
            value = pa.array([b"x" * size, b"x"], pa.binary())
            yield batch.set_column(1, "value", value)
            most = max(most, pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    work = WriteFiles(str(tmp_path), ("topic", "date"), "UTC", "zstd", True, False)
    (found,) = work.run_task(batches())

    assert found.column("records").to_pylist() == [50, 50]
    assert most < 10 * size


def test_few_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_files, "_TASK_BYTES", 1)
    monkeypatch.setattr(write_files, "_MOST_OPEN", 3)
    most = 0

    def batches() -> Any:
        nonlocal most
        for offset in range(20):
            yield rows(*(("a", 0, 10 * offset + day, day * DAY_US) for day in range(10)))
            links = [each.resolve() for each in Path("/proc/self/fd").iterdir()]
            most = max(most, sum(tmp_path in link.parents for link in links))

    work = WriteFiles(str(tmp_path), ("topic", "date"), "UTC", "zstd", True, False)
    files = [Staged(**row) for found in work.run_task(batches()) for row in found.to_pylist()]

    assert 1 <= most <= 3
    assert sum(file.records for file in files) == 200
    starts = {(file.folder, file.start) for file in files}
    assert len(starts) == len(files)  # they become the names


def test_task_that_fails_leaves_no_files(tmp_path: Path) -> None:
    def batches() -> Any:
        yield rows(("a", 0, 1, 0), ("b", 0, 1, 0))
        raise RuntimeError("the broker is gone")

    with pytest.raises(RuntimeError, match="the broker is gone"):
        list(WriteFiles(str(tmp_path), ("topic",), "UTC", "zstd", True, False).run_task(batches()))

    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_error_of_a_full_disk_names_the_file(tmp_path: Path) -> None:
    def batches() -> Any:
        yield rows(("a", 0, 1, 0)).set_column(1, "value", pa.array([random.randbytes(100_000)]))

    work = WriteFiles(str(tmp_path), ("topic",), "UTC", "zstd", True, False)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(
            OSError, match=rf"cannot write {tmp_path}/topic=a/part-.*: .*too large"
        ):
            list(work.run_task(batches()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)

    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


def test_task_without_records_reports_no_file(tmp_path: Path) -> None:
    assert write(tmp_path) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "path"),
    [("file:/a/b c", "/a/b c"), ("file:///a", "/a"), ("hdfs://host/a", None), ("s3a://b", None)],
)
def test_only_folders_of_the_local_file_system_have_a_path(address: str, path: str | None) -> None:
    assert local_path(address) == path


def test_zones_that_only_java_knows_are_left_to_spark() -> None:
    known = ("UTC", "Europe/Berlin")
    unknown = ("GMT+3", "+03:00", "PST", "../x")

    assert [name for name in (*known, *unknown) if knows_zone(name)] == [*known]


def test_topic_is_the_last_column_as_in_the_files_of_spark(tmp_path: Path) -> None:
    (file, *_) = write(tmp_path, rows(("a", 0, 1, 0)), folders=("status",), decoder=Halves())

    names = pq.read_table(tmp_path / file.path, partitioning=None).column_names
    assert names[-3:] == ["error", "avro", "topic"]


@dataclass(frozen=True)
class Halves:
    """A decoder of values for which every second one is bad."""

    def add_columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch["offset"].to_pylist()
        errors = pa.array(["odd" if number % 2 else None for number in numbers], pa.string())
        data = pa.array([{"n": None if number % 2 else number} for number in numbers])
        return batch.append_column("error", errors).append_column("avro", data)


def test_good_and_bad_values_have_files_of_their_own(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        rows(*(("a", 0, offset, 0) for offset in range(5))),
        folders=("status", "topic"),
        decoder=Halves(),
        left_out=("key", "value", "headers"),
    )

    assert [(file.folder, file.start, file.end, file.records) for file in sorted(files)] == [
        ("status=bad/topic=a", 1, 3, 2),
        ("status=good/topic=a", 0, 4, 3),
    ]
    bad, good = (pq.read_table(tmp_path / file.path, partitioning=None) for file in sorted(files))
    names = ["partition", "offset", "timestamp", "timestampType", "error", "avro"]  # and no topic
    assert bad.column_names == good.column_names == names
    assert bad["error"].to_pylist() == ["odd", "odd"]
    assert good["avro"].to_pylist() == [{"n": 0}, {"n": 2}, {"n": 4}]
    assert sum(file.bytes for file in files) == 5 * 2 + 2
