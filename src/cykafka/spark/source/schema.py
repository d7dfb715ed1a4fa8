"""The source's columns: their types in Spark and in Arrow."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cykafka.internal import did_you_mean

__all__ = ["Projection", "source_schema"]

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_ARROW_HEADERS = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
_COLUMNS: dict[str, tuple[DataType, pa.DataType]] = {
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (_HEADERS, _ARROW_HEADERS),
}


def source_schema(include_headers: bool) -> StructType:
    """Return the columns of Spark's Kafka source, all nullable.

    Parameters
    ----------
    include_headers : bool
        Whether to add the column ``headers``.
    """
    return StructType(
        [
            StructField(name, kind)
            for name, (kind, _) in _COLUMNS.items()
            if include_headers or name != "headers"
        ]
    )


class Projection:
    """The columns that a query reads, in its order.

    Parameters
    ----------
    schema : StructType
        The source's own schema, or the user's from ``.schema()``: some of the columns with their
        types, in any order. ``NOT NULL`` is checked as records are read.
    null_headers : bool
        Whether `headers` is null instead of empty for a record without headers.

    Raises
    ------
    ValueError
        A column does not exist, has another type, or appears twice. The message names the column.
    """

    def __init__(self, schema: StructType, *, null_headers: bool = False) -> None:
        self.null_headers = null_headers
        if not schema.fields:
            raise ValueError("schema: expected at least one column")
        fields = []
        for field in schema.fields:
            if field.name not in _COLUMNS:
                columns = f"; the columns are {', '.join(_COLUMNS)}"
                hint = did_you_mean(field.name, _COLUMNS, cutoff=0.6) or columns
                raise ValueError(f"schema: unknown column {field.name!r}{hint}")
            kind, arrow = _COLUMNS[field.name]
            if field.dataType != kind:
                raise ValueError(f"schema: column {field.name} {_other(field.dataType, kind)}")
            fields.append(pa.field(field.name, arrow, nullable=field.nullable))
        self.names = tuple(field.name for field in fields)
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"schema: column {twice} appears twice")
        self.arrow = pa.schema(fields)
        self.not_null = tuple(field.name for field in fields if not field.nullable)

    def finish(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Check the schema's NOT NULL columns in a batch. Returns the batch with that schema."""
        if not self.null_headers and "headers" in self.names:
            batch = _without_null_headers(batch)
        if not self.not_null:
            return batch
        for name in self.not_null:
            column = batch.column(name)
            if column.null_count:
                row = column.is_null().index(True).as_py()
                raise ValueError(
                    f"schema: column {name} is NOT NULL, but it is null in row {row} of a batch "
                    f"of {batch.num_rows}{_place(batch, row)}: remove NOT NULL from the schema"
                )
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.arrow)


def _without_null_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace nulls in the column `headers` with empty lists, without a copy.

    For each row that Spark sends to Python, it visits all earlier rows with a null list.
    """
    headers = batch.column("headers")
    if not headers.null_count:
        return batch
    offsets = headers.buffers()[1]
    filled = pa.Array.from_buffers(
        headers.type, len(headers), [None, offsets], 0, headers.offset, [headers.values]
    )
    at = batch.schema.get_field_index("headers")
    return batch.set_column(at, batch.schema.field(at), filled)


def _other(given: DataType, kind: DataType) -> str:
    if given.simpleString() == kind.simpleString():
        return f"has a NOT NULL inside its type: write {kind.simpleString()}"
    return (
        f"is {kind.simpleString()}, not {given.simpleString()}: read it as "
        f"{kind.simpleString()}, then cast it"
    )


def _place(batch: pa.RecordBatch, row: int) -> str:
    names = ("topic", "partition", "offset")
    found = [
        f"{name} {batch.column(name)[row].as_py()}" for name in names if name in batch.schema.names
    ]
    return f" ({', '.join(found)})" if found else ""
