"""Decodes and encodes batches of values in Spark's workers, schema by schema."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cykafka.spark.jobs.schemas.document import FORMS, Document, SchemaSource, UnfitError
from cykafka.spark.jobs.schemas.registry import NotFoundError, RegistryError, registry_of
from cykafka.spark.jobs.schemas.wire import HEAD, NO_ID, Rows, schema_ids, told, without_head

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Decoder", "Encoder"]

_MOST_SCHEMAS = 1000
_FORMATS = {
    "avro": ("avro", "AvroReader", "AvroWriter"),
    "protobuf": ("protobuf", "ProtobufReader", "ProtobufWriter"),
    "json": ("json_schema", "JsonReader", "JsonWriter"),
}
_NOT_WIRE = (
    "the value is not in the wire format of Schema Registry: it does not begin with a zero byte "
    "and the id of a schema"
)


def _format(form: str) -> tuple[Any, Any]:
    # Import only the library of this format: the others may be missing.
    name, reader, writer = _FORMATS[form]
    module = importlib.import_module(f"cykafka.spark.jobs.schemas.{name}")
    return getattr(module, reader), getattr(module, writer)


@lru_cache(_MOST_SCHEMAS)
def _reader(form: str, document: Document | None, message: str = "") -> Any:
    """The reader of a schema; JSON has no schema, because Spark reads it.

    Raises
    ------
    UnfitError
        The schema cannot be used.
    """
    reader, _ = _format(form)
    if form == "json":
        return reader()
    return reader(document, message) if message else reader(document)


@lru_cache(_MOST_SCHEMAS)
def _writer(form: str, document: Document, message: str = "") -> Any:
    """The writer of a schema; errors as `_reader`."""
    _, writer = _format(form)
    return writer(document, message) if message else writer(document)


@lru_cache(_MOST_SCHEMAS)
def _function(decoder: Decoder, number: int) -> Any:
    document = registry_of(dict(decoder.options)).by_id(number)
    if document.form != decoder.form:
        raise UnfitError(f"it is of {FORMS[document.form]}, expected {FORMS[decoder.form]}")
    return decoder.reader.reader_of(document)


@dataclass(frozen=True)
class Decoder:
    """Decodes values by the schema that a reader has.

    Parameters
    ----------
    form : str
        avro, protobuf or json.
    options : tuple of (str, str)
        The options of the registry.
    document : Document or None
        The reader's schema; None for JSON.
    message : str
        Protobuf: the full name of the message.
    """

    form: str
    options: tuple[tuple[str, str], ...] = field(repr=False)  # with secrets
    document: Document | None
    message: str = ""

    @property
    def reader(self) -> Any:
        """The reader of the schema; raises UnfitError if the schema cannot be used."""
        return _reader(self.form, self.document, self.message)

    def column(self, value: Column) -> Column:
        """The structs (data, error) of a column."""
        from pyspark.sql import functions
        from pyspark.sql.pandas.types import from_arrow_type

        def decode(values: pa.Array) -> pa.Array:
            return self.decode(values)

        made = pa.struct([("data", self.reader.kind), ("error", pa.string())])
        kind = from_arrow_type(made, prefer_timestamp_ntz=True)
        # Spark must not decode a value twice, once for a condition.
        of_arrow: Any = functions
        column: Column = of_arrow.arrow_udf(decode, kind).asNondeterministic()(value)
        return column

    def decode(self, values: pa.Array) -> pa.StructArray:
        """The structs (data, error) of values, in their order; both are null for null.

        Raises
        ------
        RegistryError
            The registry does not answer. No record is bad for that.
        """
        values = values.cast(pa.binary())
        ids = schema_ids(values)
        errors: list[str | None] = [None] * len(values)
        for number in np.flatnonzero(ids == NO_ID):
            errors[number] = _NOT_WIRE
        parts = [pa.nulls(1, self.reader.kind)]  # for the rows without data
        places = np.zeros(len(values), np.int64)
        size = 1
        for number in np.unique(ids[ids >= 0]):
            rows = np.flatnonzero(ids == number)
            payloads = without_head(values.take(pa.array(rows)), HEAD)
            found, wrong = self._decoded(int(number), payloads)
            parts.append(found)
            places[rows] = np.arange(size, size + len(rows))
            size += len(rows)
            for row, words in wrong.items():
                errors[rows[row]] = words
                places[rows[row]] = 0
        data = pa.concat_arrays(parts).take(pa.array(places))
        return pa.StructArray.from_arrays([data, pa.array(errors, pa.string())], ["data", "error"])

    def _decoded(self, number: int, payloads: pa.Array) -> Rows:
        try:
            read = _function(self, number)
        except NotFoundError as error:
            words = f"Schema Registry has no schema with the id {number}: {error}"
        except UnfitError as error:
            words = f"the schema {number} cannot be used: {told(error)}"
        else:
            rows: Rows = read(payloads)
            return rows
        return pa.nulls(len(payloads), self.reader.kind), dict.fromkeys(
            range(len(payloads)), words
        )


@contextmanager
def _naming(subject: str, topic: str) -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        raise RegistryError(
            f'key "encode": Schema Registry does not have the schema in the subject {subject} '
            f"(topic {topic}): {error}. Register it, or set registry.auto.register.schemas to "
            'true together with the key "encode_schema"'
        ) from None


@dataclass(frozen=True)
class Encoder:
    """Encodes values by the schemas of the subjects of their topics.

    Parameters
    ----------
    form : str
        avro, protobuf or json.
    options : tuple of (str, str)
        The options of the registry.
    source : SchemaSource or None
        The schema; by default the latest version of each topic's subject.
    must : bool, default False
        Raise the error of a value, because there is no place for bad records.
    dry : bool, default False
        Do not ask for the id of a schema, which might register it.
    """

    form: str
    options: tuple[tuple[str, str], ...] = field(repr=False)  # with secrets
    source: SchemaSource | None
    must: bool = False
    dry: bool = False

    def column(self, value: Column, topic: Column) -> Column:
        """The structs (value, error) of a column."""
        from pyspark.sql import functions

        def encode(values: pa.Array, topics: pa.Array) -> pa.Array:
            return self.encode(values, topics)

        of_arrow: Any = functions
        made = of_arrow.arrow_udf(encode, "value BINARY, error STRING").asNondeterministic()
        column: Column = made(value, topic)
        return column

    def writer(self, topic: str) -> Any:
        """The writer of the schema for a topic.

        Raises
        ------
        RegistryError
            The registry does not answer, or it does not have the schema.
        UnfitError
            The schema cannot be used.
        """
        return self._found(topic)[0]

    def number(self, topic: str) -> int:
        """The id of the schema for a topic, which may be registered; errors as `writer`."""
        writer, number = self._found(topic)
        if number is not None or self.source is None or self.source.document is None:
            return number or 0
        registry = registry_of(dict(self.options))
        strategy = registry.options["subject.name.strategy.type"]
        if strategy != "TOPIC" and not writer.name:
            raise UnfitError(
                "the schema has no name, which registry.subject.name.strategy.type needs"
            )
        subject = {
            "RECORD": writer.name,
            "TOPIC_RECORD": f"{topic}-{writer.name}",
        }.get(strategy, f"{topic}-value")
        with _naming(subject, topic):
            return registry.id_of(subject, self.source.document)

    def _found(self, topic: str) -> tuple[Any, int | None]:
        """The writer for a topic, and the schema's id if it is known."""
        source = self.source or SchemaSource()
        if source.document is not None:
            return _writer(self.form, source.document, source.message), 0 if self.dry else None
        subject = source.subject or f"{topic}-value"
        with _naming(subject, topic):
            document = registry_of(dict(self.options)).version(subject, source.version)
        if document.form != self.form:
            raise UnfitError(
                f"the subject {subject} is of {FORMS[document.form]}, expected {FORMS[self.form]}"
            )
        return _writer(self.form, document, source.message), document.id

    def encode(self, values: pa.Array, topics: pa.Array) -> pa.StructArray:
        """The structs (value, error) of values, in their order; both are null for null.

        Raises
        ------
        RegistryError, UnfitError
            As `writer`; or the type of the values does not fit the schema.
        ValueError
            A value does not fit the schema, and it must.
        """
        errors: list[str | None] = [None] * len(values)
        parts = [pa.nulls(1, pa.binary())]
        places = np.zeros(len(values), np.int64)
        size = 1
        valid = np.asarray(values.is_valid())
        encoded = topics.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1))
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            rows = np.flatnonzero(valid & (codes == code))
            if not len(rows):
                continue
            number, writer = self.number(topic), self.writer(topic)
            writer.check(values.type)
            found, wrong = writer.write(values.take(pa.array(rows)))
            for row, words in wrong.items():
                errors[rows[row]] = f"the value does not fit the schema {number}: {words}"
                if self.must:
                    raise ValueError(
                        f'key "encode": a record of the topic {topic} cannot be encoded: '
                        f"{errors[rows[row]]}"
                    )
            head = pa.scalar(b"\0" + number.to_bytes(4, "big"), pa.binary())
            parts.append(pc.binary_join_element_wise(head, found, pa.scalar(b"", pa.binary())))
            places[rows] = np.arange(size, size + len(rows))
            size += len(rows)
        value = pa.concat_arrays(parts).take(pa.array(places))
        return pa.StructArray.from_arrays(
            [value, pa.array(errors, pa.string())], ["value", "error"]
        )
