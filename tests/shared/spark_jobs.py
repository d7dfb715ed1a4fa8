"""Spark jobs in tests: run them in the folder's session, and send and read records."""

from __future__ import annotations

import importlib
import io
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine import WAIT_S

import cykafka
from cykafka.spark.jobs.command import MODULES
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.report import ProgressLine, Summary
from cykafka.spark.jobs.run.session import JobRun, Stop


class Bench:
    """The environment of the tests of jobs: a broker and a Spark session."""

    def __init__(self, spark: Any, servers: str, java_options: str) -> None:
        self.spark = spark
        self.servers = servers
        self.java_options = java_options

    def command(self, job: str, *more: str) -> list[str]:
        """The command that runs a job with its own Spark."""
        return [
            sys.executable, "-m", "cykafka.spark", job,
            "--bootstrap-servers", self.servers, "--master", "local[2]",
            "--spark-conf", "driver.memory=1g", "--spark-conf", "sql.shuffle.partitions=2",
            "--spark-conf", f"driver.extraJavaOptions={self.java_options}", *more,
        ]  # fmt: skip

    def run(self, job: str, stop: Stop | None = None, **keys: Any) -> Summary:
        """Run a job with these keys (``source__x`` means source.x) and return its summary."""
        return self.work(job, self.prepare(job, stop, **keys))

    def prepare(self, job: str, stop: Stop | None = None, **keys: Any) -> JobRun:
        """Prepare a run of a job."""
        given = {name.replace("__", "."): value for name, value in keys.items()}
        given = {"kafka.bootstrap.servers": self.servers, **given}
        config = load(JOBS[job], None, given, {})
        return JobRun(self.spark, config, ProgressLine(0, io.StringIO()), stop)

    def work(self, job: str, run: JobRun) -> Summary:
        """Run a prepared job."""
        module = importlib.import_module(f"cykafka.spark.jobs.{MODULES[job]}")
        done: Summary = module.run(run)
        return done

    def send(self, topic: str, records: list[Mapping[str, Any]]) -> None:
        """Send records, given as arguments of `Producer.produce`, in order."""
        config = {"bootstrap.servers": self.servers, "linger.ms": 5, "enable.idempotence": True}
        with cykafka.Producer(config) as producer:
            for record in records:
                producer.produce(topic, **record)
            assert producer.flush(WAIT_S) == 0

    def fill(self, topic: str, count: int, partitions: int = 4, **record: Any) -> None:
        """Send `count` records to each partition. Keys, values and headers have their offsets."""
        self.send(
            topic,
            [
                {
                    "key": f"k{partition}-{number % 7}",
                    "value": f"v{partition}-{number}",
                    "headers": [("n", str(number).encode()), ("n", b"again"), ("null", None)],
                    "partition": partition,
                    "timestamp": 1_700_000_000_000 + number,
                    **record,
                }
                for number in range(count)
                for partition in range(partitions)
            ],
        )

    def read(self, topic: str, count: int | None = None) -> list[Any]:
        """All messages of a topic, by partition and offset; at least `count` of them."""
        config = {
            "bootstrap.servers": self.servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
        with cykafka.Consumer(config) as consumer:
            partitions = consumer.list_topics(topic, WAIT_S).topics[topic].partitions
            consumer.assign(
                [cykafka.TopicPartition(topic, partition, 0) for partition in partitions]
            )
            messages, ended = [], set()
            deadline = time.monotonic() + WAIT_S
            while len(ended) < len(partitions):
                assert time.monotonic() < deadline, "the end of the topic was not reached in time"
                for message in consumer.consume(1000, 0.2):
                    if message.error() is None:
                        messages.append(message)
                    else:
                        assert message.error().code() == cykafka.KafkaError._PARTITION_EOF
                        ended.add(message.partition())
        if count is not None:
            assert len(messages) >= count, f"{len(messages)} of {count} messages"
        return sorted(messages, key=lambda item: (item.partition(), item.offset()))


def archive_rows(bench: Bench, form: str, path: str) -> Any:
    """The rows of an archive, as a reader of its format sees them."""
    if form != "iceberg":
        return bench.spark.read.format("delta" if form == "delta" else "parquet").load(path)
    rows = iceberg(path).scan(selected_fields=("topic", "partition", "offset")).to_arrow()
    return bench.spark.createDataFrame(rows)


def iceberg(path: str) -> Any:
    """An Iceberg table in PyIceberg, which has nothing in common with Iceberg's Java library."""
    from pyiceberg.table import StaticTable

    found = Path(path, "metadata").glob("v*.metadata.json")
    return StaticTable.from_metadata(
        str(max(found, key=lambda item: int(item.name[1:].partition(".")[0])))
    )


def offsets_by_spark(bench: Bench, path: str) -> Counter[tuple[str, int, int]]:
    rows = bench.spark.read.parquet(path).select("topic", "partition", "offset").collect()
    return Counter((str(topic), partition, offset) for topic, partition, offset in rows)


def offsets_by_listing(path: str) -> Counter[tuple[str, int, int]]:
    """The offsets that a reader without Spark finds."""
    import duckdb

    query = (
        'SELECT topic::VARCHAR, "partition", "offset" FROM '
        f"read_parquet('{path}/**/*.parquet', hive_partitioning = true)"
    )
    return Counter(duckdb.sql(query).fetchall())


def once(topic: str, count: int, partitions: int = 4) -> Counter[tuple[str, int, int]]:
    return Counter(
        (topic, partition, offset) for partition in range(partitions) for offset in range(count)
    )
