"""Checks a configuration's keys against one another, job by job."""

from __future__ import annotations

import logging
import os
import posixpath
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cykafka import KafkaException
from cykafka.internal import check_config, did_you_mean, is_topic_name
from cykafka.schemas.model.document import SchemaSource
from cykafka.schemas.registry import options as client_options
from cykafka.schemas.shared import SERIALIZER_DEFAULTS, SHARED_DEFAULTS
from cykafka.spark.clients.properties import client_config, is_secret
from cykafka.spark.jobs.config import table_formats
from cykafka.spark.jobs.config.fields import has_variable
from cykafka.spark.jobs.config.models import (
    HIDDEN,
    Archive,
    Compact,
    DecodeKeys,
    EncodeKeys,
    JobConfig,
    Mirror,
    Redrive,
    RegistryKeys,
    Replay,
    SendKeys,
    StreamConfig,
    TableKeys,
    TopicKeys,
)
from cykafka.spark.jobs.config.partition_by import Expression, parse
from cykafka.spark.jobs.config.value_schema import Schema
from cykafka.spark.jobs.problems import Problem
from cykafka.spark.source.offsets import parse_partitions
from cykafka.spark.source.read_options import READ_OPTIONS, ReadOptions

__all__ = ["REGISTRY", "check", "registry_mistakes"]

_log = logging.getLogger("cykafka.spark")

SINK_OPTIONS = ("transactional", "transactionalIdPrefix")
_OF_JOB = {
    "source.subscribe": 'use the key "topics"',
    "source.subscribepattern": 'use the key "topic_pattern"',
    "source.includeheaders": "the job decides that",
    "source.readon": "jobs read on the executors; remove it",
    "sink.topic": 'use the key "to"',
    "sink.includeheaders": "the job decides that",
    "sink.includetimestamp": 'use the key "keep_timestamps"',
}
_SERVERS = "kafka.bootstrap.servers"
_ADDRESS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(.*)", re.DOTALL)
# If one of these is set, an address without a scheme may be in any file system.
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME", "SPARK_CONF_DIR")
# The schemes of file systems that copy a file instead of renaming it.
_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "oss", "cos", "cosn", "obs", "wasb", "wasbs")
_TABLE = re.compile(r"[^.\s]+(?:\.[^.\s]+){2,}")
# The options of the table [registry] and their defaults. A table cannot contain a function.
REGISTRY = {
    name: f"{value:g}" if isinstance(value, float) else str("" if value is None else value)
    for options in (client_options.DEFAULTS, SHARED_DEFAULTS, SERIALIZER_DEFAULTS)
    for name, value in options.items()
    if not name.startswith("bearer.auth.custom.provider.")
}
# What to do with a user in a URL, which the job's log would show.
_URLS = {
    "url": 'put the user and the password into "basic.auth.user.info"',
    "bearer.auth.issuer.endpoint.url": 'put the user into "bearer.auth.client.id"',
    "proxy": "expected a URL without a user",
}
_CHOICES = {
    "auto.register.schemas": ("true", "false"),
    "subject.name.strategy.type": ("TOPIC", "RECORD", "TOPIC_RECORD"),
}


def check(config: JobConfig) -> list[Problem]:
    """Return all mistakes in a configuration whose single values are right."""
    problems = [*_topic_problems(config), *_option_problems(config)]
    reported = {key.lower() for problem in problems for key in problem.keys}
    for problem in _client_problems(config):
        if not reported & {key.lower() for key in problem.keys}:
            problems.append(problem)
    problems += _folder_problems(config)
    if isinstance(config, DecodeKeys):
        problems += _schema_problems(config)
    if isinstance(config, TableKeys):
        problems += _table_problems(config)
    if isinstance(config, RegistryKeys):
        problems += _registry_problems(config)
    match config:
        case Archive():
            problems += _archive_problems(config)
        case Replay():
            problems += _replay_problems(config)
        case Mirror():
            problems += _mirror_problems(config)
        case Redrive():
            problems += _redrive_problems(config)
    if "health_timeout" in config.model_fields_set and not config.metrics:
        _log.warning('key "health_timeout" = %g has no effect without "metrics"',
                     config.health_timeout)  # fmt: skip
    if isinstance(config, StreamConfig) and config.interval and config.trigger != "continuous":
        # One file may serve both a continuous stream and one that catches up.
        _log.warning('key "interval" = %g has no effect without trigger = "continuous"',
                     config.interval)  # fmt: skip
    return problems


