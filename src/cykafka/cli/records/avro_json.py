"""Avro values as JSON, without loss; `json_record` has the forms of bytes, times and so on.

A union of null and one other type is null or the other value. In any other union a value that is
not null is an object with the name of its type, as in Avro's JSON encoding: ``{"long": 7}``.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache, partial
from itertools import count
from typing import Any

import fastavro

from cykafka.cli.records.json_record import FLOATS
from cykafka.internal import did_you_mean
from cykafka.schemas.model.document import UnfitError

_NUMBERS = count()
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_COMPLEX = {"record", "error", "enum", "fixed", "array", "map"}


@lru_cache(maxsize=10_000)
def name_branches(text: str) -> str:
    """Return a schema for the same bytes, in which values of unions have the names of their types.

    Avro encodes a record with one field like the field alone. So each type in a union becomes a
    record whose only field has the type's name.

    Raises
    ------
    UnfitError
        The text is not an Avro schema.
    """
    try:
        return json.dumps(_named(json.loads(text), ""))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise UnfitError(f"it is not an Avro schema: {error!r}") from None


def _named(schema: Any, space: str) -> Any:
    if isinstance(schema, list):
        branches = [_named(branch, space) for branch in schema]
        if sum(branch != "null" for branch in branches) < 2:
            return branches
        return [
            branch if branch == "null" else _wrapped(_name(given, space), branch)
            for given, branch in zip(schema, branches, strict=True)
        ]
    if isinstance(schema, str):
        # The record around it has another namespace.
        return _name(schema, space)
    made = dict(schema)
    if "name" in schema:
        name = _name(schema, space)
        space = name.rpartition(".")[0]
        made["name"] = name
        made.pop("namespace", None)
    for key in ("type", "items", "values"):
        if key in schema and not (isinstance(schema[key], str) and schema[key] in _COMPLEX):
            made[key] = _named(schema[key], space)
    if "fields" in schema:
        made["fields"] = [
            {**field, "type": _named(field["type"], space), **_default(field, space)}
            for field in schema["fields"]
        ]
    return made


def _wrapped(name: str, schema: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": f"cykafka.branch{next(_NUMBERS)}",
        "fields": [{"name": name, "type": schema}],
    }


def _name(schema: Any, space: str) -> str:
    """Return the full name of a type, or what type it is."""
    if isinstance(schema, str):
        name = schema
    elif "name" in schema:
        name, space = schema["name"], schema.get("namespace", space)
    else:
        name = schema["type"]
        return name if isinstance(name, str) else _name(name, space)
    return name if "." in name or name in _PRIMITIVES or not space else f"{space}.{name}"


def _default(field: Any, space: str) -> dict[str, Any]:
    """Return the default of a field whose type is a union; it is of the first branch."""
    union, value = field["type"], field.get("default")
    if value is None or not isinstance(union, list):
        return {}
    if sum(branch != "null" for branch in union) < 2 or union[0] == "null":
        return {}
    return {"default": {_name(union[0], space): value}}


class AvroForm:
    """Converts parsed JSON into the values that fastavro writes.

    Parameters
    ----------
    texts : sequence of str
        Schemas from `name_branches`. The last one is that of the values; it refers to the others.

    Raises
    ------
    UnfitError
        A text is not an Avro schema.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._types: dict[str, Any] = {}
        try:
            for text in texts:
                self._schema = fastavro.parse_schema(json.loads(text), named_schemas=self._types)
        except (fastavro.schema.SchemaParseException, ValueError, LookupError, TypeError) as error:
            raise UnfitError(f"it is not an Avro schema: {error!r}") from None

    def value(self, given: Any) -> Any:
        """Return the value for fastavro.

        Raises
        ------
        ValueError
            The JSON does not fit the schema; the message names the place.
        """
        return self._convert(self._schema, given, "")

    def _convert(self, schema: Any, given: Any, at: str) -> Any:
        if isinstance(schema, list):
            return self._branch(schema, given, at)
        if isinstance(schema, str):
            schema = self._types.get(schema) or {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self._convert(kind, given, at)
        if kind in ("record", "error"):
            return self._record(schema, given, at)
        if kind == "array" and isinstance(given, list):
            items = schema["items"]
            return [self._convert(items, item, f"{at}[{n}]") for n, item in enumerate(given)]
        if kind == "map" and isinstance(given, dict):
            values = schema["values"]
            return {
                name: self._convert(values, item, f"{at}.{name}") for name, item in given.items()
            }
        logical = schema.get("logicalType")
        try:
            if (kind, logical) in _LOGICAL:
                return _LOGICAL[kind, logical](given)
            if kind in self._types:
                return self._convert(kind, given, at)
            if kind in _CONVERTERS:
                return _CONVERTERS[kind](given, schema)
            if not _FITS[kind](given, schema):
                raise ValueError
            return given
        except (ValueError, KeyError, TypeError, ArithmeticError):
            what = f"{kind} ({logical})" if logical else kind
            raise _expected(at, what, given) from None

    def _branch(self, union: list[Any], given: Any, at: str) -> Any:
        branches = [branch for branch in union if branch != "null"]
        if given is None and len(branches) < len(union):
            return None
        if len(branches) < 2:
            return self._convert(branches[0] if branches else "null", given, at)
        # name_branches() has made a record of each.
        types = {branch["fields"][0]["name"]: branch["fields"][0]["type"] for branch in branches}
        if not isinstance(given, dict) or len(given) != 1 or not given.keys() <= types.keys():
            raise _expected(at, f"an object with one of {', '.join(types)}", given)
        ((name, inner),) = given.items()
        return {name: self._convert(types[name], inner, f"{at}.{name}")}

    def _record(self, schema: Any, given: Any, at: str) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise _expected(at, f"an object for {schema['name']}", given)
        fields = {field["name"]: field for field in schema["fields"]}
        for name in given:
            if name not in fields:
                raise ValueError(
                    f"{schema['name']} has no field {name!r}{did_you_mean(name, fields)}"
                )
        for name, field in fields.items():
            if name not in given and "default" not in field:
                raise ValueError(f"the field {f'{at}.{name}'.lstrip('.')} is missing")
        return {
            name: self._convert(fields[name]["type"], item, f"{at}.{name}")
            for name, item in given.items()
        }


def _expected(at: str, what: str, given: Any) -> ValueError:
    words = json.dumps(given, ensure_ascii=False)
    shown = words if len(words) <= 80 else f"{words[:77]}..."
    return ValueError(f"{at.lstrip('.') or 'the value'}: expected {what}, got {shown}")


# -- types; the functions raise any error of `_convert` for a value that does not fit


def _float(given: Any, schema: Any) -> float:
    if isinstance(given, str):
        return FLOATS[given]
    if isinstance(given, bool):
        raise TypeError
    return float(given)


def _octets(given: Any, schema: Any) -> bytes:
    found = b64decode(given, validate=True)
    if len(found) != schema.get("size", len(found)):
        raise ValueError
    return found


# Values that fastavro writes as they are.
_FITS: dict[str, Callable[[Any, Any], bool]] = {
    "null": lambda given, schema: given is None,
    "boolean": lambda given, schema: isinstance(given, bool),
    "int": lambda given, schema: type(given) is int and -(1 << 31) <= given < 1 << 31,
    "long": lambda given, schema: type(given) is int and -(1 << 63) <= given < 1 << 63,
    "string": lambda given, schema: isinstance(given, str),
    "enum": lambda given, schema: given in schema["symbols"],
}
_CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    "float": _float,
    "double": _float,
    "bytes": _octets,
    "fixed": _octets,
}


def _decimal(given: Any) -> Decimal:
    if isinstance(given, bool):
        raise TypeError
    found = Decimal(given if isinstance(given, str) else repr(given))
    if not found.is_finite():
        raise ValueError
    return found


def _moment(given: Any, *, is_local: bool = False) -> datetime:
    found = datetime.fromisoformat(given)
    if (found.tzinfo is None) != is_local:
        raise ValueError
    return found


_local = partial(_moment, is_local=True)
# The types that fastavro returns as objects.
_LOGICAL: dict[tuple[str, str | None], Callable[[Any], Any]] = {
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("int", "date"): date.fromisoformat,
    ("int", "time-millis"): time.fromisoformat,
    ("long", "time-micros"): time.fromisoformat,
    ("long", "timestamp-millis"): _moment,
    ("long", "timestamp-micros"): _moment,
    ("long", "local-timestamp-millis"): _local,
    ("long", "local-timestamp-micros"): _local,
}
