"""Find a Java for PySpark on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["OLDEST", "JavaError", "find_java", "java_version"]

# The oldest version that Spark 4 supports.
OLDEST = 17
# The versions that Spark is tested with. They are preferred; else the oldest sufficient one.
_TRIED = (17, 21)

_TIMEOUT_S = 60
# Glob patterns of the folders into which packages install Java.
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
Install one, and set JAVA_HOME to its folder if cykafka does not find it:
  Debian, Ubuntu   sudo apt-get install openjdk-{OLDEST}-jre-headless   (or default-jre-headless)
  Fedora, RHEL     sudo dnf install java-21-openjdk-headless
  Alpine           sudo apk add openjdk{OLDEST}-jre-headless
  macOS            brew install openjdk@{OLDEST}
  conda            conda install -c conda-forge openjdk={OLDEST}"""


class JavaError(RuntimeError):
    """This machine has no Java that Spark supports. The message says how to install one."""


def find_java() -> Path:
    """The home of a Java that is new enough for Spark: a value for JAVA_HOME.

    The first of these that exists:

    1. JAVA_HOME, if its version is 17 or newer,
    2. the Java on PATH, if its version is 17 to 21,
    3. Java 17, else 21, in the usual folders,
    4. a newer Java on PATH,
    5. the oldest newer Java in the usual folders.

    Raises
    ------
    JavaError
        There is none. The message says what was found, and how to install one.
    """
    seen: dict[Path, str] = {}
    too_new = None
    for name, home in _nearest():
        version = java_version(home)
        if version is not None and version >= OLDEST:
            if name == "JAVA_HOME" or version <= max(_TRIED):
                return home
            too_new = home
        else:
            what = "no working Java" if version is None else f"Java {version}"
            seen.setdefault(home, f"{name}: {home}, {what}")
    found = [(version, home) for home in _usual() if (version := java_version(home)) is not None]
    fit = [(version not in _TRIED, version, home) for version, home in found if version >= OLDEST]
    if fit and (too_new is None or not min(fit)[0]):
        return min(fit)[2]
    if too_new is not None:
        return too_new
    for version, home in found:
        seen.setdefault(home, f"{home}, Java {version}")
    told = "; ".join(seen.values()) or "none"
    raise JavaError(f"Spark needs Java {OLDEST} or newer. Found: {told}.\n{_HOW}")


def _nearest() -> Iterator[tuple[str, Path]]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(chosen)
    if java := shutil.which("java"):
        # It is usually a link to the selected version: resolve it to find the home.
        yield "PATH", Path(java).resolve().parent.parent


def _usual() -> list[Path]:
    homes = [Path(prefix) / "lib" / "jvm" for prefix in (sys.prefix, sys.base_prefix)]
    for pattern in _PLACES:
        path = Path(pattern).expanduser()
        homes += sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    return [home for home in homes if (home / "bin" / "java").is_file()]


def java_version(home: Path) -> int | None:
    """The major version of the Java in this folder; None if it has no working Java."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    number = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    if number is None:  # some packages lack that file
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
