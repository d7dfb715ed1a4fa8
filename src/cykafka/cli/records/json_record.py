"""Converts a record to a line of JSON and back, without loss.

``{"topic": "t", "partition": 0, "offset": 7, "timestamp": 1767225600000, "key": "k",
"value": "text", "headers": [{"key": "h", "value": "x"}]}``

Keys and values are JSON strings if their bytes are UTF-8, and null if the record has none. Other
bytes are base64 in ``key_base64`` and ``value_base64``, instead of ``key`` and ``value``. Header
values follow the same rule. Keys and values that the command has decoded are JSON in ``key`` and
``value``; JSON null is the text ``null`` in ``value_json``.

A record without headers has ``"headers": []``. A timestamp is in ms since the epoch, or null if
the record has none.

Decoded values as JSON:

=====================  ==========================================================
value                  JSON
=====================  ==========================================================
bytes                  a text in base64
decimal                a text with its digits, such as ``"12.50"``
date, time, timestamp  a text in ISO 8601; an instant ends in Z
UUID                   a text
NaN and infinities     ``"NaN"``, ``"Infinity"``, ``"-Infinity"``
=====================  ==========================================================
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias
from uuid import UUID

from cykafka import MessageBatch
from cykafka.cli.terminal.failures import Failed
from cykafka.internal import did_you_mean, is_topic_name

Headers = list[tuple[str, bytes | None]]
Kind: TypeAlias = Literal["text", "base64", "json"]
"""How lines show bytes: as text if they are UTF-8, always as base64, or as the JSON they are."""

_MEMBERS = {
    "topic",
    "partition",
    "offset",
    "timestamp",
    "key",
    "key_base64",
    "key_json",
    "value",
    "value_base64",
    "value_json",
    "headers",
}
_PLAIN = "; to send lines as they are, leave out --json"
_VALUES = ("value", "value_base64", "value_json")
_OF_HEADER = {"key", "value", "value_base64"}
FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MOST_PARTITION = 2**31 - 1
_MOST_TIMESTAMP = 2**63 - 1


class Parts(NamedTuple):
    """The parts of a record that a producer can set. Parts missing in the line are None."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp: int | None = None
    topic: str | None = None


@dataclass
class DecodedBatch:
    """Records of a batch with decoded keys and values, in the columns of a MessageBatch."""

    used: int
    """how many records of the batch were read"""
    failure: Failed | None
    """why it ends there"""
    topics: list[str]
    partitions: list[int]
    offsets: list[int]
    timestamps: list[int]
    key_column: list[bytes | None]
    value_column: list[bytes | None]
    header_column: list[Headers | None]

    def __len__(self) -> int:
        return len(self.topics)

    def keys(self) -> list[bytes | None]:
        """Return the decoded keys."""
        return self.key_column

    def values(self) -> list[bytes | None]:
        """Return the decoded values."""
        return self.value_column

    def headers(self) -> list[Headers | None]:
        """Return the headers."""
        return self.header_column


Records: TypeAlias = MessageBatch | DecodedBatch


def encode_batch(batch: Records, keys: Kind = "text", values: Kind = "text") -> list[str]:
    """Return a batch's lines, without newlines."""
    columns = zip(
        batch.topics,
        batch.partitions,
        batch.offsets,
        batch.timestamps,
        _COLUMNS[keys]("key", batch.keys()),
        _COLUMNS[values]("value", batch.values()),
        batch.headers(),
        strict=True,
    )
    return [
        f'{{"topic":"{topic}","partition":{partition},"offset":{offset},'
        f'"timestamp":{timestamp if timestamp >= 0 else "null"},{key},{value},'
        f'"headers":{_headers(headers) if headers else "[]"}}}'
        for topic, partition, offset, timestamp, key, value, headers in columns
    ]


def _texts(name: str, column: list[bytes | None]) -> list[str]:
    null = f'"{name}":null'
    if column.count(None) == len(column):
        return [null] * len(column)
    start = f'"{name}":'
    try:
        return [
            null if data is None else start + encode_basestring(data.decode()) for data in column
        ]
    except UnicodeDecodeError:
        return [_member(name, data) for data in column]


def _base64(name: str, column: list[bytes | None]) -> list[str]:
    return [f'"{name}":null' if data is None else _octets(name, data) for data in column]


def _json(name: str, column: list[bytes | None]) -> list[str]:
    # A value null is Kafka's.
    return [
        f'"{name}":null'
        if data is None
        else f'"{name}_json":"null"'
        if data == b"null"
        else f'"{name}":{data.decode()}'
        for data in column
    ]


_COLUMNS: dict[Kind, Callable[[str, list[bytes | None]], list[str]]] = {
    "text": _texts,
    "base64": _base64,
    "json": _json,
}


def _member(name: str, data: bytes | None) -> str:
    if data is None:
        return f'"{name}":null'
    try:
        return f'"{name}":{encode_basestring(data.decode())}'
    except UnicodeDecodeError:
        return _octets(name, data)


def _octets(name: str, data: bytes) -> str:
    return f'"{name}_base64":"{b64encode(data).decode()}"'


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> str:
    members = (
        f'{{"key":{encode_basestring(name)},{_member("value", value)}}}' for name, value in headers
    )
    return f"[{','.join(members)}]"