def _wrong(config: JobConfig, key: str, words: str) -> Problem:
    """Return a problem with a key that has a value."""
    table, dot, option = key.partition(".")
    if dot:
        value, written = config.options(table)[option], config.written[table].get(option)
    else:
        value, written = getattr(config, key), config.written.get(key)
    shown = HIDDEN if is_secret(key) else repr(written if has_variable(written) else value)
    return Problem((key,), f'key "{key}" = {shown}: {words}')


def _topic_problems(config: JobConfig) -> Iterator[Problem]:
    for key in ("topics", "to", "dead_letter_topic", "parking_topic"):
        value = getattr(config, key, None)
        for topic in [value] if isinstance(value, str) else value or []:
            if not is_topic_name(topic):
                words = "expected a topic name: letters, digits, ., _ and -, at most 249 in all"
                yield _wrong(config, key, words)
                break
    if not isinstance(config, TopicKeys):
        return
    given = {
        "topics": config.topics,
        "topic_pattern": config.topic_pattern,
        "source.assign": _assigned(config),
    }
    keys = tuple(key for key, value in given.items() if value)
    if not keys:
        words = 'is missing: which topics to read (or "topic_pattern", "source.assign")'
        yield Problem(tuple(given), f'key "topics" {words}')
    elif len(keys) > 1:
        quoted = " and ".join(f'"{key}"' for key in keys)
        yield Problem(keys, f"keys {quoted} are both set: expected one of them")


def _assigned(config: JobConfig) -> str | None:
    options = {name.lower(): value for name, value in config.source_options().items()}
    return options.get("assign")


def _option_problems(config: JobConfig) -> Iterator[Problem]:
    """Find options that the source and the sink lack, or that a key of the job replaces."""
    streams = isinstance(config, StreamConfig)
    for table, known in (("source", READ_OPTIONS), ("sink", SINK_OPTIONS)):
        for name, value in config.options(table).items():
            key, option = f"{table}.{name}", name.lower()
            if option.startswith("kafka."):
                continue
            if f"{table}.{option}" in _OF_JOB:
                yield Problem((key,), f'key "{key}": {_OF_JOB[f"{table}.{option}"]}')
            elif option not in {name.lower() for name in known}:
                hint = did_you_mean(name, known)
                yield Problem((key,), f'key "{key}": the {table} has no such option{hint}')
            elif option.startswith("ending") and streams:
                yield _wrong(config, key, "a stream ends after the existing records, or never")
            elif option == "transactional" and value not in ("true", "false"):
                yield _wrong(config, key, "expected true or false")
            elif table == "sink" and not streams:
                yield Problem((key,), f'key "{key}": only streams have transactions')


def _client_problems(config: JobConfig) -> Iterator[Problem]:
    """Find mistakes in the options of the source, the sink and their clients."""
    reported: set[str] = set()
    # A dry run sends nothing, but redrive requests the topics from the sink's brokers.
    sends = isinstance(config, SendKeys) and (not config.dry_run or isinstance(config, Redrive))
    if isinstance(config, TopicKeys):
        yield from _mistakes("source", config, config.source_options(), reported)
    if sends:
        yield from _mistakes("sink", config, config.sink_options(), reported)


def _mistakes(
    role: str, config: JobConfig, options: dict[str, str], reported: set[str]
) -> Iterator[Problem]:
    """Find all mistakes in a client's properties, and the first one in the other options."""
    while True:
        try:
            with warnings.catch_warnings(action="ignore"):  # the clients of the job will warn
                _check_options(role, options, is_stream=isinstance(config, StreamConfig))
            return
        except ValueError as error:
            words = str(error)
        if words.startswith("expected exactly one"):  # _topics reports that
            return
        # The option is a key in this table; client properties are in the table for both.
        words = re.sub(r'^option "?(kafka\.[\w.-]+)"?', r'key "\1"', words)
        words = re.sub(r'^option "?([\w.]+)"?', rf'key "{role}.\1"', words)
        keys = tuple(re.findall(r'keys? "([\w.-]+)"', words))
        if not reported.intersection(keys):
            yield Problem(keys, words)
        reported.update(keys)
        rest = {name: value for name, value in options.items() if name not in keys}
        rest.setdefault(_SERVERS, "localhost:9092")  # already reported if missing
        if rest == options:
            return
        options = rest  # look for the next mistake without this one


