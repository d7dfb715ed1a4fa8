"""The jobs' streaming queries: their options, their progress, and how they end."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import functions as F

from cykafka.spark.data_source import HAS_READ_LIMITS
from cykafka.spark.jobs.config.models import Mirror, Redrive
from cykafka.spark.jobs.config.topic_check import planner_of
from cykafka.spark.jobs.observing.report import Summary, human_bytes
from cykafka.spark.jobs.problems import Stopped, explain_error
from cykafka.spark.jobs.records.columns import total_bytes
from cykafka.spark.jobs.records.job_sink import stream_sink
from cykafka.spark.jobs.records.outcome import (
    WOULD_SEND,
    BatchResults,
    JobHandling,
    check_note,
    is_refusal,
    write_note,
)
from cykafka.spark.jobs.run.checkpoint import claim_checkpoint
from cykafka.spark.source.offsets import Offsets, Partition, lag_of, ranges_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from cykafka.spark.jobs.config.models import StreamConfig
    from cykafka.spark.jobs.observing.endpoint import JobMetrics
    from cykafka.spark.jobs.run.job_source import TaskWork
    from cykafka.spark.jobs.run.session import JobRun

__all__ = ["METRICS", "count_by_topic", "count_records", "counts_of", "finish", "observed",
           "records_stream", "send", "start"]  # fmt: skip

_POLL_S = 0.25
# The name of the observed metrics that `Tally` counts.
METRICS = "cykafka"
# A source's name in a query's status: Getting offsets from org....Class@288bc477
_SOURCE = re.compile(r"\S+@[0-9a-f]+\b")
_STARTING = ("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp")
# The default limit of a micro-batch. A crash repeats a whole micro-batch, and some queries keep a
# micro-batch in memory.
_MOST_OFFSETS = 2_000_000
# The default of maxRecordsPerSharedTask. It is lower than the source's, because `replay` is slower
# if a file contains several partitions.
_SHARED_RECORDS = "1000"


class _SparkLostError(RuntimeError):
    """Spark ended while the job was running."""

    def __init__(self) -> None:
        super().__init__(
            "Spark ended while the job was running: the cluster ended its application, or its JVM "
            "died. A restart continues after the last committed micro-batch"
        )


def records_stream(run: JobRun[StreamConfig], work: TaskWork | None = None) -> DataFrame:
    """Return a stream of the job's topics with headers, by default from the earliest offsets.

    With `work` the tasks do this work with their records, and the stream contains their reports.
    """
    if not HAS_READ_LIMITS:
        raise RuntimeError(
            f"the job {run.config.job} needs PySpark 4.2 or newer, and this is "
            f"{pyspark.__version__}: older versions cannot limit micro-batches. The jobs replay "
            "and profile, and the data source itself, work with it"
        )
    from cykafka.spark.jobs.run.job_source import STOP_FILE, StoppableSource, working_source

    source = StoppableSource if work is None else working_source(work)
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
    """Return the default of maxOffsetsPerTrigger, which is at least minOffsetsPerTrigger."""
    least = [int(options[name]) for name in options if name.lower() == "minoffsetspertrigger"]
    return max([_MOST_OFFSETS, *least])


def count_records(records: DataFrame, **counts: Column) -> DataFrame:
    """Return `records` so that Spark counts them as they pass, without a second pass.

    Parameters
    ----------
    records : DataFrame
        Records with the columns key and value.
    counts : Column
        Conditions for further counts, by name. ``bad`` counts the bad records.
    """
    return records.observe(
        METRICS,
        F.count(F.lit(1)).alias("records"),
        total_bytes().alias("bytes"),
        *counts_of(counts),
    )


def observed(rows: DataFrame, **counts: Column) -> DataFrame:
    """Return the rows to write so that Spark counts the rows that meet the conditions."""
    return rows.observe(f"{METRICS}-out", *counts_of(counts))


def counts_of(counts: Mapping[str, Column]) -> list[Column]:
    """Return aggregations that count the rows that meet each condition."""
    return [F.count_if(condition).alias(name) for name, condition in counts.items()]


def start(
    run: JobRun[StreamConfig], records: DataFrame, prepare: Callable[[Any], Any]
) -> StreamingQuery:
    """Start a query with the job's checkpoint and trigger.

    `prepare` sets the writer's sink. It runs after the check that the checkpoint is this job's.
    """
    config = run.config
    try:
        claim_checkpoint(run)
        if isinstance(config, Mirror | Redrive) and not config.is_dry_run:
            check_note(config, run.driver.folder(config.checkpoint))
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


def _checkpoint(run: JobRun[StreamConfig]) -> str:
    """Return the checkpoint. For a dry run it is a copy, which the run deletes at its end."""
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

    A micro-batch reports once, after its commit. So if a crash interrupts a micro-batch, only the
    run that repeats it counts it. Spark counts records as they pass (`count_records`), without a
    second pass. The offsets come from the checkpoint, so they include offsets without records.
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
        # The time of the last report. A query that waits for records reports every ten seconds.
        self.reported = ""

    def poll(self, query: StreamingQuery, ended: bool = False) -> bool:
        """Count new reports. Returns whether there were any."""
        last = query.lastProgress
        if last is not None:
            self.reported = last.timestamp
        if last is None or (last.batchId <= self._last and not ended):
            return False
        reports: Iterable[Any] = [last]
        if last.batchId > self._last + 1 or ended:
            reports = query.recentProgress
        return self.add_reports(json.loads(report.json) for report in reports)

    def add_reports(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Count the reports that were not counted yet."""
        news = False
        for report in sorted(reports, key=lambda report: report["batchId"]):
            if report["batchId"] <= self._last:
                continue
            metrics: dict[str, Any] = {}
            for name, values in (report.get("observedMetrics") or {}).items():
                metrics.update(_named(values) if name.startswith(METRICS) else {})
            if not metrics and not report.get("numInputRows"):
                self._take_lag(report)
                continue  # no data, and the next batch will get the same number
            self._last, news = report["batchId"], True
            metrics |= self._results.pop(report["batchId"], {})
            self._count(report, metrics)
        return news

    def _count(self, report: Mapping[str, Any], metrics: dict[str, Any]) -> None:
        if WOULD_SEND in metrics:
            self._summary.add_targets(metrics.pop(WOULD_SEND))
        named = {
            name: int(count or 0)
            for name, count in metrics.items()
            if name not in ("records", "bytes", "bad")
        }
        if "sent" in named:
            named["sent"] -= named.get("refused", 0)
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
                self._summary.add_range(*place, first, end)
                passed += max(0, end - first)
        self._summary.without_record += max(0, passed - int(metrics.get("records") or 0))
        self._take_lag(report)
        if self._metrics is not None:
            self._metrics.add_batch(report)

    def _take_lag(self, report: Mapping[str, Any]) -> None:
        lag = lag_of(report)
        if lag:
            self.lag = lag
            if self._metrics is not None:
                self._metrics.set_lag(lag)

    @property
    def behind(self) -> int | None:
        """How many offsets the query has not read; None until a report contains them."""
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
        """The query's progress for a JSON log."""
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
    """Return observed metrics by name. Spark Connect reports names and values separately."""
    if row.keys() == {"schema", "values"}:
        names = [field["name"] for field in row["schema"]["fields"]]
        return dict(zip(names, row["values"], strict=True))
    return row


