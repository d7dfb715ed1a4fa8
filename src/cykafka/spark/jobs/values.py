"""What values are: envelopes of pip-services, JSON by a schema; as columns, with what is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.errors import told_by_spark
from cykafka.spark.jobs.problems import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Schema", "decoded", "read_schema"]

_CORRUPT = "_corrupt"
_ENVELOPE = (
    "message_id STRING, trace_id STRING, correlation_id STRING, message_type STRING, "
    f"sent_time STRING, message STRING, {_CORRUPT} STRING"
)
_PLAIN = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}
# What JSON Schema can say of values and nobody looks at here.
_UNCHECKED = (
    "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const",
    "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems",
    "additionalItems", "minProperties", "maxProperties", "patternProperties", "propertyNames",
    "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
    "unevaluatedItems",
)  # fmt: skip
# Steps into a value: ".name" into a field, and these into each element and each value of a map.
_ELEMENTS, _VALUES = "[]", "{}"


@dataclass(frozen=True)
class Schema:
    """The schema of JSON values.

    Parameters
    ----------
    text : str
        DDL, or Spark's own JSON of a struct.
    required : tuple of (tuple of str, str)
        Fields that must not be null where what contains them is not: the steps to the containing
        value (none: the value itself; ``.name``: a field, ``[]``: each element, ``{}``: each
        value of a map), and the field's name.
    unchecked : tuple of str
        What the schema says and nobody checks, with the field it says it of.
    """

    text: str
    required: tuple[tuple[tuple[str, ...], str], ...] = ()
    unchecked: tuple[str, ...] = ()

    def struct(self) -> StructType:
        """The schema as Spark's type; needs a session, raises ValueError if it is none."""
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType, _parse_datatype_string

        if self.text.lstrip().startswith("{"):
            try:
                return StructType.fromJson(json.loads(self.text))
            except (LookupError, TypeError, AttributeError, ValueError, PySparkException) as error:
                raise ValueError(f"it is no struct of Spark's: {error!r}") from None
        try:
            found = _parse_datatype_string(self.text)
        except PySparkException as error:
            raise ValueError(f"{self.text!r} is no DDL: {told_by_spark(error)}") from None
        if not isinstance(found, StructType):
            raise ValueError(f"{self.text!r}: expected columns, as 'id BIGINT, name STRING'")
        return found


