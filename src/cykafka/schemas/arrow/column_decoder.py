"""Decodes a column of values in the wire format of Schema Registry, schema by schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from cykafka.schemas.arrow.columns import (
    NO_ID,
    NULL,
    Results,
    Rows,
    join_bytes,
    rows_of,
    schema_ids,
    without_head,
)
from cykafka.schemas.model.cache import keep_results
from cykafka.schemas.model.document import Document, UnfitError
from cykafka.schemas.model.error import SchemaNotFoundError
from cykafka.schemas.model.faults import shorten_error
from cykafka.schemas.model.framing import ID_BYTES, split_frame, split_indexes
from cykafka.schemas.model.references import context_of
from cykafka.schemas.model.schema import RegisteredSchema, Schema
from cykafka.serialization import SerializationError

__all__ = ["ColumnDecoder", "Registry", "read_function"]

_MOST_SCHEMAS = 1000
# Each unknown id is a request. Bytes that are not in the wire format may look like ids.
_MOST_UNKNOWN = 100
# The values of each schema whose message is looked up.
_MOST_HEADS = 100
_NOT_WIRE = (
    "it is not in the wire format of Schema Registry: it does not begin with a zero byte and the "
    "id of a schema"
)

_NO_TYPE = "no value of the batch is a JSON object whose type pyarrow can infer: pass schema="

# A schema's id, the numbers of the rows that were written with it, and their values without it.
_Group: TypeAlias = tuple[int | UUID, Any, pa.BinaryArray]


class Registry(Protocol):
    """The methods of a `SchemaRegistryClient` that batches need."""

    def document_by_id(
        self, schema_id: int | UUID, subject_name: str | None = None
    ) -> Document: ...
    def document_by_version(
        self,
        subject_name: str,
        version: int | str = "latest",
        *,
        modes: tuple[str, ...] | None = None,
    ) -> Document: ...
    def document(
        self,
        schema: Schema,
        id: int | None = None,
        subject_name: str | None = None,
        *,
        modes: tuple[str, ...] | None = None,
    ) -> Document: ...
    def lookup_schema(self, subject_name: str, schema: Schema) -> RegisteredSchema: ...


class ColumnDecoder:
    """Decodes one column of a batch.

    Parameters
    ----------
    client : Registry or None
        Without a client, only values without a schema id can be decoded.
    values : pa.BinaryArray
    name : str
        key or value.
    format : str
        A key of `SCHEMA_TYPES`.
    headers : iterable of bytes or None, optional
        The headers that name the schemas, one per row.
    subject : str, optional
        A subject whose context the ids belong to. By default it is the client's context.
    """

    def __init__(
        self, client: Registry | None, values: pa.BinaryArray, name: str, format: str,
        headers: Iterable[bytes | None] = (), subject: str | None = None,
    ) -> None:  # fmt: skip
        self._client = client
        self._context = context_of(subject) or None
        self._values = values
        self._name = name
        self._format = format
        self._wrong: dict[int, str] = {}
        ids = schema_ids(values)
        self._groups = [*self._named_in_headers(headers, ids)]
        for number in np.unique(ids[ids >= 0]):
            rows = np.flatnonzero(ids == number)
            payloads = without_head(rows_of(values, rows), ID_BYTES)
            self._groups.append((int(number), rows, payloads))
        self._bare = np.flatnonzero(ids == NO_ID)
        self._unknown = 0
        counts: Counter[int | UUID] = Counter()
        for number, rows, _ in self._groups:
            counts[number] += len(rows)
        # A schema, or why there is none. Frequent ids come first, because the requests for unknown
        # ids are limited, and random bytes seldom repeat.
        self._documents = {each: self._document(each) for each, _ in counts.most_common()}

    def newest_reader(self, make: Callable[[Document], Any]) -> Any:
        """Return the reader for the newest usable schema of the values; None without one.

        The newest schema has the highest id. GUIDs have no order: if there are any, the reader's
        schema is the one with the most fields.

        Parameters
        ----------
        make : callable
            Returns the reader for a schema. Values of a schema for which it raises UnfitError
            cannot be decoded.
        """
        readers = self._readers(make)
        usable = [name for name, found in self._documents.items() if isinstance(found, Document)]
        if not any(isinstance(name, UUID) for name in usable):
            return next(readers, None)
        return max(readers, key=lambda reader: _count_types(reader and reader.kind), default=None)

    def _readers(self, make: Callable[[Document], Any]) -> Iterator[Any]:
        """Yield the readers for the usable schemas, with the highest id first."""
        for number in sorted(self._documents, key=_rank, reverse=True):
            document = self._documents[number]
            if isinstance(document, Document):
                try:
                    reader = make(document)
                except UnfitError as error:
                    self._documents[number] = _unusable(number, error)
                else:
                    yield reader

    def messages_in(self, document: Document) -> Iterator[str]:
        """Yield those of a file's Protobuf messages that the values name, each once."""
        from cykafka.schemas.model.protobuf_files import message_names

        unseen = {*message_names(document).values()}
        for number, _, payloads in self._groups:
            written = self._documents[number]
            if not isinstance(written, Document):
                continue
            for payload in payloads[:_MOST_HEADS].to_pylist():
                with suppress(SerializationError, UnfitError):
                    name = message_names(written).get(split_indexes(payload, 0)[0])
                    if name in unseen:
                        unseen.remove(name)
                        yield name

    def payloads(self) -> pa.BinaryArray:
        """Return all values without their ids, in any order."""
        parts = [payloads for _, _, payloads in self._groups]
        return pa.concat_arrays([rows_of(self._values, self._bare), *parts])

    def decode(
        self, reader: Any, read_bare: Callable[[pa.BinaryArray], Rows] | None = None
    ) -> Results:
        """Return the values, and the error of each row.

        Parameters
        ----------
        reader : object or None
            As from `reader_for`; None if no schema is known.
        read_bare : callable, optional
            Reads values without a schema id. By default they cannot be decoded.
        """
        results = Results(len(self._values), reader.kind if reader else pa.binary())
        if read_bare is not None:
            results.put(self._bare, read_bare(rows_of(self._values, self._bare)))
        else:
            is_untyped = reader is None and self._format == "json"
            self._wrong.update(dict.fromkeys(self._bare, _NO_TYPE if is_untyped else _NOT_WIRE))
        for row, words in self._wrong.items():
            results.errors[row] = words
        for number, rows, payloads in self._groups:
            results.put(rows, self._read(reader, number, payloads))
        if any(results.errors):
            start = f"the {self._name} cannot be decoded: "
            results.errors = [words and start + words for words in results.errors]
        return results

    def _read(self, reader: Any, number: int | UUID, payloads: pa.BinaryArray) -> Rows:
        document = self._documents[number]
        if isinstance(document, str):
            words = document
        elif reader is None:
            words = _NO_TYPE  # the other formats have a reader here
        else:
            try:
                return read_function(reader, document, number)(payloads)
            except UnfitError as error:
                words = _unusable(number, error)
        kind = reader.kind if reader else pa.binary()
        return pa.nulls(len(payloads), kind), dict.fromkeys(range(len(payloads)), words)

    def _named_in_headers(self, headers: Iterable[bytes | None], ids: Any) -> Iterator[_Group]:
        """Yield the rows whose headers name a schema, and take them out of `ids`."""
        found: dict[bytes, list[int]] = {}
        for row, head in enumerate(headers):
            if head is not None and ids[row] != NULL:
                found.setdefault(head, []).append(row)
        for head, numbers in found.items():
            rows = np.array(numbers, np.int64)
            ids[rows] = NULL
            try:
                number, place = split_frame(head)
                # The indexes of a Protobuf message follow the schema's id. Further bytes do not
                # belong to the value.
                is_protobuf = self._format == "protobuf"
                end = split_indexes(head, place)[1] if is_protobuf else place
            except SerializationError as error:
                self._wrong.update(dict.fromkeys(numbers, f"its header is wrong: {error}"))
                continue
            yield number, rows, join_bytes(head[place:end], rows_of(self._values, rows))

    def _document(self, number: int | UUID) -> Document | str:
        if self._client is None:
            return "no client of Schema Registry was given"
        if self._unknown >= _MOST_UNKNOWN:
            return (
                f"the schema {number} was not requested, because {_MOST_UNKNOWN} schema ids of "
                "the batch are unknown"
            )
        try:
            document = self._client.document_by_id(number, self._context)
            document.check_format(self._format, "it")
            return document
        except SchemaNotFoundError as error:
            self._unknown += 1
            status = f"{error.http_status_code} " if isinstance(number, int) else ""
            words = f"{status}{error.error_message}"
            return f"Schema Registry has no schema with the id {number}: {words}"
        except UnfitError as error:
            return _unusable(number, error)


