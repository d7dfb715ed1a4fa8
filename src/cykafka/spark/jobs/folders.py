"""Directories on any file system: three classes with the methods of `AnyFolder`.

- `Folder` uses Hadoop's classes in the JVM of Spark's driver.
- `ArrowFolder` uses pyarrow, for Python processes without a JVM.
- `ConnectFolder` uses the driver of a Spark Connect server. The client lacks a JVM, and its file
  systems may differ from the server's. So a data source runs each request on the server's driver,
  in the Python process that plans reads.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from pyarrow import ArrowInvalid, ArrowNotImplementedError, fs
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from cykafka.spark.jobs.problems import explain_error, wrong_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "AnyFolder",
    "ArrowFolder",
    "ConnectFolder",
    "Folder",
    "FolderSource",
    "convert_errors",
    "qualified",
]


class AnyFolder(Protocol):
    """A directory. Its methods take relative paths; an empty path is the directory itself."""

    address: str

    def exists(self, name: str = "") -> bool:
        """Whether this file or directory exists."""

    def names(self, name: str = "") -> Iterator[str]:
        """Yield the directory's entries in arbitrary order; none if it does not exist."""

    def make(self, name: str = "") -> None:
        """Create a directory and its parents if they do not exist.

        Raises
        ------
        OSError
            The directory cannot be created.
        """

    def take(self, source: Any, from_name: str, name: str) -> None:
        """Move a file here from another directory on the same file system. Replaces a target."""

    def copy(self, other: Any) -> None:
        """Copy the directory, if it exists, to `other`, which must not exist."""

    def delete(self, name: str = "") -> None:
        """Delete a file, or a directory with its contents, if it exists."""

    def read(self, name: str) -> str:
        """The text of a file."""

    def write(self, name: str, words: str) -> None:
        """Write a file atomically: readers see the whole file or none."""


@contextmanager
def convert_errors(key: str, address: str) -> Iterator[None]:
    """Convert a directory's OSError to a ConfigError that names the directory's key."""
    try:
        yield
    except OSError as error:
        raise wrong_value(key, address, f"cannot read or create it: {error}") from error


def _write_synced(path: str, words: str) -> None:
    """Write a local file to the disk."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(words)
        file.flush()
        os.fsync(file.fileno())


class Folder:
    """A directory that Spark's JVM can reach.

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
            raise OSError(explain_error(error)) from error
        self._root = self._fs.makeQualified(self._root)
        uri = self._root.toUri()
        # Rename local files with os.replace, which replaces a target atomically. Hadoop would take
        # two steps, and keep a checksum file of the old content.
        self._local = str(uri.getPath()) if uri.getScheme() == "file" else None
        self.address = str(self._root.toString())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def exists(self, name: str = "") -> bool:
        return bool(self._fs.exists(self._path(name)))

    def status(self, name: str) -> Any:
        """Hadoop's FileStatus of a file."""
        return self._fs.getFileStatus(self._path(name))

    def names(self, name: str = "") -> Iterator[str]:
        if self._local is not None:
            with suppress(FileNotFoundError):
                yield from os.listdir(os.path.join(self._local, name))
            return
        path = self._path(name)
        if self._fs.exists(path):
            for status in self._fs.listStatus(path):
                yield str(status.getPath().getName())

    def make(self, name: str = "") -> None:
        if self._local is not None:
            os.makedirs(os.path.join(self._local, name), exist_ok=True)
            return
        path = self._path(name)
        try:
            made = self._fs.mkdirs(path)
        except Exception as error:  # of Java
            raise OSError(explain_error(error)) from error
        if not made:
            raise OSError(f"cannot create {path.toString()}")

    def take(self, source: Folder, from_name: str, name: str) -> None:
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
        if self.exists():
            self._jvm.org.apache.hadoop.fs.FileUtil.copy(
                self._fs, self._root, other._fs, other._root, False, self._fs.getConf()
            )

    def delete(self, name: str = "") -> None:
        self._fs.delete(self._path(name), True)

    def read(self, name: str) -> str:
        with closing(self._fs.open(self._path(name))) as stream:
            return bytes(stream.readAllBytes()).decode()

    def write(self, name: str, words: str) -> None:
        beside = f".{name}.new"
        if self._local is not None:
            _write_synced(os.path.join(self._local, beside), words)
            self.take(self, beside, name)
            return
        with closing(self._fs.create(self._path(beside), True)) as stream:
            stream.write(bytearray(words.encode()))
        self.take(self, beside, name)


