"""The configuration of each job: its keys with their types, defaults and descriptions.

A job's configuration is a pydantic model. Its fields are the keys of the TOML file, and the
options of the command line: `dry_run` is ``--dry-run``. `load` reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator
from pydantic.fields import FieldInfo

from cykafka.spark.jobs.fields import (
    SQL,
    URL,
    Count,
    Duration,
    Folder,
    Instant,
    Name,
    Names,
    Numbers,
    Output,
    Positive,
    Rate,
    Regex,
    Table,
    ValueSchema,
    fill,
    has_variable,
)
from cykafka.spark.jobs.values import Schema
from cykafka.spark.redaction import is_secret

__all__ = [
    "HIDDEN",
    "JOBS",
    "TABLES",
    "Archive",
    "Job",
    "JobConfig",
    "Mirror",
    "Profile",
    "Redrive",
    "Replay",
    "StreamConfig",
    "help_of",
]

HIDDEN = "********"
# The keys that are tables: options of any name.
TABLES = ("kafka", "source", "sink", "spark")
_SHORTEST_SECRET = 4
_IN_JAAS = re.compile(r'(?i)(?:password|secret)\w*\s*=\s*(?:"([^"]*)"|([^\s;]+))')


def help_of(field: FieldInfo) -> str:
    """The description of a key, in one line."""
    return " ".join((field.description or "").split())


class JobConfig(BaseModel):
    """The keys of all jobs. The docstrings of fields are the help of the command line."""

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    job: str
    """the name of the job"""
    master: URL | None = None
    """where Spark runs: local[*], spark://..., yarn, k8s://..."""
    app_name: Name | None = None
    """the name of the application in Spark"""
    summary: Output | None = None
    """write the summary to this file, too, as JSON"""
    progress: Duration = 10.0
    """how often to print progress if there is no terminal; 0: never"""
    kafka: Table = {}
    """properties of the clients: bootstrap.servers, security.protocol, sasl.*, ssl.*"""
    spark: Table = {}
    """Spark's configuration: executor.memory, sql.shuffle.partitions, ..."""

    # The document with its variables, for `toml`.
    _written: dict[str, Any] = PrivateAttr(default_factory=dict)

    fill_variables = field_validator("*", mode="before")(fill)

    def table(self, name: str) -> dict[str, str]:
        """The options of a table; none if the job has no such table."""
        options: dict[str, str] = getattr(self, name, {})
        return options

    @property
    def is_dry_run(self) -> bool:
        """Whether the job sends nothing."""
        return bool(getattr(self, "dry_run", False))

    @property
    def has_source(self) -> bool:
        """Whether the job reads Kafka."""
        return "source" in type(self).model_fields

    def source_options(self) -> dict[str, str]:
        """The options of the data source, the topics among them."""
        options = {**self._client(), **self.table("source")}
        if self.has_source and (topics := getattr(self, "topics", None)):
            options["subscribe"] = ",".join(topics)
        elif pattern := getattr(self, "topic_pattern", None):
            options["subscribePattern"] = pattern
        return options

    def sink_options(self) -> dict[str, str]:
        """The options of the sink."""
        return {**self._client(), **self.table("sink")}

    def spark_options(self) -> dict[str, str]:
        """Spark's configuration by its full names."""
        return {f"spark.{name}": value for name, value in self.spark.items()}

    def _client(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in self.kafka.items()}

    def redact(self, text: str) -> str:
        """`text` without the secrets of this configuration."""
        # The longest first, because one secret may be part of another one.
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    def _secrets(self) -> set[str]:
        found: set[str] = set()
        for table in TABLES:
            for name, value in self.table(table).items():
                if is_secret(name):
                    found.add(value)
                if "jaas" in name.lower():  # an error may quote the password alone
                    found.update(word for pair in _IN_JAAS.findall(value) for word in pair)
        return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}

    def toml(self) -> str:
        """The configuration as TOML: defaults included, secrets hidden, variables unfilled."""
        document = tomlkit.document()
        tables = tomlkit.document()
        for name, field in type(self).model_fields.items():
            key = field.alias or name
            value, written = getattr(self, name), self._written.get(key)
            if name in TABLES:
                table = tomlkit.table()
                table.comment(help_of(field))
                for option, text in value.items():
                    raw = (written or {}).get(option)
                    shown = HIDDEN if is_secret(f"{name}.{option}") else text
                    table.add(option, raw if shown is text and has_variable(raw) else shown)
                tables.add(name, table)
            elif value is None:
                document.add(tomlkit.comment(f"{key}: {help_of(field)}"))
            elif isinstance(written, dict):
                tables.add(key, tomlkit.item(written))
            else:
                is_raw = isinstance(value, Schema) or has_variable(written)
                document.add(key, written if is_raw else value)
        return f"{document.as_string()}\n{tables.as_string()}"


