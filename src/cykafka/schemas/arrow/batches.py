"""Batches of records to tables with the fields of their values, and tables to values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cykafka.schemas.arrow.column_decoder import ColumnDecoder, Registry
from cykafka.schemas.arrow.columns import convert_rows, join_bytes
from cykafka.schemas.arrow.formats import reader_for, writer_for
from cykafka.schemas.model.document import (
    SCHEMA_TYPES,
    Document,
    UnfitError,
    is_proto_text,
    is_subject,
)
from cykafka.schemas.model.error import SchemaNotFoundError
from cykafka.schemas.model.framing import frame_id, header_name
from cykafka.schemas.model.rules import READING, WRITING
from cykafka.schemas.model.schema import RegisteredSchema, Schema
from cykafka.serialization import SerializationError

__all__ = ["decode_batch", "encode_table"]

_MODES = ("PERMISSIVE", "DROP", "FAIL")
_PLACES = ("topic", "partition", "offset", "timestamp")


def decode_batch(
    client: Registry | None,
    batch: Any,
    value: str = "avro",
    key: str | None = None,
    *,
    schema: Schema | str | None = None,
    key_schema: Schema | str | None = None,
    mode: str = "PERMISSIVE",
) -> pa.Table:
    """Return a batch of records as a table, with a column for each field of the values.

    Parameters
    ----------
    client : Registry or None
        None if neither values nor keys have schemas.
    batch : MessageBatch, or object with ``__arrow_c_stream__`` or ``__arrow_c_array__``
        Records with the columns of a MessageBatch: key, value, topic, partition, offset,
        timestamp.
    value : str, default "avro"
        The format of the values: ``avro``, ``protobuf``, ``json``, ``string`` or ``bytes``. JSON
        also reads values without a schema id. No schema checks those: `schema` only defines their
        columns.
    key : str, optional
        The format of the keys. None, the default, leaves them as bytes.
    schema : Schema or str, optional
        The reader's schema: a Schema, a text, or ``SUBJECT:VERSION`` (a number or ``latest``).
        By default the usable schema with the highest id in the batch, so that the columns of two
        batches may differ. If headers name schemas by GUID, which have no order, it is the schema
        with the most fields. For Protobuf ``#MESSAGE`` may follow ``SUBJECT:VERSION``; the default
        is a message that the records name. The ids of the records belong to the context of
        SUBJECT, or else to that of the client's ``url``, such as
        ``http://localhost:8081/contexts/.name``.
    key_schema : Schema or str, optional
        The same for keys.
    mode : str, default "PERMISSIVE"
        For records that cannot be decoded, also because their schema is unusable or one of many
        unknown schemas: ``PERMISSIVE`` returns null fields and the reason in
        the column ``error``, ``DROP`` omits them and stores their number in the table's metadata
        as ``dropped``, ``FAIL`` raises an error.

    Returns
    -------
    pyarrow.Table
        The columns topic, partition, offset, timestamp and key; one column for each field of the
        value, or ``value`` if it is not a record; and ``error`` for ``PERMISSIVE``. A field with
        the name of another column becomes ``value.NAME``. The fields of an Avro union of several
        types are member0, member1, and so on.

    Raises
    ------
    SerializationError
        `mode` is ``FAIL``, and a record cannot be decoded. It names topic, partition and offset.
    SchemaRegistryError
        The registry does not respond, or does not contain the reader's schema.
    UnfitError
        The reader's schema is unusable.
    """
    if mode not in _MODES:
        raise ValueError(f"mode: expected {', '.join(_MODES)}, got {mode!r}")
    table = pa.table(batch)
    values, errors = _decoded(client, batch, table["value"], "value", value, schema)
    keys, key_errors = _decoded(client, batch, table["key"], "key", key or "bytes", key_schema)
    if key_errors.null_count < len(key_errors):
        errors = pc.coalesce(errors, key_errors)
    columns: dict[str, Any] = {name: table[name] for name in _PLACES}
    columns["key"] = keys
    if pa.types.is_struct(values.type) and value not in ("string", "bytes"):
        for field, column in zip(values.type, values.flatten(), strict=True):
            name = field.name
            while name in columns or name == "error":
                name = f"value.{name}"
            columns[name] = column
    else:
        columns["value"] = values
    if mode == "PERMISSIVE":
        return pa.table({**columns, "error": errors})
    if mode == "FAIL" and errors.null_count < len(errors):
        row = int(np.flatnonzero(errors.is_valid())[0])
        topic, partition, offset = (columns[name][row].as_py() for name in _PLACES[:3])
        raise SerializationError(f"{topic}[{partition}] offset {offset}: {errors[row]}")
    dropped = len(errors) - errors.null_count
    found = pa.table(columns)
    if dropped:
        found = found.filter(errors.is_null())
    return found.replace_schema_metadata({"dropped": str(dropped)}) if mode == "DROP" else found


def _decoded(
    client: Registry | None,
    batch: Any,
    column: pa.ChunkedArray,
    name: str,
    format: str,
    schema: Schema | str | None,
) -> tuple[pa.Array, pa.Array]:
    """Return a column's values, and the error of each row."""
    chunk = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    values = chunk.cast(pa.binary())
    if format == "bytes":
        return values, pa.nulls(len(values), pa.string())
    if format == "string":
        made, wrong = convert_rows(
            len(values),
            lambda low, high: values[low:high].cast(pa.string()),
            pa.string(),
            f"the {name} is not UTF-8",
        )
        return made, pa.array(map(wrong.get, range(len(values))), pa.string())
    if format not in SCHEMA_TYPES:
        raise ValueError(
            f"{name}: expected {', '.join(SCHEMA_TYPES)}, string or bytes, got {format!r}"
        )
    if client is None and format != "json":
        raise ValueError(f"{name}: the format {format} needs a client of Schema Registry")
    headers = batch.header(header_name(name)) if hasattr(batch, "header") else ()
    document, message, subject = None, "", None
    if schema is not None:
        document, message, subject = _reader_schema(client, schema, format)
    decoder = ColumnDecoder(client, values, name, format, headers, subject)

    if format == "json":
        return _json_values(decoder, document)

    def make(of: Document) -> Any:
        if message or format != "protobuf":
            return reader_for(format, of, message)
        unfit = None
        for name in decoder.messages_in(of):
            try:
                return reader_for(format, of, name)
            except UnfitError as error:
                unfit = unfit or error
        if unfit is not None:
            raise unfit
        return reader_for(format, of, "")

    reader = decoder.newest_reader(make) if document is None else make(document)
    return decoder.decode(reader).columns()


