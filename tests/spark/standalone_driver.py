"""A driver on a standalone cluster: the source, the sink and jobs, for test_standalone.py.

It prints a line of JSON for each result. While the streams run, the test kills a worker.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spark_jobs import Bench

from cykafka.spark.jobs.archive import archiving
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.logs import SparkStderr
from cykafka.spark.jobs.run.session import session
from cykafka.spark.jobs.run.streams import finish


def say(**words: Any) -> None:
    print(json.dumps(words), flush=True)


def main(servers: str, master: str, topic: str, target: str, folder: str, java: str) -> None:
    place = Path(folder)
    given = {
        "kafka.bootstrap.servers": servers,
        "topics": topic,
        "master": master,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.task.maxFailures": "8",
    }
    with session(load(JOBS["profile"], None, given, {}), SparkStderr()) as spark:
        bench = Bench(spark, servers, java)
        options = {"kafka.bootstrap.servers": servers}
        read = spark.read.format("cykafka").options(**options, subscribe=topic).load()
        say(read=read.count())
        read.select("value").write.format("cykafka").mode("append").options(
            **options, topic=target
        ).save()
        runs = {
            kind: bench.prepare(
                "archive",
                topics=topic,
                path=str(place / kind),
                checkpoint=str(place / f"{kind}.checkpoint"),
                file_names=kind,
                source__maxOffsetsPerTrigger="40",
            )
            for kind in ("spark", "deterministic")
        }
        for kind, run in runs.items():
            query = archiving.begin(run)
            while query.isActive and query.lastProgress is None:
                query.awaitTermination(0.1)
            say(running=kind)
            sys.stdin.readline()  # the test has killed a worker, or not
            finish(run, query)
            say(archived=run.summary.records)
        mirrored = bench.run(
            "mirror",
            topics=topic,
            to=target,
            checkpoint=str(place / "mirror"),
            source__maxOffsetsPerTrigger="80",
        )
        say(mirrored=mirrored.counts["sent"])


if __name__ == "__main__":
    main(*sys.argv[1:])
