"""The job ``replay``: sends an archive's records to a topic, in the order of their offsets."""

from __future__ import annotations

import functools
import json
import operator
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from cykafka.schemas.model.document import SCHEMA_TYPES
from cykafka.spark.jobs.config.models import Replay
from cykafka.spark.jobs.config.table_formats import MARKERS
from cykafka.spark.jobs.config.topic_check import check_partitions
from cykafka.spark.jobs.folders import convert_errors
from cykafka.spark.jobs.observing.report import Summary
from cykafka.spark.jobs.problems import ConfigError, Stopped, explain_spark_error, wrong_value
from cykafka.spark.jobs.records import job_sink
from cykafka.spark.jobs.records.columns import (
    HEADERS,
    drop_headers,
    fill_headers,
    milliseconds,
    total_bytes,
)
from cykafka.spark.jobs.records.decoding import check_type, encode
from cykafka.spark.jobs.records.outcome import (
    JobHandling,
    Outcome,
    RefusedError,
    check_note,
    settle,
    write_note,
)
from cykafka.spark.jobs.records.targets import cluster_of
from cykafka.spark.jobs.replay.read_files import Part, files_of, step_of
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.jobs.tables.iceberg import Table
from cykafka.spark.source.far_times import FAR_TIME
from cykafka.spark.source.offsets import Offsets, Partition, format_offsets, parse_offsets

__all__ = ["run"]

_NEEDED = {
    "key": "binary",
    "value": "binary",
    "headers": HEADERS,
    "timestamp": "timestamp",
    "partition": "int",
    "offset": "bigint",
    "topic": "string",
}
_NOTE = "replay.json"
# Spark's own column with the path of a row's file.
_FILE = "_metadata.file_path"
_SLICE_S = 0.05
_MOST_PLACES = 200
_MOST_FILES = 5_000
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def run(run: JobRun[Replay]) -> Summary:
    """Send the selected records that the checkpoint does not list as sent."""
    began = time.monotonic()
    config = run.config
    records = _selected(run)
    try:
        if config.dry_run:
            with convert_errors("checkpoint", config.checkpoint or ""):
                done = _Note(run).read()
            parts = _find_parts(run, records, done)
            _check_parts(run, parts, done)
            for part in parts:
                run.summary.add_range(part.topic, part.partition, part.start, part.end)
                run.summary.add(part.records, part.bytes, 0, {})
            would: Counter[str] = Counter()
            for part in parts:
                would[config.to or part.topic] += part.records
            run.summary.add_targets(would)
            run.summary.add(0, 0, 0, {"sent": 0})
        else:
            _send(run, records)
    except BaseException as error:
        run.summary.outcome = "stopped" if isinstance(error, Stopped) else "failed"
        raise
    finally:
        run.end()
        run.summary.seconds = time.monotonic() - began
    return run.summary


def _selected(run: JobRun[Replay]) -> DataFrame:
    """Return the archive's records that the configuration selects."""
    config = run.config
    records = _read_archive(run)
    if config.topics:
        records = records.where(F.col("topic").isin(config.topics))
    if config.partitions:
        records = records.where(F.col("partition").isin(config.partitions))
    for name, column in (("time", F.unix_millis("timestamp")), ("offset", F.col("offset"))):
        low, high = getattr(config, f"from_{name}"), getattr(config, f"until_{name}")
        if low is not None:
            records = records.where(column >= low)
        if high is not None:
            records = records.where(column < high)
    if config.where:
        try:
            records = records.where(config.where)
            _ = records.schema  # Spark Connect analyzes a condition only here
        except AnalysisException as error:  # ParseException, too
            raise wrong_value("where", config.where, explain_spark_error(error)) from None
    return records


def _read_archive(run: JobRun[Replay]) -> DataFrame:
    config = run.config
    run.driver.check_format(run.config.format)
    if config.format == "iceberg":
        table = Table(run)
        if not table.exists:
            raise ConfigError(f"{config.place}: the Iceberg table does not exist")
        schema = _needed(config, table.columns)
        files = run.watch("listing the archive", table.files)
        if not files:
            return run.spark.createDataFrame([], schema)
        return run.spark.read.schema(schema).parquet(*(file.path for file in files))
    with convert_errors("path", config.folder):
        folder = run.driver.folder(config.folder)
        if not folder.exists():
            raise ConfigError(f"{config.place}: the directory does not exist")
        # The path may also be a file, and some file systems refuse to look into a file.
        is_file = config.folder.endswith(".parquet")
        kinds = [kind for kind, mark in MARKERS.items() if not is_file and folder.exists(mark)]
    if config.format == "delta":
        if "delta" not in kinds:
            raise ConfigError(f"{config.place}: the directory is not a Delta table")
        found = run.spark.read.format("delta").load(run.place(config.folder))
        return found.select(*_needed(config, found.schema).names)
    if kinds:
        # A table's files may contain records twice, or deleted records.
        raise ConfigError(f'{config.place}: it is a table; set format = "{kinds[0]}"')
    schema = _needed(config, _parquet_schema(run, config.folder))
    return run.spark.read.schema(schema).parquet(run.place(config.folder))


