"""Decodes and encodes batches of values, schema by schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cykafka.schemas.column_decoder import ColumnDecoder
from cykafka.schemas.columns import Results, join_bytes
from cykafka.schemas.document import FORMS, Document, SchemaSource, UnfitError
from cykafka.schemas.error import SchemaNotFoundError, SchemaRegistryError
from cykafka.schemas.formats import reader_for, writer_for
from cykafka.schemas.framing import frame_id
from cykafka.schemas.schema import Schema
from cykafka.schemas.shared import SERIALIZER_DEFAULTS, shared_client

__all__ = ["Decoder", "Encoder"]


@dataclass(frozen=True)
class Decoder:
    """Decodes values with the reader's schema.

    Parameters
    ----------
    form : str
        avro, protobuf or json.
    options : tuple of (str, str)
        The registry's options.
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
        """The reader for the schema. Raises UnfitError if the schema is unusable."""
        return reader_for(self.form, self.document, self.message)

    def decode(self, values: pa.Array) -> pa.Array:
        """Return the structs (data, error) for values, in order. Both fields are null for null.

        Raises
        ------
        SchemaRegistryError
            The registry does not respond. This does not make records bad.
        """
        client = shared_client(dict(self.options))
        decoder = ColumnDecoder(client, values.cast(pa.binary()), "value", self.form)
        return decoder.decode(self.reader).structs("data")


@contextmanager
def _naming(subject: str, topic: str) -> Iterator[None]:
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


def _schema_id(options: dict[str, str], subject: str, document: Document) -> int:
    """Return a schema's id in a subject. With auto.register.schemas, registers the schema."""
    # The registry knows Google's own files.
    imports = [name for name, _ in document.parts if not name.startswith("google/protobuf/")]
    if imports and not document.references:
        raise UnfitError(
            "the schema imports others: register them and the schema, and name it as "
            "SUBJECT:VERSION"
        )
    client = shared_client(options)
    schema = Schema(document.text, FORMS[document.form], document.references)
    if options["auto.register.schemas"] == "true":
        return client.register_schema(subject, schema)
    return client.lookup_schema(subject, schema).schema_id or 0


@dataclass(frozen=True)
class Encoder:
    """Encodes values with the schemas of their topics' subjects.

    Parameters
    ----------
    form : str
        avro, protobuf or json.
    options : tuple of (str, str)
        The registry's options.
    source : SchemaSource or None
        The schema; by default the latest version in each topic's subject.
    dry : bool, default False
        Do not request a schema's id, because that might register the schema.
    """

    form: str
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
        return self._found(topic)[0]

    def number(self, topic: str) -> int:
        """Return the id of a topic's schema. May register the schema. Raises like `writer`."""
        writer, number = self._found(topic)
        if number is not None or self.source is None or self.source.document is None:
            return number or 0
        options = {**SERIALIZER_DEFAULTS, **dict(self.options)}
        strategy = options["subject.name.strategy.type"]
        if strategy != "TOPIC" and not writer.name:
            raise UnfitError(
                "the schema has no name, which registry.subject.name.strategy.type needs"
            )
        subject = {
            "RECORD": writer.name,
            "TOPIC_RECORD": f"{topic}-{writer.name}",
        }.get(strategy, f"{topic}-value")
        with _naming(subject, topic):
            return _schema_id(options, subject, self.source.document)

    def _found(self, topic: str) -> tuple[Any, int | None]:
        """Return the writer for a topic, and the schema's id if known."""
        source = self.source or SchemaSource()
        if source.document is not None:
            return writer_for(self.form, source.document, source.message), 0 if self.dry else None
        subject = source.subject or f"{topic}-value"
        with _naming(subject, topic):
            client = shared_client(dict(self.options))
            document = client.document_by_version(subject, source.version)
        if document.form != self.form:
            raise UnfitError(
                f"the subject {subject} is of {FORMS[document.form]}, expected {FORMS[self.form]}"
            )
        return writer_for(self.form, document, source.message), document.id

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
            number, writer = self.number(topic), self.writer(topic)
            writer.check(values.type)
            found, wrong = writer.write(values.take(pa.array(rows)))
            words = f"the value does not fit the schema {number}"
            errors = {row: f"{words}: {wrong[row]}" for row in wrong}
            made.put(rows, (join_bytes(frame_id(number), found), errors))
        return made.structs("value")
