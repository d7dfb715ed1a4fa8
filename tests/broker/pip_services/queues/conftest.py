"""Queues: see tests/shared/pip_services_queues.py."""

from pip_services_queues import *  # noqa: F403 - its fixtures
