"""Kafka in PySpark: a data source, a sink and ready-made jobs.

``pip install cykafka[spark]`` is all that is needed: ``spark.read.format("cykafka")`` then finds
the source by itself (through the module ``pyspark_cykafka``). Where Spark does not look for it,
because the package came after the session, `register` makes it known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``format("cykafka")`` known to a session that has not found it by itself.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession

    Raises
    ------
    ImportError
        pyspark (4.2 or newer) or pyarrow is missing.
    """
    from cykafka.spark.source import CyKafkaDataSource

    spark.dataSource.register(CyKafkaDataSource)
