"""Kafka in PySpark: a data source, a sink and ready-made jobs.

After ``pip install cykafka[spark]``, ``spark.read.format("cykafka")`` finds the source
automatically, through the module ``pyspark_cykafka``. In a session that started before the
installation, call `register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register ``format("cykafka")`` with a session that did not find the source automatically.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession

    Raises
    ------
    ImportError
        pyspark (4.0 or newer) or pyarrow is missing.
    """
    from cykafka.spark.data_source import CyKafkaDataSource

    spark.dataSource.register(CyKafkaDataSource)
