"""Folders of any file system that Spark can reach, by Hadoop's classes in the JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from cykafka.spark.jobs.errors import explained
from cykafka.spark.jobs.problems import wrong_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AnyFolder", "Folder", "naming"]


class AnyFolder(Protocol):
    """The methods of a folder, whatever makes its requests; see `Folder`."""

    address: str

    def exists(self, name: str = "") -> bool: ...
    def names(self, name: str = "") -> Iterator[str]: ...
    def make(self, name: str = "") -> None: ...
    def take(self, source: Any, from_name: str, name: str) -> None: ...
    def copy(self, other: Any) -> None: ...
    def delete(self, name: str = "") -> None: ...
    def read(self, name: str) -> str: ...
    def write(self, name: str, words: str) -> None: ...


@contextmanager
def naming(key: str, address: str) -> Iterator[None]:
    """Turn a folder's OSError into a ConfigError that names the folder's key."""
    try:
        yield
    except OSError as error:
        raise wrong_value(key, address, f"cannot read or create it: {error}") from error


class Folder:
    """A folder; methods take paths relative to it.

    Parameters
    ----------
    spark : SparkSession
    address : str
        A path, or a URI with the scheme of a file system that Hadoop knows.

    Raises
    ------
    OSError
        The file system does not exist, or cannot be reached.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._gateway: Any = spark.sparkContext._gateway
        inner: Any = spark._jsparkSession
        conf = inner.sessionState().newHadoopConf()
        self._root: Any = jvm.org.apache.hadoop.fs.Path(address)
        try:
            self._fs = self._root.getFileSystem(conf)
        except Exception as error:  # of Java
            raise OSError(explained(error)) from error
        self._root = self._fs.makeQualified(self._root)
        uri = self._root.toUri()
        # Rename local files with os.replace, which replaces a target atomically. Hadoop would take
        # two steps, and keep a checksum file of the old content.
        self._local = str(uri.getPath()) if uri.getScheme() == "file" else None
        self.address = str(self._root.toString())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def exists(self, name: str = "") -> bool:
        """Whether this file or folder exists."""
        return bool(self._fs.exists(self._path(name)))

    def status(self, name: str) -> Any:
        """Hadoop's FileStatus of a file."""
        return self._fs.getFileStatus(self._path(name))

    def names(self, name: str = "") -> Iterator[str]:
        """The names of the folder's entries, in no order; empty if the folder does not exist."""
        if self._local is not None:
            with suppress(FileNotFoundError):
                yield from os.listdir(os.path.join(self._local, name))
            return
        path = self._path(name)
        if self._fs.exists(path):
            for status in self._fs.listStatus(path):
                yield str(status.getPath().getName())

    def make(self, name: str = "") -> None:
        """Create a folder and its parents, if they do not exist.

        Raises
        ------
        OSError
            The folder cannot be created.
        """
        if self._local is not None:
            os.makedirs(os.path.join(self._local, name), exist_ok=True)
            return
        path = self._path(name)
        try:
            made = self._fs.mkdirs(path)
        except Exception as error:  # of Java
            raise OSError(explained(error)) from error
        if not made:
            raise OSError(f"cannot create {path.toString()}")

    def take(self, source: Folder, from_name: str, name: str) -> None:
        """Move a file from another folder of the same file system here, and replace a target."""
        if self._local is not None and source._local is not None:
            target = os.path.join(self._local, name)
            os.replace(os.path.join(source._local, from_name), target)
            return
        origin, target = source._path(from_name), self._path(name)
        context = self._context()
        if context is not None:
            options = self._jvm.org.apache.hadoop.fs.Options.Rename
            array = self._gateway.new_array(options, 1)
            array[0] = options.OVERWRITE
            context.rename(origin, target, array)
            return
        if self._fs.rename(origin, target):
            return
        # Some file systems replace a target; others need it deleted first.
        if self._fs.exists(origin) and self._fs.exists(target):
            self._fs.delete(target, False)
            if self._fs.rename(origin, target):
                return
        raise OSError(
            f"cannot rename {origin.toString()} to {target.toString()}: check that it exists, "
            "and that both are on the same file system"
        )

    def _context(self) -> Any:
        """Hadoop's FileContext, which replaces a target atomically.

        None for file systems without one. Spark itself does without it there, too.
        """
        try:
            return self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._root.toUri(), self._fs.getConf()
            )
        except Exception as error:
            java: Any = getattr(error, "java_exception", None)
            name = "" if java is None else str(java.getClass().getName())
            if not name.endswith(".UnsupportedFileSystemException"):
                raise
            return None

    def copy(self, other: Folder) -> None:
        """Copy the folder, if it exists, to `other`, which must not exist."""
        if self.exists():
            self._jvm.org.apache.hadoop.fs.FileUtil.copy(
                self._fs, self._root, other._fs, other._root, False, self._fs.getConf()
            )

    def delete(self, name: str = "") -> None:
        """Delete a file, or a folder with its contents, if it exists."""
        self._fs.delete(self._path(name), True)

    def read(self, name: str) -> str:
        """The text of a file."""
        with closing(self._fs.open(self._path(name))) as stream:
            return bytes(stream.readAllBytes()).decode()

    def write(self, name: str, words: str) -> None:
        """Write a file atomically: readers see the whole file or none."""
        beside = f".{name}.new"
        if self._local is not None:
            with open(os.path.join(self._local, beside), "w", encoding="utf-8") as file:
                file.write(words)
                file.flush()
                os.fsync(file.fileno())
            self.take(self, beside, name)
            return
        with closing(self._fs.create(self._path(beside), True)) as stream:
            stream.write(bytearray(words.encode()))
        self.take(self, beside, name)
