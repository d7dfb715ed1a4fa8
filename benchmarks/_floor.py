"""The C programs: built against the librdkafka of each client, and the broker they talk to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cykafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
SOURCES = HERE / "floor"
BUILD = HERE / "build"
PREFIX_VARIABLE = "CYKAFKA_LIBRDKAFKA_PREFIX"

# Which shared library a module really uses is asked of the process that imported it.
_LOCATE = r"""
import importlib, json, re, sys
client = importlib.import_module(sys.argv[1])
with open("/proc/self/maps") as maps:
    files = set(re.findall(r"/.*/librdkafka[^/\n]*\.so[^/\n]*$", maps.read(), re.MULTILINE))
version = getattr(client, "__version__", "")
print(json.dumps([client.libversion()[0], version, sorted(files)]))
"""


class BenchmarkError(Exception):
    """The benchmark cannot run; the text says what to do."""


@dataclass(frozen=True)
class Library:
    """The librdkafka that a client module uses."""

    module: str
    module_version: str
    version: str
    path: Path

    @classmethod
    def of(cls, module: str) -> Library:
        found = subprocess.run(
            [sys.executable, "-c", _LOCATE, module], capture_output=True, text=True, timeout=60
        )
        if found.returncode:
            reason = found.stderr.strip().splitlines()[-1]
            raise BenchmarkError(
                f"{module} cannot be imported by {sys.executable} ({reason}): install it there, "
                f"or name other clients with --subject and --peer"
            )
        version, module_version, files = json.loads(found.stdout)
        if len(files) != 1:
            raise BenchmarkError(f"{module} maps {len(files)} librdkafka libraries: {files}")
        return cls(module, module_version, version, Path(files[0]))


def find_headers(prefix: Path | None) -> Path:
    """The include folder of a librdkafka that has `rdkafka.h` and `rdkafka_mock.h`."""
    if prefix is None and os.environ.get(PREFIX_VARIABLE):
        prefix = Path(os.environ[PREFIX_VARIABLE])
    if prefix is None:
        vendored = HERE.parent / "vendor" / "librdkafka.py"
        found = subprocess.run(
            [sys.executable, vendored], stdout=subprocess.PIPE, text=True, timeout=900
        )
        if found.returncode == 0:
            prefix = Path(found.stdout.strip())
    if prefix is None or not (prefix / "include/librdkafka/rdkafka_mock.h").is_file():
        raise BenchmarkError(
            f"no librdkafka/rdkafka_mock.h in {prefix}/include: pass --librdkafka-prefix, "
            f"or set {PREFIX_VARIABLE}"
        )
    return prefix / "include"


def build(library: Library, include: Path) -> Path:
    """Compile the floor programs against one shared library; the folder they are in."""
    folder = BUILD / f"floor-{library.module}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("produce", "consume", "mock_broker"):
        command: list[str | Path] = [
            *(os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra"),
            *("-isystem", include, SOURCES / f"{name}.c", SOURCES / "floor.c"),
            *("-o", folder / name, library.path, "-Wl,--allow-shlib-undefined"),
            # An rpath, not a runpath: LD_LIBRARY_PATH must not choose another library.
            f"-Wl,--disable-new-dtags,-rpath,{library.path.parent}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise BenchmarkError(f"floor/{name}.c does not compile:\n{done.stderr}")
    return folder


def environment_with(library: Library) -> dict[str, str]:
    """An environment in which a client that looks for librdkafka.so.1 finds this one."""
    folder = BUILD / f"library-{library.module}"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "librdkafka.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(library.path)
    return {"LD_LIBRARY_PATH": str(folder)}


class MockBroker:
    """The mock cluster in a process of its own; a context manager.

    Parameters
    ----------
    program : Path
        The built `mock_broker`.
    brokers : int
        Brokers of the cluster.
    topics : dict of str to int
        Partitions of each topic.
    """

    def __init__(self, program: Path, brokers: int, topics: dict[str, int]) -> None:
        self._process = subprocess.Popen(
            [program, str(brokers), *(f"{topic}:{n}" for topic, n in topics.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.bootstrap_servers = self._process.stdout.readline().strip()
        if not self.bootstrap_servers:
            raise BenchmarkError(f"{program} ended with status {self._process.wait()}")

    def __enter__(self) -> MockBroker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=30)


class RealBroker:
    """Topics of the benchmark in a running cluster, deleted at the end; a context manager."""

    def __init__(self, bootstrap_servers: str, topics: dict[str, int]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._topics = list(topics)
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        new = [NewTopic(topic, partitions) for topic, partitions in topics.items()]
        for future in self._admin.create_topics(new).values():
            future.result(timeout=30)

    def __enter__(self) -> RealBroker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for future in self._admin.delete_topics(self._topics).values():
            future.result(timeout=30)
        self._admin.close()
