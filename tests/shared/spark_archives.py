"""A driver that a test kills: one session archives a topic in several kinds of archives.

It starts Spark, prints "ready", waits for a line on standard input, and then continues from the
checkpoints.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from pathlib import Path

from cykafka.spark.jobs.archive import archiving
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS, Archive
from cykafka.spark.jobs.observing.logs import SparkStderr
from cykafka.spark.jobs.observing.report import ProgressLine
from cykafka.spark.jobs.run.session import JobRun, session
from cykafka.spark.jobs.run.streams import finish

TABLES = ("delta", "iceberg")


def config(
    servers: str, topic: str, folder: Path, java_options: str, kind: str, **keys: str
) -> Archive:
    """The configuration of an archive. A kind is a format of tables, or of file names."""
    given = {
        "kafka.bootstrap.servers": servers,
        "topics": topic,
        "path": str(folder / kind),
        "checkpoint": str(folder / f"{kind}.checkpoint"),
        "format" if kind in TABLES else "file_names": kind,
        "app_name": kind,
        "master": "local[2,3]",  # a task whose worker is killed is retried, at most twice
        "source.maxOffsetsPerTrigger": "200",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": java_options,
        **keys,
    }
    config = load(JOBS["archive"], None, given, {})
    assert isinstance(config, Archive)
    return config


def main(servers: str, topic: str, folder: str, java_options: str, more: str) -> None:
    kinds: dict[str, dict[str, str]] = json.loads(more)
    settings = {name: value for given in kinds.values() for name, value in given.items()}
    configs = [
        config(servers, topic, Path(folder), java_options, kind, trigger="continuous", **settings)
        for kind in kinds
    ]
    with session(configs[0], SparkStderr()) as spark:
        print("ready", flush=True)
        sys.stdin.readline()
        runs = [JobRun(spark, config, ProgressLine(0, io.StringIO())) for config in configs]
        queries = [archiving.begin(run) for run in runs]
        print("started", flush=True)
        threads = [
            threading.Thread(target=finish, args=pair) for pair in zip(runs, queries, strict=True)
        ]
        for thread in threads:
            thread.start()
        while all(query.isActive for query in queries):
            time.sleep(0.1)
        for query in queries:
            if query.exception() is not None:
                print("failed", query.exception(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
