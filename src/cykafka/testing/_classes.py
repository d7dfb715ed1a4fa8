"""Archives of loaded classes (Java's CDS), which shorten Java's start to a third."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cykafka.testing._artifacts import cache_folder, java_says, locked
from cykafka.testing._errors import KafkaClusterError, NoBrokerError

_UNUSED_S = 14 * 24 * 3600.0

_log = logging.getLogger("cykafka.testing")


def archived_classes(
    java: str, jars: Path, run: Callable[[Sequence[str]], object] | None = None
) -> list[str]:
    """Options that make Java load classes from an archive.

    Parameters
    ----------
    java : str
        Path of the Java.
    jars : Path
        The folder whose jars are the class path.
    run : callable, optional
        Makes a missing archive: runs Java with the given options until Java exits normally. It
        may raise KafkaClusterError.

    Returns
    -------
    list of str
        Empty if there is no archive, or if this Java cannot make one.
    """
    archive = cache_folder() / "classes" / _key(java, jars) / "classes.jsa"
    if not archive.exists() and run is not None:
        try:
            with locked(archive.parent, "archives of classes"):
                if not archive.exists():
                    _make(archive, run)
        except NoBrokerError as error:  # the cache is read-only
            _log.info("%s", error)
    # An empty file marks a Java that cannot make an archive.
    if not archive.exists() or archive.stat().st_size == 0:
        return []
    # If Java cannot use an archive, it warns on standard output and continues without.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]


def _make(archive: Path, run: Callable[[Sequence[str]], object]) -> None:
    _log.info("archiving Java's classes, so that it starts faster (once)")
    for old in archive.parent.parent.glob("*/classes.jsa"):
        if old.stat().st_atime < time.time() - _UNUSED_S:
            shutil.rmtree(old.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=archive.parent) as scratch:
        made = Path(scratch, "classes.jsa")
        try:
            run([f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"])
        except KafkaClusterError as error:
            _log.warning("Cannot archive Java's classes, so Java starts slowly: %s", error)
        made.touch()
        os.replace(made, archive)


def _key(java: str, jars: Path) -> str:
    """A hash of everything an archive depends on: Java rejects it when any of this changes."""
    found = (f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars.glob("*.jar"))
    text = "\n".join([java_says(java), *sorted(found)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
