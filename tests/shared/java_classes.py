"""Options for Spark's Java in tests: compile fast, and load classes from an archive.

As a program it creates the missing archives of Spark and Kafka.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

START_S = 600


def java_options(folder: Path) -> str:
    """The value of spark.driver.extraJavaOptions. Temporary files go to the folder.

    A killed driver leaves them there. The first run of a user with this Spark creates the archive,
    which takes half a minute.
    """
    import pyspark

    from cykafka.testing._java import archived_classes, java

    jars = Path(pyspark.__file__).parent / "jars"
    archived = archived_classes(java(), jars, _use_once)
    return " ".join(["-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={folder}", *archived])


def _use_once(options: Sequence[str]) -> None:
    """Run a session to its normal end in a separate process."""
    from cykafka.testing import KafkaClusterError

    done = subprocess.run(
        [sys.executable, __file__, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    if done.returncode != 0:
        raise KafkaClusterError(f"Spark failed: {done.stderr[-2000:]}")


def _main(options: list[str]) -> None:
    """Do a little of everything that the tests do, so that Java loads the classes."""
    import os

    from pyspark.sql import SparkSession

    from cykafka import Producer
    from cykafka.testing import MockCluster

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with tempfile.TemporaryDirectory() as folder, MockCluster() as cluster:
        config = {
            "master": "local[2]",
            "driver.memory": "1g",
            "driver.host": "127.0.0.1",
            "driver.extraJavaOptions": " ".join(["-XX:TieredStopAtLevel=1", *options]),
            "local.dir": folder,
            "sql.shuffle.partitions": "2",
            "ui.enabled": "false",
        }
        builder = SparkSession.builder
        for name, value in config.items():
            builder = builder.config(f"spark.{name}", value)
        spark = builder.getOrCreate()
        gateway = spark.sparkContext._gateway.proc
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        cluster.create_topic("records")
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.produce("records", '{"id": 1}', "key")
        source = {**servers, "subscribe": "records", "startingOffsets": "earliest"}
        stream = spark.readStream.format("cykafka").options(**source).load()
        for kind, more in (
            ("parquet", {"path": f"{folder}/table"}),
            ("cykafka", {**servers, "topic": "copies"}),
        ):
            writer = stream.writeStream.format(kind).options(**more)
            writer = writer.option("checkpointLocation", f"{folder}/{kind}")
            writer.trigger(availableNow=True).start().awaitTermination()
        table = spark.read.parquet(f"{folder}/table")
        table.selectExpr("from_json(CAST(value AS STRING), 'id INT').id AS id", "timestamp") \
            .groupBy("id").count().orderBy("count").collect()  # fmt: skip
        spark.stop()
        # Java writes the archive when it exits, and it exits when its standard input is closed.
        gateway.stdin.close()
        gateway.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _main(sys.argv[1:])
    else:
        from cykafka.testing import KafkaCluster

        java_options(Path(tempfile.gettempdir()))
        with KafkaCluster():
            pass