def _parquet_schema(run: JobRun[Replay], path: str) -> StructType:
    place = run.place(path)
    # Decoded values of later files may have more fields.
    reader = run.spark.read.option("mergeSchema", run.config.encode != "none")
    try:
        return run.watch("listing the archive", lambda: reader.parquet(place).schema)
    except AnalysisException as error:
        if "UNABLE_TO_INFER_SCHEMA" not in str(error):
            raise
        raise wrong_value("path", path, "the directory contains no Parquet files") from None
    except Exception as error:
        if "CANNOT_MERGE" not in str(error):
            raise
        words = "the decoded values in its files have incompatible types; use another "
        words += "directory for each part of the archive, or select it by path"
        raise wrong_value("path", path, words) from None


def _needed(config: Replay, there: StructType) -> StructType:
    """Return the archive columns that the job reads."""
    missing = [name for name in _NEEDED if name not in there.names]
    if missing:
        raise ConfigError(
            f"{config.place}: expected an archive with the columns {', '.join(_NEEDED)}; "
            f"missing: {', '.join(missing)} (was it written with keep_raw = false?)"
        )
    # Pass the schema: for a topic called 007, Spark would infer a number from the directory name.
    schema: Any = _parse_datatype_string(", ".join(f"`{n}` {kind}" for n, kind in _NEEDED.items()))
    decoded = _decoded_column(config, there)
    if decoded is not None:
        schema = schema.add(decoded)
        if "error" in there.names:
            schema = schema.add("error", "string")
    needed: StructType = schema
    return needed


def _decoded_column(config: Replay, there: StructType) -> StructField | None:
    """Return the column with decoded values, if the job encodes them."""
    if config.encode == "none":
        return None
    names = [name for name in SCHEMA_TYPES if name in there.names]
    if len(names) != 1:
        raise ConfigError(
            f'{config.place}: the key "encode" needs an archive with decoded values, in a '
            f"column {', '.join(SCHEMA_TYPES)}: it has {' and '.join(names) or 'none'}"
        )
    field: StructField = there[names[0]]
    words = check_type(config, field.dataType, config.to)
    if words:
        raise ConfigError(f'key "encode": the column {names[0]} cannot be encoded: {words}')
    return field


def _find_parts(run: JobRun[Replay], records: DataFrame, done: Offsets) -> list[Part]:
    """Find the records still to send, by one pass over the archive's numeric columns."""
    # Group by file, so that a step does not open all files.
    file = F.col(_FILE) if run.config.format == "parquet" else F.lit(None).cast("string")
    records = records.withColumn("_file", file)
    if done:
        rows = [(topic, partition, offset) for (topic, partition), offset in done.items()]
        behind = run.spark.createDataFrame(rows, "topic string, partition int, _next bigint")
        records = records.join(F.broadcast(behind), ["topic", "partition"], "left")
        records = records.where("_next IS NULL OR offset >= _next")
    measured = records.groupBy("topic", "partition", "_file").agg(
        F.min("offset").alias("start"),
        (F.max("offset") + 1).alias("end"),
        F.count(F.lit(1)).alias("records"),
        # Only a dry run needs the byte counts from this pass, which require reading all values.
        (total_bytes() if run.config.dry_run else F.lit(0)).alias("bytes"),
    )
    found = run.watch("inspecting the archive", measured.collect)
    parts: dict[Partition, list[Part]] = defaultdict(list)
    for topic, partition, path, start, end, count, size in sorted(found):
        spans = () if path is None else ((path, start, end),)
        part = Part(topic, partition, start, end, count, size, spans)
        parts[topic, partition].append(part)
    return [_joined(group) for group in parts.values()]


def _joined(parts: list[Part]) -> Part:
    """Join a partition's parts into one."""
    return Part(
        parts[0].topic,
        parts[0].partition,
        min(part.start for part in parts),
        max(part.end for part in parts),
        sum(part.records for part in parts),
        sum(part.bytes for part in parts),
        tuple(span for part in parts for span in part.spans),
    )


