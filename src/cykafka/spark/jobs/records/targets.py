"""The cluster that a job writes to: its id, and its topics as a Spark data source."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from cykafka import Producer
from cykafka.spark.clients.consumers import GONE
from cykafka.spark.clients.properties import client_config

__all__ = ["TargetsSource", "cluster_of", "topics_of"]

_REQUEST_S = 60.0
# How many responses to merge, and the pause between two requests, s.
_ANSWERS, _AGAIN_S = 3, 0.5
# The partition count of a topic whose metadata contains an error; the sink reports the error.
_MANY = 2**31 - 1


def topics_of(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Return the cluster's topics: the columns `target` (name) and `partitions` (count).

    Spark requests them again in each micro-batch, so that a query that runs for weeks knows topics
    that were created or deleted since its start.

    Parameters
    ----------
    spark : SparkSession
    options : mapping of str to str
        The options of the sink.
    """
    spark.dataSource.register(TargetsSource)
    kafka = {name: value for name, value in options.items() if name.lower().startswith("kafka.")}
    return spark.read.format(TargetsSource.name()).options(**kafka).load()


def cluster_of(options: Mapping[str, str]) -> str:
    """Return the id of the cluster that a sink with these options writes to."""
    with _client(options) as client:
        return client.cluster_id(_REQUEST_S)


def _client(options: Mapping[str, str]) -> Producer:
    # Use the sink's configuration: a user that may write to a topic may also see it.
    with warnings.catch_warnings(action="ignore"):  # the sink emits the same warning
        return Producer(dict(client_config(options, role="sink")))


class TargetsSource(DataSource):
    """A cluster's topic names and partition counts."""

    @classmethod
    def name(cls) -> str:
        return "cykafka_targets"

    def schema(self) -> str:
        return "target string, partitions int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _TopicsReader(dict(self.options))


class _TopicsReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
        found: dict[str, int] = {}
        with _client(self._options) as client:
            # Send several requests: a broker that has just started lacks topics, and the job would
            # treat records for a missing topic as bad.
            for again in range(_ANSWERS):
                if again:
                    time.sleep(_AGAIN_S)
                for name, topic in client.list_topics(timeout=_REQUEST_S).topics.items():
                    if topic.error is not None and topic.error.code() not in GONE:
                        found.setdefault(name, _MANY)  # the topic exists, despite the error
                    elif topic.partitions:
                        found[name] = len(topic.partitions)
        yield from found.items()
