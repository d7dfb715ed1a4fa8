"""Finds Java, caches jars such as Kafka's, which Maven fetches, and runs Kafka's tools."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cykafka.testing._process import KafkaClusterError, NoBrokerError, run_program

LOGGING = Path(__file__).with_name("log4j2.properties")
_PACKAGES = "default-jre-headless maven"
OLDEST_JAVA = 17
_VERSION_TIMEOUT_S = 60
_FETCH_TIMEOUT_S = 600
# Class archives that Java has not read for this long are removed.
_UNUSED_S = 14 * 24 * 3600.0
# For a fast start: compile early rather than well. Write no shared files.
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
)
TOOL_TIMEOUT_S = 120.0
# Kafka's scripts (without .sh) -> their main classes.
_TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}

_log = logging.getLogger("cykafka.testing")


def java() -> str:
    """Return the path of a Java that runs the broker: from JAVA_HOME, else from the PATH.

    Raises
    ------
    NoBrokerError
        If Java is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = (home and shutil.which("java", path=os.path.join(home, "bin"))) or shutil.which("java")
    if not found:
        raise NoBrokerError(f"a Kafka broker needs Java {OLDEST_JAVA} or newer: {_advice()}")
    version = _java_version(found)
    if version < OLDEST_JAVA:
        raise NoBrokerError(
            f"a Kafka broker needs Java {OLDEST_JAVA} or newer; {found} is Java {version}. "
            f"Point JAVA_HOME to a newer one, or: {_advice()}"
        )
    return found


@dataclass(frozen=True)
class Jars:
    """The jars of a pom.

    Parameters
    ----------
    title : str
        Their name in errors.
    pom : Path
        Maven fetches its dependencies of scope runtime, with their own dependencies.
    folder : str
        Their directory in the cache.
    needed : str
        Pattern of a jar that must be among them.
    """

    title: str
    pom: Path
    folder: str
    needed: str

    def fetch(self) -> Path:
        """Return the directory with only the jars. Maven fills it if the cache lacks it.

        Raises
        ------
        NoBrokerError
            If the jars are missing and Maven cannot fetch them.
        """
        root = cache_folder() / self.folder
        jars = root / hashlib.sha256(self.pom.read_bytes()).hexdigest()[:16]
        if not jars.is_dir():  # a directory with its final name is complete
            with locked(root, self.title):
                if not jars.is_dir():
                    _fetch(self, root, jars)
        return jars


KAFKA = Jars("Kafka", Path(__file__).with_name("pom.xml"), "kafka", "kafka_*.jar")


def classpath() -> str:
    """Return the class path of Kafka's jars. Maven fetches them if the cache lacks them.

    Raises
    ------
    NoBrokerError
        If the jars are missing and Maven cannot fetch them.
    """
    return os.path.join(KAFKA.fetch(), "*")


