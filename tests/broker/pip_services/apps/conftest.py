"""Whole applications: see tests/shared/pip_services_queues.py and pip_services_workers.py."""

from __future__ import annotations

from pip_services_queues import bodies, envelope, group, make_queue, make_receiver, received
from pip_services_workers import nursery

__all__ = ["bodies", "envelope", "group", "make_queue", "make_receiver", "nursery", "received"]
