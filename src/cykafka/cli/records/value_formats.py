"""What the bytes of keys and values mean: the formats of ``--value-format``.

A Reader makes text of a record's bytes, a Writer makes bytes of parsed JSON. Both raise ValueError
for what does not fit, and Failed if the registry does not respond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from cykafka.cli.cluster.registry import HOW_TO_NAME, Registry, using_schemas
from cykafka.cli.records.json_record import Headers, Kind, parse
from cykafka.cli.records.packing import PACK_HELP, Pack
from cykafka.cli.records.plain_json import strict_json, to_json
from cykafka.cli.terminal.failures import UsageError

if TYPE_CHECKING:
    from cykafka.schemas.client import SchemaRegistryClient
    from cykafka.schemas.document import Document

__all__ = [
    "FORMATS",
    "FORMATS_HELP",
    "Part",
    "Reader",
    "ValueFormat",
    "Writer",
    "reader",
    "writer",
]

Reader: TypeAlias = Callable[[bytes, str, Headers | None], bytes]
"""Returns the text of bytes, given the record's topic and headers."""
Writer: TypeAlias = Callable[[Any], bytes]

FORMATS = ("avro", "protobuf", "json", "string", "bytes")
FORMATS_HELP = f"formats of keys and values: {', '.join(FORMATS)}, or a pack format; {PACK_HELP}"
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
    if form.name == "json":
        return _json_reader(form, registry)
    if form.name == "string":
        return _text
    if form.name == "bytes":
        return lambda data, topic, headers: data
    client = registry.client(form.option)
    with using_schemas(form.option):
        from cykafka.cli.records.schema_values import avro_reader, protobuf_reader

        return (avro_reader if form.name == "avro" else protobuf_reader)(form.part, client)


def _text(data: bytes, topic: str, headers: Headers | None) -> bytes:
    data.decode()  # raises ValueError
    return data


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
            with using_schemas(form.option):
                from cykafka.cli.records.schema_values import json_reader

                framed = json_reader(form.part, registry.client(form.option))
        return framed(data, topic, headers)

    return read


def _has_schema_header(form: ValueFormat, headers: Headers | None) -> bool:
    name = f"__{form.part}_schema_id"
    return any(key == name for key, _ in headers or ())


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
        from cykafka.cli.records.schema_values import avro_writer, json_writer, protobuf_writer

        if form.name == "protobuf":
            return protobuf_writer(document, message)
        return (avro_writer if form.name == "avro" else json_writer)(client, document)
