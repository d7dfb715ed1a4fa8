"""What can be configured: the keys of each job, what their values are, and what they mean."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["COMMON", "JOBS", "TABLES", "Job", "Key", "near_miss", "seconds"]

Reader = Callable[[Any], Any]

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")
_OFFSET = re.compile(r"\d{1,18}")
_COMPRESSIONS = ("none", "snappy", "gzip", "lz4", "zstd")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Key:
    """A key of a job's configuration.

    Parameters
    ----------
    name : str
        As in the file; on the command line it is an option: ``dry_run`` is ``--dry-run``.
    read : callable
        Makes the value of what the file or the command line gives (text, or what TOML knows); a
        ValueError says what was expected.
    help : str
        One line, for ``--help``.
    default : object
        The value where the configuration says nothing; None: none.
    required : bool
        Without it the job cannot run.
    metavar : str
        What the help calls the value.
    """

    name: str
    read: Reader
    help: str
    default: Any = None
    required: bool = False
    metavar: str = "VALUE"

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Job:
    """A job: its keys beside the common ones, and the tables it reads (`TABLES`)."""

    name: str
    summary: str
    description: str
    examples: str
    keys: tuple[Key, ...]
    tables: tuple[str, ...]
    streams: bool


def near_miss(name: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` if something like `name` is known, else nothing."""
    plain = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), plain, 1, 0.7)
    close = close or difflib.get_close_matches(name.lower(), plain, 1, 0.7)
    return f'; did you mean "{plain[close[0]]}"?' if close else ""


# -- what values are


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("expected a text that is not empty")
    return value


def sql(value: Any) -> str:
    return text(value).strip().rstrip(";")


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, list) or not value:
        raise ValueError('expected a list of names, as ["a", "b"] or "a,b"')
    for part in value:
        if not isinstance(part, str) or not part.strip():
            raise ValueError(f"expected names, and {part!r} is none")
    if len(set(value)) < len(value):
        raise ValueError("a name is there twice")
    return list(value)


def numbers(value: Any) -> list[int]:
    parts = value.split(",") if isinstance(value, str) else value
    try:
        return [whole(0)(part) for part in parts] if parts else [whole(0)(None)]
    except (TypeError, ValueError):
        raise ValueError('expected a list of whole numbers, as [0, 1] or "0,1"') from None


def boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    raise ValueError("expected true or false")


