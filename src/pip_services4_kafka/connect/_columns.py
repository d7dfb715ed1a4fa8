"""Conversion of messages (dicts) to the columns of Producer.publish()."""

from __future__ import annotations

from typing import Any

from pip_services4_commons.errors import BadRequestException

from pip_services4_kafka._errors import with_cause

_KEYS = frozenset(("value", "key", "timestamp", "headers", "partition"))


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
        raise BadRequestException(
            None,
            "INVALID_MESSAGE",
            f"messages: expected a list of dicts, got {type(messages).__name__}",
        )
    given = tuple(messages)
    if not given:
        return None
    try:
        columns = {
            name: [message.get(key) for message in given]
            for name, key in (
                ("values", "value"),
                ("keys", "key"),
                ("headers", "headers"),
                ("timestamps", "timestamp"),
                ("partitions", "partition"),
            )
        }
        strange = next((i for i, message in enumerate(given) if not message.keys() <= _KEYS), None)
    except AttributeError as error:
        index = next(i for i, message in enumerate(given) if not isinstance(message, dict))
        raise with_cause(_no_message(index, given[index]), error) from error
    if strange is not None:
        keys = sorted(map(str, given[strange].keys() - _KEYS))
        raise BadRequestException(
            None,
            "INVALID_MESSAGE",
            f"messages[{strange}]: expected the keys {', '.join(sorted(_KEYS))}, "
            f"got {', '.join(keys)}",
        ).with_details("indices", str(strange))
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


def _no_message(index: int, given: Any) -> BadRequestException:
    return BadRequestException(
        None,
        "INVALID_MESSAGE",
        f"messages[{index}]: expected a dict, got {type(given).__name__}",
    ).with_details("indices", str(index))
