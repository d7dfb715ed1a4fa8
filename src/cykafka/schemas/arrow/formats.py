"""The readers and writers of each format, for columns of values."""

from __future__ import annotations

import importlib
from typing import Any

from cykafka.schemas.model.cache import keep_results
from cykafka.schemas.model.document import Document
from cykafka.schemas.model.faults import needing_libraries

__all__ = ["reader_for", "writer_for"]

_MOST_SCHEMAS = 1000
_FORMATS = {
    "avro": ("avro", "AvroReader", "AvroWriter"),
    "protobuf": ("protobuf", "ProtobufReader", "ProtobufWriter"),
    "json": ("json_schema", "JsonReader", "JsonWriter"),
}


def _classes(format: str) -> tuple[Any, Any]:
    # Import only the library of this format: the others may be missing.
    name, reader, writer = _FORMATS[format]
    with needing_libraries():
        module = importlib.import_module(f"cykafka.schemas.arrow.{name}")
    return getattr(module, reader), getattr(module, writer)


@keep_results(_MOST_SCHEMAS)
def reader_for(format: str, document: Document | None, message: str = "") -> Any:
    """Return the reader for a schema. JSON needs no schema here, because Spark reads it.

    Raises
    ------
    UnfitError
        The schema is unusable.
    """
    reader, _ = _classes(format)
    if format == "json":
        return reader()
    return reader(document, message) if message else reader(document)


@keep_results(_MOST_SCHEMAS)
def writer_for(format: str, document: Document, message: str = "") -> Any:
    """Return the writer for a schema. Raises like `reader_for`."""
    _, writer = _classes(format)
    return writer(document, message) if message else writer(document)
