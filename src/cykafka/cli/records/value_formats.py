"""What the bytes of keys and values mean: the formats of ``--value-format``.

A Reader makes text of a record's bytes, a Writer makes bytes of parsed JSON. Both raise ValueError
for what does not fit, and Failed if the registry does not respond.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from cykafka.cli.cluster.registry import HOW_TO_NAME, Registry, using_schemas
from cykafka.cli.records.json_record import Headers, Kind, parse
from cykafka.cli.records.packing import PACK_HELP, Pack
from cykafka.cli.records.plain_json import strict_json, to_json
from cykafka.cli.terminal.failures import Failed, UsageError
from cykafka.serialization import MessageField, SerializationContext, SerializationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from cykafka.schemas.client import SchemaRegistryClient
    from cykafka.schemas.document import Document
    from cykafka.schemas.schema import RegisteredSchema, Schema

__all__ = ["FORMATS", "FORMATS_HELP", "Reader", "ValueFormat", "Writer", "reader", "writer"]

Reader: TypeAlias = Callable[[bytes, str, Headers | None], bytes]
"""Returns the text of bytes, given the record's topic and headers."""
Writer: TypeAlias = Callable[[Any], bytes]

FORMATS = ("avro", "protobuf", "json", "string", "bytes")
FORMATS_HELP = f"formats of keys and values: {', '.join(FORMATS)}, or a pack format; {PACK_HELP}"
_PARTS = {"key": MessageField.KEY, "value": MessageField.VALUE}
Part: TypeAlias = Literal["key", "value"]


class ValueFormat(NamedTuple):
    """A format that an option names."""

    option: str
    """the option with the format, for messages"""
    part: Part
    name: str
    pack: Pack | None = None

    @classmethod
    def parse(cls, part: Part, name: str | None) -> ValueFormat | None:
        """Return the format that ``--key-format`` or ``--value-format`` names; None without one.

        Raises
        ------
        UsageError
            The format is unknown.
        """
        if name is None:
            return None
        option = f"--{part}-format {name}"
        if name in FORMATS:
            return cls(option, part, name)
        if not name.startswith(("<", ">")):
            raise UsageError(
                f"--{part}-format: expected {', '.join(FORMATS)}, or a pack format such as '>q', "
                f"got {name!r}"
            )
        try:
            return cls(option, part, name, Pack(name))
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None

    @property
    def needs_registry(self) -> bool:
        """Whether all values name schemas in the registry."""
        return self.name in ("avro", "protobuf")

    @property
    def kind(self) -> Kind:
        """What a Reader returns, for `json_record`."""
        if self.name in ("string", "bytes"):
            return "text" if self.name == "string" else "base64"
        return "json"


# -- reading


def reader(form: ValueFormat, registry: Registry) -> Reader:
    """Return what reads a format.

    Parameters
    ----------
    form : ValueFormat
    registry : Registry
        Used by ``avro`` and ``protobuf``, and by ``json`` for values that name schemas.

    Raises
    ------
    UsageError
        No registry is named, an option is wrong, or a library is missing.
    """
    if form.pack is not None:
        pack = form.pack
        return lambda data, topic, headers: to_json(pack.read(data))
    with using_schemas(form.option):
        return _READERS[form.name](form, registry)


def _bytes_reader(form: ValueFormat, registry: Registry) -> Reader:
    return lambda data, topic, headers: data


def _string_reader(form: ValueFormat, registry: Registry) -> Reader:
    def read(data: bytes, topic: str, headers: Headers | None) -> bytes:
        data.decode()
        return data

    return read


def _json_reader(form: ValueFormat, registry: Registry) -> Reader:
    """Return what reads JSON. The first byte tells whether a value names a schema."""
    framed: Reader | None = None

    def read(data: bytes, topic: str, headers: Headers | None) -> bytes:
        nonlocal framed
        if data[:1] != b"\0" and not _has_schema_header(form, headers):
            return strict_json(parse(data))
        if framed is None:
            if not registry.is_named:
                raise ValueError(f"it names a schema in Schema Registry: {HOW_TO_NAME}")
            framed = _json_schema_reader(form, registry)
        return framed(data, topic, headers)

    return read


def _json_schema_reader(form: ValueFormat, registry: Registry) -> Reader:
    with using_schemas(form.option):
        from cykafka.schemas.json_serde import JSONDeserializer

        deserializer = JSONDeserializer(None, None, registry.client(form.option), _TOPIC)
    return _reader_of(form, deserializer, strict_json)


def _has_schema_header(form: ValueFormat, headers: Headers | None) -> bool:
    name = f"__{form.part}_schema_id"
    return any(key == name for key, _ in headers or ())


def _avro_reader(form: ValueFormat, registry: Registry) -> Reader:
    from cykafka.schemas.avro_serde import AvroDeserializer

    client = _NamedBranches(registry.client(form.option))
    return _reader_of(form, AvroDeserializer(client, conf=_TOPIC), to_json)


def _protobuf_reader(form: ValueFormat, registry: Registry) -> Reader:
    from google.protobuf.json_format import MessageToDict

    from cykafka.schemas.framing import SchemaId, schema_header
    from cykafka.schemas.protobuf_files import ProtobufFile

    client = registry.client(form.option)
    files: dict[int | UUID | None, ProtobufFile] = {}
    field = _PARTS[form.part]

    def read(data: bytes, topic: str, headers: Headers | None) -> bytes:
        with _faults():
            header = schema_header(SerializationContext(topic, field, headers))  # type: ignore[arg-type]
            schema_id = SchemaId("PROTOBUF")
            start = schema_id.read(data if header is None else header)
            number = schema_id.guid if schema_id.id is None else schema_id.id
            assert number is not None
            if number not in files:
                files[number] = ProtobufFile(client.document_by_id(number))
            file = files[number]
            message = file.message_at(schema_id.message_indexes or (0,))
            return to_json(
                MessageToDict(
                    message.FromString(data[start if header is None else 0 :]),
                    preserving_proto_field_name=True,
                    always_print_fields_with_no_presence=True,
                    descriptor_pool=file.pool,
                )
            )

    return read


