"""Find librdkafka or build it, and print its location.

    python vendor/librdkafka.py [--json] [--mode bundled|system]

Prints the prefix of the library (`--json`: everything that CMake needs). A build runs librdkafka's
own `./configure` and `make`, as upstream builds and tests it: its CMake project leaves out macros
(2.15.1: HAVE_STRERROR_R). It needs Python's standard library, bash, make, patch, pkg-config, a C
and a C++ compiler, and the headers of the libraries that librdkafka links to.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from librdkafka_patches import Patch, load_patches
from librdkafka_source import (
    SETTING,
    Cache,
    Pin,
    Source,
    SourceError,
    VendorError,
    cache_folder,
    copy_used,
    find_source,
    load_pin,
    log,
)

SONAME = "librdkafka.so.1"
MODES = ("bundled", "system")
# The features that users rely on, as in `builtin.features`, and the Debian package of each.
WANTED_FEATURES = {
    "ssl": "libssl-dev",
    "sasl_gssapi": "libsasl2-dev",
    "sasl_scram": "libssl-dev",
    "sasl_oauthbearer": "libssl-dev",
    "oidc": "libcurl4-openssl-dev",
    "zstd": "libzstd-dev",
    "lz4": "liblz4-dev",
    "gzip": "zlib1g-dev",
}
# The pkg-config modules of those packages.
NEEDED_MODULES = {
    "openssl": "libssl-dev",
    "libsasl2": "libsasl2-dev",
    "libcurl": "libcurl4-openssl-dev",
    "libzstd": "libzstd-dev",
    "liblz4": "liblz4-dev",
    "zlib": "zlib1g-dev",
}
CONFIGURE_OPTIONS = (
    "--enable-zlib",
    "--enable-zstd",
    "--enable-ssl",
    "--enable-gssapi",
    "--enable-curl",
    "--enable-lz4-ext",
    "--disable-debug-symbols",
    # Without it, configure downloads a module that it cannot read, and runs it.
    "--no-download",
)
# In a wheel the library lies beside the extension modules and beside the libraries it links to.
# The quotes and the second $ are for make.
RPATH = "-Wl,-rpath,'$$ORIGIN'"
PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: librdkafka
Description: the Kafka client library, as cykafka builds it
Version: {version}
Libs: -L${{libdir}} -lrdkafka
Cflags: -I${{includedir}}
"""


@dataclass(frozen=True)
class Library:
    """A librdkafka to link against, and facts about it, which the package ships."""

    prefix: str
    include_dir: str
    library: str
    facts: dict[str, Any]


def facts_of(
    kind: str,
    version: str,
    *,
    source: str,
    checksum: str | None,
    features: list[str],
    patches: list[Patch],
) -> dict[str, Any]:
    """The facts of a library for `cykafka.build_info()`, and the effect of each known patch."""
    return {
        "kind": kind,
        "version": version,
        "source": source,
        "sha256": checksum,
        "features": features,
        "patches": [patch.name for patch in patches],
        "known_patches": {
            patch.name: {"effect": patch.effect, "fixed_in": patch.fixed_in}
            for patch in load_patches()
        },
    }


@dataclass
class Toolchain:
    """The programs that build librdkafka, and the properties that decide the result."""

    cc: str = "cc"
    flags: dict[str, str] = field(
        default_factory=lambda: {
            name: os.environ[name]
            for name in ("CPPFLAGS", "CFLAGS", "LDFLAGS", "LIBS", "PKG_CONFIG_PATH")
            if os.environ.get(name)
        }
    )

    def identity(self) -> str:
        """The compiler, the platform, the flags and the search path of pkg-config."""
        try:
            # Without its name: make calls it cc, and CMake gcc.
            compiler = _output(self.cc, "--version").splitlines()[0]
            compiler = compiler.removeprefix(Path(self.cc).name)
            target = _output(self.cc, "-dumpmachine").strip()
        except (OSError, subprocess.CalledProcessError, IndexError) as error:
            raise VendorError(
                f"no working C compiler ({self.cc}: {error}); on Debian: apt-get install gcc g++"
            ) from error
        libc = "-".join(platform.libc_ver())
        return "\n".join([compiler, target, libc, json.dumps(self.flags, sort_keys=True)])


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def features_of(library: Path) -> list[str]:
    """The features of a built librdkafka (its property `builtin.features`)."""
    rdkafka = ctypes.CDLL(str(library))
    rdkafka.rd_kafka_conf_new.restype = ctypes.c_void_p
    conf = ctypes.c_void_p(rdkafka.rd_kafka_conf_new())
    value = ctypes.create_string_buffer(1024)
    size = ctypes.c_size_t(len(value))
    rdkafka.rd_kafka_conf_get(conf, b"builtin.features", value, ctypes.byref(size))
    rdkafka.rd_kafka_conf_destroy(conf)
    return sorted(value.value.decode().split(","))


