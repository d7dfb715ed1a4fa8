"""Batches of records to tables with the fields of their values, and tables to values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, Protocol, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cykafka.schemas.columns import (
    NO_ID,
    NULL,
    Results,
    Rows,
    each_or_all,
    rows_of,
    schema_ids,
    without_head,
)
from cykafka.schemas.document import FORMS, Document, UnfitError, is_subject
from cykafka.schemas.error import SchemaNotFoundError
from cykafka.schemas.faults import shorten_error
from cykafka.schemas.formats import reader_for, writer_for
from cykafka.schemas.framing import (
    ID_BYTES,
    KEY_SCHEMA_ID,
    VALUE_SCHEMA_ID,
    frame_id,
    split_frame,
    split_indexes,
)
from cykafka.schemas.schema import RegisteredSchema, Schema
from cykafka.serialization import SerializationError

__all__ = ["Registry", "decode_batch", "encode_table"]

_MODES = ("PERMISSIVE", "DROP", "FAIL")
_PLACES = ("topic", "partition", "offset", "timestamp")
_MOST_SCHEMAS = 1000
_HEADERS = {"key": KEY_SCHEMA_ID, "value": VALUE_SCHEMA_ID}
_NOTHING = pa.scalar(b"", pa.binary())
_NOT_WIRE = (
    "it is not in the wire format of Schema Registry: it does not begin with a zero byte and the "
    "id of a schema"
)

# A schema's id, the numbers of the rows that were written with it, and their values without it.
_Group: TypeAlias = tuple[int | UUID, Any, pa.BinaryArray]


class Registry(Protocol):
    """The methods of a `SchemaRegistryClient` that batches need."""

    def document_by_id(self, schema_id: int | UUID) -> Document: ...
    def document_by_version(
        self, subject_name: str, version: int | Literal["latest"] = "latest"
    ) -> Document: ...
    def document(self, schema: Schema) -> Document: ...
    def lookup_schema(self, subject_name: str, schema: Schema) -> RegisteredSchema: ...


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
        also reads values without a schema id.
    key : str, optional
        The format of the keys. None, the default, leaves them as bytes.
    schema : Schema or str, optional
        The reader's schema: a Schema, a text, or ``SUBJECT:VERSION`` (a number or ``latest``).
        By default the schema with the highest id in the batch, so that the columns of two batches
        may differ. For Protobuf ``#MESSAGE`` may follow ``SUBJECT:VERSION``; the default is the
        file's first message.
    key_schema : Schema or str, optional
        The same for keys.
    mode : str, default "PERMISSIVE"
        For records that cannot be decoded: ``PERMISSIVE`` returns null fields and the reason in
        the column ``error``, ``DROP`` omits them and stores their number in the table's metadata
        as ``dropped``, ``FAIL`` raises an error.

    Returns
    -------
    pyarrow.Table
        The columns topic, partition, offset, timestamp and key; one column for each field of the
        value, or ``value`` if it is not a record; and ``error`` for ``PERMISSIVE``. A field with
        the name of another column becomes ``value.NAME``.

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
    errors = _both(errors, key_errors)
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


def _both(errors: pa.Array, others: pa.Array) -> pa.Array:
    return errors if others.null_count == len(others) else pc.coalesce(errors, others)


def _decoded(
    client: Registry | None,
    batch: Any,
    column: pa.ChunkedArray,
    name: str,
    form: str,
    schema: Schema | str | None,
) -> tuple[pa.Array, pa.Array]:
    """Return a column's values, and the error of each row."""
    whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    values = whole.cast(pa.binary())
    if form == "bytes":
        return values, pa.nulls(len(values), pa.string())
    if form == "string":
        made, wrong = _texts(values)
        errors: list[str | None] = [None] * len(values)
        for row, words in wrong.items():
            errors[row] = f"the {name} {words}"
        return made, pa.array(errors, pa.string())
    if form not in FORMS:
        raise ValueError(f"{name}: expected {', '.join(FORMS)}, string or bytes, got {form!r}")
    if client is None and form != "json":
        raise ValueError(f"{name}: the format {form} needs a client of Schema Registry")
    return _Decoding(client, batch, values, name, form).decode(schema)


def _texts(values: pa.BinaryArray) -> Rows:
    def work(low: int, high: int) -> pa.Array:
        return values[low:high].cast(pa.string())

    return each_or_all(len(values), work, pa.string(), "is not UTF-8")


