"""Folders that the driver of a Spark Connect server can reach.

A client of Spark Connect has no JVM, and its file systems may be others than the server's. So a
data source makes each request on the server's driver, in the Python process that plans reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from cykafka.spark.jobs.arrow_folder import ArrowFolder, qualified
from cykafka.spark.jobs.errors import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["ConnectFolder", "FolderSource"]


class ConnectFolder:
    """A folder with the methods of `folders.Folder`; on the server it is an ArrowFolder.

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
        call = json.dumps([self, method, *arguments], default=lambda each: {"at": each.address})
        reader = self._spark.read.format(FolderSource.name()).option("call", call)
        try:
            (row,) = reader.load().collect()
        except PySparkException as error:
            raise OSError(explained(error)) from None
        return json.loads(row[0])

    def exists(self, name: str = "") -> bool:
        """Whether this file or folder exists."""
        return bool(self._call("exists", name))

    def names(self, name: str = "") -> Iterator[str]:
        """The names of the folder's entries, in no order; empty if the folder does not exist."""
        yield from self._call("names", name)

    def make(self, name: str = "") -> None:
        """Create a folder and its parents, if they do not exist."""
        self._call("make", name)

    def take(self, source: ConnectFolder, from_name: str, name: str) -> None:
        """Move a file from another folder of the same file system here, and replace a target."""
        self._call("take", source, from_name, name)

    def copy(self, other: ConnectFolder) -> None:
        """Copy the folder, if it exists, to `other`, which must not exist."""
        self._call("copy", other)

    def delete(self, name: str = "") -> None:
        """Delete a file, or a folder with its contents, if it exists."""
        self._call("delete", name)

    def read(self, name: str) -> str:
        """The text of a file."""
        return str(self._call("read", name))

    def write(self, name: str, words: str) -> None:
        """Write a file atomically: readers see the whole file or none."""
        self._call("write", name, words)


class FolderSource(DataSource):
    """One row: the result of a method of an ArrowFolder, as JSON."""

    @classmethod
    def name(cls) -> str:
        return "cykafka_folder"

    def schema(self) -> str:
        return "result string"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["call"])


class _Reader(DataSourceReader):
    def __init__(self, call: str) -> None:
        self._call = call

    def partitions(self) -> list[InputPartition]:
        """Make the call: Spark plans on the driver, but an executor may be another machine."""
        folder, method, *arguments = json.loads(
            self._call, object_hook=lambda each: ArrowFolder(each["at"])
        )
        result = getattr(folder, method)(*arguments)
        return [InputPartition(json.dumps(list(result) if method == "names" else result))]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        yield (partition.value,)
