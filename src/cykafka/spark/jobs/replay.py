"""The job ``replay``: sends an archive's records to a topic, in the order of their offsets."""

from __future__ import annotations

import functools
import json
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.errors import told_by_spark
from cykafka.spark.jobs.folders import naming
from cykafka.spark.jobs.formats import MARKERS
from cykafka.spark.jobs.problems import ConfigError, wrong_value
from cykafka.spark.jobs.records import HEADERS, filled
from cykafka.spark.jobs.replay_parts import Part, step_of
from cykafka.spark.jobs.schemas.columns import check_type, encoded
from cykafka.spark.jobs.schemas.document import FORMS
from cykafka.spark.jobs.session import Stopped
from cykafka.spark.jobs.streams import counts_of, total_bytes
from cykafka.spark.jobs.tables import check_loaded
from cykafka.spark.offsets import Offsets, format_offsets, parse_offsets

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from cykafka.spark.jobs.config import Replay
    from cykafka.spark.jobs.report import Summary
    from cykafka.spark.jobs.session import Run

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
_SLICE_S = 0.05
_MOST_PLACES = 200
_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


def run(run: Run[Replay]) -> Summary:
    """Send the records that the configuration selects and that the checkpoint lists as unsent."""
    began = time.monotonic()
    config = run.config
    records = _selected(run)
    try:
        if config.dry_run:
            with naming("checkpoint", config.checkpoint or ""):
                done = _Note(run).read()
            parts = _parts(run, records, done)
            if not done:
                _warn_of_nothing(run, parts)
            for part in parts:
                run.summary.cover(part.topic, part.partition, part.start, part.end)
                run.summary.add(part.records, part.bytes, 0, {})
            would: Counter[str] = Counter()
            for part in parts:
                would[config.to or part.topic] += part.records
            run.summary.tell_targets(would)
            run.summary.add(0, 0, 0, {"sent": 0})
        else:
            _send(run, records)
    except BaseException as error:
        run.summary.outcome = "stopped" if isinstance(error, Stopped) else "failed"
        raise
    finally:
        run.summary.seconds = time.monotonic() - began
    return run.summary