_READERS = {
    "avro": _avro_reader,
    "protobuf": _protobuf_reader,
    "json": _json_reader,
    "string": _string_reader,
    "bytes": _bytes_reader,
}
_TOPIC = {"subject.name.strategy.type": "TOPIC"}


def _reader_of(
    form: ValueFormat, deserializer: Callable[..., Any], encode: Callable[[Any], bytes]
) -> Reader:
    field = _PARTS[form.part]

    def read(data: bytes, topic: str, headers: Headers | None) -> bytes:
        with _faults():
            return encode(deserializer(data, SerializationContext(topic, field, headers)))  # type: ignore[arg-type]

    return read


@contextmanager
def _faults() -> Iterator[None]:
    """Raise ValueError for a bad record, and Failed if the registry fails."""
    from cykafka.schemas.error import SchemaNotFoundError, SchemaRegistryError
    from cykafka.schemas.faults import is_fault, shorten_error

    try:
        yield
    except SchemaNotFoundError as error:
        raise ValueError(str(error)) from error
    except SchemaRegistryError as error:
        raise Failed(str(error)) from error
    except SerializationError as error:
        raise ValueError(_words(error)) from error
    except BaseException as error:
        if not is_fault(error):
            raise
        raise ValueError(shorten_error(error)) from error


def _words(error: SerializationError) -> str:
    return " ".join(str(error).split())


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
        from cykafka.schemas.document import FORMS
        from cykafka.schemas.schema import Schema

        document = self._document
        return Schema(document.text, FORMS[document.form], document.references)

    def lookup_schema(self, subject: str, schema: Schema, **_: Any) -> RegisteredSchema:
        from cykafka.schemas.schema import RegisteredSchema

        return RegisteredSchema(subject, None, self._document.id, None, schema)

    def get_version(self, *arguments: Any) -> RegisteredSchema:
        return self._client.get_version(*arguments)


class _NamedBranches:
    """A registry whose Avro schemas are for `avro_json`.

    Parameters
    ----------
    client : SchemaRegistryClient or _OneSchema
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def get_schema(self, *arguments: Any) -> Schema:
        return _with_names(self._client.get_schema(*arguments))

    def get_schema_by_guid(self, *arguments: Any) -> Schema:
        return _with_names(self._client.get_schema_by_guid(*arguments))

    def get_version(self, *arguments: Any) -> RegisteredSchema:
        found: RegisteredSchema = self._client.get_version(*arguments)
        return replace(found, schema=_with_names(found.schema))

    def lookup_schema(self, *arguments: Any, **more: Any) -> RegisteredSchema:
        found: RegisteredSchema = self._client.lookup_schema(*arguments, **more)
        return found


def _with_names(schema: Schema) -> Schema:
    from cykafka.cli.records.avro_json import name_branches

    return replace(schema, schema_str=name_branches(schema.schema_str))


# -- writing


def writer(
    form: ValueFormat,
    client: SchemaRegistryClient | None = None,
    document: Document | None = None,
    message: str = "",
) -> Writer | None:
    """Return what writes a format; None for bytes and texts, which are sent as they are.

    Parameters
    ----------
    form : ValueFormat
    client : SchemaRegistryClient or None
    document : Document or None
        The schema, with its id. Needed for ``avro`` and ``protobuf``; ``json`` without one is
        plain JSON.
    message : str
        Protobuf: the message's full name; empty for the first one in the file.

    Raises
    ------
    Failed
        The schema cannot be used.
    """
    if form.name in ("string", "bytes"):
        return None
    if form.pack is not None:
        return form.pack.write
    if document is None:
        return strict_json
    assert client is not None
    with using_schemas(form.option):
        if form.name == "protobuf":
            return _protobuf_writer(document, message)
        if form.name == "avro":
            return _avro_writer(client, document)
        return _json_writer(client, document)


def _protobuf_writer(document: Document, name: str) -> Writer:
    from google.protobuf.json_format import ParseDict

    from cykafka.schemas.framing import frame_id, frame_indexes
    from cykafka.schemas.protobuf_files import ProtobufFile

    file = ProtobufFile(document)
    message = file.message(name)
    head = frame_id(_number(document)) + frame_indexes(file.indexes_of(message))

    def write(value: Any) -> bytes:
        with _faults():
            made = ParseDict(value, message(), descriptor_pool=file.pool)
            data: bytes = made.SerializeToString()
            return head + data

    return write


def _avro_writer(client: SchemaRegistryClient, document: Document) -> Writer:
    from cykafka.cli.records.avro_json import AvroForm, name_branches
    from cykafka.schemas.avro_serde import AvroSerializer

    texts = [text for _, text in document.parts]
    form = AvroForm([name_branches(text) for text in (*texts, document.text)])
    serializer = AvroSerializer(
        _NamedBranches(_OneSchema(client, document)), None, _first, _conf(document)
    )

    def write(value: Any) -> bytes:
        with _faults():
            return _sure(serializer([form.value(value)]))

    return write


def _json_writer(client: SchemaRegistryClient, document: Document) -> Writer:
    from cykafka.schemas.json_serde import JSONSerializer

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
