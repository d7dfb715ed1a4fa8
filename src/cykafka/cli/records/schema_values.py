"""Reads and writes keys and values whose schemas are in Schema Registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from cykafka.cli.records.json_record import Headers, strict_json, to_json
from cykafka.cli.terminal.failures import Failed
from cykafka.schemas.model.document import Document, UnfitError
from cykafka.schemas.model.error import SchemaNotFoundError, SchemaRegistryError
from cykafka.schemas.model.faults import is_fault, shorten_error
from cykafka.schemas.model.framing import (
    frame_id,
    frame_indexes,
    schema_header,
    split_frame,
    split_indexes,
)
from cykafka.schemas.model.schema import RegisteredSchema, Schema
from cykafka.serialization import MessageField, SerializationContext, SerializationError

if TYPE_CHECKING:
    from cykafka.schemas.model.protobuf_files import ProtobufFile
    from cykafka.schemas.registry.client import SchemaRegistryClient

_Reader = Callable[[bytes, str, Headers | None], bytes]
_Writer = Callable[[Any], bytes]
_TOPIC = {"subject.name.strategy.type": "TOPIC"}


# -- reading


def avro_reader(part: str, client: SchemaRegistryClient) -> _Reader:
    """Return what reads Avro. `part` is ``key`` or ``value``."""
    from cykafka.schemas.serdes.avro_serde import AvroDeserializer

    return _reader_of(
        part, AvroDeserializer(_Schemas(client, "AVRO", _with_names), conf=_TOPIC), to_json
    )


def json_reader(part: str, client: SchemaRegistryClient) -> _Reader:
    """Return what reads JSON with schemas."""
    from cykafka.schemas.serdes.json_serde import JSONDeserializer

    return _reader_of(
        part, JSONDeserializer(None, None, _Schemas(client, "JSON"), _TOPIC), strict_json
    )


def protobuf_reader(part: str, client: SchemaRegistryClient) -> _Reader:
    """Return what reads Protobuf."""
    from google.protobuf.json_format import MessageToDict

    from cykafka.schemas.model.protobuf_files import ProtobufFile

    files: dict[int | UUID, ProtobufFile] = {}
    field = MessageField(part)

    def read(data: bytes, topic: str, headers: Headers | None) -> bytes:
        with _faults():
            header = schema_header(SerializationContext(topic, field, headers))  # type: ignore[arg-type]
            number, start = split_frame(data if header is None else header)
            if number not in files:
                document = client.document_by_id(number)
                _check_type(document.schema().schema_type, "PROTOBUF")
                files[number] = ProtobufFile(document)
            file = files[number]
            indexes, start = split_indexes(data if header is None else header, start)
            message = file.message(file.name_of(indexes))
            return to_json(
                MessageToDict(
                    message.FromString(data[start if header is None else 0 :]),
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                    descriptor_pool=file.pool,
                )
            )

    return read


def _reader_of(
    part: str, deserializer: Callable[..., Any], encode: Callable[[Any], bytes]
) -> _Reader:
    field = MessageField(part)

    def read(data: bytes, topic: str, headers: Headers | None) -> bytes:
        with _faults():
            return encode(deserializer(data, SerializationContext(topic, field, headers)))  # type: ignore[arg-type]

    return read


@contextmanager
def _faults() -> Iterator[None]:
    """Raise ValueError for a bad record, and Failed if the registry fails."""
    try:
        yield
    except SchemaNotFoundError as error:
        raise ValueError(str(error)) from error
    except SchemaRegistryError as error:
        raise Failed(str(error)) from error
    except SerializationError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except BaseException as error:
        if not is_fault(error):
            raise
        raise ValueError(shorten_error(error)) from error


class _OneSchema:
    """A registry for a serializer that writes all values with one schema.

    Parameters
    ----------
    client : SchemaRegistryClient
        Finds the schemas that the schema refers to.
    document : Document
        The schema.
    """

    def __init__(self, client: SchemaRegistryClient, document: Document) -> None:
        self._client = client
        self._document = document

    def get_schema(self, *_: Any) -> Schema:
        return self._document.schema()

    def lookup_schema(self, subject: str, schema: Schema, **_: Any) -> RegisteredSchema:
        return RegisteredSchema(subject, None, self._document.id, None, schema)

    def get_version(self, *arguments: Any) -> RegisteredSchema:
        return self._client.get_version(*arguments)


class _Schemas:
    """A registry whose schemas have one type, and may be changed.

    Parameters
    ----------
    client : SchemaRegistryClient or _OneSchema
    schema_type : str
        The type, such as AVRO.
    change : callable, optional
        Returns the changed schema.
    """

    def __init__(
        self, client: Any, schema_type: str, change: Callable[[Schema], Schema] | None = None
    ) -> None:
        self._client = client
        self._schema_type = schema_type
        self._change = change

    def get_schema(self, *arguments: Any) -> Schema:
        return self._changed(self._client.get_schema(*arguments))

    def get_schema_by_guid(self, *arguments: Any) -> Schema:
        return self._changed(self._client.get_schema_by_guid(*arguments))

    def get_version(self, *arguments: Any) -> RegisteredSchema:
        found: RegisteredSchema = self._client.get_version(*arguments)
        return replace(found, schema=self._changed(found.schema))

    def lookup_schema(self, *arguments: Any, **more: Any) -> RegisteredSchema:
        found: RegisteredSchema = self._client.lookup_schema(*arguments, **more)
        return found

    def _changed(self, schema: Schema) -> Schema:
        _check_type(schema.schema_type, self._schema_type)
        return schema if self._change is None else self._change(schema)


def _with_names(schema: Schema) -> Schema:
    from cykafka.cli.records.avro_json import name_branches

    return replace(schema, schema_str=name_branches(schema.schema_str))


def _check_type(found: str, wanted: str) -> None:
    if found != wanted:
        raise UnfitError(f"the type of the schema is {found}, expected {wanted}")


# -- writing


def protobuf_writer(document: Document, name: str) -> _Writer:
    """Return what writes a message, by default the first one in the file."""
    from google.protobuf.json_format import ParseDict

    from cykafka.schemas.model.protobuf_files import ProtobufFile

    file = ProtobufFile(document)
    message = file.message(name)
    head = frame_id(_number(document)) + frame_indexes(
        file.indexes_of(message.DESCRIPTOR.full_name)
    )

    def write(value: Any) -> bytes:
        with _faults():
            made = ParseDict(value, message(), descriptor_pool=file.pool)
            data: bytes = made.SerializeToString()
            return head + data

    return write


def avro_writer(client: SchemaRegistryClient, document: Document) -> _Writer:
    """Return what writes Avro."""
    from cykafka.cli.records.avro_json import AvroForm, name_branches
    from cykafka.schemas.serdes.avro_serde import AvroSerializer

    texts = [text for _, text in document.parts]
    form = AvroForm([name_branches(text) for text in (*texts, document.text)])
    serializer = AvroSerializer(
        _Schemas(_OneSchema(client, document), "AVRO", _with_names), None, _first, _conf(document)
    )

    def write(value: Any) -> bytes:
        with _faults():
            return _sure(serializer([form.value(value)]))

    return write


def json_writer(client: SchemaRegistryClient, document: Document) -> _Writer:
    """Return what writes JSON that fits a schema."""
    from cykafka.schemas.serdes.json_serde import JSONSerializer

    serializer = JSONSerializer(None, _OneSchema(client, document), _first, _conf(document))

    def write(value: Any) -> bytes:
        with _faults():
            return _sure(serializer([value]))

    return write


def _conf(document: Document) -> dict[str, Any]:
    return {
        "auto.register.schemas": False,
        "use.schema.id": _number(document),
        "subject.name.strategy": lambda ctx, name: "",
    }


def _first(values: list[Any], ctx: SerializationContext) -> Any:
    """Return the only item: serializers return null for None, which is not Avro's null."""
    return values[0]


def _number(document: Document) -> int:
    assert document.id is not None  # the registry has it
    return document.id


def _sure(data: bytes | None) -> bytes:
    assert data is not None
    return data