def _first_offsets(run: JobRun[StreamConfig], partitions: list[Partition]) -> Offsets:
    """Return the partitions' current first offsets; empty if the request fails."""
    with suppress(Exception), planner_of(run.config, "stream") as planner:
        return planner.ends(partitions).earliest
    return {}


def finish(run: JobRun[StreamConfig], query: StreamingQuery) -> None:
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
    tally = Tally(
        summary, run.results, lambda partitions: _first_offsets(run, partitions), run.metrics
    )
    deadline: float | None = None
    cut_off = False
    run.health.note_progress()
    run.at_end.append(run.scratch.delete)
    try:
        while query.isActive:
            query.awaitTermination(_POLL_S)  # type: ignore[arg-type]
            reported = tally.reported
            tally.poll(query)
            status = query.status
            # A query is idle between two micro-batches, and while it waits for records.
            # Without a trigger it also initializes, which may hang.
            waits = not status["isTriggerActive"] and not status["message"].startswith("Init")
            if tally.reported != reported or waits:
                run.health.note_progress()
            run.health.note_activity(_SOURCE.sub("Kafka", config.redact(status["message"])))
            run.report_progress(tally.words(), **tally.fields())
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
        _note(run, error)
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
        return  # the query had read all records before the stop
    summary.outcome = "stopped"
    if cut_off:
        raise Stopped("stopped within a micro-batch: a restart repeats the micro-batch")
    if ends:
        raise Stopped("stopped before all records were read: a restart continues from there")


def count_by_topic(out: DataFrame) -> dict[str, int]:
    """Return the number of records by topic."""
    rows = out.groupBy("topic").count().collect()
    return {row["topic"]: row["count"] for row in rows}


def send(
    run: JobRun[Mirror] | JobRun[Redrive], out: DataFrame, options: Mapping[str, str]
) -> None:
    """Run the query that sends records, with these sink options.

    The column ``source`` contains the records' origin. A dry run uses a copy of the checkpoint and
    only counts the records.
    """
    # Spark finishes a sink's micro-batch in a separate process, which stores its counts in files.
    # With Spark Connect, functions run on the server, with copies of what they refer to.
    results = BatchResults(run.scratch)
    run.results, results.is_used = results, True

    def count_batch(batch: DataFrame, number: int) -> None:
        results.put(number, {WOULD_SEND: count_by_topic(batch)})

    def prepare(writer: DataStreamWriter) -> DataStreamWriter:
        if run.config.is_dry_run:
            return writer.foreachBatch(count_batch)
        sink = stream_sink(JobHandling.of(run.config), results)
        run.spark.dataSource.register(sink)
        return writer.format(sink.name()).options(**options)

    finish(run, start(run, out, prepare))


def _note(run: JobRun[StreamConfig], error: BaseException) -> None:
    """Note that the job stopped at rejected records: a restart must not send others again."""
    if not is_refusal(error):
        return
    try:
        write_note(run.driver.folder(run.config.checkpoint), error)
    except Exception as caught:  # must not hide the first error
        run.warn(f"cannot write the refused records to the checkpoint: {explain_error(caught)}")
