"""The configuration of each job: its keys with their types, defaults and descriptions.

A job's configuration is a pydantic model. Its fields are the keys of the TOML file, and the
options of the command line: `dry_run` is ``--dry-run``. `load` reads it.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from cykafka.spark.clients.properties import is_secret
from cykafka.spark.jobs.config.fields import (
    SQL,
    URL,
    Address,
    Count,
    Directory,
    Duration,
    Expressions,
    Flag,
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
    WriterSchema,
    fill,
)

__all__ = [
    "HIDDEN",
    "JOBS",
    "TABLES",
    "Archive",
    "Compact",
    "DecodeKeys",
    "EncodeKeys",
    "JobConfig",
    "Mirror",
    "Profile",
    "Redrive",
    "RegistryKeys",
    "Replay",
    "SendKeys",
    "StreamConfig",
    "TableKeys",
    "TopicKeys",
]

HIDDEN = "********"
# The keys that are tables: options of any name.
TABLES = ("kafka", "source", "sink", "registry", "spark")
_SHORTEST_SECRET = 4
# The options that limit the size of a record to write, and librdkafka's largest value.
_SIZES = ("kafka.message.max.bytes", "kafka.max.request.size")
_MOST_BYTES = "1000000000"
_IN_SERVER = re.compile(r";token=([^;]+)")  # of Spark Connect
_IN_JAAS = re.compile(r'(?i)(?:password|secret)\w*\s*=\s*(?:"([^"]*)"|([^\s;]+))')


# -- keys that several jobs have


class _Keys(BaseModel):
    """Some keys of a configuration."""

    model_config = ConfigDict(
        extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )


class TopicKeys(_Keys):
    """The keys of jobs that read topics."""

    topics: Names | None = None
    """topics to read"""
    topic_pattern: Regex | None = None
    """read all topics whose whole name matches this regular expression"""
    source: Table = {}
    """source options, such as maxOffsetsPerTrigger; source.kafka.* only for reading"""


class RegistryKeys(_Keys):
    """The keys of jobs that may use Schema Registry."""

    registry: Table = {}
    """Schema Registry, by the names of Confluent's clients: url, basic.auth.user.info,
    bearer.auth.token, ssl.ca.location, ..."""


class DecodeKeys(RegistryKeys):
    """The keys of jobs that read values."""

    decode: Literal["none", "json", "avro", "protobuf", "envelope-headers", "envelope-json"] = (
        "none"
    )
    """the format of values: json, avro or protobuf; or pip-services envelopes in the form
    headers or json"""
    value_schema: ValueSchema | None = Field(None, alias="schema")
    """the schema to read values by: of Avro, of JSON (DDL or JSON Schema), a file with it, or
    SUBJECT:VERSION of the registry; values that do not match are bad records"""

    @property
    def form(self) -> str:
        """The format of values: json, avro, protobuf, or none; decoded values are in a column with
        this name."""
        if self.decode in ("json", "avro", "protobuf"):
            return self.decode
        return "none" if self.value_schema is None else "json"

    @property
    def envelope(self) -> str:
        """The form of the envelopes of pip-services: headers, json or none."""
        form, _, envelope = self.decode.partition("-")
        return envelope if form == "envelope" else "none"

    @property
    def uses_registry(self) -> bool:
        """Whether values are in the wire format of Schema Registry."""
        return bool(self.registry) and self.decode in ("json", "avro", "protobuf")

    @property
    def reads_values(self) -> bool:
        """Whether a record can be bad, because the job reads its value."""
        return self.decode != "none" or self.value_schema is not None


class EncodeKeys(RegistryKeys):
    """The keys of jobs that encode values."""

    encode: Literal["none", "json", "avro", "protobuf"] = "none"
    """encode values in this format, in the wire format of Schema Registry"""
    encode_schema: WriterSchema | None = None
    """the schema to encode values by: a schema, a file with it, or SUBJECT:VERSION (default: the
    latest version of the subject TOPIC-value)"""


class SendKeys(_Keys):
    """The keys of jobs that send records."""

    dry_run: Flag = False
    """count and show, but send nothing and keep the position"""
    on_refused: Literal["stop", "skip", "retry"] = "stop"
    """records that brokers refuse for good, if no topic is set for them: stop now, and at each
    further start before any record is sent; skip: leave them out; retry: send them once more"""
    sink: Table = {}
    """options of the sink; sink.kafka.* only for writing"""


class JobConfig(_Keys):
    """The keys of all jobs. The docstrings of fields are the help of the command line."""

    job: str
    """the name of the job"""
    master: URL | None = None
    """where Spark runs: local[*], spark://..., yarn, k8s://..., sc://... (Spark Connect)"""
    app_name: Name | None = None
    """the name of the application in Spark"""
    summary: Output | None = None
    """also write the summary to this file, as JSON"""
    progress: Duration = 10.0
    """how often to print progress if there is no terminal; 0: never"""
    log_format: Literal["text", "json"] = "text"
    """json: the log on standard error has a JSON object on each line, also for the summary"""
    metrics: Address | None = None
    """serve HTTP requests at this address: /metrics for Prometheus, /health and /ready for
    probes; a port alone listens on 127.0.0.1, port 0 takes a free port"""
    health_timeout: Annotated[Duration, Field(gt=0)] = 300.0
    """with metrics: /ready fails if a micro-batch takes longer than this; /health if Spark does
    not respond for longer"""
    kafka: Table = {}
    """client properties: bootstrap.servers, security.protocol, sasl.*, ssl.*"""
    spark: Table = {}
    """Spark's configuration: executor.memory, sql.shuffle.partitions, ..."""

    _written: dict[str, Any] = PrivateAttr(default_factory=dict)

    fill_variables = field_validator("*", mode="before")(fill)

    def options(self, name: str) -> dict[str, str]:
        """The options of a table; none if the job has no such table."""
        options: dict[str, str] = getattr(self, name, {})
        return options

    @property
    def is_dry_run(self) -> bool:
        """Whether the job sends nothing."""
        return isinstance(self, SendKeys) and self.dry_run

    @property
    def written(self) -> dict[str, Any]:
        """The keys as they were written, with their variables unfilled."""
        return self._written

    def source_options(self) -> dict[str, str]:
        """The options of the data source, the topics among them."""
        options = {**self._client(), **self.options("source")}
        if isinstance(self, TopicKeys):
            if self.topics:
                options["subscribe"] = ",".join(self.topics)
            elif self.topic_pattern:
                options["subscribePattern"] = self.topic_pattern
        return options

    def sink_options(self) -> dict[str, str]:
        """The options of the sink."""
        return {**self._client(), **self.options("sink")}

    def copy_options(self, *, timestamps: bool = False) -> dict[str, str]:
        """The options of a sink that copies records: brokers decide which ones are too large.

        Parameters
        ----------
        timestamps : bool
            Whether records get the timestamps in their column, instead of the time of sending.
        """
        options = self.sink_options()
        if timestamps:
            options["includeTimestamp"] = "true"
        given = {name.lower() for name in options}
        if given.isdisjoint(_SIZES):
            options[_SIZES[0]] = _MOST_BYTES
        return options

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
        servers = self.master, self.spark.get("master"), os.environ.get("SPARK_REMOTE")
        found = {token for server in servers for token in _IN_SERVER.findall(server or "")}
        for table in TABLES:
            for name, value in self.options(table).items():
                if is_secret(name):
                    found.add(value)
                if name == "basic.auth.user.info":
                    found.add(value.partition(":")[2])
                if "jaas" in name.lower():  # an error may quote the password alone
                    found.update(word for pair in _IN_JAAS.findall(value) for word in pair)
        return {secret for secret in found if len(secret) >= _SHORTEST_SECRET}


