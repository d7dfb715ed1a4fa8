"""What the keys of a configuration must be to one another, job by job."""

from __future__ import annotations

import logging
import os
import posixpath
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from cykafka.spark.jobs.keys import near_miss
from cykafka.spark.jobs.settings import Config
from cykafka.spark.offsets import parse_partitions

__all__ = ["check"]

_log = logging.getLogger("cykafka.spark")

# What the source takes, in its spelling: Spark gives it the names in lower case.
SOURCE_OPTIONS = (
    "assign", "subscribe", "subscribePattern", "startingOffsets", "startingTimestamp",
    "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "endingOffsets",
    "endingTimestamp", "endingOffsetsByTimestamp", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "groupIdPrefix", "commitGroup", "includeHeaders", "pushdown",
)  # fmt: skip
SINK_OPTIONS = ("transactional", "transactionalIdPrefix")
_ENDING = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
_ASKED_BY_KEYS = {"subscribe": "topics", "subscribepattern": "topic_pattern"}
_NAMED = re.compile(r'keys? "([\w.-]+)"')
_ADDRESS = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?)?(.*)", re.DOTALL)
# With one of these addresses without a scheme may be of any file system.
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME", "SPARK_CONF_DIR")
_MAY_BE_FILE = ("replay", "path")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check(config: Config) -> list[str]:
    """All that is wrong with a configuration whose values, each by itself, are right."""
    problems = list(_topics(config))
    problems += _source(config)
    problems += _sink(config)
    # The source, too, refuses what was refused above.
    told = {name.lower() for problem in problems for name in _NAMED.findall(problem)}
    problems += [
        problem
        for problem in _clients(config)
        if told.isdisjoint(name.lower() for name in _NAMED.findall(problem))
    ]
    _warn_of_interval(config)
    problems += _folders(config)
    problems += _JOBS[config.job.name](config)
    return problems


def _topics(config: Config) -> Iterator[str]:
    for name in ("topics", "to", "dead_letter_topic", "parking_topic"):
        value = config.values.get(name)
        for topic in [value] if isinstance(value, str) else value or []:
            if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
                yield (
                    f'key "{name}" = {topic!r}: expected a topic\'s name: letters, digits, '
                    "., _ and -, 249 of them at most"
                )
    if "topic_pattern" not in config.values:
        return
    given = [
        f'"{name}"'
        for name, there in (
            ("topics", config["topics"]),
            ("topic_pattern", config["topic_pattern"]),
            ("source.assign", _source_option(config, "assign")),
        )
        if there
    ]
    if not given:
        yield 'key "topics" is missing: which topics to read (or "topic_pattern", "source.assign")'
    elif len(given) > 1:
        yield f"keys {' and '.join(given)} are both there: expected one of them"


def _source_option(config: Config, lower: str) -> str | None:
    for name, value in config.tables.get("source", {}).items():
        if name.lower() == lower:
            return value
    return None


def _source(config: Config) -> Iterator[str]:
    known = {name.lower() for name in SOURCE_OPTIONS}
    for name, value in config.tables.get("source", {}).items():
        lower, told = name.lower(), f'key "source.{name}"'
        if lower.startswith("kafka.") and "kafkaconsumer." not in lower:
            continue
        if lower not in known:
            yield f"{told}: the source has no such option{near_miss(name, SOURCE_OPTIONS)}"
        elif lower in _ASKED_BY_KEYS:
            yield f'{told}: use the key "{_ASKED_BY_KEYS[lower]}"'
        elif lower == "includeheaders":
            yield f"{told}: the job decides that"
        elif lower in _ENDING and config.job.streams:
            yield f"{told} = {value!r}: a stream ends with what is there, or never"


def _sink(config: Config) -> Iterator[str]:
    decided = {"topic": 'use the key "to"', "includeheaders": "the job decides that"}
    decided["includetimestamp"] = 'use the key "keep_timestamps"'
    for name, value in config.tables.get("sink", {}).items():
        lower, told = name.lower(), f'key "sink.{name}"'
        if lower.startswith("kafka."):
            continue
        if lower in decided:
            yield f"{told}: {decided[lower]}"
        elif lower not in {known.lower() for known in SINK_OPTIONS}:
            yield f"{told}: the sink has no such option{near_miss(name, SINK_OPTIONS)}"
        elif lower == "transactional" and value not in ("true", "false"):
            yield f"{told} = {value!r}: expected true or false"
        elif not config.job.streams:
            yield f"{told}: only streams have transactions"


