"""Records through Spark with only the installed wheel: Spark finds the source by itself."""

import os
import sys
from pathlib import Path

import cykafka
from cykafka.spark.java import JavaError, find_java
from cykafka.testing import MockCluster

RECORDS = 100


def main() -> None:
    package = Path(cykafka.__file__).parent
    assert package.is_relative_to(sys.prefix), f"{package} does not come from the wheel"
    from cykafka.spark import register
    from cykafka.spark.data_source import CyKafkaDataSource

    assert CyKafkaDataSource.name() == "cykafka"
    try:
        os.environ["JAVA_HOME"] = str(find_java())
    except JavaError as error:
        print(f"Spark is not started: {str(error).splitlines()[0]}")
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The run is too short for Java's optimizing compiler.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with MockCluster() as cluster:
        cluster.create_topic("wheel", 2)
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        rows = spark.range(RECORDS).selectExpr("string(id) AS value")
        rows.write.format("cykafka").mode("append").options(**options, topic="wheel").save()
        read = spark.read.format("cykafka").options(**options, subscribe="wheel").load()
        values = sorted(int(row.value) for row in read.collect())
        register(spark)
        spark.stop()
    assert values == list(range(RECORDS)), values
    print(f"{RECORDS} records there and back by Spark")


if __name__ == "__main__":
    main()