def whole(low: int, high: int | None = None) -> Reader:
    """Reads whole numbers of at least `low`, and at most `high`."""

    def read(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?[0-9][0-9_]*\s*", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ValueError(f"expected a whole number of at least {low}")
        if high is not None and value > high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(value)

    return read


def positive(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e18:
        raise ValueError("expected a number greater than 0")
    return float(value)


def choice(*allowed: str) -> Reader:
    def read(value: Any) -> str:
        if value not in allowed:
            words = ", ".join(f'"{word}"' for word in allowed)
            hint = near_miss(value, allowed) if isinstance(value, str) else ""
            raise ValueError(f"expected one of {words}{hint}")
        return str(value)

    return read


def seconds(value: Any) -> float:
    """A duration, in s: a number, or a text such as ``"10 s"``, ``"5m"``, ``"200 ms"``."""
    told = 'expected a duration, as 10 (seconds), "30s", "5 minutes" or "200ms"'
    if isinstance(value, int | float) and not isinstance(value, bool):
        number, unit = float(value), "s"
    else:
        match = _DURATION.fullmatch(value.lower()) if isinstance(value, str) else None
        if match is None or match[2] not in _UNITS:
            raise ValueError(told)
        number, unit = float(match[1]), match[2]
    if not 0 <= number < 1e9:
        raise ValueError(told)
    return number * _UNITS[unit]


def instant(value: Any) -> int:
    """A point in time, in ms since 1970: a number of ms, or a date and time of ISO 8601 (UTC)."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str):
        if _OFFSET.fullmatch(value):
            return int(value)
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            value = None
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime.datetime):
        raise ValueError(
            "expected a time, as 2026-01-31, 2026-01-31T12:00:00Z or milliseconds since 1970"
        )
    if value.tzinfo is None:
        value = value.replace(tzinfo=datetime.UTC)
    since: float = value.timestamp()
    return round(since * 1000)


def pattern(value: Any) -> str:
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from None
    return str(value)


def schema(value: Any) -> Any:
    """A schema for JSON values: a table of JSON Schema, DDL, or the name of a file with either."""
    if isinstance(value, Mapping):
        return dict(value)
    return text(value)


# -- keys

_PATH = (
    "DIR",
    "a folder that Spark can reach: a path, or an address such as hdfs://... or s3a://...",
)

COMMON = (
    Key("master", text, "where Spark runs: local[*], spark://..., yarn, k8s://...", None,
        metavar="URL"),
    Key("app_name", text, "the name of the application in Spark", None, metavar="NAME"),
    Key("summary", text, "write the summary to this file, too, as JSON", None, metavar="FILE"),
    Key("progress", seconds, "how often progress is told where there is no terminal; 0: never",
        10.0, metavar="DURATION"),
)  # fmt: skip

_STREAM = (
    Key("checkpoint", text, "where the job keeps its position; " + _PATH[1], None, True, "DIR"),
    Key("trigger", choice("available-now", "continuous"),
        "available-now: what is there, then end; continuous: go on until stopped", "available-now",
        metavar="WHEN"),
    Key("interval", seconds, "continuous: the time from one micro-batch to the next", 0.0,
        metavar="DURATION"),
    Key("stop_timeout", seconds, "how long a stop waits for the micro-batch at work", 30.0,
        metavar="DURATION"),
)  # fmt: skip

_TOPICS = (
    Key("topics", texts, "topics to read", None, metavar="TOPIC,..."),
    Key("topic_pattern", pattern, "read all topics of which this regular expression matches the "
        "whole name", None, metavar="REGEX"),
)  # fmt: skip

_DECODE = (
    Key("decode", choice("none", "headers", "json"),
        "read values as envelopes of pip-services, in their form headers or json", "none",
        metavar="FORM"),
    Key("schema", schema, "the schema of JSON values: DDL, JSON Schema, or a file with it; values "
        "that do not match are bad records", None, metavar="SCHEMA"),
)  # fmt: skip

_DRY_RUN = Key("dry_run", boolean, "count and show, but send nothing and keep the position", False)
_WHERE = "an SQL condition: only records for which it is true"


def _kept(partitions: bool, timestamps: bool) -> tuple[Key, Key]:
    """What records keep of their old places, unless the configuration says otherwise."""
    return (
        Key("keep_partitions", boolean, "send each record to the partition it had or came from "
            "(else: by key)", partitions),
        Key("keep_timestamps", boolean, "send records with the timestamps they had (else: now)",
            timestamps),
    )  # fmt: skip


_BOTH_WAYS = ("kafka", "source", "sink", "spark")

ARCHIVE = Job(
    "archive",
    "topics to Parquet, by topic and date",
    "Write the records of topics to Parquet files, in folders by topic and date (of the record's\n"
    "timestamp, UTC). A restart goes on from the checkpoint; each offset is written exactly once.",
    """\
python -m cykafka.spark archive --bootstrap-servers localhost:9092 \\
    --topics orders,payments --path /data/archive --checkpoint /data/archive.checkpoint
python -m cykafka.spark archive --config archive.toml --trigger continuous --interval 1m
""",
    (
        *_TOPICS,
        Key("path", text, "the folder of the archive; " + _PATH[1], None, True, "DIR"),
        *_STREAM,
        Key("file_names", choice("spark", "deterministic"),
            "spark: Spark's own, exact for readers that know Spark's log; deterministic: "
            "TOPIC-PARTITION-START-END.parquet, exact for all that list the folder", "spark",
            metavar="KIND"),
        Key("staging", text, "deterministic: where files are written before they are renamed "
            "(default: beside the path, which must be the same file system)", None, metavar="DIR"),
        Key("compression", choice(*_COMPRESSIONS), "of the Parquet files", "zstd",
            metavar="CODEC"),
        *_DECODE,
        Key("keep_raw", boolean, "with decode or schema: also keep key, value and headers as they "
            "are; replay needs them", True),
    ),
    ("kafka", "source", "spark"),
    True,
)  # fmt: skip

REPLAY = Job(
    "replay",
    "Parquet to a topic",
    "Send the records of an archive, in the order of their offsets within each partition, with\n"
    "their keys, headers, timestamps and partitions.",
    """\
python -m cykafka.spark replay --bootstrap-servers localhost:9092 \\
    --path /data/archive --topics orders --to orders-again --rate 5000
python -m cykafka.spark replay --config replay.toml \\
    --from-time 2026-01-01 --until-time 2026-02-01 --dry-run
""",
    (
        Key("path", text, "the folder of the archive", None, True, "DIR"),
        Key("topics", texts, "only these topics of the archive", None, metavar="TOPIC,..."),
        Key("to", text, "send all records to this topic (default: the one they came from)", None,
            metavar="TOPIC"),
        Key("partitions", numbers, "only these partitions", None, metavar="N,..."),
        Key("from_time", instant, "only records with this timestamp or later", None,
            metavar="TIME"),
        Key("until_time", instant, "only records with an earlier timestamp", None,
            metavar="TIME"),
        Key("from_offset", whole(0), "only records with this offset or a higher one", None,
            metavar="N"),
        Key("until_offset", whole(0), "only records with a lower offset", None, metavar="N"),
        Key("where", sql, _WHERE, None, metavar="SQL"),
        *_kept(partitions=True, timestamps=True),
        Key("rate", positive, "records per second at most", None, metavar="N"),
        Key("checkpoint", text, "where the job keeps how far it is, so that it can be restarted; "
            + _PATH[1], None, metavar="DIR"),
        Key("step", whole(1), "with a checkpoint: records to send between two notes of it",
            1_000_000, metavar="N"),
        _DRY_RUN,
    ),
    ("kafka", "sink", "spark"),
    False,
)  # fmt: skip

MIRROR = Job(
    "mirror",
    "topic to topic, with an SQL transform",
    "Send the records of topics to others, as they are or by an SQL query over the view\n"
    "`records`. Bad records go to a dead letter topic. A restart goes on from the checkpoint;\n"
    "records may then come twice.",
    """\
python -m cykafka.spark mirror --config mirror.toml
python -m cykafka.spark mirror --bootstrap-servers localhost:9092 \\
    --topics orders --to large-orders --checkpoint /data/mirror.checkpoint \\
    --dead-letter-topic orders.dlq --schema 'id STRING, total DOUBLE' \\
    --transform "SELECT key, to_json(json) AS value FROM records WHERE json.total > 100"
""",
    (
        *_TOPICS,
        Key("to", text, "send all records to this topic, whatever the transform says (default: "
            "the transform's column topic)", None, metavar="TOPIC"),
        Key("transform", sql, "a query over the view records, giving value and optionally key, "
            "headers, partition, timestamp, topic, and error for bad records", None,
            metavar="SQL"),
        *_DECODE,
        Key("dead_letter_topic", text, "where bad records go; without it they are left out, and "
            "counted", None, metavar="TOPIC"),
        Key("source_headers", boolean, "add the headers source_topic, source_partition, "
            "source_offset and source_timestamp", True),
        *_kept(partitions=False, timestamps=True),
        *_STREAM,
        _DRY_RUN,
    ),
    _BOTH_WAYS,
    True,
)  # fmt: skip

REDRIVE = Job(
    "redrive",
    "a dead letter topic back to where its records came from",
    "Send dead letters (of the job mirror, and of pip_services4_kafka) back to the topics they\n"
    "came from. A restart goes on from the checkpoint.",
    """\
python -m cykafka.spark redrive --bootstrap-servers localhost:9092 \\
    --topics orders.dlq --checkpoint /data/redrive.checkpoint --dry-run
python -m cykafka.spark redrive --config redrive.toml \\
    --where "dlq_error LIKE '%timeout%'" --max-attempts 3
""",
    (
        *_TOPICS,
        *_STREAM,
        Key("where", sql, _WHERE + "; beside the record's columns there are dlq_topic, "
            "dlq_partition, dlq_offset, dlq_error, dlq_attempts and redrive_attempts", None,
            metavar="SQL"),
        Key("max_attempts", whole(1), "a record that was sent back that often is not sent again",
            3, metavar="N"),
        Key("parking_topic", text, "where records go that were sent back too often, or do not say "
            "where they came from; without it they are left out, and counted", None,
            metavar="TOPIC"),
        *_kept(partitions=True, timestamps=False),
        _DRY_RUN,
    ),
    _BOTH_WAYS,
    True,
)  # fmt: skip

PROFILE = Job(
    "profile",
    "what topics hold, as tables and a chart",
    "Count the records of topics: sizes, keys, times, gaps in the offsets, and what their\n"
    "values seem to be, by topic and partition.",
    """\
python -m cykafka.spark profile --bootstrap-servers localhost:9092 --topics orders
python -m cykafka.spark profile --config profile.toml --output orders.html
""",
    (
        *_TOPICS,
        Key("sample", whole(0, 100_000), "the schema is guessed of that many of the newest "
            "records of each partition; 0: no guess", 200, metavar="N"),
        Key("output", text, "write the chart (.svg) or the whole report (.html, .json) to this "
            "file", None, metavar="FILE"),
    ),
    ("kafka", "source", "spark"),
    False,
)  # fmt: skip

JOBS = {job.name: job for job in (ARCHIVE, REPLAY, MIRROR, REDRIVE, PROFILE)}

# Tables with any keys: the prefix of their options, and what they mean.
TABLES = {
    "kafka": "properties of the clients: bootstrap.servers, security.protocol, sasl.*, ssl.*",
    "source": "options of the source, as maxOffsetsPerTrigger; source.kafka.* only for reading",
    "sink": "options of the sink; sink.kafka.* only for writing",
    "spark": "Spark's own configuration: executor.memory, sql.shuffle.partitions, ...",
}
