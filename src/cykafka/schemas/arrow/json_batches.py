"""Readers of JSON values for batches: by a schema, or by the values themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cykafka.schemas.arrow.column_decoder import read_function
from cykafka.schemas.arrow.columns import Rows
from cykafka.schemas.arrow.formats import reader_for
from cykafka.schemas.arrow.json_columns import deep_rows, inferred_type, json_reader
from cykafka.schemas.arrow.json_schema import JsonTableReader, resolve_references
from cykafka.schemas.model.document import Document

__all__ = ["InferredReader", "inferred_reader", "schema_reader"]


class InferredReader:
    """Reads JSON objects of one batch, and checks those with a schema.

    Parameters
    ----------
    kind : pa.StructType

    Attributes
    ----------
    kind : pa.DataType
        The type of the values.
    """

    is_for_one_batch = True

    def __init__(self, kind: pa.StructType) -> None:
        self.kind, self._read = json_reader(kind)

    def read(self, payloads: pa.BinaryArray) -> Rows:
        """Read values without checking them with a schema."""
        found, wrong = self._read(payloads)
        return found, {**wrong, **deep_rows(payloads)}

    def reader_of(self, document: Document) -> Callable[[pa.BinaryArray], Rows]:
        """Return a function that checks and reads values written with a schema."""
        # This reader is new for each batch, but the schema must not be compiled for each.
        check = read_function(reader_for("json", None), document, document.id)

        def read(payloads: pa.BinaryArray) -> Rows:
            _, wrong = check(payloads)
            found, more = self.read(payloads)
            return found, {**more, **wrong}

        return read


def schema_reader(document: Document) -> JsonTableReader | None:
    """Return the reader for a registered schema; None if the schema names no columns.

    Raises
    ------
    UnfitError
        The schema is unusable.
    """
    return JsonTableReader.of(document) if _has_type(resolve_references(document)) else None


def inferred_reader(payloads: pa.BinaryArray) -> InferredReader | None:
    """Return a reader for the objects among JSON values; None if there are none."""
    deep = deep_rows(payloads)
    if deep:
        payloads = payloads.take(pa.array(np.delete(np.arange(len(payloads)), list(deep))))
    kind = inferred_type(payloads)
    return None if kind is None else InferredReader(kind)


def _has_type(schema: Mapping[str, Any]) -> bool:
    if "properties" in schema:
        return True
    named = schema.get("type", [])
    kinds = {named} if isinstance(named, str) else set(named)
    if kinds - {"null"} == {"object"}:
        return isinstance(schema.get("additionalProperties"), Mapping)
    return bool(kinds - {"null"})