def _rank(number: int | UUID) -> tuple[int, str]:
    return (-1, str(number)) if isinstance(number, UUID) else (number, "")


def _count_types(kind: pa.DataType | None) -> int:
    """Return the number of types in a type, such as its fields; 0 for None."""
    if kind is None:
        return 0
    if pa.types.is_map(kind):
        return 1 + _count_types(kind.item_type)
    if pa.types.is_list(kind):
        return 1 + _count_types(kind.value_type)
    fields = kind if pa.types.is_struct(kind) else ()
    return 1 + sum(_count_types(field.type) for field in fields)


def _unusable(number: int | UUID, reason: object) -> str:
    return f"the schema {number} cannot be used: {shorten_error(reason)}"


def read_function(reader: Any, document: Document, number: Any) -> Callable[..., Rows]:
    """Return the function that reads values written with a schema.

    Parameters
    ----------
    reader : object
        As for `ColumnDecoder.decode`.
    document : Document
    number : int or UUID or None
        The schema's id or GUID, for errors.

    Raises
    ------
    UnfitError
        The reader cannot read such values.
    """
    document = replace(document, id=number)
    # A reader for one batch would only displace others from the cache.
    if getattr(reader, "is_for_one_batch", False):
        read: Callable[..., Rows] = reader.reader_of(document)
        return read
    return _read_function(reader, document, number)


@keep_results(_MOST_SCHEMAS)
def _read_function(reader: Any, document: Document, _number: Any) -> Callable[..., Rows]:
    # The number is not a part of a document's equality.
    read: Callable[..., Rows] = reader.reader_of(document)
    return read