def _check_options(role: str, options: dict[str, str], *, is_stream: bool) -> None:
    """Raise ValueError for the first mistake, as far as it shows without Spark."""
    properties = client_config(options, role="sink" if role == "sink" else "source")
    try:
        check_config(dict(properties))
    except KafkaException as error:
        words = error.args[0].str()
        names = [name for name in re.findall(r'"([\w.]+)"', words) if f"kafka.{name}" in options]
        raise ValueError(f'key "kafka.{names[-1]}": {words}' if names else words) from None
    if role == "source":
        ReadOptions.of(options, "stream" if is_stream else "batch")
        return
    with suppress(ImportError):
        from pyspark.sql.types import StringType, StructType

        from cykafka.spark.sink.write_options import write_options

        columns = StructType().add("value", StringType()).add("topic", StringType())
        write_options(options, columns, stream=is_stream)


def _folder_problems(config: JobConfig) -> Iterator[Problem]:
    for key in ("path", "checkpoint", "staging", "summary"):
        value = getattr(config, key, None)
        if value is None:
            continue
        try:
            is_file = key == "summary"
            words = _file_fault(value) if is_file else _folder_fault(config, key, value)
        except (OSError, RuntimeError) as error:  # too long; ~ of an unknown user
            words = f"expected a path: {getattr(error, 'strerror', None) or error}"
        if words:
            yield _wrong(config, key, words)
    path, checkpoint = getattr(config, "path", None), getattr(config, "checkpoint", None)
    if path and checkpoint and _is_inside(checkpoint, path):
        words = 'it must not be inside "path", where other programs list the files'
        yield _wrong(config, "checkpoint", words)


def _folder_fault(config: JobConfig, key: str, address: str) -> str | None:
    if "\n" in address:
        return "expected a directory"
    local = _local(config, address)
    may_be_file = isinstance(config, Replay) and key == "path"
    if local is not None and local.is_file() and not may_be_file:
        return "expected a directory, got a file"
    return None


def _file_fault(name: str) -> str | None:
    folder = Path(name).expanduser().absolute().parent
    if not folder.is_dir():
        return f"the directory {folder} does not exist"
    return "expected a file, got a directory" if Path(name).is_dir() else None


def _is_inside(folder: str, parent: str) -> bool:
    """Whether an address names the same directory as the other one, or a directory inside it.

    An address without a scheme may belong to a file system other than the local one. This function
    compares such addresses only with each other.
    """
    system, path = _place(folder)
    parent_system, parent_path = _place(parent)
    return system == parent_system and (path.rstrip("/") + "/").startswith(
        parent_path.rstrip("/") + "/"
    )


def _place(address: str) -> tuple[str, str]:
    """Return an address's file system, and the normalized path there."""
    match = _ADDRESS.fullmatch(address)
    scheme, host, path = match.groups() if match else (None, None, address)
    if scheme is None or scheme.lower() == "file":
        return "", os.path.realpath(path)
    # normpath() keeps two slashes at the beginning.
    return f"{scheme.lower()}:{(host or '').lower()}", posixpath.normpath("/" + path.lstrip("/"))


def _local(config: JobConfig, address: str) -> Path | None:
    """Return the path if the address can only be in this machine's file system, else None."""
    system, path = _place(address)
    may_be_other = any(name in os.environ for name in _HADOOP) or any(
        name.endswith("fs.defaultFS") for name in config.spark
    )
    explicit = address.lower().startswith("file:")
    return Path(path) if not system and (explicit or not may_be_other) else None


def _table_problems(config: JobConfig) -> Iterator[Problem]:
    """Find mistakes in an archive's format and place."""
    assert isinstance(config, TableKeys)
    if config.format is None:  # missing, and already reported
        return
    if isinstance(config, Compact) and config.format == "parquet":
        words = (
            'expected "delta" or "iceberg": Parquet files have no transactions, so readers would '
            "see records twice or not at all while the job replaces files"
        )
        yield _wrong(config, "format", words)
        return
    if config.table is not None and config.format != "iceberg":
        yield _wrong(config, "table", 'only with format = "iceberg"; other formats have a "path"')
    elif config.path and config.table:
        yield Problem(("path", "table"), 'keys "path" and "table" are both set: expected one')
    elif not config.path and not config.table:
        yield Problem(("path", "table"), 'key "path" is missing: the archive directory')
    elif config.table and not _TABLE.fullmatch(config.table):
        yield _wrong(config, "table", "expected catalog.database.table")
    scheme = _place(config.path)[0].partition(":")[0] if config.path else ""
    if config.format == "iceberg" and scheme in _OBJECT_STORES:
        words = (
            "an object store cannot rename a file atomically, which commits to such a table need"
        )
        yield _wrong(config, "path", f'{words}; use the key "table", with a catalog')
    local = _local(config, config.path) if config.path else None
    for kind, marker in table_formats.MARKERS.items():
        if local is not None and kind != config.format and os.path.isdir(local / marker):
            yield _wrong(config, "path", f'it is a table; set format = "{kind}"')
    if mistake := table_formats.mistake(config, config.spark_options()):
        yield _wrong(config, "format", mistake)


