"""Prints the stacks of a test that its timeout will soon end.

pytest-timeout prints them, too, but nobody sees what a worker of pytest-xdist prints as it ends.
pytest's `faulthandler_timeout` is one time for all tests, also for those with a longer timeout.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

_STDERR = pytest.StashKey[int]()  # not the one that pytest captures
_PART = 5 / 6


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("timeout")
    timeout = float(marker.args[0] if marker else item.config.getini("timeout") or 0)
    if timeout:
        faulthandler.dump_traceback_later(_PART * timeout, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
