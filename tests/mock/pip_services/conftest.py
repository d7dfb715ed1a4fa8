"""pip_services4_kafka on the mock cluster: see tests/shared/pip_services_rig.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pip_services_rig import *  # noqa: F403 - its fixtures
from pip_services_rig import quieten

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    quieten(items, HERE)
