"""Streaming queries of jobs: their options, their progress, and how they end."""

from __future__ import annotations

import json
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from cykafka.spark.jobs.batch_results import WOULD_SEND, BatchResults
from cykafka.spark.jobs.checkpoint_claim import claim_checkpoint
from cykafka.spark.jobs.report import Summary, human_bytes
from cykafka.spark.jobs.session import Stopped
from cykafka.spark.offsets import Offsets, Partition
from cykafka.spark.progress import lag_of, ranges_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from cykafka.spark.jobs.config import StreamConfig
    from cykafka.spark.jobs.metrics import JobMetrics
    from cykafka.spark.jobs.session import Run
    from cykafka.spark.jobs.task_work import TaskWork

__all__ = ["METRICS", "counted", "counts_of", "finish", "observed", "records_stream", "send",
           "start", "total_bytes", "would_send"]  # fmt: skip

_POLL_S = 0.25
# The name of the observed metrics that `Tally` counts.
METRICS = "cykafka"
# How Spark calls a source in the status of a query: Getting offsets from org....Class@288bc477
_SOURCE = re.compile(r"\S+@[0-9a-f]+\b")
_STARTING = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
# The default limit of a micro-batch. A crash repeats a whole micro-batch, and some queries keep a
# micro-batch in memory.
_MOST_OFFSETS = 2_000_000
# The default of maxRecordsPerSharedTask. It is less than the source's, because the driver does not
# read for jobs, and because `replay` is slower if a file has records of several partitions.
_SHARED_RECORDS = "1000"


class _SparkLostError(RuntimeError):
    """Spark ended while the job was running."""

    def __init__(self) -> None:
        super().__init__(
            "Spark ended while the job was running: the cluster ended its application, or its JVM "
            "died. A restart continues after the last committed micro-batch"
        )


def records_stream(run: Run[StreamConfig], work: TaskWork | None = None) -> DataFrame:
    """A stream of the job's topics, with headers; by default from the earliest offsets.

    With `work` the tasks do this work with their records, and the stream has what they report.
    """
    import pyspark

    from cykafka.spark.versions import HAS_READ_LIMITS

    if not HAS_READ_LIMITS:
        raise RuntimeError(
            f"the job {run.config.job} needs PySpark 4.2 or newer, and this is "
            f"{pyspark.__version__}: older versions cannot limit micro-batches. The jobs replay "
            "and profile, and the data source itself, work with it"
        )
    from cykafka.spark.jobs.stopping import STOP_FILE, StoppableSource

    source = StoppableSource
    if work is not None:
        from cykafka.spark.jobs.task_work import working_source

        source = working_source(work)
    options = run.config.source_options()
    given = {name.lower() for name in options}
    if given.isdisjoint(_STARTING):
        options["startingOffsets"] = "earliest"
    if "maxoffsetspertrigger" not in given:
        options["maxOffsetsPerTrigger"] = str(most_offsets(options))
    if "maxrecordspersharedtask" not in given:
        options["maxRecordsPerSharedTask"] = _SHARED_RECORDS
    options[STOP_FILE] = str(run.stop_file)
    run.spark.dataSource.register(source)
    reader = run.spark.readStream.format(source.name()).options(**options)
    return reader.option("includeHeaders", "true").load()


def most_offsets(options: Mapping[str, str]) -> int:
    """The default of maxOffsetsPerTrigger; at least minOffsetsPerTrigger."""
    least = [int(options[name]) for name in options if name.lower() == "minoffsetspertrigger"]
    return max([_MOST_OFFSETS, *least])


def counted(records: DataFrame, **counts: Column) -> DataFrame:
    """Return `records` such that Spark counts them as they pass, without a second pass.

    Parameters
    ----------
    records : DataFrame
        Records with the columns key and value.
    counts : Column
        Conditions of further counts, by name. ``bad`` counts the bad records.
    """
    from pyspark.sql import functions as F

    return records.observe(
        METRICS,
        F.count(F.lit(1)).alias("records"),
        total_bytes().alias("bytes"),
        *counts_of(counts),
    )


def observed(rows: DataFrame, **counts: Column) -> DataFrame:
    """Return the rows to write such that Spark counts those that meet the conditions."""
    return rows.observe(f"{METRICS}-out", *counts_of(counts))


def counts_of(counts: Mapping[str, Column]) -> list[Column]:
    """Aggregations that count the rows that meet each condition."""
    from pyspark.sql import functions as F

    return [F.count_if(condition).alias(name) for name, condition in counts.items()]


def total_bytes() -> Column:
    """An aggregation: the bytes of the columns key and value."""
    from pyspark.sql import functions as F

    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    return F.sum(size.cast("bigint"))


