"""Starts Python workers quickly; a value for Spark's ``spark.python.daemon.module``.

Spark ends a worker whose task stops early, for example in ``isEmpty()``, ``take()`` or
``limit()``. PySpark's own daemon then forks a worker that must import everything. This daemon
imports the modules before it forks.

PySpark's workers collect garbage after each task. These collections skip the modules that the
daemon has imported, which saves about 30 ms per task. So the jobs use this daemon.
"""

from __future__ import annotations

import gc

import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark import daemon

import cykafka.spark.sink.writers
from cykafka.spark.data_source import HAS_READ_LIMITS

if HAS_READ_LIMITS:
    import cykafka.spark.source.stream_reader  # noqa: F401

__all__: list[str] = []

if __name__ == "__main__":
    # As the documentation of gc recommends before a fork. Collections would also copy memory
    # that the workers share.
    gc.freeze()
    daemon.manager()