def _selected(run: Run[Replay]) -> DataFrame:
    """The archive's records that the configuration selects."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    config = run.config
    records = _archive(run)
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
            raise wrong_value("where", config.where, told_by_spark(error)) from None
    return records


def _archive(run: Run[Replay]) -> DataFrame:
    config = run.config
    check_loaded(run)
    if config.format == "iceberg":
        from cykafka.spark.jobs.iceberg import Table

        table = Table(run)
        if not table.exists:
            raise ConfigError([f"{config.place}: there is no such Iceberg table"])
        schema = _needed(config, table.columns)
        files = run.watched("listing the archive", table.files)
        if not files:
            return run.spark.createDataFrame([], schema)
        return run.spark.read.schema(schema).parquet(*(file.path for file in files))
    with naming("path", config.folder):
        folder = run.driver.folder(config.folder)
        if not folder.exists():
            raise ConfigError([f"{config.place}: the folder does not exist"])
        # The path may also be a file, and some file systems refuse to look into a file.
        is_file = config.folder.endswith(".parquet")
        kinds = [kind for kind, mark in MARKERS.items() if not is_file and folder.exists(mark)]
    if config.format == "delta":
        if "delta" not in kinds:
            raise ConfigError([f"{config.place}: the folder is no Delta table"])
        found = run.spark.read.format("delta").load(run.place(config.folder))
        return found.select(*_needed(config, found.schema).names)
    if kinds:
        # Its files alone may hold records twice, or records that are deleted.
        raise ConfigError([f'{config.place}: it is a table; set format = "{kinds[0]}"'])
    schema = _needed(config, _parquet_schema(run, config.folder))
    return run.spark.read.schema(schema).parquet(run.place(config.folder))


def _parquet_schema(run: Run[Replay], path: str) -> StructType:
    from pyspark.errors import AnalysisException

    place = run.place(path)
    # Decoded values of later files may have more fields.
    reader = run.spark.read.option("mergeSchema", run.config.encode != "none")
    try:
        return run.watched("listing the archive", lambda: reader.parquet(place).schema)
    except AnalysisException as error:
        if "UNABLE_TO_INFER_SCHEMA" not in str(error):
            raise
        raise wrong_value("path", path, "the folder has no Parquet files") from None
    except Exception as error:
        if "CANNOT_MERGE" not in str(error):
            raise
        words = "the decoded values of its files have types that do not fit together; use another "
        words += "folder for each part of the archive, or select it by path"
        raise wrong_value("path", path, words) from None


def _needed(config: Replay, there: StructType) -> StructType:
    """The columns of an archive that the job reads."""
    from pyspark.sql.types import _parse_datatype_string

    missing = [name for name in _NEEDED if name not in there.names]
    if missing:
        raise ConfigError(
            [
                f"{config.place}: expected an archive with the columns {', '.join(_NEEDED)}; "
                f"missing: {', '.join(missing)} (was it written with keep_raw = false?)"
            ]
        )
    # Give the schema: Spark would infer a number from the folder of a topic that is called 007.
    schema: Any = _parse_datatype_string(", ".join(f"`{n}` {kind}" for n, kind in _NEEDED.items()))
    decoded = _decoded_column(config, there)
    if decoded is not None:
        schema = schema.add(decoded)
        if "error" in there.names:
            schema = schema.add("error", "string")
    needed: StructType = schema
    return needed


def _decoded_column(config: Replay, there: StructType) -> StructField | None:
    """The column with decoded values, if the job encodes them."""
    if config.encode == "none":
        return None
    names = [name for name in FORMS if name in there.names]
    if len(names) != 1:
        raise ConfigError(
            [
                f'{config.place}: the key "encode" needs an archive with decoded values, in a '
                f"column {', '.join(FORMS)}: it has {' and '.join(names) or 'none'}"
            ]
        )
    field: StructField = there[names[0]]
    words = check_type(config, field.dataType, config.to)
    if words:
        raise ConfigError([f'key "encode": the column {names[0]} cannot be encoded: {words}'])
    return field


def _parts(run: Run[Replay], records: DataFrame, done: Offsets) -> list[Part]:
    """The records that are left to send, by a pass over the archive's columns of numbers."""
    from pyspark.sql import functions as F

    if done:
        rows = [(topic, partition, offset) for (topic, partition), offset in done.items()]
        behind = run.spark.createDataFrame(rows, "topic string, partition int, _next bigint")
        records = records.join(F.broadcast(behind), ["topic", "partition"], "left")
        records = records.where("_next IS NULL OR offset >= _next")
    measured = records.groupBy("topic", "partition").agg(
        F.min("offset").alias("start"),
        (F.max("offset") + 1).alias("end"),
        F.count(F.lit(1)).alias("records"),
        # Only a dry run needs the bytes from this pass. They require reading all values.
        (total_bytes() if run.config.dry_run else F.lit(0)).alias("bytes"),
    )
    found = run.watched("looking at the archive", measured.collect)
    return [Part(*row) for row in sorted(found)]


def _warn_of_nothing(run: Run[Replay], parts: list[Part]) -> None:
    """Warn of selected topics and partitions without records: a name may be misspelled."""
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


