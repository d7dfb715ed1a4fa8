"""JSON Schema: checks values with the schema that they were written with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from cykafka.schemas.arrow.columns import Rows, convert_rows
from cykafka.schemas.arrow.json_columns import json_reader, to_json
from cykafka.schemas.model.cache import keep_results
from cykafka.schemas.model.document import Document, UnfitError
from cykafka.schemas.model.faults import shorten_error
from cykafka.schemas.model.json_validation import fault_of, inlined, loads, title_of, validator_for

__all__ = ["JsonReader", "JsonTableReader", "JsonWriter", "resolve_references"]

_MOST_SCHEMAS = 1000


@keep_results(_MOST_SCHEMAS)
def resolve_references(document: Document) -> dict[str, Any]:
    """Return a schema with its references replaced by the referenced schemas. Do not change it."""
    found = inlined(document.text, document.parts)
    if not isinstance(found, dict):
        raise UnfitError("expected a JSON Schema of an object")
    return found


def _faults(validator: Any, values: pa.BinaryArray) -> dict[int, str]:
    """Return why values do not fit, by row number. Null fits."""
    found = {}
    for number, value in enumerate(values.to_pylist()):
        try:
            fault = None if value is None else fault_of(validator, loads(value))
        except (ValueError, RecursionError) as error:
            fault = f"it is not JSON: {shorten_error(error)}"
        if fault:
            found[number] = fault
    return found


class JsonReader:
    """Checks values. Spark reads them later, because Spark is faster.

    Attributes
    ----------
    kind : pa.DataType
        The type of the values that `reader_of` produces: JSON as bytes.
    """

    kind = pa.binary()

    def reader_of(self, document: Document) -> Callable[[pa.BinaryArray], Rows]:
        """Return a function that checks values written with a schema."""
        validator = validator_for(document.text, document.parts)
        words = f"the value does not fit the schema {document.id}"

        def read(payloads: pa.BinaryArray) -> Rows:
            faults = _faults(validator, payloads).items()
            return payloads, {number: f"{words}: {fault}" for number, fault in faults}

        return read

    def check(self, document: Document) -> None:
        """Do nothing, because JSON does not define schema resolution rules."""


class JsonTableReader:
    """Reads values to Arrow, and checks those with a schema.

    Parameters
    ----------
    schema : dict or pa.StructType
        As for `json_reader`.

    Attributes
    ----------
    kind : pa.DataType
        The type of the values.
    """

    def __init__(self, schema: Any) -> None:
        self.kind, self.read = json_reader(schema)

    @classmethod
    @keep_results(_MOST_SCHEMAS)
    def of(cls, document: Document) -> JsonTableReader:
        """Return the reader for a registered schema."""
        return cls(resolve_references(document))

    def reader_of(self, document: Document) -> Callable[[pa.BinaryArray], Rows]:
        """Return a function that checks and reads values written with a schema."""
        check = JsonReader().reader_of(document)

        def read(payloads: pa.BinaryArray) -> Rows:
            _, wrong = check(payloads)
            found, more = self.read(payloads)
            return found, {**more, **wrong}

        return read


class JsonWriter:
    """Writes values as JSON, and checks them with a schema.

    Attributes
    ----------
    kind : pa.DataType
        JSON as bytes.
    name : str
        The schema's title.
    """

    kind = pa.binary()

    def __init__(self, document: Document) -> None:
        self._validator = validator_for(document.text, document.parts)
        self._document = document
        self.name = str(title_of(document.text) or "")

    def check(self, kind: pa.DataType) -> None:
        """Raise UnfitError for a type that JSON lacks, or columns that the schema refuses."""
        if pa.types.is_struct(kind):
            to_json(pa.nulls(0, kind), self._schema())

    def write(self, values: pa.Array) -> Rows:
        """Check and return the values; null stays null. Structs become JSON."""
        if not pa.types.is_struct(values.type):
            return values, _faults(self._validator, values)
        schema = self._schema()
        found, wrong = convert_rows(
            len(values),
            lambda low, high: to_json(values[low:high], schema),
            pa.binary(),
            "JSON cannot have it",
        )
        return found, {**_faults(self._validator, found), **wrong}

    def _schema(self) -> dict[str, Any] | None:
        with suppress(UnfitError):  # such as a schema without an object
            return resolve_references(self._document)
        return None
