"""Decodes values to columns and encodes columns to values, in Spark.

This module does not import format libraries: jobs without schemas work without them.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

from cykafka.schemas.model.document import Document, SchemaSource, UnfitError
from cykafka.schemas.model.error import SchemaNotFoundError
from cykafka.schemas.model.rules import READING
from cykafka.schemas.shared import shared_client
from cykafka.spark.jobs.config.models import DecodeKeys, EncodeKeys, TopicKeys
from cykafka.spark.jobs.config.value_schema import (
    ELEMENTS,
    VALUES,
    Schema,
    path_text,
    read_schema,
)
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.records.task_codec import TaskDecoder, name_option, naming_option

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from cykafka.schemas.codec import Decoder, Encoder

__all__ = ["check_schemas", "check_type", "decode", "encode", "task_decoder"]


def decode(records: DataFrame, config: DecodeKeys) -> DataFrame:
    """Add the columns for the key `decode`, and `error` with the error (null without one).

    Raises
    ------
    ConfigError
        The schema is unusable, or the registry does not contain it.
    SchemaRegistryError
        The registry does not respond.
    """
    if not config.uses_registry:
        given = config.value_schema
        schema = given if isinstance(given, Schema) else None
        return _decoded_by_spark(records, config.envelope, schema)
    with naming_option():
        decoder, schema = _decoder(config)
    made = pa.struct([("data", decoder.reader.kind), ("error", pa.string())])
    kind = from_arrow_type(made, prefer_timestamp_ntz=True)
    rows = records.withColumn("_decoded", _arrow_udf(decoder.decode, kind)(F.col("value")))
    if schema is not None:
        rows = rows.withColumn("_json", F.col("_decoded.data"))
        rows = _decoded_by_spark(rows, "none", schema, "_json", F.col("_decoded.error"))
        return rows.drop("_decoded", "_json")
    columns = {config.form: F.col("_decoded.data"), "error": F.col("_decoded.error")}
    return rows.withColumns(columns).drop("_decoded")


def task_decoder(config: DecodeKeys) -> TaskDecoder | None:
    """Return the decoder for tasks; None if Spark must read the values: JSON, envelopes.

    Raises
    ------
    ConfigError, SchemaRegistryError
        As for `decode`.
    """
    if not config.uses_registry or config.form == "json":
        return None
    with naming_option():
        return TaskDecoder(_decoder(config)[0], config.form)


def encode(config: EncodeKeys, value: Column, topic: Column) -> Column:
    """Return the structs (value, error) for a column that the key `encode` encodes.

    Parameters
    ----------
    config : EncodeKeys
    value, topic : Column
    """
    if config.encode == "json":
        value = F.to_json(value).cast("binary")
    encoder: Any = _encoder(config)
    kind = "value BINARY, error STRING"
    encoded: Column = _arrow_udf(encoder.encode, kind)(value, topic.cast("string"))
    return encoded


def _arrow_udf(function: Any, kind: Any) -> Any:
    # Spark must not call it twice for a value, once for a condition.
    of_arrow: Any = F
    return of_arrow.arrow_udf(name_option(function), kind).asNondeterministic()


@naming_option()
def check_type(config: EncodeKeys, kind: DataType, topic: str | None) -> str | None:
    """Return what is wrong with the type of a column to encode, as far as known, or None."""
    if config.encode == "json" and not isinstance(kind, StructType | ArrayType | MapType):
        return f"it is of type {kind.simpleString()}, expected a struct"
    source = config.encode_schema
    if topic is None and (source is None or not (source.subject or source.document)):
        return None  # the records contain the topic
    try:
        _encoder(config).writer(topic or "").check(to_arrow_type(kind, timezone="UTC"))
    except UnfitError as error:
        return str(error)
    return None


@naming_option()
def check_schemas(config: Any) -> None:
    """Request the configured schemas from the registry, before Spark starts.

    Raises
    ------
    ConfigError
        A subject is missing, or a schema is unusable or does not fit the newest records.
    SchemaRegistryError
        The registry does not respond.
    """
    if isinstance(config, DecodeKeys) and config.uses_registry:
        decoder, _ = _decoder(config)
        registry = shared_client(config.registry)
        for topic in (isinstance(config, TopicKeys) and config.topics) or ():
            with _convert_errors("schema", f"it does not fit the subject {topic}-value: "):
                try:
                    newest = registry.document_by_version(f"{topic}-value", modes=READING)
                except SchemaNotFoundError:
                    continue  # subject names may follow another rule
                if newest.format == decoder.format:
                    decoder.reader.check(newest)
    if isinstance(config, EncodeKeys) and config.encode != "none":
        to = getattr(config, "to", None)
        source = config.encode_schema
        with _convert_errors("encode"):
            if to or (source and (source.subject or source.document)):
                _encoder(config).writer(to or "")
            if to and config.registry.get("auto.register.schemas") != "true":
                _encoder(config).number(to)


def _decoder(config: DecodeKeys) -> tuple[Decoder, Schema | None]:
    """Return the workers' decoder, and the schema by which Spark reads JSON."""
    from cykafka.schemas.codec import Decoder

    options = tuple(sorted(config.registry.items()))
    given = config.value_schema
    source = given if isinstance(given, SchemaSource) else None
    with _convert_errors("schema"):
        if isinstance(given, Schema):
            return Decoder("json", options, None), given
        document = _document(config, source)
        message, subject = (source.message, source.subject) if source else ("", "")
        if config.form == "json":
            from cykafka.schemas.arrow.json_schema import resolve_references

            return Decoder("json", options, None, subject=subject), read_schema(
                resolve_references(document)
            )
        decoder = Decoder(config.form, options, document, message, subject)
        _ = decoder.reader  # raises UnfitError
        return decoder, None


