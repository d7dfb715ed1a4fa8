"""What the bytes of keys and values mean: the formats of ``--value-format``.

A Reader makes text of a record's bytes, a Writer makes bytes of parsed JSON. Both raise ValueError
for what does not fit, and Failed if the registry does not respond.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from cykafka import MessageBatch
from cykafka.cli.cluster.registry import HOW_TO_NAME, Registry, using_schemas
from cykafka.cli.records.json_record import (
    FLOATS,
    DecodedBatch,
    Headers,
    Kind,
    parse,
    strict_json,
    to_json,
)
from cykafka.cli.terminal.failures import BadRecords, UsageError

if TYPE_CHECKING:
    from cykafka.schemas.model.document import Document
    from cykafka.schemas.registry.client import SchemaRegistryClient

Reader: TypeAlias = Callable[[bytes, str, Headers | None], bytes]
"""Returns the text of bytes, given the record's topic and headers."""
Writer: TypeAlias = Callable[[Any], bytes]

PACK_HELP = (
    "a pack format is > (big-endian) or < (little-endian) and a letter per number: b B 8 bits, "
    "h H 16, i I 32, q Q 64 (capitals: without a sign), f d float and double, ? a boolean; at the "
    "end, s is the rest as text"
)
_LETTERS = frozenset("bBhHiIqQfd?")
FORMATS = ("avro", "protobuf", "json", "string", "bytes")
FORMATS_HELP = f"formats of keys and values: {', '.join(FORMATS)}, or a pack format; {PACK_HELP}"
Part: TypeAlias = Literal["key", "value"]


class Pack:
    """Reads and writes values with a pack format.

    One number is that number in JSON; several ones are an array.

    Parameters
    ----------
    text : str
        ``>`` or ``<`` and letters of Python's `struct`. ``s`` at the end takes the rest as text.
        Spaces and a final ``$``, as for kcat, have no effect.

    Raises
    ------
    ValueError
        The text has another form.
    """

    def __init__(self, text: str) -> None:
        order, letters = text[:1], text[1:].replace(" ", "").removesuffix("$")
        self._has_text = letters.endswith("s")
        numbers = letters.removesuffix("s")
        if order not in ("<", ">") or not letters or not _LETTERS.issuperset(numbers):
            raise ValueError(PACK_HELP)
        self._struct = struct.Struct(order + numbers)
        self._count = len(letters)
        self._text = order + letters

    def read(self, data: bytes) -> Any:
        """Return the values in bytes.

        Raises
        ------
        ValueError
            There are too few or too many bytes, or the text is not UTF-8.
        """
        size = self._struct.size
        if len(data) < size or (len(data) > size and not self._has_text):
            least = " or more" if self._has_text else ""
            raise ValueError(f"{len(data)} bytes, {self._text} takes {size}{least}")
        values: list[Any] = list(self._struct.unpack_from(data))
        if self._has_text:
            values.append(data[size:].decode())
        return values[0] if self._count == 1 else values

    def write(self, value: Any) -> bytes:
        """Return values as bytes.

        Raises
        ------
        ValueError
            The value is not what `read` returns.
        """
        values = value if self._count > 1 else [value]
        if not isinstance(values, list) or len(values) != self._count:
            raise ValueError(f"{self._text}: expected an array of {self._count}")
        text = ""
        if self._has_text:
            *values, text = values
            if not isinstance(text, str):
                raise ValueError(f"{self._text}: expected a text for s")
        values = [FLOATS.get(each, each) if isinstance(each, str) else each for each in values]
        try:
            return self._struct.pack(*values) + text.encode()
        except (struct.error, OverflowError) as error:
            raise ValueError(f"{self._text}: {error}") from None


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


class Decoder:
    """Decodes batches.

    Parameters
    ----------
    key, value : Reader or None
        None leaves the bytes as they are.
    bad : BadRecords
        Counts the records that cannot be decoded.
    """

    def __init__(self, key: Reader | None, value: Reader | None, bad: BadRecords) -> None:
        self._key = key
        self._value = value
        self.bad = bad

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to decode."""
        return self._key is not None or self._value is not None

    def decode(self, batch: MessageBatch, key: bytes | None, most: int | None) -> DecodedBatch:
        """Decode the records up to the first bad one, or skip bad ones.

        Parameters
        ----------
        batch : MessageBatch
        key : bytes, optional
            Only the records with this decoded key.
        most : int, optional
            The largest number of records.

        Raises
        ------
        Failed
            The registry does not respond.
        """
        decoded: list[tuple[Any, ...]] = []
        used = 0
        failure = None
        rows = zip(
            batch.topics,
            batch.partitions,
            batch.offsets,
            batch.timestamps,
            batch.keys(),
            batch.values(),
            batch.headers(),
            strict=True,
        )
        for topic, partition, offset, timestamp, raw_key, raw_value, headers in rows:
            part = "key"
            try:
                own_key = _read(self._key, raw_key, topic, headers)
                if key is None or own_key == key:
                    part = "value"
                    value = _read(self._value, raw_value, topic, headers)
                    decoded.append((topic, partition, offset, timestamp, own_key, value, headers))
            except (ValueError, RecursionError) as error:
                place = f"{topic}[{partition}] at offset {offset}"
                failure = self.bad.add(place, f"{part}: {error}")
                if failure is not None:
                    break
            used += 1
            if len(decoded) == most:
                break
        columns = zip(*decoded, strict=True) if decoded else [()] * 7
        return DecodedBatch(used, failure, *map(list, columns))


def _read(
    reader: Reader | None, data: bytes | None, topic: str, headers: Headers | None
) -> bytes | None:
    return data if reader is None or data is None else reader(data, topic, headers)


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