class _Decoding:
    """Decodes one column of a batch.

    Parameters
    ----------
    client, batch
        As for `decode_batch`.
    values : pa.BinaryArray
    name : str
        key or value.
    form : str
        A key of `FORMS`.
    """

    def __init__(
        self, client: Registry | None, batch: Any, values: pa.BinaryArray, name: str,
        form: str,
    ) -> None:  # fmt: skip
        self._client = client
        self._values = values
        self._name = name
        self._form = form
        self._wrong: dict[int, str] = {}
        ids = schema_ids(values)
        self._groups = [*self._named_in_headers(batch, ids)]
        for number in np.unique(ids[ids >= 0]):
            rows = np.flatnonzero(ids == number)
            payloads = without_head(rows_of(values, rows), ID_BYTES)
            self._groups.append((int(number), rows, payloads))
        self._bare = np.flatnonzero(ids == NO_ID)
        # A schema, or why there is none.
        self._documents = {number: self._document(number) for number, _, _ in self._groups}

    def _named_in_headers(self, batch: Any, ids: Any) -> Iterator[_Group]:
        """Yield the rows whose headers name a schema, and take them out of `ids`."""
        heads = batch.header(_HEADERS[self._name]) if hasattr(batch, "header") else ()
        found: dict[bytes, list[int]] = {}
        for row, head in enumerate(heads):
            if head is not None:
                found.setdefault(head, []).append(row)
        for head, numbers in found.items():
            rows = np.array(numbers, np.int64)
            ids[rows] = NULL
            try:
                number, place = split_frame(head)
                # The indexes of a Protobuf message follow the schema's id. Further bytes do not
                # belong to the value.
                end = split_indexes(head, place)[1] if self._form == "protobuf" else place
            except SerializationError as error:
                self._wrong.update(dict.fromkeys(numbers, f"its header is wrong: {error}"))
                continue
            indexes = pa.scalar(head[place:end], pa.binary())
            payloads = rows_of(self._values, rows)
            yield number, rows, pc.binary_join_element_wise(indexes, payloads, _NOTHING)

    def _document(self, number: int | UUID) -> Document | str:
        if self._client is None:
            return "no client of Schema Registry was given"
        try:
            document = self._client.document_by_id(number)
        except SchemaNotFoundError as error:
            return f"Schema Registry has no schema with the id {number}: {error.error_message}"
        except UnfitError as error:
            return f"the schema {number} cannot be used: {shorten_error(error)}"
        if document.form != self._form:
            return (
                f"the schema {number} cannot be used: it is of {FORMS[document.form]}, expected "
                f"{FORMS[self._form]}"
            )
        return document

    def decode(self, schema: Schema | str | None) -> tuple[pa.Array, pa.Array]:
        """Return the values, and the error of each row."""
        reader = self._reader(schema)
        results = Results(len(self._values), reader.kind if reader else pa.binary())
        is_json = self._form == "json"
        if is_json and reader:
            results.put(self._bare, reader.read(rows_of(self._values, self._bare)))
        else:
            for row in self._bare:
                results.errors[row] = _NOT_WIRE
        for wrong, words in self._wrong.items():
            results.errors[wrong] = words
        for number, rows, payloads in self._groups:
            document = self._documents[number]
            if isinstance(document, str) or reader is None:
                results.put(rows, _all_wrong(payloads, reader, document))
                continue
            try:
                read = _read_function(reader, document, document.id)
            except UnfitError as error:
                words = f"the schema {number} cannot be used: {shorten_error(error)}"
                results.put(rows, _all_wrong(payloads, reader, words))
            else:
                results.put(rows, read(payloads))
        results.errors = [
            words and f"the {self._name} cannot be decoded: {words}" for words in results.errors
        ] if any(results.errors) else results.errors  # fmt: skip
        return results.columns()

    def _reader(self, schema: Schema | str | None) -> Any:
        """Return the reader; None if no schema is known."""
        message = ""
        document: Document | None
        if schema is not None:
            document, message = self._given(schema)
        else:
            usable = [found for found in self._documents.values() if isinstance(found, Document)]
            document = max(usable, key=lambda found: found.id or 0, default=None)
        if self._form == "json":
            return self._json_reader(document)
        return None if document is None else reader_for(self._form, document, message)

    def _given(self, schema: Schema | str) -> tuple[Document, str]:
        message = ""
        if isinstance(schema, str):
            text = schema.strip()
            if self._form == "protobuf" and "#" in text:
                text, _, message = text.rpartition("#")
            if is_subject(text):
                return _version(self._client, text), message
            schema = _of_text(text, self._form)
        if self._client is not None:
            return self._client.document(schema), message
        return Document(self._form, schema.schema_str), message

    def _json_reader(self, document: Document | None) -> Any:
        from cykafka.schemas.json_columns import inferred_type
        from cykafka.schemas.json_schema import JsonTableReader, whole

        if document is not None and "properties" in whole(document):
            return JsonTableReader.of(document)
        parts = [payloads for _, _, payloads in self._groups]
        kind = inferred_type(pa.concat_arrays([rows_of(self._values, self._bare), *parts]))
        return None if kind is None else JsonTableReader(kind)


