"""The consumers that a worker keeps open between tasks of the source."""

from __future__ import annotations

import os

from cykafka.spark.clients import consumers


def close_consumers() -> None:
    """Close the consumers that this process keeps open."""
    while consumers._kept:
        (pid, _), consumer = consumers._kept.popitem()
        if pid == os.getpid():
            consumer.close()
