"""A driver with streams that test_stream_killed kills. Its arguments are JSON.

It prints "ready" when Spark is up, and then waits for a line: "go on" starts the streams, "end"
lets them run to their end.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = "120"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for name, value in given["config"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print("ready", flush=True)
    end = sys.stdin.readline().strip() == "end"
    source = dict(given["source"])
    if end:
        # Read the rest in one batch, after the batches that Spark has already planned.
        del source["maxOffsetsPerTrigger"]
    queries = []
    for sink in given["sinks"]:
        frame = spark.readStream.format("cykafka").options(**source).load()
        writer = frame.writeStream.format(sink["format"]).options(**sink["options"])
        trigger = {"availableNow": True} if end else {"processingTime": "200 milliseconds"}
        queries.append(writer.trigger(**trigger).start())
    print("running", flush=True)
    if end:
        for query in queries:
            query.awaitTermination()
    else:
        spark.streams.awaitAnyTermination()
    print("done", flush=True)
    spark.stop()


main()
