"""Schemas for JSON values: DDL, or JSON Schema as DDL."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.problems import explain_spark_error

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["ELEMENTS", "VALUES", "Schema", "path_text", "read_schema"]

_PLAIN = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}
# The parts of JSON Schema that this module does not check.
_UNCHECKED = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const",
    "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems",
    "additionalItems", "minProperties", "maxProperties", "patternProperties", "propertyNames",
    "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
    "unevaluatedItems",
)  # fmt: skip
# Steps into a value: ".name" into a field, and these into each element and each value of a map.
ELEMENTS, VALUES = "[]", "{}"


@dataclass(frozen=True)
class Schema:
    """A schema for JSON values.

    Parameters
    ----------
    text : str
        DDL, or Spark's own JSON for a struct.
    required : tuple of (tuple of str, str)
        Fields that must not be null unless their container is: the steps to the container (none:
        the value itself; ``.name``: a field; ``[]``: each element; ``{}``: each value of a map),
        and the field's name.
    unchecked : tuple of str
        The schema's unchecked rules, each with its field.
    """

    text: str
    required: tuple[tuple[tuple[str, ...], str], ...] = ()
    unchecked: tuple[str, ...] = ()

    def struct(self) -> StructType:
        """Return the schema as Spark's type. Needs a session. Raises ValueError if invalid."""
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType, _parse_datatype_string

        if self.text.lstrip().startswith("{"):
            try:
                return StructType.fromJson(json.loads(self.text))
            except (LookupError, TypeError, AttributeError, ValueError, PySparkException) as error:
                raise ValueError(f"it is not a Spark struct: {error!r}") from None
        try:
            found = _parse_datatype_string(self.text)
        except PySparkException as error:
            raise ValueError(f"{self.text!r} is not DDL: {explain_spark_error(error)}") from None
        if not isinstance(found, StructType):
            raise ValueError(f"{self.text!r}: expected columns, as 'id BIGINT, name STRING'")
        return found


def read_schema(value: Any) -> Schema:
    """Read a schema from DDL, JSON Schema (a table or a text), or the name of a file with either.

    Raises
    ------
    ValueError
        `value` is none of these.
    """
    if isinstance(value, Mapping):
        return _of_json(value)
    if not isinstance(value, str) or not value.strip():
        raise ValueError("expected DDL, a JSON Schema, or the name of a file with either")
    words = value.strip()
    if words.startswith("{"):
        return _of_json(_json(words, "it"))
    if any(space in words for space in " \n\t:"):
        return Schema(words)
    try:
        words = Path(words).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, RuntimeError, UnicodeDecodeError) as error:  # RuntimeError: no such user
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"{value!r} is neither DDL ('id BIGINT, name STRING') nor a file: {reason}"
        ) from None
    return _of_json(_json(words, value)) if words.startswith("{") else Schema(words)


def _json(words: str, name: str) -> Any:
    try:
        return json.loads(words)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from None


def _of_json(document: Mapping[str, Any]) -> Schema:
    if document.get("type") == "struct" and "fields" in document:
        try:
            return Schema(json.dumps(document))
        except TypeError as error:  # TOML has dates
            raise ValueError(f"it is not a Spark struct: {error}") from None
    if not isinstance(document.get("properties"), Mapping) or not document["properties"]:
        raise ValueError('expected a JSON Schema of an object with "properties"')
    found = _Found()
    fields = _fields(document, (), found)
    text = ", ".join(f"{name} {kind}" for name, kind in fields)
    return Schema(text, tuple(found.required), tuple(found.unchecked))


@dataclass
class _Found:
    """Collects findings while traversing a JSON Schema."""

    required: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def path_text(steps: tuple[str, ...]) -> str:
    return "".join(steps).lstrip(".") or "the value"


def _fields(
    document: Mapping[str, Any], steps: tuple[str, ...], found: _Found
) -> list[tuple[str, str]]:
    wanted = document.get("required", [])
    if not isinstance(wanted, list):
        raise ValueError('"required": expected a list of names')
    properties = document["properties"]
    for name in wanted:
        if name not in properties:
            raise ValueError(
                f'"required" names {name!r}, which is missing from "properties": add it'
            )
        if not _may_be_null(properties[name]):
            found.required.append((steps, name))
    if document.get("additionalProperties", True) is not True:
        found.unchecked.append(f'"additionalProperties" of {path_text(steps)}')
    if not steps:
        _note_unchecked(document, steps, found)
    return [
        (_quoted(name), _type(kind, (*steps, f".{name}"), found))
        for name, kind in properties.items()
    ]


def _may_be_null(document: Any) -> bool:
    kind = document.get("type") if isinstance(document, Mapping) else None
    return isinstance(kind, list) and "null" in kind


def _note_unchecked(document: Mapping[str, Any], steps: tuple[str, ...], found: _Found) -> None:
    """Note the rules that are not checked."""
    found.unchecked += [
        f'"{word}" of {path_text(steps)}' for word in _UNCHECKED if word in document
    ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type(document: Any, steps: tuple[str, ...], found: _Found) -> str:
    """Return a field's type. If Spark lacks the type, the field stays JSON, as a string."""
    if not isinstance(document, Mapping):
        return "STRING"
    _note_unchecked(document, steps, found)
    kind = document.get("type")
    if isinstance(kind, list):  # ["string", "null"]
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
        if len(kinds) > 1:
            found.unchecked.append(f'"type" of {path_text(steps)}')
    if kind == "object" and isinstance(document.get("properties"), Mapping):
        fields = _fields(document, steps, found)
        return f"STRUCT<{', '.join(f'{name}: {of}' for name, of in fields)}>"
    if kind == "object":
        extra = document.get("additionalProperties")
        return f"MAP<STRING, {_type(extra, (*steps, VALUES), found)}>"
    if kind == "array":
        return f"ARRAY<{_type(document.get('items'), (*steps, ELEMENTS), found)}>"
    if kind == "string":
        return _FORMATS.get(str(document.get("format")), "STRING")
    if kind is not None and kind not in _PLAIN:
        raise ValueError(f"{path_text(steps)}: JSON Schema has no type {kind!r}")
    return _PLAIN.get(str(kind), "STRING")
