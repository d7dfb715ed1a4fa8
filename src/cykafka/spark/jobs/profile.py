"""The job ``profile``: shows the contents of topics as tables and a chart."""

from __future__ import annotations

import json
import time
import warnings
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs import chart
from cykafka.spark.jobs.guess import guess
from cykafka.spark.jobs.report import human_bytes, table
from cykafka.spark.offsets import format_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cykafka.spark.jobs.config import Profile
    from cykafka.spark.jobs.report import Summary
    from cykafka.spark.jobs.session import Run

__all__ = ["run"]

_GAPS_SHOWN = 5
_ROWS_SHOWN = 100
# The numbers that a topic has in total.
_SUMMED = ("records", "key_bytes", "value_bytes", "null_keys", "null_values", "missing", "gaps")
# The driver guesses from sampled values: the most bytes of one value, and of all together.
_LARGEST = 64 * 1024
_ROOM = 64 * 1024 * 1024


def run(run: Run[Profile]) -> Summary:
    """Profile the existing records."""
    began = time.monotonic()
    summary = run.summary
    read = _partitions(run)
    for row in read:
        summary.cover(row["topic"], row["partition"], row["first_offset"], row["last_offset"] + 1)
        summary.add(row["records"], row["key_bytes"] + row["value_bytes"], 0, {})
    _gaps(run, read)
    keys = _keys_of_topics(run, read)
    partitions = _with_empty(read, _there(run))
    topics = _topics(partitions, keys)
    if run.config.sample:
        _guesses(run, read, topics)
    summary.details = {"topics": topics, "partitions": partitions}
    summary.seconds = time.monotonic() - began
    summary.report = lines(topics, partitions)
    if run.config.output:
        _write(run.config.output, summary, run)
    return summary


def _read(run: Run[Profile], columns: str, options: dict[str, str]) -> DataFrame:
    """A batch of records with only these columns; the source does not build the others."""
    return run.spark.read.format("cykafka").schema(columns).options(**options).load()


def _partitions(run: Run[Profile]) -> list[dict[str, Any]]:
    """The statistics of each partition, by one pass over all records."""
    from pyspark.sql import functions as F

    columns = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    )
    key, value = F.length("key"), F.length("value")

    def total(size: Any) -> Any:
        return F.coalesce(F.sum(size.cast("bigint")), F.lit(0))

    measured = (
        _read(run, columns, run.config.source_options())
        .groupBy("topic", "partition")
        .agg(
            F.count(F.lit(1)).alias("records"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.unix_millis(F.min("timestamp")).alias("first_ms"),
            F.unix_millis(F.max("timestamp")).alias("last_ms"),
            total(key).alias("key_bytes"),
            total(value).alias("value_bytes"),
            F.min(value).alias("value_min"),
            F.max(value).alias("value_max"),
            F.percentile_approx(value, [0.5, 0.95]).alias("value_percentiles"),
            F.count_if(F.col("key").isNull()).alias("null_keys"),
            F.count_if(F.col("value").isNull()).alias("null_values"),
            F.hll_sketch_agg("key").alias("key_sketch"),
        )
        .withColumn("keys", F.hll_sketch_estimate("key_sketch"))
    )
    return [row.asDict() for row in run.watched("reading", measured.collect)]


def _there(run: Run[Profile]) -> list[tuple[str, int]]:
    """All partitions, with or without records."""
    from cykafka.spark.options import ReadOptions
    from cykafka.spark.planner import Planner

    with warnings.catch_warnings(action="ignore"):  # the source gives the same warnings
        options = ReadOptions.of(run.config.source_options(), "batch")
    with closing(Planner(options)) as planner:
        return planner.partitions()


def _with_empty(read: list[dict[str, Any]], there: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """The rows of partitions that were read, plus rows for partitions without records."""
    names = (
        "first_offset", "last_offset", "first_ms", "last_ms", "value_min", "value_max",
        "value_percentiles",
    )  # fmt: skip
    counts = ("records", "key_bytes", "value_bytes", "null_keys", "null_values", "keys", "missing",
              "gaps", "largest_gap")  # fmt: skip
    known = {(row["topic"], row["partition"]) for row in read}
    empty: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": partition,
            **dict.fromkeys(counts, 0),
            **dict.fromkeys(names),
            "first_gaps": [],
        }
        for topic, partition in there
        if (topic, partition) not in known
    ]
    return sorted([*read, *empty], key=lambda row: (row["topic"], row["partition"]))