class Writers(NamedTuple):
    """What makes bytes of parsed JSON; None: the rule of `decode`."""

    key: Callable[[Any], bytes] | None = None
    value: Callable[[Any], bytes] | None = None

    def encode(self, parts: Parts, *, skips_empty: bool = False) -> Parts:
        """Return a record whose key and value are texts of JSON, encoded.

        Parameters
        ----------
        parts : Parts
        skips_empty : bool
            Leave an empty key or value as it is.

        Raises
        ------
        ValueError
            A text is not JSON, or a writer raises.
        """

        def of(
            name: str, write: Callable[[Any], bytes] | None, text: bytes | None
        ) -> bytes | None:
            if write is None or text is None or (skips_empty and not text):
                return text
            return _written(name, lambda given: write(parse(given)), text)

        return parts._replace(
            key=of("key", self.key, parts.key), value=of("value", self.value, parts.value)
        )


def _written(name: str, write: Callable[[Any], bytes], value: Any) -> bytes:
    try:
        return write(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


_BY_RULE = Writers()


def decode(line: bytes, writers: Writers = _BY_RULE) -> Parts:
    """Return a line's record.

    Without a writer, a ``value`` or ``key`` that is a number, a boolean, an array or an object
    becomes its JSON text. ``headers`` may also be an object whose values are texts. ``offset`` has
    no effect.

    Raises
    ------
    ValueError
        The line is not such an object; the message says why.
    """
    members = parse(line)
    if not isinstance(members, dict):
        raise ValueError(f"expected a JSON object{_PLAIN}")
    if not members.keys() <= _MEMBERS:
        name = next(member for member in members if member not in _MEMBERS)
        raise ValueError(f"unknown member {name!r}{_PLAIN}{did_you_mean(name, _MEMBERS)}")
    if members.keys().isdisjoint(_VALUES):
        raise ValueError('no member "value"; the value of a tombstone is null')
    topic = members.get("topic")
    if topic is not None and not (isinstance(topic, str) and is_topic_name(topic)):
        raise ValueError("topic: expected up to 249 letters, digits, dots, hyphens, underscores")
    return Parts(
        _data(members, "key", writers.key),
        _data(members, "value", writers.value),
        _read_headers(members.get("headers")),
        _number(members, "partition", 0, _MOST_PARTITION),
        # librdkafka replaces 0 by the current time.
        _number(members, "timestamp", 1, _MOST_TIMESTAMP),
        topic,
    )


def parse(line: bytes) -> Any:
    """Return the value of a line of JSON.

    Raises
    ------
    ValueError
        The line is not JSON, or an object has two members with the same name.
    """
    try:
        return _decoder.decode(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"the byte at index {error.start} is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has two members with the same name")
    return members


_decoder = json.JSONDecoder(parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates)


def _data(
    members: dict[str, Any], name: str, write: Callable[[Any], bytes] | None = None
) -> bytes | None:
    given = [each for each in (name, f"{name}_base64", f"{name}_json") if each in members]
    if len(given) > 1:
        raise ValueError(f"both {given[0]} and {given[1]}")
    value: Any = members[given[0]] if given else None
    if given == [f"{name}_base64"]:
        try:
            return b64decode(value, validate=True)
        except (ValueError, TypeError):
            raise ValueError(f"{given[0]}: expected a base64 string") from None
    if given == [f"{name}_json"]:
        if not isinstance(value, str):
            raise ValueError(f"{given[0]}: expected a string with JSON")
        text = value.encode()
        if write is None:
            return text
        return _written(name, lambda given: write(parse(given)), text)
    if write is None or value is None:
        return to_bytes(name, value)
    return _written(name, write, value)


def to_bytes(name: str, value: Any) -> bytes | None:
    """Return a member's bytes: a text's UTF-8, or another value's JSON text.

    Raises
    ------
    ValueError
        The value contains half of a surrogate pair, or a number beyond a double.
    """
    if value is None:
        return None
    try:
        return (value if isinstance(value, str) else _encode(value)).encode()
    except ValueError:
        raise ValueError(f"{name}: it cannot be encoded as UTF-8") from None


def _read_headers(given: Any) -> Headers | None:
    if not given and given in (None, [], {}):
        return None
    if isinstance(given, dict):
        return [(_name(name), _data({"value": value}, "value")) for name, value in given.items()]
    if not isinstance(given, list):
        raise ValueError("headers: expected an array or an object")
    return [_read_header(header) for header in given]


def _read_header(given: Any) -> tuple[str, bytes | None]:
    if not isinstance(given, dict) or not given.keys() <= _OF_HEADER:
        raise ValueError('headers: expected objects with "key" and "value"')
    if not isinstance(given.get("key"), str):
        raise ValueError("headers: a header key must be a string")
    if "value" not in given and "value_base64" not in given:
        raise ValueError("headers: a header has no value; it may be null")
    return _name(given["key"]), _data(given, "value")


def _name(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError("headers: a key cannot be encoded as UTF-8") from None
    if "\0" in name:
        raise ValueError("headers: librdkafka cannot send a key with a NUL character")
    return name


def _number(members: dict[str, Any], name: str, least: int, most: int) -> int | None:
    value = members.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name}: expected an integer from {least} to {most}, or null")
    return value


# -- decoded values


def strict_json(value: Any) -> bytes:
    """Return the value of parsed JSON as JSON on one line.

    Raises
    ------
    ValueError
        A text contains half of a surrogate pair, or a number is beyond a double.
    RecursionError
        The value is nested too deeply.
    """
    return _encode(value).encode()


def to_json(value: Any) -> bytes:
    """Return a decoded value as JSON on one line. Raises as above, but for numbers."""
    try:
        return strict_json(value)
    except ValueError:
        return strict_json(_without_nan(value))


def _plain(value: Any) -> str:
    match value:
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return f"{value:f}"
        case datetime() | date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
).encode


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
