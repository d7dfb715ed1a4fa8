"""A client of Spark Connect, for test_connect.py: the source, the sink and the jobs.

It prints a line of JSON with its results.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from guides import example
from machine import WAIT_S
from pyspark.sql.streaming.listener import StreamingQueryListener
from spark_jobs import Bench

from cykafka.spark import register


class Listener(StreamingQueryListener):
    """Counts the rows of all micro-batches, and releases `ended` for each query that has ended."""

    def __init__(self) -> None:
        self.rows = 0
        self.ended = threading.Semaphore(0)

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        self.rows += event.progress.numInputRows

    def onQueryTerminated(self, event: Any) -> None:
        self.ended.release()


def main(servers: str, url: str, topic: str, target: str, folder: str) -> None:
    place = Path(folder)
    options = {"kafka.bootstrap.servers": servers}
    block = example("docs/spark-connect.md", ".remote(").replace("sc://server:15002", url)
    block = block.replace("broker:9092", servers).replace('"events"', repr(topic))
    known: dict[str, Any] = {}
    exec(compile(block, "page", "exec"), known)
    spark = known["spark"]
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    def frame(reader: Any) -> Any:
        return reader.format("cykafka").options(**options, subscribe=topic)

    found: dict[str, Any] = {"count": known["frame"].count()}
    register(spark)
    batch = frame(spark.read).option("includeHeaders", "true").load()
    found["headers"] = batch.where("size(headers) = 3").count()
    sink = batch.select("value").write.format("cykafka").mode("append")
    sink.options(**options, topic=target).save()

    listener = Listener()
    spark.streams.addListener(listener)
    stream = frame(spark.readStream).option("startingOffsets", "earliest").load().select("value")
    query = (
        stream.writeStream.format("cykafka")
        .options(**options, topic=target, checkpointLocation=str(place / "stream"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    def write(rows: Any, _number: int) -> None:
        writer = rows.write.format("cykafka").mode("append")
        writer.options(**options, topic=target).save()

    query = (
        stream.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(place / "batches"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    # Without a pending event: PySpark waits for the thread of the events with the lock that this
    # thread needs for each of them (SPARK-59623).
    for _ in range(2):
        assert listener.ended.acquire(timeout=WAIT_S)
    spark.streams.removeListener(listener)
    found["rows"] = listener.rows

    bench = Bench(spark, servers, "")
    path = str(place / "archive")
    done = bench.run("archive", topics=topic, path=path, file_names="deterministic",
                     checkpoint=str(place / "archive.checkpoint"))  # fmt: skip
    found["archive"] = done.as_dict()
    # Most records are no JSON, so they are bad.
    done = bench.run("mirror", topics=topic, to=target, schema="id INT", dry_run=True,
                     transform="SELECT value FROM records WHERE json.id = 2",
                     checkpoint=str(place / "mirror"))  # fmt: skip
    found["mirror"] = done.as_dict()
    done = bench.run("replay", path=path, to=target, rate=10_000, checkpoint=str(place / "replay"))
    found["replay"] = done.as_dict()
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
