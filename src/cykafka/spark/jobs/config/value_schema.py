"""Reads values as columns: pip-services envelopes and JSON with a schema, and their errors."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.problems import ConfigError, explain_spark_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

__all__ = ["Schema", "decoded", "read_schema"]

_CORRUPT = "_corrupt"
# The columns that reading a value adds and removes again.
_OWN = ("_envelope", "_huge", "_whole", "_parsed")
# A number with an exponent of 4 digits or more.
_HUGE = r"[0-9.][eE][+-]?0*[1-9][0-9]{3}"
_ENVELOPE = (
    "message_id STRING, trace_id STRING, correlation_id STRING, message_type STRING, "
    f"sent_time STRING, message STRING, {_CORRUPT} STRING"
)
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
_ELEMENTS, _VALUES = "[]", "{}"


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


def _path_text(steps: tuple[str, ...]) -> str:
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
        found.unchecked.append(f'"additionalProperties" of {_path_text(steps)}')
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
        f'"{word}" of {_path_text(steps)}' for word in _UNCHECKED if word in document
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
            found.unchecked.append(f'"type" of {_path_text(steps)}')
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
        raise ValueError(f"{_path_text(steps)}: JSON Schema has no type {kind!r}")
    return _PLAIN.get(str(kind), "STRING")


def decoded(
    records: DataFrame,
    form: str,
    schema: Schema | None,
    body: str = "value",
    error: Column | None = None,
) -> DataFrame:
    """Add columns with the decoded values, and ``error`` with the error (null without one).

    This uses Spark's own functions in the JVM: another Python process would cost more.

    Parameters
    ----------
    records : DataFrame
        With the source's columns, including headers.
    form : {"none", "headers", "json"}
        The form of pip-services envelopes. "headers" and "json" add the columns message_id,
        trace_id, message_type, sent_time and body.
    schema : Schema, optional
        The schema for the body or the value. The column ``json`` is a struct with this schema.
    body : str
        The column with the JSON.
    error : Column, optional
        An error that is already known.

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
    return records.withColumn("error", F.coalesce(*problems)).drop(*_OWN)


def _header(name: str) -> Column:
    """Return the value of the first header with a name, as text."""
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

    def sent(name: str) -> Column:
        return F.col(f"_envelope.{name}")

    records = records.withColumn("_envelope", _from_json(F.col("value"), _ENVELOPE))
    records = records.withColumns(
        {
            "message_id": sent("message_id"),
            "trace_id": F.coalesce(
                sent("trace_id"),
                _header("trace_id"),
                sent("correlation_id"),
                _header("correlation_id"),
            ),
            "message_type": F.coalesce(sent("message_type"), _header("message_type")),
            "sent_time": F.try_to_timestamp(sent("sent_time")),
            "body": F.try_to_binary(sent("message"), F.lit("base64")),
        }
    )
    is_bad = sent("message_id").isNull() & sent("message").isNull() & sent("sent_time").isNull()
    problems += [
        F.when(F.col("value").isNull(), "not an envelope: the value is null"),
        F.when(
            F.col("_envelope").isNull() | sent(_CORRUPT).isNotNull() | is_bad,
            "not an envelope: the value is not the JSON object of an envelope",
        ),
        F.when(
            sent("message").isNotNull() & F.col("body").isNull(),
            "not an envelope: its message is not base64",
        ),
        F.when(
            sent("sent_time").isNotNull() & F.col("sent_time").isNull(),
            "not an envelope: its sent_time is not a time",
        ),
    ]
    return records


def _by_schema(records: DataFrame, body: str, schema: Schema, problems: list[Column]) -> DataFrame:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    try:
        struct = schema.struct()
    except ValueError as error:
        raise ConfigError([f'key "schema": {error}']) from None
    there = F.col(body).isNotNull()
    name_of = "body" if body == "body" else "value"
    text = F.col(body).cast("string")
    huge = _has_huge_number(text, struct)
    if huge is not None:
        # A record without a text lacks JSON, so Spark does not read the number.
        records = records.withColumn("_huge", there & F.coalesce(huge, F.lit(False)))
        text = F.when(~F.col("_huge"), text)
        words = f"the {name_of} has a number for a DECIMAL whose exponent has more than 3 digits"
        problems.append(F.when(F.col("_huge"), words))
    # Spark stops reading at the end of the first value. So the text gets an envelope, whose end
    # Spark finds only directly after the value. Its name is random, so texts cannot contain it.
    end = f"end_{secrets.token_hex(8)}"
    whole = F.concat(F.lit('{"value":'), text, F.lit(f',"{end}":1}}'))
    envelope = StructType().add("value", struct).add(end, "integer").add(_CORRUPT, "string")
    records = records.withColumn("_whole", _from_json(whole, envelope))
    records = records.withColumn("_parsed", F.col("_whole.value"))
    is_whole = F.col(f"_whole.{end}").isNotNull() & F.col(f"_whole.{_CORRUPT}").isNull()
    problems.append(
        F.when(
            there & ~F.coalesce(is_whole & F.col("_parsed").isNotNull(), F.lit(False)),
            f"the {name_of} does not match the schema",
        )
    )
    # Read only values that lack a field again, to find their names.
    other = F.when(_lacks(F.col("_parsed"), struct), _other_case(text, struct))
    hint = F.concat(F.lit(f"the {name_of} has the field "), other, F.lit(" in another case only"))
    problems.append(F.when(there, hint))
    for steps, name in schema.required:
        problems.append(
            F.when(
                there & _is_missing(F.col("_parsed"), steps, name),
                f"the {name_of} has no {_path_text((*steps, f'.{name}'))}",
            )
        )
    return records.withColumn("json", F.when(there, F.col("_parsed")))


