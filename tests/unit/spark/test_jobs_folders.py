"""Folders of file systems whose rename neither replaces files nor raises."""

from __future__ import annotations

from typing import Any

import pytest

from cykafka.spark.jobs.folders import Folder


class Path:
    def __init__(self, name: str) -> None:
        self.name = name

    def toString(self) -> str:
        return self.name


class Prudent:
    """A file system that renames only to free names, and returns whether it did."""

    def __init__(self, **files: str) -> None:
        self.files = files

    def exists(self, path: Path) -> bool:
        return path.name in self.files

    def rename(self, source: Path, target: Path) -> bool:
        if source.name not in self.files or target.name in self.files:
            return False
        self.files[target.name] = self.files.pop(source.name)
        return True

    def delete(self, path: Path, _recursive: bool) -> None:
        del self.files[path.name]


class Other(Folder):
    def __init__(self, files: Prudent) -> None:
        self._fs, self._local = files, None

    def _path(self, name: str) -> Any:
        return Path(name)

    def _context(self) -> Any:
        return None


@pytest.mark.parametrize("there", [{}, {"old": "old"}])
def test_moved_file_replaces_an_existing_one(there: dict[str, str]) -> None:
    files = Prudent(new="new", **there)
    folder = Other(files)

    folder.take(folder, "new", "old")

    assert files.files == {"old": "new"}


def test_failed_move_of_a_missing_file_deletes_nothing() -> None:
    files = Prudent(old="old")
    folder = Other(files)

    with pytest.raises(OSError, match="cannot rename new to old: check that it exists"):
        folder.take(folder, "new", "old")

    assert files.files == {"old": "old"}