def _keys_of_topics(run: Run[Profile], partitions: list[dict[str, Any]]) -> dict[str, int]:
    """The approximate number of keys in each topic.

    Partitions may share keys, so their sketches are merged.
    """
    from pyspark.sql import functions as F

    rows = [(row["topic"], row.pop("key_sketch")) for row in partitions]
    if not rows:
        return {}
    united = (
        run.spark.createDataFrame(rows, "topic string, sketch binary")
        .groupBy("topic")
        .agg(F.hll_sketch_estimate(F.hll_union_agg("sketch")).alias("keys"))
    )
    return {row.topic: row["keys"] for row in run.watched("counting keys", united.collect)}


def _gaps(run: Run[Profile], partitions: list[dict[str, Any]]) -> None:
    """Find gaps in the offsets: compacted records, or transaction markers.

    This reads only the offsets, and only of partitions with missing offsets.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    thin = {}
    for row in partitions:
        row["missing"] = row["last_offset"] - row["first_offset"] + 1 - row["records"]
        row["gaps"], row["largest_gap"], row["first_gaps"] = 0, 0, []
        if row["missing"]:
            thin[row["topic"], row["partition"]] = row
    if not thin:
        return
    options = _bounds(thin.values(), lambda row: row["first_offset"])
    offsets = _read_assigned(run, "topic string, partition int, offset bigint", options)
    order = Window.partitionBy("topic", "partition").orderBy("offset")
    jumps = offsets.withColumn("before", F.lag("offset").over(order)).where("offset > before + 1")
    spans = F.sort_array(F.collect_list(F.struct("at", "size")))
    found = (
        jumps.select(
            "topic",
            "partition",
            (F.col("before") + 1).alias("at"),
            (F.col("offset") - F.col("before") - 1).alias("size"),
        )
        .groupBy("topic", "partition")
        .agg(
            F.count(F.lit(1)).alias("gaps"),
            F.max("size").alias("largest_gap"),
            F.slice(spans, 1, _GAPS_SHOWN).alias("first_gaps"),
        )
    )
    for found_row in run.watched("looking for gaps", found.collect):
        told = thin[found_row.topic, found_row.partition]
        told["gaps"], told["largest_gap"] = found_row.gaps, found_row.largest_gap
        told["first_gaps"] = [[gap.at, gap.at + gap.size - 1] for gap in found_row.first_gaps]


def _bounds(rows: Any, start: Any) -> dict[str, str]:
    """Options that read each partition from `start` to the last offset of the first pass."""
    starts = format_offsets({(row["topic"], row["partition"]): start(row) for row in rows})
    ends = format_offsets(
        {(row["topic"], row["partition"]): row["last_offset"] + 1 for row in rows}
    )
    assigned = {topic: [int(each) for each in of] for topic, of in starts.items()}
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        # Retention may have deleted records since the first pass.
        "failOnDataLoss": "false",
    }


# The names of the options that say what to read begin with one of these.
_WHERE_TO_READ = ("assign", "subscribe", "starting", "ending", "failondataloss")


def _read_assigned(run: Run[Profile], columns: str, options: dict[str, str]) -> DataFrame:
    given = {
        name: value
        for name, value in run.config.source_options().items()
        if not name.lower().startswith(_WHERE_TO_READ)
    }
    return _read(run, columns, {**given, **options})


def _topics(partitions: list[dict[str, Any]], keys: dict[str, int]) -> dict[str, dict[str, Any]]:
    """The totals of each topic. `partitions` are sorted by topic."""
    topics: dict[str, dict[str, Any]] = {}
    for name, group in groupby(partitions, lambda row: row["topic"]):
        rows = list(group)
        topic: dict[str, Any] = {"partitions": len(rows)}
        topic |= {each: sum(row[each] for row in rows) for each in _SUMMED}
        topic["keys"] = keys.get(name, 0)
        times = [row for row in rows if row["records"]]
        topic["first_ms"] = min((row["first_ms"] for row in times), default=None)
        topic["last_ms"] = max((row["last_ms"] for row in times), default=None)
        # The fullest partition relative to the mean; 1: all have equally many records.
        most, mean = max(row["records"] for row in rows), topic["records"] / len(rows)
        topic["skew"] = round(most / mean, 2) if mean else None
        topics[name] = topic
    return topics


def _guesses(
    run: Run[Profile], partitions: list[dict[str, Any]], topics: dict[str, dict[str, Any]]
) -> None:
    """Guess the format of each topic's newest values."""
    values: dict[str, list[Any]] = {}
    names: dict[str, set[str]] = {}
    if partitions:
        for row in run.watched("looking at values", _newest(run, partitions).collect):
            values.setdefault(row.topic, []).append(row.value)
            names.setdefault(row.topic, set()).update(row.names or ())
    for topic, found in topics.items():
        found["values"] = guess(values.get(topic, []), names.get(topic, set()))
        found["headers"] = sorted(names.get(topic, ()))


