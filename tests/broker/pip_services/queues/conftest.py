"""Queues: see tests/shared/pip_services_queues.py."""

from __future__ import annotations

from pip_services_queues import (
    bodies,
    counters,
    envelope,
    group,
    make_queue,
    make_receiver,
    received,
)

__all__ = ["bodies", "counters", "envelope", "group", "make_queue", "make_receiver", "received"]