def _json_values(decoder: ColumnDecoder, document: Document | None) -> tuple[pa.Array, pa.Array]:
    """Return JSON values, with or without ids, and the error of each row."""
    from cykafka.schemas.arrow.json_batches import inferred_reader, schema_reader

    reader: Any = (
        decoder.newest_reader(schema_reader) if document is None else schema_reader(document)
    ) or inferred_reader(decoder.payloads())
    return decoder.decode(reader, reader and reader.read).columns()


def _reader_schema(
    client: Registry | None, schema: Schema | str, format: str
) -> tuple[Document, str, str | None]:
    """Return the reader's schema, the Protobuf message's name, and the subject if any."""
    message = ""
    if isinstance(schema, str):
        text = schema.strip()
        if format == "protobuf" and "#" in text:
            text, _, message = text.rpartition("#")
        if is_subject(text):
            return _version(client, text, READING), message, text.rpartition(":")[0]
        schema = _of_text(text, format)
    if client is not None:
        return client.document(schema, modes=READING), message, None
    return Document(format, schema.schema_str), message, None


def _of_text(text: str, format: str) -> Schema:
    if format != "protobuf":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                "schema: expected SUBJECT:VERSION, such as orders-value:latest, or a schema, "
                f"which this is not: {error}"
            ) from None
    return Schema(text, SCHEMA_TYPES[format])


def _version(client: Registry | None, text: str, modes: tuple[str, ...]) -> Document:
    if client is None:
        raise ValueError(f"schema: {text} needs a client of Schema Registry")
    subject, _, version = text.rpartition(":")
    return client.document_by_version(subject, version, modes=modes)