class StreamConfig(JobConfig):
    """The keys of jobs that are a streaming query."""

    topics: Names | None = None
    """topics to read"""
    topic_pattern: Regex | None = None
    """read all topics whose whole name matches this regular expression"""
    checkpoint: Folder
    """where the job keeps its position: a folder that Spark can reach, such as hdfs://..."""
    trigger: Literal["available-now", "continuous"] = "available-now"
    """available-now: read what the topics hold, then end; continuous: go on until stopped"""
    interval: Duration = 0.0
    """continuous: the time from one micro-batch to the next"""
    stop_timeout: Duration = 30.0
    """how long a stop waits for the running micro-batch"""
    source: Table = {}
    """options of the source, such as maxOffsetsPerTrigger; source.kafka.* only for reading"""


# -- jobs


class Archive(StreamConfig):
    job: Literal["archive"] = "archive"
    path: Folder
    """the folder of the archive: a path, or an address such as hdfs://... or s3a://..."""
    file_names: Literal["spark", "deterministic"] = "spark"
    """spark: Spark's own, exact for readers that know Spark's log; deterministic:
    TOPIC-PARTITION-START-END.parquet, exact for all that list the folder"""
    staging: Folder | None = None
    """deterministic: where files are written before they are renamed (default: beside the path);
    it must be in the same file system"""
    compression: Literal["none", "snappy", "gzip", "lz4", "zstd"] = "zstd"
    """the codec of the Parquet files"""
    decode: Literal["none", "headers", "json"] = "none"
    """read values as envelopes of pip-services, in the form headers or json"""
    value_schema: ValueSchema | None = Field(None, alias="schema")
    """the schema of JSON values: DDL, JSON Schema, or a file with either; values that do not match
    are bad records"""
    keep_raw: bool = True
    """with decode or schema: also keep key, value and headers unchanged; replay needs them"""


class Replay(JobConfig):
    job: Literal["replay"] = "replay"
    path: Folder
    """the folder of the archive"""
    topics: Names | None = None
    """only these topics of the archive"""
    to: Name | None = None
    """send all records to this topic (default: the one they came from)"""
    partitions: Numbers | None = None
    """only these partitions"""
    from_time: Instant | None = None
    """only records with this timestamp or later"""
    until_time: Instant | None = None
    """only records with an earlier timestamp"""
    from_offset: Count | None = None
    """only records with this offset or a higher one"""
    until_offset: Count | None = None
    """only records with a lower offset"""
    where: SQL | None = None
    """an SQL condition: only records for which it is true"""
    keep_partitions: bool = True
    """send each record to the partition that it had (else: by key)"""
    keep_timestamps: bool = True
    """send records with the timestamps that they had (else: now)"""
    rate: Rate | None = None
    """records per second at most"""
    checkpoint: Folder | None = None
    """where the job keeps its position, so that it can be restarted: a folder that Spark can
    reach, such as hdfs://..."""
    step: Positive = 1_000_000
    """with a checkpoint: records to send before the next note in it"""
    dry_run: bool = False
    """count and show, but send nothing and keep the position"""
    sink: Table = {}
    """options of the sink; sink.kafka.* only for writing"""


class Mirror(StreamConfig):
    job: Literal["mirror"] = "mirror"
    to: Name | None = None
    """send all records to this topic, whatever the transform says (default: the transform's column
    topic)"""
    transform: SQL | None = None
    """a query over the view records; its columns are value and optionally key, headers, partition,
    timestamp, topic, and error for bad records"""
    decode: Literal["none", "headers", "json"] = "none"
    """read values as envelopes of pip-services, in the form headers or json"""
    value_schema: ValueSchema | None = Field(None, alias="schema")
    """the schema of JSON values: DDL, JSON Schema, or a file with either; values that do not match
    are bad records"""
    dead_letter_topic: Name | None = None
    """where bad records go; without it the job counts and skips them"""
    source_headers: bool = True
    """add the headers source_topic, source_partition, source_offset and source_timestamp"""
    keep_partitions: bool = False
    """send each record to the partition that it came from (else: by key)"""
    keep_timestamps: bool = True
    """send records with the timestamps that they had (else: now)"""
    dry_run: bool = False
    """count and show, but send nothing and keep the position"""
    sink: Table = {}
    """options of the sink; sink.kafka.* only for writing"""


