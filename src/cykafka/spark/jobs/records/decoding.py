"""Decodes values to columns and encodes columns to values, in Spark.

This module does not import format libraries: jobs without schemas work without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, MapType, StructType

from cykafka.schemas.document import Document, SchemaSource, UnfitError
from cykafka.schemas.error import SchemaNotFoundError
from cykafka.schemas.rules import READING
from cykafka.schemas.shared import shared_client
from cykafka.spark.jobs.config import value_schema
from cykafka.spark.jobs.config.models import DecodeKeys, EncodeKeys, TopicKeys
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
        return value_schema.decoded(records, config.envelope, config.json_schema)
    with naming_option():
        decoder, schema = _decoder(config)
    rows = records.withColumn("_decoded", _decoded(decoder, F.col("value")))
    if schema is not None:
        rows = rows.withColumn("_json", F.col("_decoded.data"))
        rows = value_schema.decoded(rows, "none", schema, "_json", F.col("_decoded.error"))
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


def _decoded(decoder: Decoder, value: Column) -> Column:
    """Return the structs (data, error) for a column."""
    made = pa.struct([("data", decoder.reader.kind), ("error", pa.string())])
    kind = from_arrow_type(made, prefer_timestamp_ntz=True)
    decoded: Column = _arrow_udf(decoder.decode, kind)(value)
    return decoded


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


def _decoder(config: DecodeKeys) -> tuple[Decoder, value_schema.Schema | None]:
    """Return the workers' decoder, and the schema by which Spark reads JSON."""
    from cykafka.schemas.codec import Decoder

    options = tuple(sorted(config.registry.items()))
    given = config.value_schema
    source = given if isinstance(given, SchemaSource) else None
    with _convert_errors("schema"):
        if isinstance(given, value_schema.Schema):
            return Decoder("json", options, None), given
        document = _document(config, source)
        message, subject = (source.message, source.subject) if source else ("", "")
        if config.form == "json":
            from cykafka.schemas.json_schema import resolve_references

            return Decoder("json", options, None, subject=subject), value_schema.read_schema(
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
        raise ConfigError([f'key "{key}"{verb} {words}{error}']) from None
    except ValueError as error:
        raise ConfigError([f'key "{key}": {words}{error}']) from None
