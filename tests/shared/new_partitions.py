"""Partitions that a test adds to a topic."""

from __future__ import annotations

import time
from typing import Any

from machine import WAIT_S


def add_partitions(admin: Any, topic: str, total: int) -> None:
    """Increase the partitions of a topic to a total, and wait until the broker knows of it: the
    controller responds earlier."""
    from cykafka.admin import NewPartitions

    admin.create_partitions([NewPartitions(topic, total)])[topic].result(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) < total:
        assert time.monotonic() < deadline
        time.sleep(0.05)