def _check_parts(run: JobRun[Replay], parts: list[Part], done: Offsets) -> None:
    """Warn if there is nothing to send, and check that the target partitions exist."""
    config = run.config
    if not done:
        _warn_of_nothing(run, parts)
    wanted: dict[str, int] = {}
    for part in parts:
        topic = config.to or part.topic
        count = part.partition + 1 if config.keep_partitions else 1
        wanted[topic] = max(count, wanted.get(topic, 0))
    if config.dry_run and "kafka.bootstrap.servers" not in map(str.lower, config.sink_options()):
        run.warn("without kafka.bootstrap.servers, the partitions of the topics were not checked")
        return
    run.watch("checking the topics", partial(check_partitions, config, wanted))


def _warn_of_nothing(run: JobRun[Replay], parts: list[Part]) -> None:
    """Warn about selected topics and partitions without records: a name may be misspelled."""
    config = run.config
    topics, partitions = {part.topic for part in parts}, {part.partition for part in parts}
    for topic in config.topics or ():
        if topic not in topics:
            run.warn(f"the archive has no records of topic {topic} to send")
    for partition in config.partitions or ():
        if partition not in partitions:
            run.warn(f"the archive has no records of partition {partition} to send")
    if not parts:
        run.warn("the archive has no records to send")


