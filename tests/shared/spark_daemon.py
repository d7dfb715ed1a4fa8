"""Spark's daemon, with imports that would take each forked worker half a second.

Spark runs it instead of `pyspark.daemon`, by the setting `spark.python.daemon.module`.
"""

import pyarrow.compute  # noqa: F401
from pyspark import daemon

import cykafka.spark.sink
import cykafka.spark.source  # noqa: F401

if __name__ == "__main__":
    daemon.manager()
