"""The sizes of records in Arrow."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["bytes_of"]


def bytes_of(rows: pa.RecordBatch | pa.Table) -> int:
    """The bytes of the columns key and value."""
    sums = (pc.sum(pc.binary_length(rows[name])).as_py() for name in ("key", "value"))
    return sum(each or 0 for each in sums)