def _send(run: JobRun[Replay], records: DataFrame) -> None:
    config = run.config
    run.at_end.append(run.scratch.delete)
    with convert_errors("checkpoint", config.checkpoint or ""):
        note = _Note(run)
        done = note.read()
        if note.folder is not None:
            check_note(config, note.folder)
        note.write({})  # if the note cannot be written, fail before any record is sent
    files = files_of(run, records, done)
    parts = _find_parts(run, records, done) if files is None else files.parts
    _check_parts(run, parts, done)
    total = sum(part.records for part in parts)
    # Without a checkpoint, steps only show progress, and Spark would read the archive for each.
    in_steps = config.checkpoint or files is not None
    steps = -(-total // config.step) if in_steps else min(total, 1)
    # Each step contains an offset of the largest partition, so steps are never empty.
    steps = min(steps, max((part.end - part.start for part in parts), default=0))
    run.summary.add(0, 0, 0, {"sent": 0})
    for number in range(steps):
        if run.stop.asked:
            raise Stopped("stopped before all records were sent")
        step = step_of(parts, number, steps)
        words = (
            f"replay: {run.summary.records:,} of {total:,} records, step {number + 1} of {steps}"
        )
        # The most records that may have been sent if this step fails.
        most = sum(part.end - part.start for part in step)
        run.summary.unknown = min(most, total - run.summary.records)
        send = _sender(run, records, step) if files is None else files.sender(step)
        outcome, size = run.watch(words, send)
        run.summary.unknown = 0
        counts = {"sent": outcome.records}
        try:
            counts |= settle(JobHandling.of(config), outcome)
        except RefusedError as error:
            if note.folder is not None:
                write_note(note.folder, error)
            raise
        finally:
            run.summary.add(sum(counts.values()), size, 0, counts)
        run.summary.batches += 1
        for part in step:
            run.summary.add_range(part.topic, part.partition, part.start, part.end)
        note.write({(part.topic, part.partition): part.end for part in step})


def _sender(
    run: JobRun[Replay], records: DataFrame, step: list[Part]
) -> Callable[[], tuple[Outcome, int]]:
    """Return a function that sends a step's records and returns their outcome and bytes."""
    config = run.config
    bounds = _bounds(run, step)
    tasks = min(len(step), run.driver.parallelism())
    # One task has all records of a partition, so one producer sends them in order.
    ordered = (
        _chosen(records, step, bounds)
        .repartition(tasks, "topic", "partition")
        .sortWithinPartitions("topic", "partition", "offset")
    )
    seen = Observation()
    topic = F.lit(config.to) if config.to else F.col("topic")
    for name in set(SCHEMA_TYPES) & set(ordered.columns):  # none without the key encode
        good = F.col(name)
        if "error" in ordered.columns:  # a bad record in JSON has the fields that Spark could read
            good = F.when(F.col("error").isNull(), good)
        made = encode(config, good, topic)
        # Only bad records and nulls lack a decoded value. Replay has no dead letter topic, so a
        # value that cannot be encoded ends the job.
        words = F.format_string(
            'key "encode": offset %s of %s [%s] cannot be encoded: %s',
            "offset", "topic", "partition", "_encoded.error",
        )  # fmt: skip
        value = (
            F.when(good.isNull(), F.col("value"))
            .when(F.col("_encoded.error").isNotNull(), F.raise_error(words).cast("binary"))
            .otherwise(F.col("_encoded.value"))
        )
        ordered = ordered.withColumn("_encoded", made).withColumn("value", value)
    out = ordered.select(
        "key",
        "value",
        fill_headers(drop_headers(F.col("headers"), (FAR_TIME,))).alias("headers"),
        topic.alias("topic"),
        (F.col("partition") if config.keep_partitions else F.lit(None).cast("int")).alias(
            "partition"
        ),
        milliseconds("timestamp", "headers").alias("timestamp"),
        F.struct("topic", "partition", "offset").alias("source"),
    ).observe(seen, total_bytes().alias("bytes"))
    options = config.copy_options(timestamps=config.keep_timestamps)

    def work() -> tuple[Outcome, int]:
        with _pace(run, bounds, tasks) as rate:
            outcome = job_sink.write(out, options, run.scratch, rate)
        return outcome, int(seen.get["bytes"] or 0)

    return work


def _bounds(run: JobRun[Replay], step: list[Part]) -> DataFrame:
    rows = [(part.topic, part.partition, part.start, part.end) for part in step]
    return run.spark.createDataFrame(
        rows, "topic string, partition int, _low bigint, _high bigint"
    )


def _chosen(records: DataFrame, step: list[Part], bounds: DataFrame) -> DataFrame:
    """Return a step's records."""
    # The join is exact. The conditions let Spark skip files, directories, and parts of files.
    paths = {
        path
        for part in step
        for path, start, end in part.spans
        if start < part.end and part.start < end
    }
    all_paths = {path for part in step for path, _, _ in part.spans}
    if paths != all_paths and len(paths) <= _MOST_FILES:
        records = records.where(F.col(_FILE).isin(*paths))
    chosen = records.where(_within(step)).join(F.broadcast(bounds), ["topic", "partition"])
    return chosen.where("offset >= _low AND offset < _high")


def _within(step: list[Part]) -> Column:
    """Return a condition that is true for all records of a step and for few others."""
    places: dict[tuple[Any, ...], tuple[int, int]] = {}
    # Each place makes the plan larger. If there are too many, combine the partitions of each
    # topic, and then all topics.
    for names in (("topic", "partition"), ("topic",), ()):
        places = {}
        for part in step:
            place = tuple(getattr(part, name) for name in names)
            low, high = places.get(place, (part.start, part.end))
            places[place] = min(low, part.start), max(high, part.end)
        if len(places) <= _MOST_PLACES:
            break
    return functools.reduce(
        operator.or_,
        (
            functools.reduce(
                operator.and_,
                (F.col(name) == value for name, value in zip(names, place, strict=True)),
                (F.col("offset") >= low) & (F.col("offset") < high),
            )
            for place, (low, high) in places.items()
        ),
    )


@contextmanager
def _pace(run: JobRun[Replay], bounds: DataFrame, tasks: int) -> Iterator[float | None]:
    """Yield each task's records per second for the key `rate`, and make batches short."""
    rate = run.config.rate
    if not rate:
        yield None
        return
    # Hashes assign partitions to tasks, so some tasks may get none: count the others.
    place = F.pmod(F.hash("topic", "partition"), F.lit(tasks))
    share = rate / bounds.select(place).distinct().count()
    # The sink sends one Arrow batch at once, so limit a batch to the records for a short time.
    most = str(max(1, min(10_000, int(share * _SLICE_S))))
    before = run.spark.conf.get(_BATCH)
    run.spark.conf.set(_BATCH, most)
    try:
        yield share
    finally:
        run.spark.conf.set(_BATCH, str(before))


class _Note:
    """A replay's position: the next offset per topic and partition in the archive."""

    def __init__(self, run: JobRun[Replay]) -> None:
        config = run.config
        self.folder = run.driver.folder(config.checkpoint) if config.checkpoint else None
        # A replay with other values of these keys must not resume at this position.
        names = ("path", "table", "to", "where", "from_time", "until_time", "from_offset",
                 "until_offset")  # fmt: skip
        self._of = {name: getattr(config, name) for name in names}
        if self.folder is not None and not config.dry_run:
            self._of["cluster"] = cluster_of(config.sink_options())
        self._next: Offsets = {}

    def read(self) -> Offsets:
        """Read the position that the last run wrote."""
        if self.folder is None or not self.folder.exists(_NOTE):
            return {}
        document = json.loads(self.folder.read(_NOTE))
        for name, value in self._of.items():
            if name in document["of"] and document["of"][name] != value:
                raise ConfigError(
                    f'key "checkpoint": it belongs to a replay with {name} = '
                    f"{document['of'][name]!r}, but this one has {value!r}; use another "
                    "folder, or delete this one to start from the beginning"
                )
        self._next = parse_offsets(document["next"], _NOTE)
        return self._next

    def write(self, further: Offsets) -> None:
        """Write the position with these offsets as the next ones."""
        if self.folder is None:
            return
        self._next = {**self._next, **further}
        self.folder.make()
        note = {"of": self._of, "next": format_offsets(self._next)}
        self.folder.write(_NOTE, json.dumps(note))
