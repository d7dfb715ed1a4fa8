"""A Spark session in a separate process, which runs one command at a time.

    python _spark_session.py CONFIGURATION

CONFIGURATION is a JSON object of Spark's settings. Commands are JSON lines on the standard input.
The answer to each is one JSON line on the standard output: the measurements, or
``{"error": ...}``.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WARM_BATCHES = 10
ACTIONS: dict[str, Callable[[Any], Any]] = {
    "isEmpty()": lambda batch: batch.isEmpty(),
    "count()": lambda batch: batch.count(),
    "write": lambda batch: batch.write.format("noop").mode("overwrite").save(),
}
STREAM_TIMEOUT = 120.0


def main() -> None:
    # Java also writes to the standard output, so redirect it to the standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(prefix="cykafka-bench-spark-") as folder:
        worker = Worker(json.loads(sys.argv[1]), Path(folder))
        print(json.dumps({"spark": worker.spark.version}), file=answers, flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = getattr(worker, command.pop("do"))(**command)
            except Exception as error:
                answer = {"error": str(error).strip()[:2000]}
            print(json.dumps(answer), file=answers, flush=True)
        worker.spark.stop()


class Worker:
    """The commands, one method each. They return their measurements, times in s."""

    def __init__(self, settings: dict[str, str], folder: Path) -> None:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = "120"
        from pyspark.sql import SparkSession

        self.folder = folder
        builder = SparkSession.builder
        local = {
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        }
        for name, value in {**settings, **local}.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        from _spark_empty import EmptySource

        self.spark.dataSource.register(EmptySource)

    def noop(self, source: str, options: dict[str, str], schema: str | None = None) -> Any:
        """Read a topic and drop the rows."""
        frame = self._read(source, options, schema)
        with measured() as result:
            frame.write.format("noop").mode("overwrite").save()
        return result

    def sum(self, source: str, options: dict[str, str], schema: str | None = None) -> Any:
        """Compute `sum(length(value))`. The answer has the sum and the number of rows."""
        frame = self._read(source, options, schema)
        with measured() as result:
            [row] = frame.selectExpr(
                "sum(length(value)) as bytes", "count(value) as rows"
            ).collect()
        return {**result, "rows": row.rows, "bytes": row.bytes}

    def sink(self, source: str, options: dict[str, str], **records: Any) -> Any:
        """Write rows; the other parameters are those of `_records`."""
        frame = self._records(**records)
        with measured() as result:
            frame.write.format(source).options(**options).mode("append").save()
        return result

    def rows_alone(self, sink: str = "noop", **records: Any) -> Any:
        """Make the rows that `sink` writes, and drop them, in Java or in Python."""
        frame = self._records(**records)
        mode = "overwrite" if sink == "noop" else "append"
        with measured() as result:
            frame.write.format(sink).mode(mode).save()
        return result

    def archive(self, source: str, options: dict[str, str], codec: str) -> Any:
        """Write a topic to Parquet. The answer has the number of rows in the files."""
        frame = self._read(source, options, None)
        path = str(self.folder / "archive")
        with measured() as result:
            frame.write.option("compression", codec).mode("overwrite").parquet(path)
        return {**result, **self._remove(path)}

    def archive_stream(self, source: str, options: dict[str, str], codec: str) -> Any:
        """Write the files of the job `archive` by a stream that ends at the topic's end."""
        path = str(self.folder / "archive-stream")
        checkpoint = f"{path}.checkpoint"
        frame = self.spark.readStream.format(source).options(**options).load()
        writer = (
            frame.selectExpr("*", "date_format(timestamp, 'yyyy-MM-dd') as date")
            .writeStream.format("parquet")
            .partitionBy("topic", "date")
            .option("compression", codec)
            .option("path", path)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        try:
            with measured() as result:
                writer.start().awaitTermination()
            return {**result, **self._remove(path)}
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def archive_job(self, keys: dict[str, str]) -> Any:
        """Run the job `archive`: a stream that ends at the topic's end.

        Unlike `archive`, it includes headers.
        """
        path = str(self.folder / "archive-job")
        result = self.job("archive", {**keys, "path": path})
        return {**result, **self._remove(path)}

    def job(self, name: str, keys: dict[str, str]) -> Any:
        """Run a job in this session. A stream gets a checkpoint of its own."""
        from cykafka.spark.jobs.command import MODULES
        from cykafka.spark.jobs.config.load import load
        from cykafka.spark.jobs.config.models import JOBS, StreamConfig
        from cykafka.spark.jobs.observing.report import ProgressLine
        from cykafka.spark.jobs.run.session import JobRun

        checkpoint = str(self.folder / "checkpoint-of-job")
        if issubclass(JOBS[name], StreamConfig):
            keys = {**keys, "checkpoint": checkpoint}
        run = JobRun(self.spark, load(JOBS[name], None, keys), ProgressLine(0))
        module = importlib.import_module(f"cykafka.spark.jobs.{MODULES[name]}")
        try:
            with measured() as result:
                summary = module.run(run)
            return {**result, "rows": summary.records}
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def mirror(self, source: str, options: dict[str, str], sink: dict[str, str]) -> Any:
        """Send a topic's records to another one by a stream that ends at the topic's end."""
        checkpoint = str(self.folder / "checkpoint-of-mirror")
        frame = self.spark.readStream.format(source).options(**options).load()
        writer = (
            frame.select("key", "value", "headers")
            .writeStream.format(source)
            .options(**sink, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
        )
        try:
            with measured() as result:
                writer.start().awaitTermination()
            return result
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def replay(self, source: str, options: dict[str, str], sink: dict[str, str]) -> Any:
        """Send the Parquet files of a topic to another one."""
        frame = self.spark.read.parquet(self._archived(options))
        with measured() as result:
            frame.select("key", "value", "headers", "partition").write.format(source).options(
                **sink
            ).mode("append").save()
        return result

    def replay_job(self, options: dict[str, str], keys: dict[str, str]) -> Any:
        """Run the job `replay` on the Parquet files of a topic."""
        return self.job("replay", {**keys, "path": self._archived(options)})

    def profile(self, source: str, options: dict[str, str]) -> Any:
        """Compute the numbers of the job `profile` that need a pass over all records."""
        from pyspark.sql import functions as F

        frame = self._read(source, options, None)
        with measured() as result:
            found = (
                frame.groupBy("topic", "partition")
                .agg(
                    *map(
                        F.expr,
                        (
                            "count(*) as records",
                            "min(offset)",
                            "max(offset)",
                            "min(timestamp)",
                            "max(timestamp)",
                            "sum(length(key))",
                            "sum(length(value))",
                            "min(length(value))",
                            "max(length(value))",
                            "percentile_approx(length(value), array(0.5, 0.95))",
                            "count_if(key is null)",
                            "count_if(value is null)",
                            "hll_sketch_estimate(hll_sketch_agg(key))",
                        ),
                    )
                )
                .collect()
            )
        return {**result, "rows": sum(row.records for row in found)}

    def stream(
        self,
        source: str,
        options: dict[str, str],
        batches: int,
        actions: Sequence[str] = (),
        persist: bool = False,
    ) -> Any:
        """Run micro-batches and drop the rows. The answer has Spark's median durations, ms.

        With `actions`, names of ACTIONS, the query is one of foreachBatch. With `persist`, its
        function persists each micro-batch for them.
        """
        checkpoint = self.folder / "checkpoint"
        writer = self.spark.readStream.format(source).options(**options).load().writeStream

        def act(batch: Any, _number: int) -> None:
            if persist:
                batch.persist()
            for action in actions:
                ACTIONS[action](batch)
            if persist:
                batch.unpersist()

        writer = writer.foreachBatch(act) if actions else writer.format("noop")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        try:
            deadline = time.monotonic() + STREAM_TIMEOUT
            while len(done := busy(query)) < batches:
                if query.exception() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"expected {batches} micro-batches within {STREAM_TIMEOUT:g} s, got "
                        f"{len(done)}: {query.exception()}"
                    )
                time.sleep(0.05)
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        steady = done[min(WARM_BATCHES, batches // 2) : batches]
        steps = sorted({step for durations in steady for step in durations})
        medians = {
            step: statistics.median(durations.get(step, 0) for durations in steady)
            for step in steps
        }
        return {"batch_ms": medians["triggerExecution"], "steps_ms": medians}

    def _read(self, source: str, options: dict[str, str], schema: str | None) -> Any:
        reader = self.spark.read.format(source).options(**options)
        return (reader if schema is None else reader.schema(schema)).load()

    def _records(
        self, rows: int, tasks: int, value_size: int | None = None, headers: bool = False
    ) -> Any:
        """Cheap rows, because the cases measure the sink: binary keys of 8 bytes and values of
        100 bytes. With `value_size`, texts: the number as the key, and one value of this size.
        """
        number = "cast(10000000 + id as string)"
        key = f"cast({number} as binary) as key"
        value = f"cast(concat({number}, '{'x' * 92}') as binary) as value"
        columns = [key, value]
        if value_size is not None:
            columns = ["cast(id as string) key", f"repeat('x', {value_size}) value"]
        if headers:
            header = "struct('source' as key, cast('web' as binary) as value)"
            columns.append(f"array({header}) as headers")
        return self.spark.range(0, rows, 1, tasks).selectExpr(*columns)

    def _archived(self, options: dict[str, str]) -> str:
        """Parquet files with a topic's records, which are made once."""
        path = self.folder / "archived"
        if not path.exists():
            rows = self._read("cykafka", {**options, "includeHeaders": "true"}, None)
            rows.write.partitionBy("topic").option("compression", "zstd").parquet(str(path))
        return str(path)

    def _remove(self, path: str) -> dict[str, int]:
        files = [file for file in Path(path).rglob("*.parquet") if file.is_file()]
        rows = self.spark.read.parquet(path).count()
        size = sum(file.stat().st_size for file in files)
        shutil.rmtree(path)
        return {"rows": rows, "files": len(files), "bytes": size}


def busy(query: Any) -> list[dict[str, float]]:
    """The durations of micro-batches that read rows, by step."""
    return [
        dict(progress["durationMs"])
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


@contextmanager
def measured() -> Iterator[dict[str, float]]:
    """Measure wall-clock seconds, and CPU seconds of Java and of Python's workers together.

    `others` are the CPU seconds of the rest of the machine, which is the broker if it is quiet.
    """
    result: dict[str, float] = {}
    before, busy_before = cpu_ticks(), busy_ticks()
    start = time.perf_counter()
    yield result
    result["wall"] = time.perf_counter() - start
    # Add up the processes one by one: Spark's daemon does not wait for its workers, so the CPU
    # time of an ended worker is lost. A worker that ends meanwhile was idle.
    ticks = sum(used - before.get(pid, 0) for pid, used in cpu_ticks().items())
    hertz = os.sysconf("SC_CLK_TCK")
    result["cpu"] = ticks / hertz
    result["others"] = max(0, busy_ticks() - busy_before - ticks) / hertz


def busy_ticks() -> int:
    """The CPU ticks in which the machine was not idle."""
    user, nice, system, _, _, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    )
    return user + nice + system + irq + softirq + steal


def cpu_ticks() -> dict[int, int]:
    """CPU ticks by pid of this process and all its descendants, waited-for children included."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has just ended
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        used[pid] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: used[pid] for pid in family}


if __name__ == "__main__":
    main()
