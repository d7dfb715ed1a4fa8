"""The C programs, built against the librdkafka of each client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "floor"
BUILD = HERE / "build"
PROGRAMS = ("produce", "publish", "round_trip", "consume", "share", "mock_broker")
PREFIX_VARIABLE = "CYKAFKA_LIBRDKAFKA_PREFIX"

# Runs in a process that imports the module, and prints the shared library that it really uses.
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
    def of(cls, module: str, environment: dict[str, str] | None = None) -> Library:
        found = subprocess.run(
            [sys.executable, "-c", _LOCATE, module],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **(environment or {})},
        )
        if found.returncode:
            reason = found.stderr.strip().splitlines()[-1]
            raise BenchmarkError(f"{sys.executable} cannot import {module}: {reason}")
        version, module_version, files = json.loads(found.stdout)
        if len(files) != 1:
            raise BenchmarkError(
                f"{module}: expected one librdkafka library in the process, got {files}"
            )
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
    """Compile the floor programs against one shared library. Returns their folder."""
    folder = BUILD / f"floor-{library.module}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        command: list[str | Path] = [
            *(os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra"),
            *("-isystem", include, SOURCES / f"{name}.c", SOURCES / "floor.c"),
            *("-o", folder / name, library.path, "-Wl,--allow-shlib-undefined"),
            # An rpath, not a runpath, so that LD_LIBRARY_PATH cannot select another library.
            f"-Wl,--disable-new-dtags,-rpath,{library.path.parent}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise BenchmarkError(f"floor/{name}.c does not compile:\n{done.stderr}")
    return folder


def environment_with(library: Library) -> dict[str, str]:
    """An environment in which librdkafka.so.1 resolves to this library."""
    folder = BUILD / f"library-{library.module}"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "librdkafka.so.1"
    link.unlink(missing_ok=True)
    link.symlink_to(library.path)
    return {"LD_LIBRARY_PATH": str(folder)}
