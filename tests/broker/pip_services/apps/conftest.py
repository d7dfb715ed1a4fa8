"""Whole applications: see tests/shared/pip_services_queues.py and pip_services_workers.py."""

from __future__ import annotations

from pip_services_queues import make_queue
from pip_services_workers import nursery

__all__ = ["make_queue", "nursery"]