def _document(config: DecodeKeys, source: SchemaSource | None) -> Document:
    if source is not None and source.document is not None:
        return source.document
    topics = (isinstance(config, TopicKeys) and config.topics) or []
    if source is None and len(topics) != 1:
        raise UnfitError(
            "is missing: the reader's schema, as a file or SUBJECT:VERSION; only a job that reads "
            "one topic has a default, which is the latest version of the subject TOPIC-value"
        )
    subject = source.subject if source else f"{topics[0]}-value"
    version = source.version if source else "latest"
    try:
        client = shared_client(config.registry)
        found = client.document_by_version(subject, version, modes=READING)
    except SchemaNotFoundError as error:
        words = f"{error.http_status_code} {error.error_message}"
        words = f"Schema Registry does not have {subject}:{version}: {words}"
        raise UnfitError(words) from None
    found.check_format(config.form, f"the subject {subject}")
    return found


def _encoder(config: EncodeKeys) -> Encoder:
    from cykafka.schemas.codec import Encoder

    options = tuple(sorted(config.registry.items()))
    dry = bool(getattr(config, "dry_run", False))
    return Encoder(config.encode, options, config.encode_schema, dry)


@contextmanager
def _convert_errors(key: str, words: str = "") -> Iterator[None]:
    """Convert a schema's error to a ConfigError that names the key."""
    try:
        yield
    except UnfitError as error:
        verb = "" if str(error).startswith("is missing") else ":"
        raise ConfigError(f'key "{key}"{verb} {words}{error}') from None
    except ValueError as error:
        raise ConfigError(f'key "{key}": {words}{error}') from None


# -- JSON and envelopes, by Spark

_CORRUPT = "_corrupt"
# The columns that reading a value adds and removes again.
_OWN = ("_envelope", "_huge", "_whole", "_parsed")
# A number with an exponent of 4 digits or more.
_HUGE = r"[0-9.][eE][+-]?0*[1-9][0-9]{3}"
_ENVELOPE = (
    "message_id STRING, trace_id STRING, correlation_id STRING, message_type STRING, "
    f"sent_time STRING, message STRING, {_CORRUPT} STRING"
)


