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
# The versions that Spark is tested with.
_TRIED = (17, 21)

_TIMEOUT_S = 60
# Glob patterns for the directories into which packages install Java.
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
Install one, and set JAVA_HOME to its directory if cykafka does not find it:
  Debian, Ubuntu   sudo apt-get install openjdk-{OLDEST}-jre-headless   (or default-jre-headless)
  Fedora, RHEL     sudo dnf install java-21-openjdk-headless
  Alpine           sudo apk add openjdk{OLDEST}-jre-headless
  macOS            brew install openjdk@{OLDEST}
  conda            conda install -c conda-forge openjdk={OLDEST}"""


class JavaError(RuntimeError):
    """This machine has no Java that Spark supports. The message says how to install one."""


def find_java() -> Path:
    """Return the home of a Java that is new enough for Spark: a value for JAVA_HOME.

    JAVA_HOME takes precedence. Otherwise Java 17 and 21 are preferred, then the Java on PATH, then
    the oldest version in the usual directories.

    Raises
    ------
    JavaError
        This machine has no such Java. The message lists what was found and how to install Java.
    """
    found: dict[Path, tuple[str, int | None]] = {}
    for where, home in _candidates():
        if home not in found:
            found[home] = (where, java_version(home))
    fit = [
        (where != "JAVA_HOME", version not in _TRIED, where != "PATH", version, home)
        for home, (where, version) in found.items()
        if version is not None and version >= OLDEST
    ]
    if fit:
        return min(fit)[-1]
    tried = "; ".join(
        f"{where}: {home}, {'no working Java' if version is None else f'Java {version}'}"
        for home, (where, version) in found.items()
    )
    raise JavaError(f"Spark needs Java {OLDEST} or newer. Found: {tried or 'none'}.\n{_HOW}")


def _candidates() -> Iterator[tuple[str, Path]]:
    if chosen := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(chosen)
    if java := shutil.which("java"):
        # `java` is usually a link to the selected version: resolve the link to find the home.
        yield "PATH", Path(java).resolve().parent.parent
    homes = [Path(prefix) / "lib" / "jvm" for prefix in (sys.prefix, sys.base_prefix)]
    for pattern in _PLACES:
        path = Path(pattern).expanduser()
        homes += sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    for home in homes:
        if (home / "bin" / "java").is_file():
            yield "directory", home


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in a directory, or None without a working Java."""
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