def _partition_problems(config: Archive) -> Iterator[Problem]:
    """Find partition expressions on missing columns, or two with the same name."""
    raw = {"key"} if config.keep_raw else set()
    records = {"topic", "date", "partition", "offset", "timestampType", *raw}
    times = {"timestamp"}
    if config.envelope != "none":
        records |= {"message_id", "trace_id", "message_type"}
        times.add("sent_time")
    if config.form != "none":
        records.add(f"{config.form}.<field>")
    names: set[str] = set()
    for text in config.partition_by:
        expression = parse(text)
        words = _partition_fault(config, expression, records, times)
        if not words and expression.name in names:
            words = f"{text}: another expression is also named {expression.name}"
        names.add(expression.name)
        if words:
            yield _wrong(config, "partition_by", words)


def _partition_fault(
    config: Archive, expression: Expression, records: set[str], times: set[str]
) -> str | None:
    # Only Spark knows the fields of a schema.
    is_field = config.form != "none" and expression.column.startswith(f"{config.form}.")
    timed = expression.function in ("year", "month", "day", "hour")
    allowed = times if timed else records
    if expression.column not in allowed and not is_field:
        words = ", ".join(sorted(allowed))
        return f"{expression.function} of {expression.column}: expected one of {words}"
    if expression.column == "key" and expression.function != "bucket":
        return "the key is binary, so it cannot name a partition; use bucket(16, key)"
    if config.format == "parquet" and config.file_names == "deterministic" and is_field:
        words = 'file_names = "deterministic" cannot partition by fields of values'
        return f"{expression.column}: {words}"
    return None


def _archive_problems(config: Archive) -> Iterator[Problem]:
    yield from _partition_problems(config)
    path, state = (
        _local(config, address) if address else None
        for address in (config.path, config.checkpoint)
    )
    # A first run that was killed may have left a table without a note.
    begun = state is None or os.path.exists(state / "offsets")
    if config.format != "parquet" and path and not begun and table_formats.is_foreign(path):
        yield _wrong(config, "path", table_formats.FOREIGN)
    if config.format == "parquet":
        if config.merge_schema:
            words = 'without format = "delta" or "iceberg" each file has its own columns'
            yield _wrong(config, "merge_schema", words)
        if config.file_names == "deterministic" and "topic" not in config.partition_by:
            words = 'expected topic among them with file_names = "deterministic"'
            yield _wrong(config, "partition_by", words)
    elif "file_names" in config.model_fields_set:
        yield _wrong(config, "file_names", 'only with format = "parquet"')
    if config.staging:
        if config.file_names != "deterministic":
            yield _wrong(
                config, "staging", 'it has no effect without file_names = "deterministic"'
            )
        else:
            for key in ("path", "checkpoint"):
                folder = getattr(config, key)
                if folder and _is_inside(config.staging, folder):
                    yield _wrong(config, "staging", f'it must not be inside "{key}"')
    if not config.keep_raw and not config.reads_values:
        yield _wrong(
            config, "keep_raw", 'without "decode" or "schema" the files would lack the values'
        )


def _schema_problems(config: DecodeKeys) -> Iterator[Problem]:
    schema = config.value_schema
    if config.decode == "json" and schema is None and not config.registry:
        yield Problem(("schema",), 'key "schema" is missing: decode = "json" needs one')
    if not isinstance(schema, Schema):
        return
    if schema.text.lstrip().startswith("{"):
        try:
            with suppress(ImportError):  # without Spark the job fails later, with a clear error
                schema.struct()
        except ValueError as error:
            yield Problem(("schema",), f'key "schema": {error}')
            return
    if schema.unchecked:
        _log.warning(
            'key "schema": these are not checked, and all values pass: %s',
            ", ".join(schema.unchecked),
        )


