"""The job ``profile``: shows the contents of topics as tables."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from cykafka.spark.jobs.config.models import Profile
from cykafka.spark.jobs.config.topic_check import planner_of
from cykafka.spark.jobs.observing.report import Summary, human_bytes, table
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.source.offsets import format_offsets

__all__ = ["guess", "run"]

_GAPS_SHOWN = 5
_ROWS_SHOWN = 100
_EIGHTHS = " ▏▎▍▌▋▊▉"
# The numbers to sum up per topic.
_SUMMED = ("records", "key_bytes", "value_bytes", "null_keys", "null_values", "no_times",
           "missing", "gaps")  # fmt: skip
# The driver guesses from sampled values: the most bytes per value, and in total.
_LARGEST = 64 * 1024
_ROOM = 64 * 1024 * 1024


def run(run: JobRun[Profile]) -> Summary:
    """Profile the existing records."""
    began = time.monotonic()
    summary = run.summary
    read = _partitions(run)
    for row in read:
        summary.add_range(
            row["topic"], row["partition"], row["first_offset"], row["last_offset"] + 1
        )
        summary.add(row["records"], row["key_bytes"] + row["value_bytes"], 0, {})
    _find_gaps(run, read)
    keys = _keys_of_topics(run, read)
    with planner_of(run.config, "batch") as planner:
        partitions = _with_empty(read, planner.partitions())
    topics = _topics(partitions, keys)
    if run.config.sample:
        _guess_formats(run, read, topics)
    summary.details = {"topics": topics, "partitions": partitions}
    summary.seconds = time.monotonic() - began
    summary.report = lines(topics, partitions)
    return summary


def _read(run: JobRun[Profile], columns: str, options: dict[str, str]) -> DataFrame:
    """A batch of records with only these columns; the source does not build the others."""
    return run.spark.read.format("cykafka").schema(columns).options(**options).load()


def _partitions(run: JobRun[Profile]) -> list[dict[str, Any]]:
    """Return each partition's statistics, from one pass over all records."""
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
            # A time that is unknown, or outside Spark's range.
            F.count_if(F.col("timestamp").isNull()).alias("no_times"),
            F.hll_sketch_agg("key").alias("key_sketch"),
        )
        .withColumn("keys", F.hll_sketch_estimate("key_sketch"))
    )
    return [row.asDict() for row in run.watch("reading", measured.collect)]


def _with_empty(read: list[dict[str, Any]], there: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return the rows of partitions that were read, plus rows for partitions without records."""
    names = (
        "first_offset", "last_offset", "first_ms", "last_ms", "value_min", "value_max",
        "value_percentiles",
    )  # fmt: skip
    counts = (*_SUMMED, "keys", "largest_gap")
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


def _keys_of_topics(run: JobRun[Profile], partitions: list[dict[str, Any]]) -> dict[str, int]:
    """Return the approximate number of keys per topic.

    Partitions may share keys, so their sketches are merged.
    """
    rows = [(row["topic"], row.pop("key_sketch")) for row in partitions]
    if not rows:
        return {}
    united = (
        run.spark.createDataFrame(rows, "topic string, sketch binary")
        .groupBy("topic")
        .agg(F.hll_sketch_estimate(F.hll_union_agg("sketch")).alias("keys"))
    )
    return {row.topic: row["keys"] for row in run.watch("counting keys", united.collect)}


def _find_gaps(run: JobRun[Profile], partitions: list[dict[str, Any]]) -> None:
    """Find gaps in the offsets: compacted records, or transaction markers.

    This reads only offsets, and only partitions with missing offsets.
    """
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
    for found_row in run.watch("looking for gaps", found.collect):
        partition = thin[found_row.topic, found_row.partition]
        partition["gaps"], partition["largest_gap"] = found_row.gaps, found_row.largest_gap
        partition["first_gaps"] = [[gap.at, gap.at + gap.size - 1] for gap in found_row.first_gaps]


def _bounds(rows: Any, start: Any) -> dict[str, str]:
    """Options that read each partition from `start` to the last offset of the first pass."""
    starts = format_offsets({(row["topic"], row["partition"]): start(row) for row in rows})
    ends = format_offsets(
        {(row["topic"], row["partition"]): row["last_offset"] + 1 for row in rows}
    )
    assigned = {topic: [int(partition) for partition in of] for topic, of in starts.items()}
    return {
        "assign": json.dumps(assigned),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        # Retention may have deleted records since the first pass.
        "failOnDataLoss": "false",
    }


# Options that select what to read begin with one of these.
_WHERE_TO_READ = ("assign", "subscribe", "starting", "ending", "failondataloss")


def _read_assigned(run: JobRun[Profile], columns: str, options: dict[str, str]) -> DataFrame:
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
        topic |= {name: sum(row[name] for row in rows) for name in _SUMMED}
        topic["keys"] = keys.get(name, 0)
        times = [row for row in rows if row["records"]]
        for key, choose in (("first_ms", min), ("last_ms", max)):
            topic[key] = choose((row[key] for row in times if row[key] is not None), default=None)
        # The largest partition relative to the mean; 1: all partitions have the same record count.
        most, mean = max(row["records"] for row in rows), topic["records"] / len(rows)
        topic["skew"] = round(most / mean, 2) if mean else None
        topics[name] = topic
    return topics


def _guess_formats(
    run: JobRun[Profile], partitions: list[dict[str, Any]], topics: dict[str, dict[str, Any]]
) -> None:
    """Guess the format of each topic's newest values."""
    values: dict[str, list[Any]] = {}
    names: dict[str, set[str]] = {}
    if partitions:
        for row in run.watch("sampling values", _newest(run, partitions).collect):
            values.setdefault(row.topic, []).append(row.value)
            names.setdefault(row.topic, set()).update(row.names or ())
    for topic, found in topics.items():
        found["values"] = guess(values.get(topic, []), names.get(topic, set()))
        found["headers"] = sorted(names.get(topic, ()))


def _newest(run: JobRun[Profile], partitions: list[dict[str, Any]]) -> DataFrame:
    """Values and header names of each partition's newest records, without large values."""
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
            values = topic["values"]
            out.append(
                f"  {name}: {values['kind']} ({values['of']} of {values['sampled']} values)"
            )
            if values.get("schema"):
                out.append(f"    {values['schema']}")
        if topic.get("headers"):
            out.append(f"    headers: {', '.join(topic['headers'])}")
        if topic["no_times"]:
            out.append(
                f"  {name}: {topic['no_times']:,} record(s) have no time, or a time outside "
                "Spark's range"
            )
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
             _bar(row["records"] / most),
             *("-" if size is None else f"{size:,}" for size in sizes),
             *("-" if at is None else f"{at:,}" for at in offsets)]
        )  # fmt: skip
    out = table(head, rows)
    if len(partitions) > _ROWS_SHOWN:
        out.append(f"  and {len(partitions) - _ROWS_SHOWN} more partitions")
    return out


