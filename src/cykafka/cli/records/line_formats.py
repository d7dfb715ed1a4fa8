"""Formats consumed records: values, templates with kcat's tokens, JSON, dumps, pretty lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import repeat

from cykafka.cli.records.json_record import Kind, Records, encode_batch
from cykafka.cli.terminal.parameters import unescape
from cykafka.cli.terminal.texts import counted, iso, printable, printable_json, printable_text

__all__ = [
    "TOKENS",
    "Format",
    "dump",
    "json_lines",
    "pretty",
    "template",
    "values",
]

Format = Callable[[Records], list[bytes]]
"""Formats each record of a batch."""

TOKENS = (
    "%s value, %S its size, %R its size as 4 bytes, %k key, %K its size, %t topic, %p partition, "
    "%o offset, %T timestamp in ms, %h headers, %% a percent sign; the size of null is -1"
)
_TOKEN = re.compile(r"%(.?)", re.DOTALL)
_NULL = b"NULL"
_WIDTH = 16
_Column = Callable[[Records, bytes], list[bytes]]


def values(null: bytes, key_delimiter: bytes | None = None, *, escaped: bool = False) -> Format:
    """Return a format for values alone, or for keys and values.

    Parameters
    ----------
    null : bytes
        The text for null.
    key_delimiter : bytes, optional
        The separator between key and value. None omits the keys.
    escaped : bool
        Escape terminal controls.
    """

    def filled(column: list[bytes | None]) -> list[bytes]:
        found = _filled(column, null)
        return list(map(printable_text, found)) if escaped else found

    def of(batch: Records) -> list[bytes]:
        found = filled(batch.values())
        if key_delimiter is None:
            return found
        keys = filled(batch.keys())
        return [key + key_delimiter + value for key, value in zip(keys, found, strict=True)]

    return of


def template(text: str, null: bytes, *, escaped: bool = False) -> Format:
    r"""Return a format for a template with kcat's tokens and the same escapes as delimiters.

    Parameters
    ----------
    text : str
    null : bytes
        The text for null.
    escaped : bool
        Escape terminal controls in the records' parts.

    Raises
    ------
    ValueError
        A token or an escape is unknown.
    """
    pieces: list[bytes | _Column] = []
    at = 0
    for match in _TOKEN.finditer(text):
        pieces.append(unescape(text[at : match.start()]))
        at = match.end()
        if match[1] == "%":
            pieces.append(b"%")
        elif match[1] in _COLUMNS:
            pieces.append(_COLUMNS[match[1]])
        else:
            raise ValueError(f"unknown token {match[0]!r}: {TOKENS}")
    pieces.append(unescape(text[at:]))
    if not any(pieces):
        raise ValueError("the template is empty")

    def column(piece: _Column, batch: Records) -> Iterable[bytes]:
        found = piece(batch, null)
        return map(printable_text, found) if escaped else found

    def of(batch: Records) -> list[bytes]:
        columns: list[Iterable[bytes]] = [
            repeat(piece, len(batch)) if isinstance(piece, bytes) else column(piece, batch)
            for piece in pieces
            if piece
        ]
        return list(map(b"".join, zip(*columns, strict=True)))

    return of


def json_lines(keys: Kind = "text", values: Kind = "text", *, escaped: bool = False) -> Format:
    """Return a format for lines of JSON; `json_record` describes them.

    Parameters
    ----------
    keys, values : Kind
        What the bytes of keys and values are.
    escaped : bool
        Escape terminal controls.
    """

    def of(batch: Records) -> list[bytes]:
        lines = encode_batch(batch, keys, values)
        return [(printable_json(line) if escaped else line).encode() for line in lines]

    return of


def dump(batch: Records) -> list[bytes]:
    """Return keys and values as hexadecimal dumps in the form of ``hexdump -C``."""
    found = []
    for place, key, value in zip(_places(batch), batch.keys(), batch.values(), strict=True):
        lines = [place]
        for name, data in (("key", key), ("value", value)):
            if data is None:
                lines.append(f"{name}: null")
            else:
                lines += [f"{name}: {counted(len(data), 'byte')}", *_dump(data)]
        found.append("\n".join(lines).encode())
    return found


def pretty(colored: bool) -> Format:
    """Return a format for people: place, time, key, value, headers; terminal controls escaped."""

    def dim(text: str) -> str:
        return f"\x1b[2m{text}\x1b[0m" if colored else text

    def bold(text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if colored else text

    def of(batch: Records) -> list[bytes]:
        lines = []
        for place, key, value, headers in zip(
            _places(batch), batch.keys(), batch.values(), batch.headers(), strict=True
        ):
            parts = [dim(place)]
            if key is not None:
                parts.append(bold(_safe(key) + ":"))
            parts.append(dim("null") if value is None else _safe(value))
            if headers:
                parts.append(dim("{" + _safe(_headers(headers)) + "}"))
            lines.append("  ".join(parts).encode())
        return lines

    return of


def _filled(column: list[bytes | None], null: bytes) -> list[bytes]:
    if None in column:
        return [null if value is None else value for value in column]
    return column  # type: ignore[return-value]


def _sizes(column: list[bytes | None]) -> list[int]:
    return [-1 if value is None else len(value) for value in column]


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    return b",".join(
        name.encode() + b"=" + (_NULL if value is None else value) for name, value in headers
    )


def _numbers(column: Iterable[int]) -> list[bytes]:
    return [b"%d" % number for number in column]


_COLUMNS: dict[str, _Column] = {
    "s": lambda batch, null: _filled(batch.values(), null),
    "S": lambda batch, null: _numbers(_sizes(batch.values())),
    "R": lambda batch, null: [
        size.to_bytes(4, "big", signed=True) for size in _sizes(batch.values())
    ],
    "k": lambda batch, null: _filled(batch.keys(), null),
    "K": lambda batch, null: _numbers(_sizes(batch.keys())),
    "t": lambda batch, null: [topic.encode() for topic in batch.topics],
    "p": lambda batch, null: _numbers(batch.partitions),
    "o": lambda batch, null: _numbers(batch.offsets),
    "T": lambda batch, null: _numbers(batch.timestamps),
    "h": lambda batch, null: [_headers(headers or ()) for headers in batch.headers()],
}


def _places(batch: Records) -> list[str]:
    columns = zip(batch.topics, batch.partitions, batch.offsets, batch.timestamps, strict=True)
    return [
        f"{topic}[{partition}]@{offset}" + (f"  {iso(timestamp)}" if timestamp >= 0 else "")
        for topic, partition, offset, timestamp in columns
    ]


def _safe(data: bytes) -> str:
    return printable(data.decode("utf-8", "backslashreplace"))


def _dump(data: bytes) -> Iterable[str]:
    for at in range(0, len(data), _WIDTH):
        row = data[at : at + _WIDTH]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{at:08x}  {row.hex(' '):<{_WIDTH * 3 - 1}}  |{shown}|"
