"""Garbage collections in Spark's workers."""

from __future__ import annotations

import gc

from pyspark import TaskContext

__all__ = ["exempt_modules"]

_are_exempt = False


def exempt_modules() -> None:
    """Exempt all objects that this worker has now from garbage collections, once.

    Spark's daemon collects garbage after each task of a worker that it reuses, and the next task
    waits for it. Nearly all objects belong to modules, and to look at them takes 30 ms: as long as
    60,000 records take to be sent. Later objects are collected as usual.
    """
    global _are_exempt
    if not _are_exempt and TaskContext.get() is not None:
        gc.freeze()
        _are_exempt = True
