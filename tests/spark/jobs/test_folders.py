"""Folders in file systems other than the local one, by Hadoop's classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench, offsets_by_listing, once

from cykafka.spark.jobs.folders import Folder

# The local file system under two other names. For the first, Hadoop has a class whose rename
# replaces files. For the second it has none, as for many object stores.
_VIEW = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
SETTINGS = {
    "fs.viewfs.impl.disable.cache": "true",
    "fs.other.impl.disable.cache": "true",
    "fs.other.impl": _VIEW,
    "fs.viewfs.mounttable.test.link./data": "file:{path}",
}
ADDRESSES = {"file": "file:{path}", "viewfs": "viewfs://test/data", "other": "other://test/data"}


@pytest.fixture(params=ADDRESSES)
def address(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of `tmp_path` in each file system."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value.format(path=tmp_path))
    yield ADDRESSES[request.param].format(path=tmp_path)
    for name in SETTINGS:
        spark.conf.unset(name)


def test_other_file_system_has_no_file_context(spark: Any, address: str) -> None:
    without = address.startswith("other:")

    assert (Folder(spark, address)._context() is None) == without


def test_files_are_written_read_and_listed(spark: Any, address: str, tmp_path: Path) -> None:
    folder = Folder(spark, f"{address}/folder")

    assert not folder.exists()
    assert list(folder.names()) == []
    folder.make("below")
    folder.write("a.txt", "first")
    folder.write("a.txt", "ä second")

    assert folder.read("a.txt") == "ä second"
    assert (tmp_path / "folder" / "a.txt").read_text() == "ä second"
    assert {name for name in folder.names() if not name.startswith(".")} == {"a.txt", "below"}
    assert folder.exists("a.txt")
    assert not folder.exists("b.txt")


def test_folder_that_cannot_be_created_is_an_error(
    spark: Any, address: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(OSError, match="file"):
        Folder(spark, f"{address}/file/below").make()


def test_moved_file_replaces_an_existing_one(spark: Any, address: str) -> None:
    here, there = Folder(spark, f"{address}/here"), Folder(spark, f"{address}/there")
    for folder in (here, there):
        folder.make()
    there.write("new", "new")
    here.write("old", "old")

    here.take(there, "new", "old")

    assert here.read("old") == "new"
    assert not there.exists("new")


def test_file_that_cannot_be_moved_is_an_error(spark: Any, address: str) -> None:
    here, there = Folder(spark, f"{address}/here"), Folder(spark, f"{address}/there")
    here.make()

    with pytest.raises(Exception, match="nothing"):
        here.take(there, "nothing", "something")


def test_folders_are_copied_and_deleted(spark: Any, address: str) -> None:
    here, there = Folder(spark, f"{address}/here"), Folder(spark, f"{address}/there")
    here.copy(there)
    assert not there.exists()
    here.make("below")
    here.write("a", "a")

    here.copy(there)
    here.delete()

    assert there.read("a") == "a"
    assert there.exists("below")
    assert not here.exists()
    here.delete()


def test_archive_works_in_this_file_system(
    bench: Bench, topic: str, address: str, tmp_path: Path
) -> None:
    keys = {"path": f"{address}/archive", "checkpoint": f"{address}/checkpoint"}
    bench.fill(topic, 10)
    bench.run("archive", topics=topic, file_names="deterministic", **keys)
    for path in (tmp_path / "checkpoint" / "commits").iterdir():  # as after a crash
        path.unlink()
    bench.fill(topic, 5)

    bench.run("archive", topics=topic, file_names="deterministic", **keys)

    assert offsets_by_listing(str(tmp_path / "archive")) == once(topic, 15)
    assert bench.spark.read.parquet(keys["path"]).count() == 60
