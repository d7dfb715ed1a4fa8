"""Keeps a task's rows in memory and temporary files, to read them again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

import pyarrow as pa

__all__ = ["Spool", "local_folder", "write_through"]

# More bytes go to a file.
_IN_MEMORY = 16 * 1024 * 1024


def local_folder() -> str | None:
    """Return Spark's directory for temporary files in a worker, or None for the system's."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None


def write_through(batches: Iterable[pa.RecordBatch], file: Any) -> Iterator[pa.RecordBatch]:
    """Yield batches, and write them to a file as an Arrow stream. The file may stay empty."""
    writer = None
    for batch in batches:
        if writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            writer = pa.ipc.new_stream(file, batch.schema, options=options)
        writer.write_batch(batch)
        yield batch
    if writer is not None:
        writer.close()


class Spool:
    """Keeps Arrow batches, in a temporary file if they are large."""

    def __init__(self) -> None:
        self._file: Any = SpooledTemporaryFile(_IN_MEMORY, dir=local_folder())  # noqa: SIM115

    def keep(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, and keep them."""
        return write_through(batches, self._file)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Return the kept batches. Call this after the iterator from `keep` has ended."""
        self._file.seek(0)
        with pa.ipc.open_stream(self._file) as batches:
            yield from batches

    def close(self) -> None:
        """Drop the batches."""
        self._file.close()