def encode_table(
    client: Registry,
    topic: str | None,
    data: Any,
    *,
    schema: Schema | str | None = None,
    subject: str | None = None,
    apart: Iterable[str | None] = (),
) -> pa.Table:
    """Return a table for `Producer.publish_arrow` whose column ``value`` has encoded records.

    Parameters
    ----------
    client : Registry
    topic : str or None
        None needs `subject`.
    data : object with ``__arrow_c_stream__`` or ``__arrow_c_array__``
        A table whose columns are the fields of the values.
    schema : Schema or str, optional
        The writer's schema, which must be registered in the subject; or ``SUBJECT:VERSION``. By
        default the subject's latest version.
    subject : str, optional
        The subject; ``TOPIC-value`` by default.
    apart : iterable of str or None
        The columns that are not fields of the value, such as the key's. They stay.

    Raises
    ------
    ValueError
        Two columns have the same name.
    SerializationError
        A row does not fit the schema. It names the row.
    UnfitError
        The schema is unusable, or has other fields than the columns.
    SchemaRegistryError
        The registry does not respond, or does not contain the schema.
    """
    table = pa.table(data)
    repeated = [name for name, count in Counter(table.column_names).items() if count > 1]
    if repeated:
        raise ValueError(f"column names must be unique: {', '.join(repeated)}")
    kept = list(dict.fromkeys(name for name in apart if name is not None))
    if "value" in kept:
        raise ValueError("a column that is not a field of the value cannot have the name value")
    if subject is None and topic is None:
        raise ValueError("subject: expected a name, because the topic is a column")
    subject = subject or f"{topic}-value"
    try:
        document, message = _writer_schema(client, subject, schema)
    except SchemaNotFoundError as error:
        codes = error.http_status_code, error.error_code, error.error_message
        advice = f"register the schema in the subject {subject}, or name another with subject="
        raise SchemaNotFoundError(*codes, text=f"{error}; {advice}", option=error.option) from None
    if document.id is None:
        raise UnfitError("the schema has no id")
    writer = writer_for(document.format, document, message)
    rows = table.drop_columns(kept) if kept else table
    chunks = [batch.to_struct_array() for batch in rows.combine_chunks().to_batches()]
    kind = pa.struct(list(rows.schema))
    values = pa.concat_arrays(chunks) if chunks else pa.nulls(0, kind)
    try:
        writer.check(values.type)
    except UnfitError as error:
        words = f"the columns do not fit the schema {document.id} ({writer.name}): {error}"
        raise UnfitError(words) from None
    found, wrong = writer.write(values)
    if wrong:
        row = min(wrong)
        raise SerializationError(
            f"row {row} of {len(values)} does not fit the schema {document.id}: {wrong[row]}"
        )
    encoded = join_bytes(frame_id(document.id), found)
    return pa.table({**{name: table[name] for name in kept}, "value": encoded})


def _writer_schema(
    client: Registry, subject: str, schema: Schema | str | None
) -> tuple[Document, str]:
    """Return the writer's schema with its id, and the Protobuf message's name."""
    message = ""
    if schema is None:
        return client.document_by_version(subject, modes=WRITING), message
    if isinstance(schema, str):
        text = schema.strip()
        if "#" in text and is_subject(text.rpartition("#")[0]):
            text, _, message = text.rpartition("#")
        if is_subject(text):
            return _version(client, text, WRITING), message
        schema, registered = _registered(client, subject, text)
    else:
        registered = client.lookup_schema(subject, schema)
    if schema.schema_type == SCHEMA_TYPES["protobuf"] and is_proto_text(schema.schema_str):
        document = client.document(schema, registered.schema_id, subject, modes=WRITING)
        return document, message
    document = client.document(schema, None, subject, modes=WRITING)
    return replace(document, id=registered.schema_id), message


def _registered(client: Registry, subject: str, text: str) -> tuple[Schema, RegisteredSchema]:
    """Return a subject's schema with a text. A text does not contain the schema's references."""
    latest = client.document_by_version(subject, modes=WRITING)
    schema = _of_text(text, latest.format)
    try:
        return schema, client.lookup_schema(subject, schema)
    except SchemaNotFoundError:
        if not latest.references:
            raise
    schema = replace(schema, references=latest.references)
    return schema, client.lookup_schema(subject, schema)