class StreamConfig(JobConfig, TopicKeys):
    """The keys of jobs that are a streaming query."""

    checkpoint: Directory
    """where the job keeps its position: a directory that Spark can reach, such as hdfs://..."""
    trigger: Literal["available-now", "continuous"] = "available-now"
    """available-now: read what the topics hold, then end; continuous: run until stopped"""
    interval: Duration = 0.0
    """continuous: the time from one micro-batch to the next"""
    stop_timeout: Duration = 30.0
    """how long stopping waits for the running micro-batch"""


class TableKeys(JobConfig):
    """The keys of jobs that write or read an archive."""

    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    """the archive is a directory of Parquet files, a Delta Lake table, or an Iceberg table
    (experimental)"""
    path: Directory | None = None
    """the archive directory: a path, or an address such as hdfs://... or s3a://..."""
    table: Name | None = None
    """iceberg, instead of the path: catalog.database.table, with a catalog of Spark's
    configuration (sql.catalog.*)"""

    @property
    def place(self) -> str:
        """The key of the archive's place and its value, for errors."""
        key = "path" if self.table is None else "table"
        return f'key "{key}" = {getattr(self, key)!r}'

    @property
    def folder(self) -> str:
        """The path, which only a table of a catalog lacks."""
        assert self.path is not None
        return self.path


# -- jobs


