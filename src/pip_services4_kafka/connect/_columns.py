"""Conversion of messages (dicts) to the columns of Producer.publish()."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pip_services4_commons.errors import BadRequestException

_COLUMNS = {
    "value": "values",
    "key": "keys",
    "headers": "headers",
    "timestamp": "timestamps",
    "partition": "partitions",
}
_KEYS = frozenset(_COLUMNS)


def columns_of(
    messages: list[dict[str, Any]], write_partition: int | None
) -> dict[str, Any] | None:
    """Convert messages to columns; None for an empty list.

    Parameters
    ----------
    messages : list of dict
    write_partition : int, optional
        The partition of messages without ``partition``.

    Raises
    ------
    BadRequestException
        INVALID_MESSAGE: an item is not a dict, or has an unknown key.
    """
    if isinstance(messages, (dict, str, bytes)):
        raise _invalid(f"messages: expected a list of dicts, got {type(messages).__name__}")
    given = tuple(messages)
    if not given:
        return None
    for index, message in enumerate(given):
        if not isinstance(message, (dict, Mapping)):
            text = f"messages[{index}]: expected a dict, got {type(message).__name__}"
            raise _invalid(text, index)
        if not message.keys() <= _KEYS:
            known, strange = sorted(_KEYS), sorted(map(str, message.keys() - _KEYS))
            text = f"messages[{index}]: expected the keys {', '.join(known)}, "
            raise _invalid(text + f"got {', '.join(strange)}", index)
    columns = {name: [message.get(key) for message in given] for key, name in _COLUMNS.items()}
    # A field that no message sets needs no column.
    trimmed = {
        name: column
        for name, column in columns.items()
        if name == "values" or any(item is not None for item in column)
    }
    if write_partition is not None:
        partitions = trimmed.get("partitions")
        if partitions is None:
            return {**trimmed, "partitions": write_partition}
        trimmed["partitions"] = [write_partition if item is None else item for item in partitions]
    return trimmed


def _invalid(text: str, index: int | None = None) -> BadRequestException:
    exception = BadRequestException(None, "INVALID_MESSAGE", text)
    return exception if index is None else exception.with_details("indices", str(index))
