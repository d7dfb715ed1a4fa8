"""A daemon of Python workers that start quickly, for Spark's ``spark.python.daemon.module``.

Spark ends a worker whose task has stopped early, as the tasks of ``isEmpty()``, ``take()`` and
``limit()`` do. PySpark's own daemon forks a worker that has to import everything, and that reads
the directories of ``pyspark.zip`` and of Spark's jar about twenty times. Workers of this daemon do
neither.
"""

from __future__ import annotations

import gc
import os
from zipimport import zipimporter

import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark import daemon

import cykafka.spark.sink
import cykafka.spark.source
from cykafka.spark.versions import HAS_READ_LIMITS

if HAS_READ_LIMITS:
    import cykafka.spark.stream_reader
else:
    import cykafka.spark.old_stream_reader  # noqa: F401

__all__: list[str] = []

# Spark's own archives on the workers' path; Spark does not change them while it runs.
_FIXED = ("pyspark.zip", "py4j-", "spark-core_")
_read_again = zipimporter.invalidate_caches


def _invalidate_caches(importer: zipimporter) -> None:
    if not os.path.basename(importer.archive).startswith(_FIXED):
        _read_again(importer)


if __name__ == "__main__":
    # A new worker adds a folder to its path, and then each package of an archive reads the
    # archive's whole directory again.
    zipimporter.invalidate_caches = _invalidate_caches  # type: ignore[assignment, method-assign]
    gc.freeze()  # collections in the workers would copy the modules' pages
    daemon.manager()