def _newest(run: Run[Profile], partitions: list[dict[str, Any]]) -> DataFrame:
    """Values and header names of each partition's newest records, without large values."""
    from pyspark.sql import functions as F

    sample = _sample(run.config.sample, partitions)
    options = _bounds(
        partitions, lambda row: max(row["first_offset"], row["last_offset"] + 1 - sample)
    )
    columns = "value binary, topic string, headers array<struct<key:string,value:binary>>"
    newest = _read_assigned(run, columns, {**options, "includeHeaders": "true"})
    newest = newest.where(F.coalesce(F.length("value"), F.lit(0)) <= _LARGEST)
    return newest.select("value", "topic", F.col("headers.key").alias("names"))


def _sample(sample: int, partitions: list[dict[str, Any]]) -> int:
    """The number of records to sample per partition: `sample`, or fewer to stay below _ROOM."""
    size = sum(sample * min(row["value_bytes"] / row["records"], _LARGEST) for row in partitions)
    return sample if size <= _ROOM else max(1, int(sample * _ROOM / size))


def lines(topics: dict[str, dict[str, Any]], partitions: list[dict[str, Any]]) -> list[str]:
    """The profile as text: tables and bars."""
    head = ["topic", "partitions", "records", "bytes", "keys", "null keys", "null values",
            "missing offsets", "skew", "from", "to"]  # fmt: skip
    rows = [
        [name, str(t["partitions"]), f"{t['records']:,}",
         human_bytes(t["key_bytes"] + t["value_bytes"]), f"{t['keys']:,}", f"{t['null_keys']:,}",
         f"{t['null_values']:,}", f"{t['missing']:,}",
         "-" if t["skew"] is None else f"{t['skew']:.2f}", _when(t["first_ms"]),
         _when(t["last_ms"])]
        for name, t in sorted(topics.items())
    ]  # fmt: skip
    out = [*table(head, rows), "", *_partition_lines(partitions), ""] if rows else []
    if not any(topic["records"] for topic in topics.values()):
        out.append("  no records")
    for name, topic in sorted(topics.items()):
        if topic["records"] and "values" in topic:
            told = topic["values"]
            out.append(f"  {name}: {told['kind']} ({told['of']} of {told['sampled']} values)")
            if told.get("schema"):
                out.append(f"    {told['schema']}")
        if topic.get("headers"):
            out.append(f"    headers: {', '.join(topic['headers'])}")
    gaps = [row for row in partitions if row["gaps"]]
    for row in gaps[:_ROWS_SHOWN]:
        first = ", ".join(f"{low}-{high}" for low, high in row["first_gaps"])
        more = ", ..." if row["gaps"] > len(row["first_gaps"]) else ""
        out.append(
            f"  {row['topic']} [{row['partition']}]: {row['missing']:,} offsets are missing in "
            f"{row['gaps']:,} gaps, the largest of {row['largest_gap']:,}: {first}{more}"
        )
    return out


def _partition_lines(partitions: list[dict[str, Any]]) -> list[str]:
    most = max(row["records"] for row in partitions) or 1
    head = ["topic", "partition", "records", "", "value bytes: least", "median", "95 %", "most",
            "first offset", "last offset"]  # fmt: skip
    rows = []
    for row in partitions[:_ROWS_SHOWN]:
        median, high = row["value_percentiles"] or (None, None)
        offsets = (row["first_offset"], row["last_offset"])
        sizes = [row["value_min"], median, high, row["value_max"]]
        rows.append(
            [row["topic"], str(row["partition"]), f"{row['records']:,}",
             chart.bar(row["records"] / most),
             *("-" if size is None else f"{size:,}" for size in sizes),
             *("-" if at is None else f"{at:,}" for at in offsets)]
        )  # fmt: skip
    out = table(head, rows)
    if len(partitions) > _ROWS_SHOWN:
        out.append(f"  and {len(partitions) - _ROWS_SHOWN} more partitions")
    return out


def _when(milliseconds: int | None) -> str:
    from datetime import UTC, datetime

    if milliseconds is None:
        return "-"

    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _write(output: str, summary: Summary, run: Run[Profile]) -> None:
    path = Path(output).expanduser()
    partitions = summary.details["partitions"]
    if path.suffix == ".json":
        summary.write(str(path))
        return
    drawn = chart.svg(
        "Records by partition",
        [(f"{row['topic']} [{row['partition']}]", row["records"]) for row in partitions],
    )
    if path.suffix == ".html":
        drawn = chart.html(f"Profile of {', '.join(summary.details['topics']) or 'no topic'}",
                           summary.report, drawn)  # fmt: skip
    path.write_text(run.config.redact(drawn), encoding="utf-8")