def _clients(config: Config) -> Iterator[str]:
    """What the clients themselves say of their properties, and the source of its options."""
    from cykafka.spark.client import client_config
    from cykafka.spark.options import ReadOptions

    told = set()
    for role in ("source", "sink"):
        # What a dry run does not send to, but redrive asks what topics there are.
        idle = config.values.get("dry_run") and config.job.name != "redrive"
        if role not in config.job.tables or (role == "sink" and idle):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the clients of the job will say it
                if role == "sink":
                    _check_sink(config)
                else:
                    client_config(config.source_options(), role="source")
                    mode = "stream" if config.job.streams else "batch"
                    ReadOptions.of(config.source_options(), mode)  # type: ignore[arg-type]
        except ValueError as error:
            words = str(error)
            if not words.startswith("expected exactly one"):  # told by the keys' names
                # The option is a key of this table, but for what both clients have.
                words = re.sub(r'^option "?(kafka\.[\w.-]+)"?', r'key "\1"', words)
                words = re.sub(r'^option "?([\w.]+)"?', rf'key "{role}.\1"', words)
                told.add(words)
    yield from sorted(told)


def _check_sink(config: Config) -> None:
    """What the sink says of its options and columns, where there is Spark's part in Python."""
    from cykafka.spark.client import client_config

    try:
        from pyspark.sql.types import StringType, StructType

        from cykafka.spark.write_options import write_options
    except ImportError:
        client_config(config.sink_options(), role="sink")
        return
    columns = StructType().add("value", StringType()).add("topic", StringType())
    write_options(config.sink_options(), columns, stream=config.job.streams)


def _warn_of_interval(config: Config) -> None:
    """A file may be for a stream that goes on, and for one that catches up."""
    if config.values.get("interval") and config["trigger"] != "continuous":
        _log.warning(
            'key "interval" = %g: only trigger = "continuous" has a use for it', config["interval"]
        )


def _folders(config: Config) -> Iterator[str]:
    for name in ("path", "checkpoint", "staging"):
        value = config.values.get(name)
        if value is None:
            continue
        there = None if "\n" in value else _local(config, value)
        if "\n" in value:
            yield f'key "{name}" = {value!r}: expected a folder'
        elif there is not None and there.is_file() and (config.job.name, name) != _MAY_BE_FILE:
            yield f'key "{name}" = {value!r}: expected a folder, and this is a file'
    for name in ("summary", "output"):
        value = config.values.get(name)
        if value is None:
            continue
        folder = Path(value).expanduser().absolute().parent
        if not folder.is_dir():
            yield f'key "{name}" = {value!r}: there is no folder {folder}'
        elif Path(value).is_dir():
            yield f'key "{name}" = {value!r}: expected a file, and this is a folder'
    path, checkpoint = config.values.get("path"), config.values.get("checkpoint")
    if path and checkpoint and _inside(checkpoint, path):
        yield (
            f'key "checkpoint" = {checkpoint!r}: it must not be inside "path", whose files others '
            "list"
        )


def _inside(folder: str, parent: str) -> bool:
    """Whether one address is that of a folder in the other one, or of the same, however written.

    An address without a scheme may be of another file system than the local one; then it is
    compared with its like only, which comes to the same.
    """
    system, path = _place(folder)
    parent_system, parent_path = _place(parent)
    return system == parent_system and (path.rstrip("/") + "/").startswith(
        parent_path.rstrip("/") + "/"
    )


def _place(address: str) -> tuple[str, str]:
    """The file system of an address, and the path there in its plainest form."""
    match = _ADDRESS.fullmatch(address)
    scheme, host, path = match.groups() if match else (None, None, address)
    if scheme is None or scheme.lower() == "file":
        return "", os.path.realpath(path)
    return f"{scheme.lower()}:{(host or '').lower()}", posixpath.normpath(path or "/")


def _local(config: Config, address: str) -> Path | None:
    """The path of an address that can only be of this machine's file system."""
    system, path = _place(address)
    may_be_other = any(name in os.environ for name in _HADOOP) or any(
        name.endswith("fs.defaultFS") for name in config.tables.get("spark", {})
    )
    explicit = address.lower().startswith("file:")
    return Path(path) if not system and (explicit or not may_be_other) else None


