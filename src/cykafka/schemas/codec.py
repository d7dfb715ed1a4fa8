"""Decodes and encodes batches of values, schema by schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cykafka.schemas.arrow.column_decoder import ColumnDecoder
from cykafka.schemas.arrow.columns import Results, join_bytes
from cykafka.schemas.arrow.formats import reader_for, writer_for
from cykafka.schemas.model.document import Document, SchemaSource, UnfitError
from cykafka.schemas.model.error import SchemaNotFoundError, SchemaRegistryError
from cykafka.schemas.model.framing import frame_id
from cykafka.schemas.model.rules import WRITING
from cykafka.schemas.model.subjects import (
    STRATEGY_TYPE_MAP,
    strategy_type,
    topic_subject_name_strategy,
)
from cykafka.schemas.shared import SERIALIZER_DEFAULTS, shared_client
from cykafka.serialization import MessageField, SerializationContext

__all__ = ["Decoder", "Encoder"]


@dataclass(frozen=True)
class Decoder:
    """Decodes values with the reader's schema.

    Parameters
    ----------
    format : str
        avro, protobuf or json.
    options : tuple of (str, str)
        The registry's options.
    document : Document or None
        The reader's schema; None for JSON.
    message : str
        Protobuf: the full name of the message.
    subject : str
        A subject whose context the ids of the values belong to. By default it is the client's
        context.
    """

    format: str
    options: tuple[tuple[str, str], ...] = field(repr=False)  # with secrets
    document: Document | None
    message: str = ""
    subject: str = ""

    @property
    def reader(self) -> Any:
        """The reader for the schema. Raises UnfitError if the schema is unusable."""
        return reader_for(self.format, self.document, self.message)

    def decode(self, values: pa.Array) -> pa.Array:
        """Return the structs (data, error) for values, in order. Both fields are null for null.

        Raises
        ------
        SchemaRegistryError
            The registry does not respond. This does not make records bad.
        """
        client = shared_client(dict(self.options))
        octets = values.cast(pa.binary())
        decoder = ColumnDecoder(client, octets, "value", self.format, subject=self.subject)
        return decoder.decode(self.reader).structs("data")


@contextmanager
def _convert_errors(subject: str, topic: str) -> Iterator[None]:
    try:
        yield
    except SchemaNotFoundError as error:
        text = (
            f'key "encode": Schema Registry does not have the schema in the subject {subject} '
            f"(topic {topic}): {error.http_status_code} {error.error_message}. Register it, or "
            'set registry.auto.register.schemas to true together with the key "encode_schema"'
        )
        raise SchemaRegistryError(
            error.http_status_code, error.error_code, error.error_message, text=text, option=None
        ) from None


def _context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def _schema_id(options: dict[str, str], subject: str, document: Document) -> int:
    """Return a schema's id in a subject. With auto.register.schemas, registers the schema."""
    # The registry knows Google's own files.
    imports = [name for name, _ in document.parts if not name.startswith("google/protobuf/")]
    if imports and not document.references:
        raise UnfitError(
            "the schema imports others: register them and the schema, and name it as "
            "SUBJECT:VERSION"
        )
    client, schema = shared_client(options), document.schema()
    if options["auto.register.schemas"] == "true":
        return client.register_schema(subject, schema)
    return client.lookup_schema(subject, schema).schema_id or 0


@dataclass(frozen=True)
class Encoder:
    """Encodes values with the schemas of their topics' subjects.

    Parameters
    ----------
    format : str
        avro, protobuf or json.
    options : tuple of (str, str)
        The registry's options.
    source : SchemaSource or None
        The schema; by default the latest version in each topic's subject.
    dry : bool, default False
        Do not request a schema's id, because that might register the schema.
    """

    format: str
    options: tuple[tuple[str, str], ...] = field(repr=False)  # with secrets
    source: SchemaSource | None
    dry: bool = False

    def writer(self, topic: str) -> Any:
        """Return the writer for a topic's schema.

        Raises
        ------
        SchemaRegistryError
            The registry does not respond, or does not contain the schema.
        UnfitError
            The schema is unusable.
        """
        return self._find_writer(topic)[0]

    def number(self, topic: str) -> int:
        """Return the id of a topic's schema. May register the schema. Raises like `writer`."""
        return self._numbered_writer(topic)[0]

    def _numbered_writer(self, topic: str) -> tuple[int, Any]:
        """Return the id of a topic's schema, and its writer. Finds the latest version once."""
        writer, number = self._find_writer(topic)
        if number is not None or self.source is None or self.source.document is None:
            return number or 0, writer
        options = {**SERIALIZER_DEFAULTS, **dict(self.options)}
        name = "subject.name.strategy.type"
        strategy = STRATEGY_TYPE_MAP[strategy_type(name, options[name])]
        subject = strategy(_context(topic), writer.name or None)
        if subject is None:
            raise UnfitError(f"the schema has no name, which registry.{name} needs")
        with _convert_errors(subject, topic):
            return _schema_id(options, subject, self.source.document), writer

    def _find_writer(self, topic: str) -> tuple[Any, int | None]:
        """Return the writer for a topic, and the schema's id if known."""
        source = self.source or SchemaSource()
        if source.document is not None:
            writer = writer_for(self.format, source.document, source.message)
            return writer, 0 if self.dry else None
        subject = source.subject or topic_subject_name_strategy(_context(topic), None)
        with _convert_errors(subject, topic):
            client = shared_client(dict(self.options))
            document = client.document_by_version(subject, source.version, modes=WRITING)
        document.check_format(self.format, f"the subject {subject}")
        return writer_for(self.format, document, source.message), document.id

    def encode(self, values: pa.Array, topics: pa.Array) -> pa.Array:
        """Return the structs (value, error) for values, in order. Both fields are null for null.

        Raises
        ------
        SchemaRegistryError, UnfitError
            Like `writer`; or the values' type does not fit the schema.
        """
        made = Results(len(values), pa.binary())
        valid = np.asarray(values.is_valid())
        encoded = topics.dictionary_encode()
        codes = np.asarray(encoded.indices.fill_null(-1))
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            rows = np.flatnonzero(valid & (codes == code))
            if not len(rows):
                continue
            number, writer = self._numbered_writer(topic)
            writer.check(values.type)
            found, wrong = writer.write(values.take(pa.array(rows)))
            words = f"the value does not fit the schema {number}"
            errors = {row: f"{words}: {wrong[row]}" for row in wrong}
            made.put(rows, (join_bytes(frame_id(number), found), errors))
        return made.structs("value")
