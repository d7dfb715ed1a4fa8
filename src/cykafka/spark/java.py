"""The Java that PySpark runs on: the machine's, or else how to get one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["OLDEST", "JavaError", "find_java", "java_version"]

# What Spark 4 wants at least.
OLDEST = 17
# What it is tried with: of several Javas one of these, or else the oldest that is new enough.
_TRIED = (17, 21)

_TIMEOUT_S = 60
# Where packages put their Javas, apart from PATH; `*` is one of several.
_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/java",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)
_HOW = f"""\
Get one, and point JAVA_HOME to it if it is not found by itself:
  Debian, Ubuntu   sudo apt-get install openjdk-{OLDEST}-jre-headless   (or default-jre-headless)
  Fedora, RHEL     sudo dnf install java-21-openjdk-headless
  Alpine           sudo apk add openjdk{OLDEST}-jre-headless
  macOS            brew install openjdk@{OLDEST}
  conda            conda install -c conda-forge openjdk={OLDEST}"""


class JavaError(RuntimeError):
    """There is no Java that Spark runs on; the message tells how to get one."""


def find_java() -> Path:
    """The home of a Java that is new enough for Spark, for JAVA_HOME.

    JAVA_HOME's if it is; else, of the one on PATH and those in the usual places, the first that
    Spark is tried with (17 and 21); else the one on PATH, or the oldest of the others.

    Raises
    ------
    JavaError
        There is none. The message tells what was found, and how to get one.
    """
    seen: dict[Path, str] = {}
    too_new = None
    for name, home in _nearest():
        version = None if home is None else java_version(home)
        if home is not None and version is not None and version >= OLDEST:
            if name == "JAVA_HOME" or version <= max(_TRIED):
                return home
            too_new = home
        elif home is not None:
            what = "no Java that runs" if version is None else f"Java {version}"
            seen.setdefault(home, f"{name}: {home}, {what}")
    found = [(version, home) for home in _usual() if (version := java_version(home)) is not None]
    fit = [(version not in _TRIED, version, home) for version, home in found if version >= OLDEST]
    if fit and (too_new is None or not min(fit)[0]):
        return min(fit)[2]
    if too_new is not None:
        return too_new
    for version, home in found:
        seen.setdefault(home, f"{home}, Java {version}")
    told = "; ".join(seen.values()) or "none at all"
    raise JavaError(f"Spark needs Java {OLDEST} or newer. Found: {told}.\n{_HOW}")


def _nearest() -> Iterator[tuple[str, Path | None]]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(chosen)
    java = shutil.which("java")
    # A link to the one in use, most often: its home is where it really is.
    yield "PATH", Path(java).resolve().parent.parent if java else None


def _usual() -> list[Path]:
    homes = [Path(prefix) / "lib" / "jvm" for prefix in (sys.prefix, sys.base_prefix)]
    for pattern in _PLACES:
        path = Path(pattern).expanduser()
        homes += sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    return [home for home in homes if (home / "bin" / "java").is_file()]


def java_version(home: Path) -> int | None:
    """The major version of the Java there; None: there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    number = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    if number is None:  # not every package brings that file
        try:
            done = subprocess.run(
                [java, "-version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        number = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(number[1]) if number else None
