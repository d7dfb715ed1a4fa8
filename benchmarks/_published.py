"""The published pip-services4-kafka, which has the same import name as our package.

pip cannot install it on a current Python, because it requires a confluent_kafka that has no wheel
there. It works with the version that the benchmarks install. So pip installs its files alone into
a folder of the user's cache. That folder comes first on the path of the package's processes.
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
"""The time limit for pip, s."""


def cache_folder() -> Path:
    """The cache folder of the build."""
    if chosen := os.environ.get("CYKAFKA_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "cykafka"


def find_published() -> tuple[Path | None, str]:
    """The folder for the path, or None and the reason."""
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
            return None, f"pip did not fetch {REQUIREMENT} within {TIMEOUT} s"
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            return None, f"pip did not fetch {REQUIREMENT}: {said[-1]}"
        fetched.rename(folder)
    return folder, ""
