"""The published pip-services4-kafka, beside the one of the same name that is installed.

It cannot be installed on a current Python: it asks for a confluent_kafka that has no wheel there.
It runs on the one that the benchmarks install, so its own files are enough: pip puts them into a
folder of the user's cache, which stands first in the path of its processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "0.0.2"
REQUIREMENT = f"pip-services4-kafka=={VERSION}"
TIMEOUT = 120
"""Seconds for pip."""


def cache_folder() -> Path:
    """Where the build keeps what it has fetched, too."""
    if chosen := os.environ.get("CYKAFKA_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "cykafka"


def find_published() -> tuple[Path | None, str]:
    """The folder to put into the path, and why there is none."""
    folder = cache_folder() / "benchmarks" / REQUIREMENT
    if folder.is_dir():
        return folder, ""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fetched = Path(scratch) / "fetched"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--target", str(fetched), REQUIREMENT]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return None, f"pip did not fetch {REQUIREMENT} in {TIMEOUT} s"
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            return None, f"pip did not fetch {REQUIREMENT}: {said[-1]}"
        fetched.rename(folder)
    return folder, ""