class Archive(StreamConfig, DecodeKeys, TableKeys):
    """Topics to Parquet, Delta or Iceberg, by topic and date.

    Write the records of topics to Parquet files or a table, by topic and date (of the record's
    timestamp, UTC). A restart goes on from the checkpoint. All readers of a table see each offset
    exactly once, and so does Spark in Parquet files; --file-names says what other readers see.
    """

    job: Literal["archive"] = "archive"
    partition_by: Expressions = ["topic", "date"]
    """what partitions the archive: columns, year(timestamp), month(timestamp), day(timestamp),
    hour(timestamp), bucket(16, key), truncate(1000, offset)"""
    merge_schema: Flag = False
    """delta, iceberg: add new columns of decode and schema to an existing table"""
    file_names: Literal["spark", "deterministic"] = "spark"
    """spark: Spark's names; only Spark itself sees each offset once. deterministic:
    TOPIC-PARTITION-FIRST-LAST.parquet; every reader sees each offset once"""
    staging: Directory | None = None
    """deterministic: where files are written before they are renamed (default: beside the path);
    it must be in the same file system"""
    compression: Literal["none", "snappy", "gzip", "lz4", "zstd"] = "zstd"
    """the codec of the Parquet files"""
    keep_raw: Flag = True
    """with decode or schema: also keep key, value and headers unchanged; replay needs them"""

    @property
    def partitions(self) -> list[str]:
        """All that partitions the archive: bad records have partitions of their own."""
        return [*(["status"] if self.reads_values else []), *self.partition_by]


class Replay(TableKeys, EncodeKeys, SendKeys):
    """An archive to a topic.

    Send the records of an archive, in the order of their offsets within each partition, with their
    keys, headers, timestamps and partitions.
    """

    job: Literal["replay"] = "replay"
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
    keep_partitions: Flag = True
    """send each record to the partition that it had (else: by key)"""
    keep_timestamps: Flag = True
    """send records with the timestamps that they had (else: now)"""
    rate: Rate | None = None
    """records per second at most"""
    checkpoint: Directory | None = None
    """where the job keeps its position, so that it can be restarted: a directory that Spark can
    reach, such as hdfs://..."""
    step: Positive = 1_000_000
    """with a checkpoint: records to send before the next note in it"""


class Compact(TableKeys):
    """Small files of a table to larger ones.

    Rewrite the small files of a Delta or Iceberg archive in one transaction. Readers see the same
    records before and after it. The archive job may run meanwhile.
    """

    job: Literal["compact"] = "compact"
    format: Literal["parquet", "delta", "iceberg"]
    """delta or iceberg; the job refuses Parquet files, because they have no transactions"""
    file_size: Positive = 128
    """the size of the new files in MiB; files of three quarters of it stay"""


class Mirror(StreamConfig, DecodeKeys, EncodeKeys, SendKeys):
    """Topic to topic, with an SQL transform.

    Send the records of topics to others, unchanged or by an SQL query over the view `records`. Bad
    records go to a dead letter topic. A restart goes on from the checkpoint; it may send records
    twice.
    """

    job: Literal["mirror"] = "mirror"
    to: Name | None = None
    """send all records to this topic, whatever the transform says (default: the transform's column
    topic)"""
    transform: SQL | None = None
    """a query over the view records; its columns are value and optionally key, headers, partition,
    timestamp, topic, and error for bad records"""
    dead_letter_topic: Name | None = None
    """where bad records go; without it the job counts and skips them"""
    source_headers: Flag = True
    """add the headers source_topic, source_partition, source_offset and source_timestamp"""
    keep_partitions: Flag = False
    """send each record to the partition that it came from (else: by key)"""
    keep_timestamps: Flag = True
    """send records with the timestamps that they had (else: now)"""


class Redrive(StreamConfig, SendKeys):
    """A dead letter topic back to where its records came from.

    Send dead letters (of the job mirror, and of pip_services4_kafka) back to the topics that they
    came from. A restart goes on from the checkpoint.
    """

    job: Literal["redrive"] = "redrive"
    where: SQL | None = None
    """an SQL condition: only records for which it is true; beside the record's columns there are
    dlq_topic, dlq_partition, dlq_offset, dlq_error, dlq_attempts and redrive_attempts"""
    max_attempts: Positive = 3
    """how often a record is sent back before it is parked"""
    parking_topic: Name | None = None
    """where records go that were sent back too often or do not name their topic; without it the
    job counts and skips them"""
    keep_partitions: Flag = True
    """send each record to the partition that it came from (else: by key)"""
    keep_timestamps: Flag = False
    """send records with the timestamps that they had (else: now)"""


class Profile(JobConfig, TopicKeys):
    """What topics hold, as tables.

    Count the records of topics: sizes, keys, times, gaps in the offsets, and what their values
    seem to be, by topic and partition.
    """

    job: Literal["profile"] = "profile"
    sample: Annotated[Count, Field(le=100_000)] = 200
    """guess the schema from that many of the newest records of each partition; 0: no guess"""


JOBS: dict[str, type[JobConfig]] = {
    "archive": Archive,
    "replay": Replay,
    "compact": Compact,
    "mirror": Mirror,
    "redrive": Redrive,
    "profile": Profile,
}
