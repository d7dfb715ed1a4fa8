"""What all tests share: the module under test and scripts that run in a process of their own."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from types import ModuleType

import pytest

# The tests of behaviour shared with confluent_kafka can run against it too, so that what they
# expect is checked against the reference and not only against what we believe of it.
PEER = os.environ.get("CYKAFKA_TEST_PEER")
MODULE = PEER or "cykafka"

PRELUDE = f"import {MODULE} as kafka\n"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ours: what cykafka does better or beside the peer; skipped for the peer"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if PEER:
        skip = pytest.mark.skip(reason=f"not behaviour of {PEER}")
        for item in items:
            if item.get_closest_marker("ours"):
                item.add_marker(skip)


def pytest_report_header() -> str:
    return f"module under test: {MODULE}"


def _heed_interrupts() -> None:
    # A background job of a shell ignores SIGINT, and so would the children that test Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_heed_interrupts()


@pytest.fixture(scope="session")
def kafka() -> ModuleType:
    """The module under test: cykafka, or the one that CYKAFKA_TEST_PEER names."""
    return importlib.import_module(MODULE)


@pytest.fixture(scope="session")
def script_command() -> Callable[..., list[str]]:
    """Make the command line that runs a script with `kafka` imported and a traceback on a crash.

    The arguments after the source arrive as `sys.argv[1:]`.
    """

    def command(source: str, *args: str) -> list[str]:
        code = PRELUDE + textwrap.dedent(source)
        return [sys.executable, "-X", "faulthandler", "-c", code, *args]

    return command


@pytest.fixture(scope="session")
def run_script(
    script_command: Callable[..., list[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script to its end and return the finished process; a hang fails after `timeout` s."""

    def run(source: str, *args: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            script_command(source, *args),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
