"""The value types in a job's configuration, as pydantic reads them.

A value comes from TOML (text, numbers, dates, lists) or from the command line (text).
"""

from __future__ import annotations

import datetime
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationInfo

from cykafka.schemas.model.document import SCHEMA_TYPES, SchemaSource, is_subject, read_source
from cykafka.spark.jobs.config import partition_by
from cykafka.spark.jobs.config.value_schema import Schema, read_schema

__all__ = [
    "SQL",
    "URL",
    "Address",
    "Count",
    "Directory",
    "Duration",
    "Expressions",
    "Flag",
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
    "WriterSchema",
    "fill",
    "flatten",
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
_ADDRESS = re.compile(r"(?:([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):)?([0-9]{1,5})")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
# Environment variables: ${NAME}, or env:NAME as the whole value.
_VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(r"\$(\$?)\{(" + _VARIABLE_NAME + r")\}")
_WHOLE_VARIABLE = re.compile(r"env:(" + _VARIABLE_NAME + r")")


# -- variables


def has_variable(value: Any) -> bool:
    """Whether a text, or a text in a list, names a variable."""
    parts = value if isinstance(value, list) else [value]
    return any(
        isinstance(part, str) and (_WHOLE_VARIABLE.fullmatch(part) or _VARIABLE.search(part))
        for part in parts
    )


def fill(value: Any, info: ValidationInfo) -> Any:
    """Fill in the variables that the texts in `value` name; a pydantic validator.

    ``info.context`` contains the variables. ``$${NAME}`` becomes ``${NAME}``.

    Raises
    ------
    ValueError
        A text names an unknown variable.
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

    whole = _WHOLE_VARIABLE.fullmatch(value)
    if whole:
        return look_up(whole[1])
    return _VARIABLE.sub(lambda m: f"${{{m[2]}}}" if m[1] else look_up(m[2]), value)


# -- readers


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _whole(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9][0-9_]*\s*", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    raise ValueError("expected true or false")


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("expected a text without a NUL character")
    return text


def _check_unique(names: list[str]) -> list[str]:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{name!r} appears more than once")
    return names


def _check_regex(pattern: str) -> str:
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return pattern


def _check_expressions(texts: list[str]) -> list[str]:
    for text in texts:
        partition_by.parse(text)
    return texts


def _seconds(value: Any) -> float:
    match = _DURATION.fullmatch(value.lower()) if isinstance(value, str) else None
    if match is not None and match[2] in _UNITS:
        return float(match[1]) * _UNITS[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    raise ValueError('expected a duration, such as 10 (seconds), "30s", "5 minutes", "200ms"')


def _address(value: Any) -> str:
    match = _ADDRESS.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    if match is None or int(match[2]) > 65535:
        raise ValueError('expected an address, such as 9464, "0.0.0.0:9464" or "[::]:9464"')
    return f"{match[1] or '127.0.0.1'}:{int(match[2])}"


def _milliseconds(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,18}\s*", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            value = datetime.datetime.fromisoformat(value.strip())
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        raise ValueError(
            "expected a time, such as 2026-01-31, 2026-01-31T12:00:00Z or milliseconds since 1970"
        )
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    since: float = value.timestamp()
    return round(since * 1000)


def flatten(value: Any) -> dict[str, Any]:
    """Return a table's options by their full names."""
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


def _schema(value: Any, info: ValidationInfo) -> Schema | SchemaSource:
    """Return the schema for values, in the format that the key decode selects."""
    form = str(info.data.get("decode"))
    if form in ("avro", "protobuf") or is_subject(value):
        return read_source(value, form)
    return read_schema(value)


def _encode_schema(value: Any, info: ValidationInfo) -> SchemaSource:
    form = str(info.data.get("encode"))
    return read_source(value, form if form in SCHEMA_TYPES else "avro")


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | str):
        return str(value)
    raise ValueError("expected a text, a number, true or false")


# -- types


class Metavar(str):
    """The name for a value of this type in the help."""


_Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1), AfterValidator(_check_text)
]
_Whole = Annotated[int, BeforeValidator(_whole)]

Flag = Annotated[bool, BeforeValidator(_boolean)]
Name = Annotated[_Text, Metavar("NAME")]
URL = Annotated[_Text, Metavar("URL")]
Directory = Annotated[_Text, Metavar("DIR")]
Output = Annotated[_Text, Metavar("FILE")]
Regex = Annotated[_Text, AfterValidator(_check_regex), Metavar("REGEX")]
SQL = Annotated[_Text, AfterValidator(lambda query: query.rstrip(";")), Metavar("SQL")]
Count = Annotated[_Whole, Field(ge=0), Metavar("N")]
Positive = Annotated[_Whole, Field(ge=1), Metavar("N")]
Rate = Annotated[float, BeforeValidator(_number), Field(gt=0, lt=1e18), Metavar("N")]
# Names and numbers: a list, or one text with commas.
Names = Annotated[
    list[_Text],
    BeforeValidator(_split),
    Field(min_length=1),
    AfterValidator(_check_unique),
    Metavar("NAME,..."),
]
# Expressions that partition an archive: a list, or one text with commas.
Expressions = Annotated[
    list[_Text],
    BeforeValidator(partition_by.split),
    Field(min_length=1),
    AfterValidator(_check_unique),
    AfterValidator(_check_expressions),
    Metavar("EXPRESSION,..."),
]
Numbers = Annotated[list[Count], BeforeValidator(_split), Field(min_length=1), Metavar("N,...")]
# A duration in s.
Duration = Annotated[float, BeforeValidator(_seconds), Metavar("DURATION")]
# An address to listen on, HOST:PORT, read from such a text or from a port.
Address = Annotated[str, BeforeValidator(_address), Metavar("HOST:PORT")]
# A time in ms since 1970, read from such a number, a date, or a date and time (UTC by default).
Instant = Annotated[int, BeforeValidator(_milliseconds), Metavar("TIME")]
ValueSchema = Annotated[Schema | SchemaSource, BeforeValidator(_schema), Metavar("SCHEMA")]
WriterSchema = Annotated[SchemaSource, BeforeValidator(_encode_schema), Metavar("SCHEMA")]
# Options by their names with dots. Their values may be secrets.
Table = Annotated[
    dict[str, Annotated[str, BeforeValidator(_option), BeforeValidator(fill)]],
    BeforeValidator(flatten),
    Field(repr=False),
]
