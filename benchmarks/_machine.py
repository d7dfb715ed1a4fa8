"""The machine of a run: its description, a warning if it is busy, and progress on its terminal."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path


def load_before() -> float:
    """The load of the machine before the run. Warns if it is busy."""
    load = os.getloadavg()[0]
    if load > 1:
        print(f"warning: the machine is busy (load {load:.1f}): expect noise", file=sys.stderr)
    return load


def describe_machine(load: float) -> dict[str, str]:
    """Lines for the head of a report."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {
        "CPU": f"{cpu}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "load before": f"{load:.1f}",
    }


def show_progress(text: str) -> None:
    """Print progress. On a terminal each line overwrites the last, unless that ended with \\n."""
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
    else:
        print(text.rstrip("\n"), file=sys.stderr, flush=True)