def _has_huge_number(text: Column, struct: StructType) -> Column | None:
    """Whether a DECIMAL in a value has an exponent with more than 3 digits; None without DECIMALs.

    Spark writes out the digits of such a number, which takes minutes for 1e9999999. This reads the
    fields as texts, but only in records that contain such a number somewhere.
    """
    from pyspark.sql import functions as F

    if '"decimal(' not in struct.json():
        return None
    # Is the number outside of texts? Patterns without groups, because Java's use the stack.
    bare = F.regexp_replace(F.regexp_replace(text, r"\\.", ""), '"[^"]*"', '""').rlike(_HUGE)
    found = _huge_in(_from_json(text, _decimals_as_text(struct)), struct, bare)
    return F.when(text.rlike(_HUGE), found).otherwise(F.lit(False))


def _decimals_as_text(kind: Any) -> Any:
    """Return a type with strings instead of decimals."""
    from pyspark.sql import types as t

    if isinstance(kind, t.DecimalType):
        return t.StringType()
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_decimals_as_text(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(kind.keyType, _decimals_as_text(kind.valueType))
    if isinstance(kind, t.StructType):
        fields = [(field.name, _decimals_as_text(field.dataType)) for field in kind]
        return t.StructType([t.StructField(name, of) for name, of in fields])
    return kind


def _huge_in(column: Column, kind: Any, bare: Column) -> Column:
    """Whether a column of this type, with texts for decimals, contains a huge number.

    Spark's text for a number is that of a double: Infinity or 0.0, if it is `bare` in the JSON.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as t

    found = F.lit(False)
    if isinstance(kind, t.DecimalType):
        found = column.rlike(_HUGE) | (bare & column.rlike("Infinity|^-?0[.]0$"))
    elif isinstance(kind, t.ArrayType):
        found = F.exists(column, lambda item: _huge_in(item, kind.elementType, bare))
    elif isinstance(kind, t.MapType):
        values = F.map_values(column)
        found = F.exists(values, lambda item: _huge_in(item, kind.valueType, bare))
    elif isinstance(kind, t.StructType):
        for field in kind:
            found = found | _huge_in(column.getField(field.name), field.dataType, bare)
    return F.coalesce(found, F.lit(False))


def _lacks(column: Column, kind: DataType) -> Column:
    """Whether a field of a type is null somewhere."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as t

    found = F.lit(False)
    if isinstance(kind, t.ArrayType):
        found = F.exists(column, lambda item: _lacks(item, kind.elementType))
    elif isinstance(kind, t.MapType):
        found = F.exists(F.map_values(column), lambda item: _lacks(item, kind.valueType))
    elif isinstance(kind, t.StructType):
        for field in kind:
            one = column.getField(field.name)
            found = found | one.isNull() | _lacks(one, field.dataType)
    return F.coalesce(found, F.lit(False))


def _has_fields(kind: DataType) -> bool:
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return _has_fields(kind.elementType)
    return isinstance(kind, t.StructType) or (
        isinstance(kind, t.MapType) and _has_fields(kind.valueType)
    )


def _other_case(text: Column, kind: DataType, steps: tuple[str, ...] = ()) -> Column:
    """Find the first field of a type that a JSON text contains only in another case, or null.

    The type is a struct, or contains structs.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType | t.MapType):
        if isinstance(kind, t.ArrayType):
            step, of, texts = _ELEMENTS, kind.elementType, _from_json(text, "ARRAY<STRING>")
        else:
            step, of = _VALUES, kind.valueType
            texts = F.map_values(_from_json(text, "MAP<STRING, STRING>"))
        found = F.transform(texts, lambda item: _other_case(item, of, (*steps, step)))
        return F.get(F.filter(found, lambda item: item.isNotNull()), 0)
    assert isinstance(kind, t.StructType)
    keys = F.json_object_keys(text)
    missing = F.array_except(F.array(*map(F.lit, kind.names)), keys)
    lowered = F.transform(keys, F.lower)
    others = F.filter(missing, lambda name: F.array_contains(lowered, F.lower(name)))
    before = "".join((*steps, ".")).lstrip(".")
    members = _from_json(text, "MAP<STRING, STRING>")
    inner = [
        _other_case(members[field.name], field.dataType, (*steps, f".{field.name}"))
        for field in kind
        if _has_fields(field.dataType)
    ]
    return F.coalesce(F.concat(F.lit(before), F.get(others, 0)), *inner)


def _is_missing(column: Column, steps: tuple[str, ...], name: str) -> Column:
    """Whether a field is null somewhere although its container is not. The result is not null."""
    from pyspark.sql import functions as F

    if not steps:
        return column.isNotNull() & column.getField(name).isNull()
    step, rest = steps[0], steps[1:]
    if step not in (_ELEMENTS, _VALUES):
        return _is_missing(column.getField(step[1:]), rest, name)
    items = column if step == _ELEMENTS else F.map_values(column)
    found = F.exists(items, lambda element: _is_missing(element, rest, name))
    return F.coalesce(found, F.lit(False))


def _from_json(column: Column, schema: StructType | str) -> Column:
    from pyspark.sql import functions as F

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(column.cast("string"), schema, options)
