"""Processes and their descendants, for tests that kill processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

__all__ = ["Process", "family", "find", "kill", "kill_all", "python_workers", "session"]


class Process(NamedTuple):
    """A process.

    An id alone may belong to another process later, or to one of its threads, and a signal to a
    thread's id reaches the thread's process.
    """

    pid: int
    started: int
    """When it started, in clock ticks since the machine's start."""

    def is_running(self) -> bool:
        """Whether the process runs."""
        found = _read(self.pid)
        return found is not None and found.process == self and found.state != "Z"

    def command(self) -> bytes:
        """The command line; empty if the process ended."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_bytes()
        return b""


class _Status(NamedTuple):
    process: Process
    state: str
    parent: int
    session: int


def _read(pid: int) -> _Status | None:
    try:
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process ended
        return None
    return _Status(Process(pid, int(parts[19])), parts[0], int(parts[1]), int(parts[3]))


def _all() -> Iterator[_Status]:
    for path in Path("/proc").glob("[0-9]*"):
        if status := _read(int(path.name)):
            yield status


def family(child: Popen[Any]) -> list[Process]:
    """A child of this process and all its descendants; nothing if the child was waited for."""
    first = _read(child.pid) if child.returncode is None else None
    if first is None:
        return []
    children: dict[int, list[Process]] = {}
    for status in _all():
        children.setdefault(status.parent, []).append(status.process)
    found = [first.process]
    for item in found:
        found += children.get(item.pid, [])
    return found


def session(number: int) -> list[Process]:
    """The processes of a session (`start_new_session`), also those whose parent ended."""
    return [status.process for status in _all() if status.session == number]


def find(*words: bytes) -> Process | None:
    """A process whose command line contains these words."""
    for status in _all():
        command = status.process.command()
        if all(word in command for word in words):
            return status.process
    return None


def python_workers(driver: Popen[Any]) -> list[Process]:
    """The Python workers of a driver's Spark: forks of its daemon, with its command line."""
    daemons = {item.pid: item for item in family(driver) if b"spark.daemon" in item.command()}
    return [
        item
        for item in daemons.values()
        if (status := _read(item.pid)) and status.parent in daemons
    ]


def kill(process: Process) -> bool:
    """Kill a process; return whether it was running."""
    if running := process.is_running():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return running


def kill_all(processes: Iterable[Process], wait_s: float = 60.0) -> None:
    """Kill processes, and return when all are gone."""
    processes = list(processes)
    for process in processes:
        kill(process)
    deadline = time.monotonic() + wait_s
    while any(process.is_running() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.02)