def _all_wrong(payloads: pa.Array, reader: Any, words: Any) -> Rows:
    kind = reader.kind if reader else pa.binary()
    return pa.nulls(len(payloads), kind), dict.fromkeys(range(len(payloads)), str(words))


@lru_cache(_MOST_SCHEMAS)
def _read_function(reader: Any, document: Document, _id: int | None) -> Callable[..., Rows]:
    # Errors name the id, which is not a part of a document's equality.
    read: Callable[..., Rows] = reader.reader_of(document)
    return read


def _of_text(text: str, form: str) -> Schema:
    if form != "protobuf":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                "schema: expected SUBJECT:VERSION, such as orders-value:latest, or a schema, "
                f"which this is not: {error}"
            ) from None
    return Schema(text, FORMS[form])


def _version(client: Registry | None, text: str) -> Document:
    if client is None:
        raise ValueError(f"schema: {text} needs a client of Schema Registry")
    subject, _, version = text.rpartition(":")
    return client.document_by_version(subject, "latest" if version == "latest" else int(version))


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
    SerializationError
        A row does not fit the schema. It names the row.
    UnfitError
        The schema is unusable, or has other fields than the columns.
    SchemaRegistryError
        The registry does not respond, or does not contain the schema.
    """
    table = pa.table(data)
    kept = [name for name in apart if name is not None]
    if "value" in kept:
        raise ValueError("a column that is not a field of the value cannot have the name value")
    if subject is None and topic is None:
        raise ValueError("subject: expected a name, because the topic is a column")
    document, message = _writer_schema(client, subject or f"{topic}-value", schema)
    if document.id is None:
        raise UnfitError("the schema has no id")
    writer = writer_for(document.form, document, message)
    rows = table.drop_columns(kept) if kept else table
    chunks = [batch.to_struct_array() for batch in rows.combine_chunks().to_batches()]
    kind = pa.struct(list(rows.schema))
    values = pa.concat_arrays(chunks) if chunks else pa.nulls(0, kind)
    if document.form == "json":
        from cykafka.schemas.json_columns import to_json

        values = to_json(values)
    writer.check(values.type)
    found, wrong = writer.write(values)
    if wrong:
        row = min(wrong)
        raise SerializationError(
            f"row {row} of {len(values)} does not fit the schema {document.id}: {wrong[row]}"
        )
    head = pa.scalar(frame_id(document.id), pa.binary())
    encoded = pc.binary_join_element_wise(head, found, _NOTHING)
    return pa.table({**{name: table[name] for name in kept}, "value": encoded})


def _writer_schema(
    client: Registry, subject: str, schema: Schema | str | None
) -> tuple[Document, str]:
    """Return the writer's schema with its id, and the Protobuf message's name."""
    message = ""
    if isinstance(schema, str) and "#" in schema and is_subject(schema.rpartition("#")[0]):
        schema, _, message = schema.rpartition("#")
    if schema is None:
        return client.document_by_version(subject), message
    if isinstance(schema, str) and is_subject(schema):
        return _version(client, schema), message
    if isinstance(schema, str):
        latest = client.document_by_version(subject)
        schema = replace(_of_text(schema, latest.form), references=latest.references)
    registered = client.lookup_schema(subject, schema)
    document = client.document(schema)
    return replace(document, id=registered.schema_id), message