# -- by pyarrow

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
# Names of schemes in Hadoop, and in pyarrow.
_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def qualified(address: str) -> str:
    """Add a scheme to an address: a path is on the local file system.

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
    """A directory that pyarrow can reach.

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
        except (ArrowInvalid, ArrowNotImplementedError) as error:
            raise OSError(f"pyarrow does not support this file system: {error}") from None

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFolder, (self.address,)

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name) if name else self._root

    def _kind(self, name: str) -> Any:
        return self._fs.get_file_info(self._path(name)).type

    def exists(self, name: str = "") -> bool:
        return bool(self._kind(name) != fs.FileType.NotFound)

    def names(self, name: str = "") -> Iterator[str]:
        wanted = fs.FileSelector(self._path(name), allow_not_found=True)
        yield from (str(file.base_name) for file in self._fs.get_file_info(wanted))

    def make(self, name: str = "") -> None:
        self._fs.create_dir(self._path(name), recursive=True)

    def take(self, source: ArrowFolder, from_name: str, name: str) -> None:
        # Only the local file system always replaces a target.
        if not self._is_local and source.exists(from_name):
            self.delete(name)
        self._fs.move(source._path(from_name), self._path(name))

    def copy(self, other: ArrowFolder) -> None:
        if self.exists():
            other.make()
            fs.copy_files(self._root, other._root, self._fs, other._fs)

    def delete(self, name: str = "") -> None:
        kind = self._kind(name)
        if kind == fs.FileType.Directory:
            self._fs.delete_dir(self._path(name))
        elif kind != fs.FileType.NotFound:
            self._fs.delete_file(self._path(name))

    def read(self, name: str) -> str:
        with self._fs.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read()).decode()

    def write(self, name: str, words: str) -> None:
        beside = f".{name}.new"
        if self._is_local:
            _write_synced(self._path(beside), words)
        else:
            with self._fs.open_output_stream(self._path(beside)) as stream:
                stream.write(words.encode())
        self.take(self, beside, name)


# -- by a Spark Connect server


class ConnectFolder:
    """A directory that a Spark Connect server's driver can reach, where it is an ArrowFolder.

    Parameters
    ----------
    spark : SparkSession
        A session of Spark Connect.
    address : str
        An absolute path on the driver's machine, or a URI.

    Raises
    ------
    OSError
        The path is relative.
    """

    def __init__(self, spark: SparkSession, address: str) -> None:
        self._spark = spark
        self.address = qualified(address)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowFolder, (self.address,)

    def _call(self, method: str, *arguments: Any) -> Any:
        self._spark.dataSource.register(FolderSource)
        call = json.dumps(
            [self, method, *arguments], default=lambda folder: {"at": folder.address}
        )
        reader = self._spark.read.format(FolderSource.name()).option("call", call)
        try:
            (row,) = reader.load().collect()
        except PySparkException as error:
            raise OSError(explain_error(error)) from None
        return json.loads(row[0])

    def exists(self, name: str = "") -> bool:
        return bool(self._call("exists", name))

    def names(self, name: str = "") -> Iterator[str]:
        yield from self._call("names", name)

    def make(self, name: str = "") -> None:
        self._call("make", name)

    def take(self, source: ConnectFolder, from_name: str, name: str) -> None:
        self._call("take", source, from_name, name)

    def copy(self, other: ConnectFolder) -> None:
        self._call("copy", other)

    def delete(self, name: str = "") -> None:
        self._call("delete", name)

    def read(self, name: str) -> str:
        return str(self._call("read", name))

    def write(self, name: str, words: str) -> None:
        self._call("write", name, words)


class FolderSource(DataSource):
    """One row: the result of a method of an ArrowFolder, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "cykafka_folder"

    def schema(self) -> str:
        return "result string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _CallReader(self.options["call"])


class _CallReader(DataSourceReader):
    def __init__(self, call: str) -> None:
        self._call = call

    def partitions(self) -> list[InputPartition]:
        """Run the call: Spark plans on the driver, but an executor may be another machine."""
        folder, method, *arguments = json.loads(
            self._call, object_hook=lambda document: ArrowFolder(document["at"])
        )
        result = getattr(folder, method)(*arguments)
        return [InputPartition(json.dumps(list(result) if method == "names" else result))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (partition.value,)
