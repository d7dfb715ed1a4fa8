"""Streaming queries of jobs: their options, how far they are, and how they end."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.folders import Folder
from cykafka.spark.jobs.report import Summary, human_bytes
from cykafka.spark.offsets import parse_offsets, take_start

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from cykafka.spark.jobs.session import Run

__all__ = ["counted", "counts_of", "finish", "observed", "records_stream", "rehearse", "start"]

_POLL_S = 0.25
_METRICS = "cykafka"
_STARTING = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")


def records_stream(run: Run) -> DataFrame:
    """The records of the job's topics, with headers, as a stream from the earliest on."""
    options = run.config.source_options()
    if not any(name.lower() in _STARTING for name in options):
        options["startingOffsets"] = "earliest"
    reader = run.spark.readStream.format("cykafka").options(**options)
    return reader.option("includeHeaders", "true").load()


def counted(records: DataFrame, **counts: Column) -> DataFrame:
    """`records` as they were read, which Spark counts as they pass, without another pass.

    Parameters
    ----------
    records : DataFrame
        With the columns key and value.
    counts : Column
        What else to count: which records, by these names; ``bad`` are the bad ones.
    """
    from pyspark.sql import functions as F

    def length(name: str) -> Column:
        return F.coalesce(F.length(name), F.lit(0))

    return records.observe(
        _METRICS,
        F.count(F.lit(1)).alias("records"),
        F.sum((length("key") + length("value")).cast("bigint")).alias("bytes"),
        *counts_of(counts),
    )


def observed(rows: DataFrame, **counts: Column) -> DataFrame:
    """`rows` as they are written, of which Spark counts those that meet conditions."""
    return rows.observe(f"{_METRICS}-out", *counts_of(counts))


def counts_of(counts: Mapping[str, Column]) -> list[Column]:
    """How many rows meet each condition."""
    from pyspark.sql import functions as F

    return [F.count_if(condition).alias(name) for name, condition in counts.items()]


def start(run: Run, records: DataFrame, prepare: Callable[[Any], Any]) -> StreamingQuery:
    """Start a query with the job's checkpoint and trigger; `prepare` gives the writer its sink."""
    config = run.config
    name = config["app_name"] or f"cykafka-{config.job.name}"
    writer = prepare(records.writeStream).queryName(name)
    writer = writer.option("checkpointLocation", _checkpoint(run))
    if config["trigger"] == "available-now" or config.values.get("dry_run"):
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(config['interval'] * 1000)} milliseconds")
    query: StreamingQuery = writer.start()
    return query


def _checkpoint(run: Run) -> str:
    """The checkpoint, or for a dry run a copy of it, which goes with the run."""
    config = run.config
    if not config.values.get("dry_run"):
        return str(config["checkpoint"])
    real = Folder(run.spark, config["checkpoint"])
    copy = Folder(run.spark, f"{real.address.rstrip('/')}.dry-run-{uuid.uuid4().hex[:8]}")
    run.at_end.append(copy.delete)
    real.copy(copy)
    return copy.address