def _registry_problems(config: RegistryKeys) -> Iterator[Problem]:
    needs = []
    uses = False
    source = None
    if isinstance(config, DecodeKeys):
        uses = config.uses_registry
        if config.decode in ("avro", "protobuf"):
            needs.append("decode")
        elif isinstance(config.value_schema, SchemaSource):
            needs.append("schema")
            if config.envelope != "none":
                words = "envelopes are not in the wire format of Schema Registry: expected DDL or"
                yield Problem(("schema",), f'key "schema": {words} JSON Schema')
                return
    if isinstance(config, EncodeKeys):
        source = config.encode_schema
        if config.encode != "none":
            needs.append("encode")
        elif source is not None:
            words = 'key "encode_schema" has no effect without "encode"'
            yield Problem(("encode_schema",), words)
    if not config.registry:
        for key in needs:
            words = "needs the table [registry] with the url of Schema Registry"
            yield Problem((key,), f'key "{key}" {words}')
        return
    if not uses and not needs:
        words = 'key "registry" has no effect without decode = "json", "avro" or "protobuf"'
        words += ', or "encode"' if isinstance(config, EncodeKeys) else ""
        yield Problem(("registry",), words)
    found = registry_mistakes(config.registry)
    for name in ("auto.register.schemas", "subject.name.strategy.type"):
        is_set = config.registry.get(name, REGISTRY[name]) != REGISTRY[name]
        if is_set and (source is None or source.document is None):
            words = 'it has no effect unless "encode_schema" is a schema or a file'
            found.append((name, words))
    for name, words in found:
        colon = "" if words.startswith("is missing") else ":"
        yield Problem((f"registry.{name}",), f'key "registry.{name}"{colon} {words}')


def registry_mistakes(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the wrong options, each with the reason. Reasons never contain secrets."""
    found = [
        (name, f"the registry has no such option{did_you_mean(name, REGISTRY)}")
        for name in given
        if name not in REGISTRY
    ]
    found += client_options.mistakes(
        {name: given[name] for name in given if name in client_options.DEFAULTS.keys() & REGISTRY}
    )
    for name, words in _URLS.items():
        urls = given.get(name, "").split(",")
        if any("@" in url.partition("//")[2].partition("/")[0] for url in urls):
            found.append((name, words))
    for name, choices in _CHOICES.items():
        if given.get(name, REGISTRY[name]) not in choices:
            found.append((name, f"expected {' or '.join(choices)}"))
    return found


def _replay_problems(config: Replay) -> Iterator[Problem]:
    if "step" in config.model_fields_set and not config.checkpoint:
        _log.warning('key "step" = %d has no effect without a "checkpoint"', config.step)
    for what in ("time", "offset"):
        keys = f"from_{what}", f"until_{what}"
        start, end = (getattr(config, key) for key in keys)
        if start is not None and end is not None and start >= end:
            words = (
                f'keys "{keys[0]}" and "{keys[1]}": the range from {start} until {end} is empty'
            )
            yield Problem(keys, words)


def _mirror_problems(config: Mirror) -> Iterator[Problem]:
    if not config.to and not config.transform:
        words = 'key "to" is missing: the topic to send to (or a "transform" with a column topic)'
        yield Problem(("to", "transform"), words)
    if config.encode != "none" and not config.transform and config.form == "none":
        words = 'it needs values to encode: from a "transform", or from "decode" and "schema"'
        yield _wrong(config, "encode", words)
    if _is_transactional(config) and config.transform and config.reads_values:
        words = (
            'with "transform" and "schema" or "decode" the job sends batches, which cannot use '
        )
        yield _wrong(config, "sink.transactional", f"{words}transactions")
    yield from _circle_problems(config)
    if config.to and config.to == config.dead_letter_topic:
        yield _wrong(config, "dead_letter_topic", 'it is the same as "to"')


def _redrive_problems(config: Redrive) -> Iterator[Problem]:
    yield from _circle_problems(config)
    if _is_transactional(config):
        words = (
            "the target of a record depends on the existing topics, but a repeated micro-batch "
            "must send the same records"
        )
        yield _wrong(config, "sink.transactional", words)


def _circle_problems(config: StreamConfig) -> Iterator[Problem]:
    """Find topics that the job both reads and writes."""
    if config.source_options().get(_SERVERS) != config.sink_options().get(_SERVERS):
        return
    for key in ("to", "dead_letter_topic", "parking_topic"):
        topic = getattr(config, key, None)
        if topic and _reads(config, topic):
            words = "the job reads this topic, so it would read its own records again"
            yield _wrong(config, key, words)


def _is_transactional(config: JobConfig) -> bool:
    return config.options("sink").get("transactional") == "true"


def _reads(config: StreamConfig, topic: str) -> bool:
    """Whether the job reads a topic, by its name, the pattern or partitions."""
    if topic in (config.topics or ()):
        return True
    if config.topic_pattern and re.fullmatch(config.topic_pattern, topic):
        return True
    assign = _assigned(config)
    try:
        partitions = parse_partitions(assign, "assign") if assign else ()
    except ValueError:  # the source reports it
        return False
    return any(name == topic for name, _ in partitions)