def missing_features(features: Iterable[str]) -> dict[str, str]:
    """The wanted features that are missing, each with the package that it needs."""
    present = set(features)
    return {name: need for name, need in WANTED_FEATURES.items() if name not in present}


def find_system(pin: Pin) -> Library:
    """The system's librdkafka, found by pkg-config.

    Raises
    ------
    SourceError
        librdkafka is missing or too old.
    """
    try:
        _output("pkg-config", "--exists", "rdkafka")
        version, prefix, include_dir, lib_dir = (
            _output("pkg-config", *query, "rdkafka").strip()
            for query in (
                ["--modversion"],
                ["--variable=prefix"],
                ["--variable=includedir"],
                ["--variable=libdir"],
            )
        )
    except OSError as error:
        raise SourceError("pkg-config is not installed") from error
    except subprocess.CalledProcessError as error:
        raise SourceError("pkg-config does not find rdkafka (Debian: librdkafka-dev)") from error
    try:
        if not pin.accepts(version):
            raise SourceError(
                f"the system's version is {version}; at least {pin.version} is needed"
            )
        library = Path(lib_dir) / SONAME
        features = features_of(library)
    except (ValueError, OSError) as error:
        raise SourceError(f"cannot use the system's library: {error}") from error
    facts = facts_of(
        "system", version, source="pkg-config", checksum=None, features=features, patches=[]
    )
    return Library(prefix, include_dir, str(library), facts)


def build_key(version: str, checksum: str, toolchain: Toolchain, patches: list[Patch]) -> str:
    """The name of a build: the version, and a hash of everything that decides the result."""
    texts = [patch.path.read_text(encoding="utf-8") for patch in patches]
    inputs = "\n".join([version, checksum, *texts, *CONFIGURE_OPTIONS, toolchain.identity()])
    return f"{version}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"


def patches_for(version: str, pin: Pin) -> list[Patch]:
    """The patches if this is the pinned version; no other version gets them."""
    return load_patches() if version == pin.version else []


def bundled(pin: Pin, cache: Cache, toolchain: Toolchain) -> Library:
    """The pinned librdkafka from the cache; builds it if the cache lacks it."""
    with cache.lock(), cache.scratch() as scratch:
        if not os.environ.get(SETTING):
            key = build_key(pin.version, pin.checksum, toolchain, load_patches())
            if _is_complete(cache.builds / key):
                return _built(cache.builds / key)
        source = find_source(pin, cache, scratch)
        log(f"source {source.version} from {source.origin}, sha256 {source.checksum}")
        patches = patches_for(source.version, pin)
        if source.version != pin.version:
            log(
                f"{source.version} is not the pinned version: the build neither checks its "
                "checksum nor applies cykafka's patches"
            )
        prefix = cache.builds / build_key(source.version, source.checksum, toolchain, patches)
        if not _is_complete(prefix):
            staged = build(source, scratch, cache.root / "build.log", toolchain, patches)
            os.rename(staged, prefix)
        return _built(prefix)


def _is_complete(prefix: Path) -> bool:
    """Whether this is a build; removes one that has lost files, to a cleaner of caches, say."""
    if not prefix.is_dir():
        return False
    if all((prefix / name).is_file() for name in ("build.json", f"lib/{SONAME}")):
        return True
    log(f"removed {prefix}: files are missing")
    shutil.rmtree(prefix)
    return False


def _built(prefix: Path) -> Library:
    return Library(
        prefix=str(prefix),
        include_dir=str(prefix / "include"),
        library=str(prefix / "lib" / SONAME),
        facts=json.loads((prefix / "build.json").read_text()),
    )


def build(
    source: Source, scratch: Path, log_path: Path, toolchain: Toolchain, patches: list[Patch]
) -> Path:
    """Patch a copy of `source` in `scratch`, build a shared library, and return its prefix."""
    check_modules()
    if re.search(r"\s", str(scratch)):
        raise VendorError(
            f"librdkafka's ./configure fails in {str(scratch.parent)!r} because of the space; set "
            "CYKAFKA_CACHE_DIR to a path without spaces"
        )
    version = source.version
    tree = copy_used(source.tree, scratch / "source")
    for patch in patches:
        patch.apply(tree)
        log(f"patched {version}: {patch.name}")
    log(f"building {version} (about a minute on two cores)")
    run = _Runner(log_path, tree, _flags(toolchain))
    run("./configure", f"--cc={toolchain.cc}", *CONFIGURE_OPTIONS)
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    run("make", "-C", "src", f"-j{jobs}", SONAME)
    staged = scratch / "prefix"
    _stage(tree, staged, version)
    features = features_of(staged / "lib" / SONAME)
    check_features(features)
    facts = facts_of(
        "bundled",
        version,
        source=source.origin,
        checksum=source.checksum,
        features=features,
        patches=patches,
    )
    (staged / "build.json").write_text(json.dumps(facts, indent=1) + "\n")
    return staged


