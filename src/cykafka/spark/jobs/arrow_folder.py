"""Folders of the file systems that pyarrow knows, for Python processes without a JVM."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["ArrowFolder", "qualified"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Names of schemes in Hadoop, and in pyarrow.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def qualified(address: str) -> str:
    """An address with a scheme: a path is one of the local file system.

    Raises
    ------
    OSError
        The path is relative.
    """
    found = _SCHEME.match(address)
    if found and found[1].lower() != "file":
        return address
    path = address[found.end() :] if found else address
    if not path.startswith("/"):
        raise OSError("expected an absolute path, or an address such as s3a://bucket/folder")
    return "file:" + posixpath.normpath("/" + path.lstrip("/"))


class ArrowFolder:
    """A folder with the methods of `folders.Folder`.

    Parameters
    ----------
    address : str
        An absolute path, or a URI with a scheme of pyarrow: file, hdfs, s3 (or s3a), gs, abfs.

    Raises
    ------
    OSError
        pyarrow does not know the file system, or cannot reach it.
    """

    def __init__(self, address: str) -> None:
        import pyarrow
        from pyarrow import fs

        self.address = qualified(address)
        scheme, _, rest = self.address.partition(":")
        self._is_local = scheme == "file"
        self._fs: Any
        if self._is_local:
            self._fs, self._root = fs.LocalFileSystem(), rest
            return
        try:
            name = _SCHEMES.get(scheme.lower(), scheme)
            self._fs, self._root = fs.FileSystem.from_uri(f"{name}:{rest}")
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
            raise OSError(f"pyarrow has no such file system: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFolder, (self.address,)

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else self._root

    def _kind(self, name: str) -> Any:
        return self._fs.get_file_info(self._path(name)).type

    def exists(self, name: str = "") -> bool:
        """Whether this file or folder exists."""
        from pyarrow import fs

        return bool(self._kind(name) != fs.FileType.NotFound)

    def names(self, name: str = "") -> Iterator[str]:
        """The names of the folder's entries, in no order; empty if the folder does not exist."""
        from pyarrow import fs

        wanted = fs.FileSelector(self._path(name), allow_not_found=True)
        yield from (str(each.base_name) for each in self._fs.get_file_info(wanted))

    def make(self, name: str = "") -> None:
        """Create a folder and its parents, if they do not exist."""
        self._fs.create_dir(self._path(name), recursive=True)

    def take(self, source: ArrowFolder, from_name: str, name: str) -> None:
        """Move a file from another folder of the same file system here, and replace a target."""
        # Only the local file system always replaces a target.
        if not self._is_local and source.exists(from_name):
            self.delete(name)
        self._fs.move(source._path(from_name), self._path(name))

    def copy(self, other: ArrowFolder) -> None:
        """Copy the folder, if it exists, to `other`, which must not exist."""
        from pyarrow import fs

        if self.exists():
            other.make()
            fs.copy_files(self._root, other._root, self._fs, other._fs)

    def delete(self, name: str = "") -> None:
        """Delete a file, or a folder with its contents, if it exists."""
        from pyarrow import fs

        kind = self._kind(name)
        if kind == fs.FileType.Directory:
            self._fs.delete_dir(self._path(name))
        elif kind != fs.FileType.NotFound:
            self._fs.delete_file(self._path(name))

    def read(self, name: str) -> str:
        """The text of a file."""
        with self._fs.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read()).decode()

    def write(self, name: str, words: str) -> None:
        """Write a file atomically: readers see the whole file or none."""
        beside = f".{name}.new"
        if self._is_local:
            with open(self._path(beside), "w", encoding="utf-8") as file:
                file.write(words)
                file.flush()
                os.fsync(file.fileno())
        else:
            with self._fs.open_output_stream(self._path(beside)) as stream:
                stream.write(words.encode())
        self.take(self, beside, name)
