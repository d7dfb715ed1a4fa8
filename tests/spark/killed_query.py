"""A driver with one stream, to be killed by test_stream_killed: arguments as JSON."""

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
    frame = spark.readStream.format("cykafka").options(**given["source"]).load()
    writer = frame.writeStream.format(given["format"]).options(**given["sink"])
    if given["available_now"]:
        writer = writer.trigger(availableNow=True)
    query = writer.start()
    while not given["available_now"] and not query.recentProgress:
        query.awaitTermination(0.1)
    print("running", flush=True)
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()


main()