class Tally:
    """Counts what a query has committed, from its progress reports.

    A micro-batch reports once, after it is committed: what a crash undid is counted by the run
    that does it again, and by no other. The counts were made as the records passed (`counted`), so
    they cost no second pass; the offsets are those of the checkpoint, so they hold for offsets
    without records, too.
    """

    def __init__(self, summary: Summary, extra: dict[int, dict[str, Any]] | None = None) -> None:
        self._summary = summary
        self._extra = {} if extra is None else extra
        self._last = -1
        self.speed = 0.0
        self.behind: int | None = None

    def poll(self, query: StreamingQuery, ended: bool = False) -> bool:
        """Look for new reports; returns whether there were any."""
        last = query.lastProgress
        if last is None or (last.batchId <= self._last and not ended):
            return False
        reports: Iterable[Any] = [last]
        if last.batchId > self._last + 1 or ended:
            reports = query.recentProgress
        return self.take(json.loads(report.json) for report in reports)

    def take(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Count what has not been counted yet."""
        news = False
        for report in sorted(reports, key=lambda report: report["batchId"]):
            if report["batchId"] <= self._last:
                continue
            metrics: dict[str, Any] = {}
            for name, values in (report.get("observedMetrics") or {}).items():
                metrics.update(values if name.startswith(_METRICS) else {})
            if not metrics and not report.get("numInputRows"):
                self._lag(report)
                continue  # nothing to do, and the number will be the next batch's
            self._last, news = report["batchId"], True
            metrics.update(self._extra.pop(report["batchId"], {}))
            self._count(report, metrics)
        return news

    def _count(self, report: Mapping[str, Any], metrics: Mapping[str, Any]) -> None:
        named = {
            name: int(count or 0)
            for name, count in metrics.items()
            if name not in ("records", "bytes", "bad")
        }
        self._summary.batches += 1
        self._summary.add(
            int(metrics.get("records") or 0),
            int(metrics.get("bytes") or 0),
            int(metrics.get("bad") or 0),
            named,
        )
        self.speed = float(report.get("processedRowsPerSecond") or 0.0)
        for source in report.get("sources", ()):
            for place, (first, end) in ranges_of(source).items():
                self._summary.cover(*place, first, end)
        self._lag(report)

    def _lag(self, report: Mapping[str, Any]) -> None:
        for source in report.get("sources", ()):
            told = (source.get("metrics") or {}).get("avgOffsetsBehindLatest")
            latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
            if latest and end:
                self.behind = sum(max(0, latest[at] - end.get(at, latest[at])) for at in latest)
            elif told is not None:
                self.behind = round(float(told) * max(1, len(end)))

    def words(self) -> str:
        """How far the query is."""
        done = self._summary
        words = f"{done.job}: {done.records:,} records, {human_bytes(done.bytes)}"
        if self.speed:
            words += f", {self.speed:,.0f}/s"
        if self.behind is not None:
            words += f", {self.behind:,} behind"
        if done.bad:
            words += f", {done.bad:,} bad"
        return words


def ranges_of(source: Mapping[str, Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """The offsets of a report, by topic and partition: the first and the one behind the last."""
    end, carried = take_start(_document(source.get("endOffset")))
    # The first batch of all has no start but the one its end carries.
    start = _offsets(source.get("startOffset")) or carried or {}
    # A partition that is new begins at its first offset, which nobody tells.
    return {at: (start.get(at, 0), last) for at, last in parse_offsets(end, "endOffset").items()}


def _document(offset: Any) -> dict[str, Any]:
    document = json.loads(offset) if isinstance(offset, str) else offset
    return document or {}


def _offsets(offset: Any) -> dict[tuple[str, int], int]:
    return parse_offsets(take_start(_document(offset))[0], "offset")


def finish(run: Run, query: StreamingQuery) -> None:
    """Watch a query until it ends, or is asked to; the run's summary has then all it committed.

    Raises
    ------
    StreamingQueryException
        It failed.
    """
    summary = run.summary
    began = time.monotonic()
    tally = Tally(summary, run.extra)
    deadline: float | None = None
    try:
        while query.isActive:
            query.awaitTermination(_POLL_S)  # type: ignore[arg-type]
            news = tally.poll(query)
            run.progress.show(tally.words())
            if not run.stop.asked:
                continue
            # A micro-batch that is cut off is done again after a restart: a sink that is not
            # exactly once would have its records twice.
            now = time.monotonic()
            deadline = deadline or now + run.config["stop_timeout"]
            idle = not query.status["isTriggerActive"]
            if idle or news or now > deadline or run.stop.asked > 1:
                query.stop()
                summary.outcome = "stopped"
        query.awaitTermination()
    except BaseException:
        summary.outcome = "failed"
        raise
    finally:
        tally.poll(query, ended=True)
        for work in run.at_end:
            work()
        summary.seconds = time.monotonic() - began
        run.progress.clear()


def rehearse(run: Run, out: DataFrame, by: list[str]) -> None:
    """Run a query from a copy of the checkpoint that sends nothing; tell what it would send."""
    from pyspark.sql import functions as F

    def tell(batch: DataFrame, _number: int) -> None:
        run.tell_targets(batch.groupBy(*by).agg(F.count(F.lit(1)).alias("count")).collect())

    finish(run, start(run, out, lambda writer: writer.foreachBatch(tell)))
