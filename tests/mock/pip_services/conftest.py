"""pip_services4_kafka on the mock cluster: see tests/shared/pip_services_rig.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pip_services_rig import (
    QUIET,
    committed,
    config,
    connection,
    eventually,
    logger,
    make_batch_listener,
    make_connection,
    make_listener,
    make_references,
    new_connection,
)

__all__ = [
    "committed",
    "config",
    "connection",
    "eventually",
    "logger",
    "make_batch_listener",
    "make_connection",
    "make_listener",
    "make_references",
    "new_connection",
]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(QUIET)