def _send(run: Run[Replay], records: DataFrame) -> None:
    from cykafka.spark.jobs.replay_files import files_of

    config = run.config
    with naming("checkpoint", config.checkpoint or ""):
        note = _Note(run)
        done = note.read()
        note.write({})  # if the note cannot be written, fail before any record is sent
    files = files_of(run, records, done)
    parts = _parts(run, records, done) if files is None else files.parts
    if not done:
        _warn_of_nothing(run, parts)
    total = sum(part.records for part in parts)
    steps = -(-total // config.step) if config.checkpoint else min(total, 1)
    # Each step has an offset of the largest partition, so no step is empty.
    steps = min(steps, max((part.end - part.start for part in parts), default=0))
    run.summary.add(0, 0, 0, {"sent": 0})
    for number in range(steps):
        if run.stop.asked:
            raise Stopped("stopped before all records were sent")
        step = step_of(parts, number, steps)
        words = (
            f"replay: {run.summary.records:,} of {total:,} records, step {number + 1} of {steps}"
        )
        # If this step fails, up to so many of its records may have been sent.
        most = sum(part.end - part.start for part in step)
        run.summary.unknown = min(most, total - run.summary.records)
        send = _sender(run, records, step) if files is None else files.sender(step)
        counts = run.watched(words, send)
        run.summary.unknown = 0
        run.summary.batches += 1
        run.summary.add(counts["records"], counts["bytes"] or 0, 0, {"sent": counts["records"]})
        for part in step:
            run.summary.cover(part.topic, part.partition, part.start, part.end)
        note.write({(part.topic, part.partition): part.end for part in step})


def _sender(
    run: Run[Replay], records: DataFrame, step: list[Part]
) -> Callable[[], dict[str, Any]]:
    """A function that sends the records of a step and returns their number and bytes."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

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
    for name in set(FORMS) & set(ordered.columns):  # none without the key encode
        good = F.col(name)
        if "error" in ordered.columns:  # a bad record in JSON has the fields that Spark could read
            good = F.when(F.col("error").isNull(), good)
        made = encoded(config, good, topic, must=True)
        # Values that are not decoded are those of bad records, and null.
        value = F.when(good.isNull(), F.col("value")).otherwise(F.col("_encoded.value"))
        ordered = ordered.withColumn("_encoded", made).withColumn("value", value)
    out = ordered.select(
        "key",
        "value",
        filled(F.col("headers")).alias("headers"),
        topic.alias("topic"),
        (F.col("partition") if config.keep_partitions else F.lit(None).cast("int")).alias(
            "partition"
        ),
        "timestamp",
    ).observe(seen, total_bytes().alias("bytes"), *counts_of({"records": F.lit(True)}))
    options = {**config.sink_options(), "includeHeaders": "true"}
    options["includeTimestamp"] = "true" if config.keep_timestamps else "false"

    def work() -> dict[str, Any]:
        with _pace(run, bounds, tasks) as (name, more):
            out.write.format(name).mode("append").options(**options, **more).save()
        return dict(seen.get)

    return work


def _bounds(run: Run[Replay], step: list[Part]) -> DataFrame:
    rows = [(part.topic, part.partition, part.start, part.end) for part in step]
    return run.spark.createDataFrame(
        rows, "topic string, partition int, _low bigint, _high bigint"
    )


def _chosen(records: DataFrame, step: list[Part], bounds: DataFrame) -> DataFrame:
    """The records of a step."""
    from pyspark.sql import functions as F

    # The join is exact. The condition lets Spark skip folders and parts of files.
    chosen = records.where(_within(step)).join(F.broadcast(bounds), ["topic", "partition"])
    return chosen.where("offset >= _low AND offset < _high")


def _within(step: list[Part]) -> Column:
    """A condition that holds for all records of a step and for few others."""
    from pyspark.sql import functions as F

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
def _pace(run: Run[Replay], bounds: DataFrame, tasks: int) -> Iterator[tuple[str, dict[str, str]]]:
    """The name and the options of a sink that keeps to the key `rate`."""
    from pyspark.sql import functions as F

    rate = run.config.rate
    if not rate:
        yield "cykafka", {}
        return
    from cykafka.spark.jobs.pace import RATE, PacedSource

    run.spark.dataSource.register(PacedSource)
    # The partitions' hashes choose their tasks, so some tasks may get none: count the others.
    place = F.pmod(F.hash("topic", "partition"), F.lit(tasks))
    share = rate / bounds.select(place).distinct().count()
    # The sink sends one Arrow batch at once, so a batch has the records of a short time.
    most = str(max(1, min(10_000, int(share * _SLICE_S))))
    before = run.spark.conf.get(_BATCH)
    run.spark.conf.set(_BATCH, most)
    try:
        yield PacedSource.name(), {RATE: repr(share)}
    finally:
        run.spark.conf.set(_BATCH, str(before))


class _Note:
    """The position of a replay: the next offset of each topic and partition of the archive."""

    def __init__(self, run: Run[Replay]) -> None:
        config = run.config
        self._folder = run.driver.folder(config.checkpoint) if config.checkpoint else None
        # A replay with other values of these keys must not resume at this position.
        names = ("path", "table", "to", "where", "from_time", "until_time", "from_offset",
                 "until_offset")  # fmt: skip
        self._of = {name: getattr(config, name) for name in names}
        if self._folder is not None and not config.dry_run:
            from cykafka.spark.jobs.targets import cluster_of

            self._of["cluster"] = cluster_of(config.sink_options())
        self._next: Offsets = {}

    def read(self) -> Offsets:
        """The position that the last run wrote."""
        if self._folder is None or not self._folder.exists(_NOTE):
            return {}
        document = json.loads(self._folder.read(_NOTE))
        for name, value in self._of.items():
            if name in document["of"] and document["of"][name] != value:
                raise ConfigError(
                    [
                        f'key "checkpoint": it belongs to a replay with {name} = '
                        f"{document['of'][name]!r}, but this one has {value!r}; use another "
                        "folder, or delete this one to start from the beginning"
                    ]
                )
        self._next = parse_offsets(document["next"], _NOTE)
        return self._next

    def write(self, further: Offsets) -> None:
        """Write the position with these offsets as the next ones."""
        if self._folder is None:
            return
        self._next = {**self._next, **further}
        self._folder.make()
        note = {"of": self._of, "next": format_offsets(self._next)}
        self._folder.write(_NOTE, json.dumps(note))
