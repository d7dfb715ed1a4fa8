"""A daemon of Python workers that start quickly, for Spark's ``spark.python.daemon.module``.

Spark ends a worker whose task has stopped early, as the tasks of ``isEmpty()``, ``take()`` and
``limit()`` do. PySpark's own daemon forks a worker that has to import everything, and that reads
the directory of ``pyspark.zip`` about twenty times. Workers of this daemon do neither.
"""

from __future__ import annotations

import gc
import os
import sys
from zipimport import zipimporter

import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark import daemon

import cykafka.spark.sink
import cykafka.spark.source  # noqa: F401

__all__: list[str] = []

# The archives of PySpark and py4j. Spark does not change them while it runs.
_FIXED = frozenset(
    each.archive
    for each in sys.path_importer_cache.values()
    if isinstance(each, zipimporter)
    and os.path.basename(each.archive).startswith(("pyspark.zip", "py4j-"))
)
_read_again = zipimporter.invalidate_caches


def _invalidate_caches(importer: zipimporter) -> None:
    if importer.archive not in _FIXED:
        _read_again(importer)


if __name__ == "__main__":
    # A new worker adds a folder to its path, and then each package of an archive reads the
    # archive's whole directory again.
    zipimporter.invalidate_caches = _invalidate_caches  # type: ignore[assignment, method-assign]
    gc.freeze()  # collections in the workers would copy the modules' pages
    daemon.manager()