class Redrive(StreamConfig):
    job: Literal["redrive"] = "redrive"
    where: SQL | None = None
    """an SQL condition: only records for which it is true; beside the record's columns there are
    dlq_topic, dlq_partition, dlq_offset, dlq_error, dlq_attempts and redrive_attempts"""
    max_attempts: Positive = 3
    """how often a record is sent back before it is parked"""
    parking_topic: Name | None = None
    """where records go that were sent back too often or do not name their topic; without it the
    job counts and skips them"""
    keep_partitions: bool = True
    """send each record to the partition that it came from (else: by key)"""
    keep_timestamps: bool = False
    """send records with the timestamps that they had (else: now)"""
    dry_run: bool = False
    """count and show, but send nothing and keep the position"""
    sink: Table = {}
    """options of the sink; sink.kafka.* only for writing"""


class Profile(JobConfig):
    job: Literal["profile"] = "profile"
    topics: Names | None = None
    """topics to read"""
    topic_pattern: Regex | None = None
    """read all topics whose whole name matches this regular expression"""
    sample: Annotated[Count, Field(le=100_000)] = 200
    """guess the schema from that many of the newest records of each partition; 0: no guess"""
    output: Output | None = None
    """write the chart (.svg) or the whole report (.html, .json) to this file"""
    source: Table = {}
    """options of the source; source.kafka.* only for reading"""


@dataclass(frozen=True)
class Job:
    """A job and its help."""

    name: str
    config: type[JobConfig]
    summary: str
    description: str
    examples: str


JOBS = {
    job.name: job
    for job in (
        Job(
            "archive",
            Archive,
            "topics to Parquet, by topic and date",
            "Write the records of topics to Parquet files, in folders by topic and date (of the "
            "record's timestamp, UTC). A restart goes on from the checkpoint; each offset is "
            "written exactly once.",
            """\
python -m cykafka.spark archive --bootstrap-servers localhost:9092 \\
    --topics orders,payments --path /data/archive \\
    --checkpoint /data/archive.checkpoint
python -m cykafka.spark archive --config archive.toml \\
    --trigger continuous --interval 1m
""",
        ),
        Job(
            "replay",
            Replay,
            "Parquet to a topic",
            "Send the records of an archive, in the order of their offsets within each "
            "partition, with their keys, headers, timestamps and partitions.",
            """\
python -m cykafka.spark replay --bootstrap-servers localhost:9092 \\
    --path /data/archive --topics orders --to orders-again --rate 5000
python -m cykafka.spark replay --config replay.toml \\
    --from-time 2026-01-01 --until-time 2026-02-01 --dry-run
""",
        ),
        Job(
            "mirror",
            Mirror,
            "topic to topic, with an SQL transform",
            "Send the records of topics to others, unchanged or by an SQL query over the view "
            "`records`. Bad records go to a dead letter topic. A restart goes on from the "
            "checkpoint; it may send records twice.",
            """\
python -m cykafka.spark mirror --config mirror.toml
python -m cykafka.spark mirror --bootstrap-servers localhost:9092 \\
    --topics orders --to large-orders --checkpoint /data/mirror.checkpoint \\
    --dead-letter-topic orders.dlq --schema 'id STRING, total DOUBLE' \\
    --transform "SELECT key, value FROM records WHERE json.total > 100"
""",
        ),
        Job(
            "redrive",
            Redrive,
            "a dead letter topic back to where its records came from",
            "Send dead letters (of the job mirror, and of pip_services4_kafka) back to the topics "
            "that they came from. A restart goes on from the checkpoint.",
            """\
python -m cykafka.spark redrive --bootstrap-servers localhost:9092 \\
    --topics orders.dlq --checkpoint /data/redrive.checkpoint --dry-run
python -m cykafka.spark redrive --config redrive.toml \\
    --where "dlq_error LIKE '%timeout%'" --max-attempts 3
""",
        ),
        Job(
            "profile",
            Profile,
            "what topics hold, as tables and a chart",
            "Count the records of topics: sizes, keys, times, gaps in the offsets, and what "
            "their values seem to be, by topic and partition.",
            """\
python -m cykafka.spark profile --bootstrap-servers localhost:9092 --topics orders
python -m cykafka.spark profile --config profile.toml --output orders.html
""",
        ),
    )
}