def cache_folder() -> Path:
    """Return CYKAFKA_CACHE_DIR, else `cykafka` in XDG_CACHE_HOME, else in ~/.cache."""
    if chosen := os.environ.get("CYKAFKA_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "cykafka"


@contextmanager
def locked(root: Path, title: str) -> Iterator[None]:
    """Hold the cache exclusively, so that two runs do not fetch the same jars at once."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = (root / "lock").open("w")
    except OSError as error:
        raise NoBrokerError(
            f"cannot write the cache of {title}: {error}; set CYKAFKA_CACHE_DIR to a "
            "writable directory"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # This process holds the lock, so these scratch directories belong to killed runs.
        for left_over in root.glob("scratch-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        yield


def _fetch(wanted: Jars, root: Path, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoBrokerError(
            f"Maven, which fetches the jars of {wanted.title}, is not installed: {_advice()}"
        )
    _log.info("fetching %s with Maven into %s (once)", wanted.title, jars)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=root) as scratch:
        # Maven may write beside the pom, so it gets a copy.
        pom = shutil.copy(wanted.pom, scratch)
        fetched = Path(scratch, "jars")
        try:
            done = run_program(
                [maven, "-q", "-B", "-C", "-f", pom, "dependency:copy-dependencies",
                 "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"],
                _FETCH_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise NoBrokerError(f"Maven timed out after {_FETCH_TIMEOUT_S} s: {error}") from error
        if done.returncode != 0 or not any(fetched.glob(wanted.needed)):
            said = [line for line in done.stdout.splitlines() if line.startswith("[ERROR]")]
            raise NoBrokerError(
                f"Maven could not fetch the jars of {wanted.title} (is its repository reachable? "
                "see ~/.m2/settings.xml for mirrors and proxies): "
                f"{' '.join(said[:3]) or done.stdout}"
            )
        os.rename(fetched, jars)


def _java_version(path: str) -> int:
    said = java_says(path)
    number = re.search(r'version "(?:1\.)?(\d+)', said)
    if number is None:
        raise NoBrokerError(f"cannot read the version of {path} from its output: {said.strip()}")
    return int(number[1])


@cache
def java_says(path: str) -> str:
    """Return the output of ``java -version``.

    Raises
    ------
    NoBrokerError
        Java does not run.
    """
    try:
        return run_program([path, "-version"], _VERSION_TIMEOUT_S).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoBrokerError(f"{path} does not run: {error}") from error


def apt_command(packages: str) -> str:
    """Return the command that installs Debian packages."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    install = f"{sudo}apt-get install --no-install-recommends {packages}"
    return f"{sudo}apt-get update && {install}"


def _advice() -> str:
    return f"install Java and Maven; on Debian or Ubuntu: {apt_command(_PACKAGES)}"


# -- archives of loaded classes (Java's CDS), with which Java starts three times faster


def archived_classes(
    java: str, jars: Path, run: Callable[[Sequence[str]], object] | None = None
) -> list[str]:
    """Return options that make Java load classes from an archive.

    Parameters
    ----------
    java : str
        Path of the Java program.
    jars : Path
        The directory whose jars are the class path.
    run : callable, optional
        Creates a missing archive: runs Java with the given options until Java exits normally. It
        may raise KafkaClusterError.

    Returns
    -------
    list of str
        Empty if the archive is missing, or if this Java cannot create one.
    """
    archive = cache_folder() / "classes" / _classes_key(java, jars) / "classes.jsa"
    if not archive.exists() and run is not None:
        try:
            with locked(archive.parent, "archives of classes"):
                if not archive.exists():
                    _archive(archive, run)
        except NoBrokerError as error:  # the cache is read-only
            _log.info("%s", error)
    # An empty file marks a Java that cannot create an archive.
    if not archive.exists() or archive.stat().st_size == 0:
        return []
    # If Java cannot use an archive, it warns on standard output and continues without it.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]


def _archive(archive: Path, run: Callable[[Sequence[str]], object]) -> None:
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


def _classes_key(java: str, jars: Path) -> str:
    """Return a hash of all that an archive depends on: after a change Java rejects the archive."""
    found = (f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars.glob("*.jar"))
    text = "\n".join([java_says(java), *sorted(found)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- Kafka's own command line tools


def run_tool(
    name: str, *args: str, timeout: float = TOOL_TIMEOUT_S, process_group: int | None = None
) -> str:
    """Run one of Kafka's tools and return its output.

    Parameters
    ----------
    name : str
        The script's name in Kafka, or a Java class.
    *args : str
        Its arguments.
    timeout : float, default 120.0
        Longest run in s.
    process_group : int, optional
        The group that the tool joins; the tool ends with the group.

    Raises
    ------
    KafkaClusterError
        If the tool fails; the message contains its output.
    """
    if "." not in name and name not in _TOOLS:
        raise ValueError(f"name must be a Java class or one of {', '.join(_TOOLS)}, not {name!r}")
    main = _TOOLS.get(name, name)
    program = java()
    classes = archived_classes(program, KAFKA.fetch())
    try:
        done = run_program(
            [program, *JAVA_OPTIONS, *classes, "-Xmx128m", "-cp", classpath(), main, *args],
            timeout,
            stderr=subprocess.PIPE,
            process_group=process_group,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise KafkaClusterError(f"{name} timed out after {timeout:g} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()) or "it printed nothing"
        raise KafkaClusterError(f"{name} failed with status {done.returncode}: {said}")
    return done.stdout