def _decoded_by_spark(
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
    named = F.filter("headers", lambda header: header["key"] == name)
    return F.get(named, 0)["value"].cast("string")


def _headers_form(records: DataFrame) -> DataFrame:
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
    try:
        struct = schema.struct()
    except ValueError as error:
        raise ConfigError(f'key "schema": {error}') from None
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
    other = F.when(_anywhere(F.col("_parsed"), struct, _lacks), _other_case(text, struct))
    hint = F.concat(F.lit(f"the {name_of} has the field "), other, F.lit(" in another case only"))
    problems.append(F.when(there, hint))
    for steps, name in schema.required:
        problems.append(
            F.when(
                there & _is_missing(F.col("_parsed"), steps, name),
                f"the {name_of} has no {path_text((*steps, f'.{name}'))}",
            )
        )
    return records.withColumn("json", F.when(there, F.col("_parsed")))


def _has_huge_number(text: Column, struct: StructType) -> Column | None:
    """Whether a DECIMAL in a value has an exponent with more than 3 digits; None without DECIMALs.

    Spark writes out the digits of such a number, which takes minutes for 1e9999999. This reads the
    fields as texts, but only in records that contain such a number somewhere.
    """
    if '"decimal(' not in struct.json():
        return None
    # Is the number outside of texts? Patterns without groups, because Java's use the stack.
    bare = F.regexp_replace(F.regexp_replace(text, r"\\.", ""), '"[^"]*"', '""').rlike(_HUGE)

    def is_huge(column: Column, kind: DataType) -> Column:
        if not isinstance(kind, DecimalType):
            return F.lit(False)
        # Spark's text for a number is that of a double: Infinity or 0.0, if it is `bare`.
        return column.rlike(_HUGE) | (bare & column.rlike("Infinity|^-?0[.]0$"))

    found = _anywhere(_from_json(text, _decimals_as_text(struct)), struct, is_huge)
    return F.when(text.rlike(_HUGE), found).otherwise(F.lit(False))


def _decimals_as_text(struct: StructType) -> StructType:
    """Return a struct with strings instead of decimals."""
    text = re.sub(
        r'("(?:type|elementType|valueType)":)"decimal[^"]*"', r'\1"string"', struct.json()
    )
    return StructType.fromJson(json.loads(text))


def _anywhere(
    column: Column, kind: DataType, test: Callable[[Column, DataType], Column]
) -> Column:
    """Whether `test` is true for a column of a type, or for a part of it, and not null."""
    found = test(column, kind)
    if isinstance(kind, ArrayType):
        found = found | F.exists(column, lambda item: _anywhere(item, kind.elementType, test))
    elif isinstance(kind, MapType):
        values = F.map_values(column)
        found = found | F.exists(values, lambda item: _anywhere(item, kind.valueType, test))
    elif isinstance(kind, StructType):
        for field in kind:
            found = found | _anywhere(column.getField(field.name), field.dataType, test)
    return F.coalesce(found, F.lit(False))


def _lacks(column: Column, kind: DataType) -> Column:
    """Whether a field of a struct is null."""
    found = F.lit(False)
    for name in kind.names if isinstance(kind, StructType) else ():
        found = found | column.getField(name).isNull()
    return found


def _has_fields(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_fields(kind.elementType)
    return isinstance(kind, StructType) or (
        isinstance(kind, MapType) and _has_fields(kind.valueType)
    )


def _other_case(text: Column, kind: DataType, steps: tuple[str, ...] = ()) -> Column:
    """Find the first field of a type that a JSON text contains only in another case, or null.

    The type is a struct, or contains structs.
    """
    if isinstance(kind, ArrayType | MapType):
        if isinstance(kind, ArrayType):
            step, of, texts = ELEMENTS, kind.elementType, _from_json(text, "ARRAY<STRING>")
        else:
            step, of = VALUES, kind.valueType
            texts = F.map_values(_from_json(text, "MAP<STRING, STRING>"))
        found = F.transform(texts, lambda item: _other_case(item, of, (*steps, step)))
        return F.get(F.filter(found, lambda item: item.isNotNull()), 0)
    assert isinstance(kind, StructType)
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
    if not steps:
        return column.isNotNull() & column.getField(name).isNull()
    step, rest = steps[0], steps[1:]
    if step not in (ELEMENTS, VALUES):
        return _is_missing(column.getField(step[1:]), rest, name)
    items = column if step == ELEMENTS else F.map_values(column)
    found = F.exists(items, lambda element: _is_missing(element, rest, name))
    return F.coalesce(found, F.lit(False))


def _from_json(column: Column, schema: StructType | str) -> Column:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(column.cast("string"), schema, options)