def _bar(share: float, width: int = 20) -> str:
    """A bar of text: `share` (0 to 1) of `width` characters, to an eighth of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _when(milliseconds: int | None) -> str:
    """A time in UTC; after the year 9999, the number of milliseconds since 1970."""
    if milliseconds is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    except ValueError:
        return f"{milliseconds:,} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


# -- the format of values

_ENVELOPE_FIELDS = {"message_id", "message_type", "message"}
_DEEP = 8
_MANY_FIELDS = 200


def guess(values: Iterable[bytes | None], headers: Iterable[str] = ()) -> dict[str, Any]:
    """Guess the most frequent kind of some values.

    Parameters
    ----------
    values : iterable of bytes or None
    headers : iterable of str
        The names of the records' headers.

    Returns
    -------
    dict
        ``kind`` is the kind as text. ``sampled`` is the number of values, and ``of`` the number of
        values of that kind. For JSON objects, ``schema`` is DDL for the key ``schema`` of other
        jobs. ``others`` contains the counts of other kinds, if any.
    """
    kinds: Counter[str] = Counter()
    documents: list[Any] = []
    for value in values:
        kind, document = _kind(value)
        kinds[kind] += 1
        if kind == "JSON objects":
            documents.append(document)
    if not kinds:
        return {"kind": "no values", "of": 0, "sampled": 0}
    kind, count = max(kinds.items(), key=lambda item: (item[1], item[0]))
    found = {"kind": kind, "of": count, "sampled": kinds.total()}
    if kind == "JSON objects":
        found["schema"] = ddl(documents)
        if all(document.keys() >= _ENVELOPE_FIELDS for document in documents):
            found["kind"] = "envelopes of pip-services in their form json"
    if "message_type" in headers and found["kind"] == kind:
        found["kind"] = f"{kind}, perhaps envelopes of pip-services in their form headers"
    if len(kinds) > 1:
        others = ((name, number) for name, number in kinds.most_common() if name != kind)
        found["others"] = dict(others)
    return found


def _kind(value: bytes | None) -> tuple[str, Any]:
    if value is None:
        return "null", None
    value = bytes(value)
    if not value:
        return "empty", None
    if value[0] == 0 and len(value) > 5:
        return "binary in the schema registry's form", None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "binary", None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        printable = all(char.isprintable() or char in "\r\n\t" for char in text)
        return ("text" if printable else "binary"), None
    if isinstance(document, dict):
        return "JSON objects", document
    if isinstance(document, list):
        return "JSON arrays", None
    if isinstance(document, int | float) and not isinstance(document, bool):
        return "numbers", None
    return "JSON values", None


def ddl(documents: list[dict[str, Any]]) -> str:
    """Return a schema for JSON objects as Spark's DDL."""
    return ", ".join(f"{_name(name)} {kind}" for name, kind in _members(documents, 0))


def _members(documents: list[dict[str, Any]], depth: int) -> list[tuple[str, str]]:
    names: dict[str, list[Any]] = {}
    for document in documents:
        for name, value in document.items():
            names.setdefault(name, []).append(value)
    # Spark treats names that differ only by case as one, so the most frequent one wins.
    chosen: dict[str, str] = {}
    for name in sorted(names, key=lambda name: -len(names[name])):
        chosen.setdefault(name.lower(), name)
    fields = [(name, names[name]) for name in names if chosen[name.lower()] == name]
    return [(name, _type(values, depth)) for name, values in fields[:_MANY_FIELDS]]


def _type(values: list[Any], depth: int) -> str:
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return "BIGINT" if all(abs(value) < 2**63 for value in present) else "STRING"
    if kinds and kinds <= {int, float}:
        return "DOUBLE"
    if kinds == {list}:
        return f"ARRAY<{_type([item for value in present for item in value], depth + 1)}>"
    if kinds == {dict} and depth < _DEEP and any(present):
        members = _members(present, depth + 1)
        return f"STRUCT<{', '.join(f'{_name(name)}: {kind}' for name, kind in members)}>"
    return "STRING"  # Spark reads any other JSON value as its text


def _name(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain else "`" + name.replace("`", "``") + "`"