def read_schema(value: Any) -> Schema:
    """A schema from DDL, JSON Schema (a table or a text), or the name of a file with either.

    Raises
    ------
    ValueError
        It is none.
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
            f"{value!r} is no DDL ('id BIGINT, name STRING') and no file: {reason}"
        ) from None
    return _of_json(_json(words, value)) if words.startswith("{") else Schema(words)


def _json(words: str, name: str) -> Any:
    try:
        return json.loads(words)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is no JSON: {error}") from None


def _of_json(document: Mapping[str, Any]) -> Schema:
    if document.get("type") == "struct" and "fields" in document:
        try:
            return Schema(json.dumps(document))
        except TypeError as error:  # TOML has dates
            raise ValueError(f"it is no struct of Spark's: {error}") from None
    if not isinstance(document.get("properties"), Mapping) or not document["properties"]:
        raise ValueError('expected a JSON Schema of an object with "properties"')
    found = _Found()
    fields = _fields(document, (), found)
    text = ", ".join(f"{name} {kind}" for name, kind in fields)
    return Schema(text, tuple(found.required), tuple(found.unchecked))


@dataclass
class _Found:
    """What is found on the way through a JSON Schema."""

    required: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def _told(steps: tuple[str, ...]) -> str:
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
                f'"required" names {name!r}, which "properties" has not: add it there'
            )
        if not _may_be_null(properties[name]):
            found.required.append((steps, name))
    if document.get("additionalProperties", True) is not True:
        found.unchecked.append(f'"additionalProperties" of {_told(steps)}')
    if not steps:
        _look(document, steps, found)
    return [
        (_quoted(name), _type(kind, (*steps, f".{name}"), found))
        for name, kind in properties.items()
    ]


def _may_be_null(document: Any) -> bool:
    kind = document.get("type") if isinstance(document, Mapping) else None
    return isinstance(kind, list) and "null" in kind


def _look(document: Mapping[str, Any], steps: tuple[str, ...], found: _Found) -> None:
    """Note what is said and not checked."""
    found.unchecked += [f'"{word}" of {_told(steps)}' for word in _UNCHECKED if word in document]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type(document: Any, steps: tuple[str, ...], found: _Found) -> str:
    """The type of a field; what Spark has no type for stays JSON, as a string."""
    if not isinstance(document, Mapping):
        return "STRING"
    _look(document, steps, found)
    kind = document.get("type")
    if isinstance(kind, list):  # ["string", "null"]
        kinds = [one for one in kind if one != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
        if len(kinds) > 1:
            found.unchecked.append(f'"type" of {_told(steps)}')
    if kind == "object" and isinstance(document.get("properties"), Mapping):
        fields = _fields(document, steps, found)
        return f"STRUCT<{', '.join(f'{name}: {of}' for name, of in fields)}>"
    if kind == "object":
        extra = document.get("additionalProperties")
        return f"MAP<STRING, {_type(extra, (*steps, _VALUES), found)}>"
    if kind == "array":
        return f"ARRAY<{_type(document.get('items'), (*steps, _ELEMENTS), found)}>"
    if kind == "string":
        return _FORMATS.get(str(document.get("format")), "STRING")
    if kind is not None and kind not in _PLAIN:
        raise ValueError(f"{_told(steps)}: JSON Schema has no type {kind!r}")
    return _PLAIN.get(str(kind), "STRING")


def decoded(
    records: DataFrame,
    form: str,
    schema: Schema | None,
    body: str = "value",
    error: Column | None = None,
) -> DataFrame:
    """Records with what their values say, and ``error`` with what is wrong (null: nothing).

    Spark's own functions do it, in the JVM: another process of Python would cost more.

    Parameters
    ----------
    records : DataFrame
        With the columns of the source, headers among them.
    form : {"none", "headers", "json"}
        The form of pip-services' envelopes. With "headers" and "json" there are the columns
        message_id, trace_id, message_type, sent_time and body.
    schema : Schema, optional
        Of the body, or of the value; the column ``json`` is a struct of it.
    body : str
        The column with the JSON.
    error : Column, optional
        What is wrong already.

    Raises
    ------
    ConfigError
        Spark cannot read the schema.
    """
    from pyspark.sql import functions as F

    problems: list[Column] = [] if error is None else [error]
    if form == "headers":
        records, body = _headers_form(records), "body"
    elif form == "json":
        records, body = _json_form(records, problems), "body"
    if schema is not None:
        records = _by_schema(records, body, schema, problems)
    problems.append(F.lit(None).cast("string"))
    return records.withColumn("error", F.coalesce(*problems)).drop("_envelope", "_parsed")


def _header(name: str) -> Column:
    """The value of the first header of a name, as text."""
    from pyspark.sql import functions as F

    named = F.filter("headers", lambda header: header["key"] == name)
    return F.get(named, 0)["value"].cast("string")


def _headers_form(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return records.withColumns(
        {
            "message_id": F.col("key").cast("string"),
            "trace_id": F.coalesce(_header("trace_id"), _header("correlation_id")),
            "message_type": _header("message_type"),
            "sent_time": F.col("timestamp"),
            "body": F.col("value"),
        }
    )


def _json_form(records: DataFrame, problems: list[Column]) -> DataFrame:
    from pyspark.sql import functions as F

    def told(name: str) -> Column:
        return F.col(f"_envelope.{name}")

    records = records.withColumn("_envelope", _from_json(F.col("value"), _ENVELOPE))
    records = records.withColumns(
        {
            "message_id": told("message_id"),
            "trace_id": F.coalesce(
                told("trace_id"),
                _header("trace_id"),
                told("correlation_id"),
                _header("correlation_id"),
            ),
            "message_type": F.coalesce(told("message_type"), _header("message_type")),
            "sent_time": F.try_to_timestamp(told("sent_time")),
            "body": F.try_to_binary(told("message"), F.lit("base64")),
        }
    )
    is_bad = told("message_id").isNull() & told("message").isNull() & told("sent_time").isNull()
    problems += [
        F.when(F.col("value").isNull(), "no envelope: the value is null"),
        F.when(
            F.col("_envelope").isNull() | told(_CORRUPT).isNotNull() | is_bad,
            "no envelope: the value is no JSON object of one",
        ),
        F.when(
            told("message").isNotNull() & F.col("body").isNull(),
            "no envelope: its message is not base64",
        ),
        F.when(
            told("sent_time").isNotNull() & F.col("sent_time").isNull(),
            "no envelope: its sent_time is no time",
        ),
    ]
    return records


def _by_schema(records: DataFrame, body: str, schema: Schema, problems: list[Column]) -> DataFrame:
    from pyspark.sql import functions as F

    try:
        struct = schema.struct()
    except ValueError as error:
        raise ConfigError([f'key "schema": {error}']) from None
    parsed = _from_json(F.col(body), struct.add(_CORRUPT, "string"))
    there = F.col(body).isNotNull()
    records = records.withColumn("_parsed", parsed)
    name_of = "body" if body == "body" else "value"
    problems.append(
        F.when(
            there & (F.col("_parsed").isNull() | F.col(f"_parsed.{_CORRUPT}").isNotNull()),
            f"the {name_of} does not match the schema",
        )
    )
    for steps, name in schema.required:
        problems.append(
            F.when(
                there & _is_missing(F.col("_parsed"), steps, name),
                f"the {name_of} has no {_told((*steps, f'.{name}'))}",
            )
        )
    return records.withColumn("json", F.when(there, F.col("_parsed").dropFields(_CORRUPT)))


def _is_missing(column: Column, steps: tuple[str, ...], name: str) -> Column:
    """Whether a field is null somewhere where what contains it is not; never null itself."""
    from pyspark.sql import functions as F

    if not steps:
        return column.isNotNull() & column.getField(name).isNull()
    step, rest = steps[0], steps[1:]
    if step not in (_ELEMENTS, _VALUES):
        return _is_missing(column.getField(step[1:]), rest, name)
    each = column if step == _ELEMENTS else F.map_values(column)
    found = F.exists(each, lambda element: _is_missing(element, rest, name))
    return F.coalesce(found, F.lit(False))


def _from_json(column: Column, schema: StructType | str) -> Column:
    from pyspark.sql import functions as F

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(column.cast("string"), schema, options)