def _flags(toolchain: Toolchain) -> dict[str, str]:
    ldflags = toolchain.flags.get("LDFLAGS", "")
    return {**toolchain.flags, "LDFLAGS": f"{ldflags} {RPATH}".strip()}


def _stage(tree: Path, staged: Path, version: str) -> None:
    headers = staged / "include" / "librdkafka"
    headers.mkdir(parents=True)
    for header in ("rdkafka.h", "rdkafka_mock.h"):
        shutil.copy(tree / "src" / header, headers)
    (staged / "lib" / "pkgconfig").mkdir(parents=True)
    shutil.copy(tree / "src" / SONAME, staged / "lib" / SONAME)
    (staged / "lib" / "librdkafka.so").symlink_to(SONAME)
    pkg_config = staged / "lib" / "pkgconfig" / "rdkafka.pc"
    pkg_config.write_text(PKG_CONFIG.format(version=version))
    shutil.copy(tree / "LICENSES.txt", staged)


class _Runner:
    """Runs the build's commands in a folder with a log, and prints the log's end on failure."""

    def __init__(self, log_path: Path, folder: Path, flags: dict[str, str]) -> None:
        self.log_path = log_path
        self.folder = folder
        # librdkafka's make must not get the options of an outer make.
        of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
        kept = {name: value for name, value in os.environ.items() if name not in of_make}
        self.environment = {**kept, **flags}
        self.log_path.write_text("")

    def __call__(self, *command: str) -> None:
        with self.log_path.open("a") as file:
            print(shlex.join(command), file=file, flush=True)
            try:
                done = subprocess.run(
                    command,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                    check=False,
                )
            except OSError as error:
                raise VendorError(
                    f"cannot run {command[0]}: {error.strerror}; "
                    "on Debian: apt-get install bash make gcc g++"
                ) from error
        if done.returncode != 0:
            end = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-40:])
            raise VendorError(f"the build failed:\n{end}\nFull log: {self.log_path}")


def check_modules() -> None:
    """Raise if a library of a wanted feature is missing; the message names the packages."""
    if shutil.which("pkg-config") is None:
        raise VendorError("pkg-config is not installed; on Debian: apt-get install pkg-config")
    missing = sorted(
        package
        for module, package in NEEDED_MODULES.items()
        if subprocess.run(["pkg-config", "--exists", module], check=False).returncode != 0
    )
    if missing:
        raise VendorError(
            "headers that librdkafka needs are missing; on Debian: apt-get install "
            + " ".join(missing)
        )


def check_features(features: Iterable[str]) -> None:
    """Raise if the library was built without a wanted feature."""
    missing = missing_features(features)
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise VendorError(
            f"librdkafka was built without {', '.join(missing)}; "
            f"on Debian: apt-get install {packages}"
        )


def locate(mode: str, pin: Pin, cache: Cache, toolchain: Toolchain) -> Library:
    """The librdkafka of `mode` (CYKAFKA_LIBRDKAFKA)."""
    if mode not in MODES:
        raise VendorError(f"CYKAFKA_LIBRDKAFKA is {mode!r}; it must be one of {', '.join(MODES)}")
    if mode == "bundled":
        return bundled(pin, cache, toolchain)
    try:
        library = find_system(pin)
    except SourceError as error:
        raise VendorError(
            f"CYKAFKA_LIBRDKAFKA=system: {error}. Install it, point PKG_CONFIG_PATH to "
            "it, or set CYKAFKA_LIBRDKAFKA=bundled."
        ) from error
    for what, names in (
        ("features", missing_features(library.facts["features"])),
        ("cykafka's patches", library.facts["known_patches"]),
    ):
        if names:
            log(f"the system's {library.facts['version']} lacks {what}: {', '.join(names)}")
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description="Find librdkafka or build it.")
    parser.add_argument("--mode", default="", help="bundled (default) or system")
    parser.add_argument("--json", action="store_true", help="print everything that CMake needs")
    parser.add_argument("--cc", default=os.environ.get("CC") or "cc")
    arguments = parser.parse_args()
    mode = arguments.mode or os.environ.get("CYKAFKA_LIBRDKAFKA") or "bundled"
    try:
        library = locate(mode, load_pin(), Cache(cache_folder()), Toolchain(arguments.cc))
    except VendorError as error:
        log(str(error))
        return 1
    except OSError as error:
        log(f"{error}; free space or correct the permissions, or set CYKAFKA_CACHE_DIR")
        return 1
    facts = library.facts
    log(f"{facts['kind']} {facts['version']}, {library.library}")
    log(f"features: {', '.join(facts['features'])}")
    print(json.dumps(asdict(library)) if arguments.json else library.prefix)
    return 0


if __name__ == "__main__":
    sys.exit(main())
