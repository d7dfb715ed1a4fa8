"""Numbers as bytes: pack formats such as ``>q``, with kcat's letters."""

from __future__ import annotations

import struct
from typing import Any

from cykafka.cli.records.plain_json import FLOATS

__all__ = ["PACK_HELP", "Pack"]

PACK_HELP = (
    "a pack format is > (big-endian) or < (little-endian) and a letter per number: b B 8 bits, "
    "h H 16, i I 32, q Q 64 (capitals: without a sign), f d float and double, ? a boolean; at the "
    "end, s is the rest as text"
)
_LETTERS = frozenset("bBhHiIqQfd?")


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
