"""One Spark session and one broker for the folder. Each test has its own topics and folders."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import java_classes
import pytest
from machine import WAIT_S

pyspark = pytest.importorskip("pyspark", reason="the group spark is not installed")

SHARED = str(Path(__file__).parents[1] / "shared")
JVM_CONNECTOR = Path(__file__).parent / "jvm_connector" / "pom.xml"
TABLE_JARS = Path(__file__).parent / "jobs" / "jars"
TABLES: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("iceberg", "Iceberg", "iceberg-*.jar",
     {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}),
    ("delta", "Delta Lake", "delta-spark*.jar",
     {"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
      "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
      "spark.databricks.delta.snapshotPartitions": "1"}),
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = os.path.dirname(__file__) + os.sep
    for item in items:
        if str(item.path).startswith(here):
            # A session starts slowly, especially on a busy machine.
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            # py4j leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def jvm_jars() -> Any:
    """The paths of the jars of Spark's own Kafka connector, or the error of their fetch."""
    from cykafka.testing import NoBrokerError
    from cykafka.testing._java import Jars

    wanted = Jars(
        "Spark's Kafka connector", JVM_CONNECTOR, "spark-sql-kafka", "spark-sql-kafka-*.jar"
    )
    try:
        return sorted(map(str, wanted.fetch().glob("*.jar")))
    except NoBrokerError as error:
        return error


@pytest.fixture(scope="session")
def tables() -> dict[str, Any]:
    """By format of tables: Spark's settings for it, or the error of the fetch of its jars.

    Delta Lake is missing if its package is not for this Spark.
    """
    from cykafka.testing import NoBrokerError
    from cykafka.testing._java import Jars

    found: dict[str, Any] = {}
    for name, title, needed, settings in TABLES:
        if name == "delta" and not pyspark.__version__.startswith("4.2."):
            continue
        jars = Jars(title, TABLE_JARS / f"{name}.xml", f"spark-{name}", needed)
        try:
            paths = ",".join(sorted(map(str, jars.fetch().glob("*.jar"))))
            found[name] = {"spark.jars": paths, **settings}
        except NoBrokerError as error:
            found[name] = error
    return found


@pytest.fixture(scope="session")
def java_options() -> Iterator[str]:
    """Options for the driver's Java."""
    from cykafka.testing import NoBrokerError
    from cykafka.testing.plugin import no_broker

    # The path of a socket in it may have at most 100 characters, so pytest's folders are too long.
    with tempfile.TemporaryDirectory(prefix="java-", ignore_cleanup_errors=True) as folder:
        try:
            options = java_classes.java_options(Path(folder))
        except NoBrokerError as error:
            no_broker(error)
        yield options


@pytest.fixture(scope="session")
def spark_config(
    tmp_path_factory: pytest.TempPathFactory,
    jvm_jars: Any,
    tables: dict[str, Any],
    java_options: str,
) -> dict[str, str]:
    """The configuration of the tests' sessions. Their files go to pytest's temporary folder."""
    more: dict[str, str] = {}
    jars = [] if isinstance(jvm_jars, Exception) else [*jvm_jars]
    for settings in tables.values():
        if not isinstance(settings, Exception):
            more |= settings
            jars.append(settings["spark.jars"])
    folder = tmp_path_factory.mktemp("spark")
    return {
        "spark.master": "local[2]",
        "spark.app.name": "cykafka-tests",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{java_options} -Dderby.system.home={folder / 'derby'}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # Longer than a busy machine needs to start a process.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **more,
        "spark.jars": ",".join(jars),
    }


@pytest.fixture(scope="session")
def spark(spark_config: dict[str, str]) -> Iterator[Any]:
    """The session of the whole run. Workers run this Python despite the environment."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = "120"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.python.daemon.module", "cykafka.spark.daemon")
    for name, value in spark_config.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SHARED, prepend=os.pathsep)
        session = builder.getOrCreate()
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


@pytest.fixture(scope="session")
def cluster(kafka_cluster: Any) -> Any:
    """The broker of the whole run. Topics come from `topic`, other names from `unique`."""
    return kafka_cluster


@pytest.fixture
def stop_queries(spark: Any) -> Iterator[None]:
    """Stop the streams of a test after it, even if it failed."""
    yield
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def batch(spark: Any, cluster: Any) -> Callable[..., Any]:
    """Make a DataFrame that reads a batch of Kafka with these options."""

    def load(schema: str | None = None, **options: Any) -> Any:
        reader = spark.read.format("cykafka")
        reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return load


@pytest.fixture
def stream(spark: Any, cluster: Any) -> Callable[..., Any]:
    """Make a DataFrame that is a stream from Kafka with these options."""

    def load(schema: str | None = None, **options: Any) -> Any:
        reader = spark.readStream.format("cykafka")
        reader = reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return load


@pytest.fixture(params=["executors", "driver"])
def read_on(request: pytest.FixtureRequest) -> str:
    """The value of the option readOn: each test runs with both."""
    value: str = request.param
    return value


@pytest.fixture
def found() -> Callable[[Any], list[tuple[int, int]]]:
    """The (partition, offset) of all rows of a DataFrame, sorted."""

    def collect(frame: Any) -> list[tuple[int, int]]:
        rows = frame.select("partition", "offset").collect()
        return sorted((row.partition, row.offset) for row in rows)

    return collect


@pytest.fixture
def admin(cluster: Any) -> Iterator[Any]:
    """An administrative client of the broker."""
    from cykafka.admin import AdminClient

    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


@pytest.fixture
def delete_before(admin: Any) -> Callable[..., None]:
    """Delete the records of a partition before an offset."""
    from cykafka import TopicPartition

    def delete(topic: str, partition: int, offset: int) -> None:
        for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result(WAIT_S)

    return delete


@pytest.fixture
def delete_topic(admin: Any) -> Callable[[str], None]:
    """Delete a topic, and wait until the deletion is complete."""

    def delete(name: str) -> None:
        admin.delete_topics([name])[name].result(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while name in admin.list_topics(timeout=WAIT_S).topics:
            assert time.monotonic() < deadline

    return delete