def _archive(config: Config) -> Iterator[str]:
    if config["staging"]:
        if config["file_names"] != "deterministic":
            yield 'key "staging": only file_names = "deterministic" has a use for it'
        else:
            for name in ("path", "checkpoint"):
                if config[name] and _inside(config["staging"], config[name]):
                    yield f'key "staging" = {config["staging"]!r}: it must not be inside "{name}"'
    if not config["keep_raw"] and config["decode"] == "none" and config["schema"] is None:
        yield 'key "keep_raw" = False: without "decode" or "schema" there is little else'
    yield from _schema(config)


def _schema(config: Config) -> Iterator[str]:
    from cykafka.spark.jobs.values import read_schema

    if config["schema"] is not None:
        try:
            config.written.setdefault("schema", config["schema"])
            schema = config.values["schema"] = read_schema(config["schema"])
            if schema.text.lstrip().startswith("{"):
                with suppress(ImportError):  # who has no Spark is told so later
                    schema.struct()
        except ValueError as error:
            yield f'key "schema": {error}'
            return
        if schema.unchecked:
            _log.warning(
                'key "schema": these are not checked, and all values pass: %s',
                ", ".join(schema.unchecked),
            )


def _replay(config: Config) -> Iterator[str]:
    if config["step"] != _default(config, "step") and not config["checkpoint"]:
        _log.warning(
            'key "step" = %s: only with a "checkpoint" there are notes of steps', config["step"]
        )
    for what in ("time", "offset"):
        start, end = config[f"from_{what}"], config[f"until_{what}"]
        if start is not None and end is not None and start >= end:
            yield f'keys "from_{what}" and "until_{what}": nothing is from {start} until {end}'


def _default(config: Config, name: str) -> object:
    return next(key.default for key in config.job.keys if key.name == name)


def _mirror(config: Config) -> Iterator[str]:
    if not config["to"] and not config["transform"]:
        yield 'key "to" is missing: the topic to send to (or a "transform" with a column topic)'
    yield from _schema(config)
    transactional = config.sink_options().get("transactional") == "true"
    if transactional and config["transform"] and (config["schema"] or config["decode"] != "none"):
        yield (
            'key "sink.transactional" = \'true\': with "transform" and "schema" or "decode" '
            "micro-batches are sent as batches, which have no transactions"
        )
    if _same_cluster(config):
        for name in ("to", "dead_letter_topic"):
            if config[name] and _reads(config, config[name]):
                yield f'key "{name}" = {config[name]!r}: it is read, too: records would go round'
    if config["to"] and config["to"] == config["dead_letter_topic"]:
        yield f'key "dead_letter_topic" = {config["to"]!r}: it is the same as "to"'


def _redrive(config: Config) -> Iterator[str]:
    parking = config["parking_topic"]
    if parking and _reads(config, parking) and _same_cluster(config):
        yield f'key "parking_topic" = {parking!r}: it is read, too: records would go round'
    if config.sink_options().get("transactional") == "true":
        yield (
            "key \"sink.transactional\" = 'true': what becomes of a letter changes with "
            "the topics that are there, and a micro-batch that is tried again must be the same"
        )


def _reads(config: Config, topic: str) -> bool:
    """Whether the job reads a topic, by its name, by the pattern or by partitions."""
    if topic in (config["topics"] or ()):
        return True
    pattern = config["topic_pattern"]
    if pattern and re.fullmatch(pattern, topic):
        return True
    assign = config.source_options().get("assign")
    try:
        partitions = parse_partitions(assign, "assign") if assign else ()
    except ValueError:  # told by itself
        return False
    return any(name == topic for name, _ in partitions)


def _same_cluster(config: Config) -> bool:
    name = "kafka.bootstrap.servers"
    return config.source_options().get(name) == config.sink_options().get(name)


def _profile(config: Config) -> Iterator[str]:
    output = config["output"]
    if output and Path(output).suffix not in (".svg", ".html", ".json"):
        yield f'key "output" = {output!r}: expected a name that ends with .svg, .html or .json'


_JOBS: dict[str, Callable[[Config], Iterator[str]]] = {
    "archive": _archive,
    "replay": _replay,
    "mirror": _mirror,
    "redrive": _redrive,
    "profile": _profile,
}