def start(
    run: Run[StreamConfig], records: DataFrame, prepare: Callable[[Any], Any]
) -> StreamingQuery:
    """Start a query with the job's checkpoint and trigger.

    `prepare` sets the writer's sink. It runs after the checkpoint is checked to be this job's.
    """
    config = run.config
    try:
        claim_checkpoint(run)
        name = config.app_name or f"cykafka-{config.job}"
        writer = prepare(records.writeStream).queryName(name)
        if config.trigger == "available-now" or config.is_dry_run:
            writer = writer.trigger(availableNow=True)
        else:
            milliseconds = round(config.interval * 1000)
            writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
        writer = writer.option("checkpointLocation", _checkpoint(run))
        query: StreamingQuery = writer.start()
    except BaseException:
        run.end()
        raise
    return query


def _checkpoint(run: Run[StreamConfig]) -> str:
    """The checkpoint; for a dry run a copy, which the end of the run deletes."""
    config = run.config
    if not config.is_dry_run:
        return run.place(config.checkpoint)
    real = run.driver.folder(config.checkpoint)
    copy = run.driver.folder(f"{real.address.rstrip('/')}.dry-run-{uuid.uuid4().hex[:8]}")
    run.at_end.append(copy.delete)
    real.copy(copy)
    return copy.address


