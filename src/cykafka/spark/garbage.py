"""Garbage collections in Spark's workers."""

from __future__ import annotations

import gc

from pyspark import TaskContext

__all__ = ["exempt_modules"]


def exempt_modules() -> None:
    """Exempt all objects that this worker has now from garbage collections, once.

    Spark's daemon collects garbage after each task of a worker that it reuses, and the next task
    waits for it. Nearly all objects belong to modules, and to look at them takes 30 ms: as long as
    60,000 records take to be sent. Later objects are collected as usual.
    """
    if TaskContext.get() is not None and gc.get_freeze_count() == 0:
        gc.freeze()
