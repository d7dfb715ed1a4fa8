"""Processes and their descendants, for tests that kill processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

__all__ = ["family", "is_running", "kill_all"]


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parts = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(parts[1]), []).append(int(path.parent.name))
    found = [pid]
    for item in found:
        found += children.get(item, [])
    return found


def is_running(pid: int) -> bool:
    """Whether a process runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def kill_all(pids: list[int], wait_s: float = 60.0) -> None:
    """Kill processes, and return when all are gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