class Tally:
    """Counts the records that a query has committed, from its progress reports.

    A micro-batch reports once, after its commit. So if a crash cuts a micro-batch off, only the
    run that repeats it counts it. Spark made the counts as the records passed (`counted`), so they
    need no second pass. The offsets are those of the checkpoint, so they include offsets without
    records.
    """

    def __init__(
        self,
        summary: Summary,
        results: BatchResults | None = None,
        begins: Callable[[list[Partition]], Offsets] | None = None,
        metrics: JobMetrics | None = None,
    ) -> None:
        self._summary = summary
        self._begins = begins
        self._metrics = metrics
        self._results = BatchResults() if results is None else results
        self._last = -1
        self.speed = 0.0
        self.lag: Offsets | None = None
        # The time of the last report. A query that waits for records has one every ten seconds.
        self.reported = ""

    def poll(self, query: StreamingQuery, ended: bool = False) -> bool:
        """Count new reports, and return whether there were any."""
        last = query.lastProgress
        if last is not None:
            self.reported = last.timestamp
        if last is None or (last.batchId <= self._last and not ended):
            return False
        reports: Iterable[Any] = [last]
        if last.batchId > self._last + 1 or ended:
            reports = query.recentProgress
        return self.take(json.loads(report.json) for report in reports)

    def take(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Count the reports that are not counted yet."""
        news = False
        for report in sorted(reports, key=lambda report: report["batchId"]):
            if report["batchId"] <= self._last:
                continue
            metrics: dict[str, Any] = {}
            for name, values in (report.get("observedMetrics") or {}).items():
                metrics.update(_named(values) if name.startswith(METRICS) else {})
            if not metrics and not report.get("numInputRows"):
                self._take_lag(report)
                continue  # no data, and the next batch will have the same number
            self._last, news = report["batchId"], True
            metrics.update(self._results.pop(report["batchId"], {}))
            self._count(report, metrics)
        return news

    def _count(self, report: Mapping[str, Any], metrics: dict[str, Any]) -> None:
        if WOULD_SEND in metrics:
            self._summary.tell_targets(metrics.pop(WOULD_SEND))
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
        # Spark's own rate counts rows, which may be reports of tasks instead of records.
        ms = report.get("batchDuration") or 0
        self.speed = 1000 * int(metrics.get("records") or 0) / ms if ms else 0.0
        passed = 0
        for source in report.get("sources", ()):
            ranges = ranges_of(source)
            new = [place for place, (first, _) in ranges.items() if first is None]
            begins = self._begins(new) if new and self._begins else {}
            for place, (first, end) in ranges.items():
                first = begins.get(place, end) if first is None else first
                self._summary.cover(*place, first, end)
                passed += max(0, end - first)
        self._summary.without_record += max(0, passed - int(metrics.get("records") or 0))
        self._take_lag(report)
        if self._metrics is not None:
            self._metrics.take_batch(report)

    def _take_lag(self, report: Mapping[str, Any]) -> None:
        lag = lag_of(report)
        if lag:
            self.lag = lag
            if self._metrics is not None:
                self._metrics.set_lag(lag)

    @property
    def behind(self) -> int | None:
        """The offsets that the query has not read; None before a report has them."""
        return None if self.lag is None else sum(self.lag.values())

    def words(self) -> str:
        """The query's progress as text."""
        done = self._summary
        words = f"{done.job}: {done.records:,} records, {human_bytes(done.bytes)}"
        if self.speed:
            words += f", {self.speed:,.0f}/s"
        if self.behind is not None:
            words += f", {self.behind:,} behind"
        if done.bad:
            words += f", {done.bad:,} bad"
        return words

    def fields(self) -> dict[str, Any]:
        """The query's progress for a log of JSON."""
        done = self._summary
        return {
            "batch": self._last if done.batches else None,
            "batches": done.batches,
            "records": done.records,
            "bytes": done.bytes,
            "bad": done.bad,
            "records_per_second": round(self.speed),
            "behind": self.behind,
        }


def _named(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Observed metrics by name. With Spark Connect, a report has names and values apart."""
    if row.keys() == {"schema", "values"}:
        names = [field["name"] for field in row["schema"]["fields"]]
        return dict(zip(names, row["values"], strict=True))
    return row


def _begins(run: Run[StreamConfig], partitions: list[Partition]) -> Offsets:
    """The first offsets of partitions now; empty if the request fails."""
    from cykafka.spark.options import ReadOptions
    from cykafka.spark.planner import Planner

    # The source gives the same warnings.
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        options = ReadOptions.of(run.config.source_options(), "stream")
        with closing(Planner(options)) as planner:
            return planner.ends(partitions).earliest
    return {}


def finish(run: Run[StreamConfig], query: StreamingQuery) -> None:
    """Watch a query until it ends or a stop is requested, and complete the run's summary.

    After one request to stop, the query finishes the running micro-batch and starts no other.

    Raises
    ------
    StreamingQueryException
        The query failed.
    RuntimeError
        Spark ended while the query was running.
    Stopped
        The query was stopped before it had read all its records, or within a micro-batch.
    """
    config, summary = run.config, run.summary
    began = time.monotonic()
    tally = Tally(summary, run.results, lambda partitions: _begins(run, partitions), run.metrics)
    deadline: float | None = None
    cut_off = False
    run.health.moved()
    run.at_end.append(run.scratch.delete)
    try:
        while query.isActive:
            query.awaitTermination(_POLL_S)  # type: ignore[arg-type]
            reported = tally.reported
            tally.poll(query)
            status = query.status
            # Between two micro-batches, and while it waits for records, a query does nothing.
            # Without a trigger it also initializes, which may hang.
            waits = not status["isTriggerActive"] and not status["message"].startswith("Init")
            if tally.reported != reported or waits:
                run.health.moved()
            run.health.doing(_SOURCE.sub("Kafka", config.redact(status["message"])))
            run.tell(tally.words(), **tally.fields())
            if run.driver.has_ended():
                raise _SparkLostError
            if not run.stop.asked:
                continue
            if deadline is None:
                deadline = time.monotonic() + config.stop_timeout
                run.stop_streams()
            if not query.status["isTriggerActive"]:
                query.stop()
            elif time.monotonic() > deadline or run.stop.asked > 1:
                cut_off = query.isActive
                query.stop()
        query.awaitTermination()
    except BaseException as error:
        summary.outcome = "failed"
        with suppress(Exception):  # the JVM may have ended with its query
            tally.poll(query, ended=True)
        if isinstance(error, _SparkLostError) or not isinstance(error, Exception):
            raise
        if run.driver.has_ended():
            raise _SparkLostError from error  # the query's error is only a consequence
        raise
    else:
        tally.poll(query, ended=True)
    finally:
        run.end()
        run.pass_on_warnings()
        summary.seconds = time.monotonic() - began
        run.publish()
        run.progress.clear()
    if deadline is None:
        return
    ends = config.trigger == "available-now" or config.is_dry_run
    if ends and tally.behind == 0:
        return  # it had read all records before the stop
    summary.outcome = "stopped"
    if cut_off:
        raise Stopped("stopped within a micro-batch: a restart repeats the micro-batch")
    if ends:
        raise Stopped("stopped before all records were read: a restart continues from there")


def would_send(out: DataFrame) -> dict[str, int]:
    """The number of records by topic."""
    rows = out.groupBy("topic").count().collect()
    return {row["topic"]: row["count"] for row in rows}


def send(run: Run[StreamConfig], out: DataFrame, options: Mapping[str, str]) -> None:
    """Run the query that sends records, with these options of the sink.

    A dry run has a copy of the checkpoint, and counts the records instead.
    """

    results = run.results

    def tell(batch: DataFrame, number: int) -> None:
        results.put(number, {WOULD_SEND: would_send(batch)})

    def prepare(writer: DataStreamWriter) -> DataStreamWriter:
        if run.config.is_dry_run:
            results.is_used = True
            return writer.foreachBatch(tell)
        return writer.format("cykafka").options(**options)

    finish(run, start(run, out, prepare))
