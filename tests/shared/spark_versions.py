"""Try the source, the sink and the jobs with several versions of PySpark, and print a table.

Usage: spark_versions.py FOLDER VERSION...

Each version gets an environment in the folder, with the installed cykafka of this one.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT_S = 900
RECORDS = 40
# What the jobs need beside PySpark, at the versions of this environment.
_BESIDE = ("pyarrow", "cyclopts", "pydantic", "rich", "tomlkit", "xxhash")


def environment(folder: Path, version: str) -> Path:
    """The Python of an environment with a version of PySpark."""
    import cykafka

    place = folder / version
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        venv.create(place, with_pip=True, clear=True)
        beside = [f"{name}=={importlib.metadata.version(name)}" for name in _BESIDE]
        pip = [str(python), "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, f"pyspark=={version}", *beside], check=True)
        (place / "complete").touch()
    lent = place / "lent"
    lent.mkdir(exist_ok=True)
    for name in ("cykafka", "pyspark_cykafka"):
        (lent / name).unlink(missing_ok=True)
        (lent / name).symlink_to(Path(cykafka.__file__).parents[1] / name)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n")
    return python


class Checks:
    """What is tried with each version; each method is a line of the table."""

    def __init__(self, servers: str, folder: Path) -> None:
        from pyspark.sql import SparkSession
        from spark_jobs import Bench

        builder = SparkSession.builder.master("local[2]")
        for name, value in {
            "spark.driver.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.python.filterPushdown.enabled": "true",
            "spark.python.authenticate.socketTimeout": "120s",
            "spark.python.daemon.module": "cykafka.spark.daemon",
            "spark.log.level": "OFF",
        }.items():
            builder = builder.config(name, value)
        self.spark: Any = builder.getOrCreate()
        self.bench = Bench(self.spark, servers, "")
        self.folder = folder
        self.options = {"kafka.bootstrap.servers": servers}

    def _read(self, topic: str, stream: bool = False, **options: Any) -> Any:
        reader = self.spark.readStream if stream else self.spark.read
        if stream:
            options = {"startingOffsets": "earliest", **options}
        return reader.format("cykafka").options(**self.options, subscribe=topic, **options).load()

    def _run(self, stream: Any, writer: Callable[[Any], Any], name: str) -> None:
        place = str(self.folder / name)
        query = writer(stream.writeStream).option("checkpointLocation", place)
        query = query.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        assert query.exception() is None

    def _to(self, topic: str) -> Callable[[Any], Any]:
        return lambda writer: writer.format("cykafka").options(**self.options, topic=topic)

    def batch_source(self) -> None:
        frame = self._read("given", includeHeaders="true")
        assert frame.count() == RECORDS
        assert {bytes(row.key) for row in frame.collect()} == {b"%d" % n for n in range(RECORDS)}

    def option_pushdown(self) -> None:
        assert self._read("given", pushdown="true").where("offset < 2").count() == 4

    def batch_sink(self) -> None:
        writer = self._read("given").select("key", "value").write.format("cykafka")
        writer.options(**self.options, topic="batch").mode("append").save()
        assert self._read("batch").count() == RECORDS

    def stream_source(self) -> None:
        """Two runs read each record once."""
        path = str(self.folder / "parquet")
        for more in (0, 1):
            if more:
                self.bench.send("grows", [{"value": "late", "partition": 0}])
            stream = self._read("grows", stream=True).select("partition", "offset")
            self._run(stream, lambda writer: writer.format("parquet").option("path", path), "a")
            assert self.spark.read.parquet(path).count() == RECORDS + more
        assert self.spark.read.parquet(path).distinct().count() == RECORDS + 1

    def option_maxOffsetsPerTrigger(self) -> None:
        stream = self._read("given", stream=True, maxOffsetsPerTrigger=10)
        self._run(stream.select("value"), lambda writer: writer.format("noop"), "b")

    def stream_sink(self) -> None:
        self._run(self._read("given", stream=True).select("value"), self._to("stream"), "c")
        assert self._read("stream").count() == RECORDS

    def foreachBatch_with_the_batch_sink(self) -> None:
        def write(batch: Any, _number: int) -> None:
            assert not batch.isEmpty()
            assert batch.count() == RECORDS
            writer = batch.select("value").write.format("cykafka")
            writer.options(**self.options, topic="each").mode("append").save()

        self._run(self._read("given", stream=True), lambda item: item.foreachBatch(write), "d")
        assert self._read("each").count() == RECORDS

    def job_archive(self) -> None:
        for kind in ("spark", "deterministic"):
            place = str(self.folder / kind)
            done = self.bench.run("archive", topics="given", path=place, file_names=kind,
                                  checkpoint=f"{place}.checkpoint")  # fmt: skip
            assert done.records == RECORDS
            assert self.spark.read.parquet(place).count() == RECORDS

    def job_replay(self) -> None:
        place = str(self.folder / "archived")
        self._read("given", includeHeaders="true").write.partitionBy("topic").parquet(place)
        done = self.bench.run("replay", path=place, to="replayed", rate="1000")
        assert done.counts["sent"] == RECORDS == self._read("replayed").count()

    def job_mirror(self) -> None:
        done = self.bench.run("mirror", topics="given", to="mirrored",
                              checkpoint=str(self.folder / "mirror"))  # fmt: skip
        assert done.counts["sent"] == RECORDS == self._read("mirrored").count()

    def job_profile(self) -> None:
        assert self.bench.run("profile", topics="given").records == RECORDS


NAMES = [name for name in vars(Checks) if not name.startswith("_")]


def check(servers: str) -> None:
    """Run the checks in this environment, and print their outcomes as JSON."""
    from cykafka.admin import AdminClient, NewTopic
    from cykafka.spark.jobs.problems import explain_error

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = "120"  # a busy machine starts processes slowly
    outcomes: dict[str, str] = {}
    topics = ["given", "grows", "batch", "stream", "each", "replayed", "mirrored"]
    with AdminClient({"bootstrap.servers": servers}) as admin:
        new = [NewTopic(t, 2, 1, config={"retention.ms": "-1"}) for t in topics]
        for future in admin.create_topics(new).values():
            future.result(60)
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(servers, Path(folder))
        records = [{"key": str(n), "value": f"v{n}", "partition": n % 2} for n in range(RECORDS)]
        for topic in ("given", "grows"):
            checks.bench.send(topic, records)
        for name in NAMES:
            try:
                getattr(checks, name)()
                outcomes[name] = ""
            except Exception as error:
                outcomes[name] = explain_error(error) or type(error).__name__
        checks.spark.stop()
    print(json.dumps(outcomes))


def main(folder: str, *versions: str) -> None:
    from cykafka.testing import KafkaCluster

    found: dict[str, dict[str, str]] = {}
    for version in versions:
        python = environment(Path(folder).resolve(), version)
        with KafkaCluster() as cluster:
            done = subprocess.run(
                [str(python), "-W", "ignore", __file__, "--check", cluster.bootstrap_servers],
                stdout=subprocess.PIPE, timeout=TIMEOUT_S, text=True, check=True,
            )  # fmt: skip
        found[version] = json.loads(done.stdout.splitlines()[-1])
        print(f"{version}: {found[version]}", file=sys.stderr)
    print("| | " + " | ".join(versions) + " |")
    print("|---|" + "---|" * len(versions))
    for name in NAMES:
        marks = ["no" if found[version][name] else "yes" for version in versions]
        print(f"| {name.replace('_', ' ')} | {' | '.join(marks)} |")
    for words in sorted({words for item in found.values() for words in item.values() if words}):
        print(f"\n{words}")


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        check(sys.argv[2])
    else:
        main(*sys.argv[1:])
