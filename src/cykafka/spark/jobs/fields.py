"""The types of the values in a job's configuration, as pydantic reads them.

A value comes from TOML (text, numbers, dates, lists) or from the command line (text).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from cykafka.spark.jobs.values import Schema, read_schema

__all__ = [
    "SQL",
    "URL",
    "Count",
    "Duration",
    "Folder",
    "Instant",
    "Metavar",
    "Name",
    "Names",
    "Numbers",
    "Output",
    "Positive",
    "Rate",
    "Regex",
    "Table",
    "ValueSchema",
    "fill",
    "flat",
    "has_variable",
]

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_DURATION = re.compile(r"\s*(\d{1,9}(?:\.\d+)?)\s*([a-z]*)\s*")
_DATETIME = TypeAdapter(datetime.datetime, config=ConfigDict(val_temporal_unit="milliseconds"))
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(r"\$(\$?)\{(" + _NAME + r")\}")
_WHOLE = re.compile(r"env:(" + _NAME + r")")


# -- variables of the environment


def has_variable(value: Any) -> bool:
    """Whether a text, or a text in a list, names a variable of the environment."""
    parts = value if isinstance(value, list) else [value]
    return any(
        isinstance(part, str) and (_WHOLE.fullmatch(part) or _VARIABLE.search(part))
        for part in parts
    )


def fill(value: Any, info: ValidationInfo) -> Any:
    """`value` with the variables that ``${NAME}`` and ``env:NAME`` name in its texts.

    ``info.context`` is the environment. ``$${NAME}`` becomes ``${NAME}``.

    Raises
    ------
    ValueError
        The environment has no such variable.
    """
    if isinstance(value, list):
        return [fill(part, info) for part in value]
    if not isinstance(value, str):
        return value

    def look_up(name: str) -> str:
        found: str | None = (info.context or {}).get(name)
        if found is None:
            raise ValueError(f"the environment has no variable {name}")
        return found

    whole = _WHOLE.fullmatch(value)
    if whole:
        return look_up(whole[1])
    return _VARIABLE.sub(lambda m: f"${{{m[2]}}}" if m[1] else look_up(m[2]), value)


# -- readers


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


def _check_unique(names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} appears more than once")
    return names


def _check_regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return pattern


def _seconds(value: Any) -> float:
    text = value if isinstance(value, str) else repr(value)
    match = None if isinstance(value, bool) else _DURATION.fullmatch(text.lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError('expected a duration, such as 10 (seconds), "30s", "5 minutes", "200ms"')
    return float(match[1]) * _UNITS[match[2]]


def _milliseconds(value: Any) -> int:
    try:
        read = _DATETIME.validate_python(value)
    except ValidationError:
        raise ValueError(
            "expected a time, such as 2026-01-31, 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    if read.tzinfo is None:
        read = read.replace(tzinfo=datetime.UTC)
    return round(read.timestamp() * 1000)


def flat(value: Any) -> dict[str, Any]:
    """A table with its options by their full names."""
    if not isinstance(value, Mapping):
        raise ValueError("expected a table, not a value")
    return dict(_flatten(value, ""))


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    # In TOML `bootstrap.servers = ...` is a table in a table.
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise ValueError("expected a text, a number, true or false")


# -- types


class Metavar(str):
    """What the help calls a value of this type."""


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Number = BeforeValidator(_refuse_bool)

Name = Annotated[_Text, Metavar("NAME")]
URL = Annotated[_Text, Metavar("URL")]
Folder = Annotated[_Text, Metavar("DIR")]
Output = Annotated[_Text, Metavar("FILE")]
Regex = Annotated[_Text, AfterValidator(_check_regex), Metavar("REGEX")]
SQL = Annotated[_Text, AfterValidator(lambda query: query.rstrip(";")), Metavar("SQL")]
Count = Annotated[int, _Number, Field(ge=0), Metavar("N")]
Positive = Annotated[int, _Number, Field(ge=1), Metavar("N")]
Rate = Annotated[float, _Number, Field(gt=0, allow_inf_nan=False), Metavar("N")]
# Names and numbers: a list, or one text with commas.
Names = Annotated[
    list[_Text],
    BeforeValidator(_split),
    Field(min_length=1),
    AfterValidator(_check_unique),
    Metavar("NAME,..."),
]
Numbers = Annotated[list[Count], BeforeValidator(_split), Field(min_length=1), Metavar("N,...")]
# A duration in s.
Duration = Annotated[float, BeforeValidator(_seconds), Metavar("DURATION")]
# A time in ms since 1970, read from such a number, a date, or a date and time (UTC by default).
Instant = Annotated[int, BeforeValidator(_milliseconds), Metavar("TIME")]
ValueSchema = Annotated[Schema, BeforeValidator(read_schema), Metavar("SCHEMA")]
# Options by their names with dots.
Table = Annotated[
    dict[str, Annotated[str, BeforeValidator(_option), BeforeValidator(fill)]],
    BeforeValidator(flat),
]
