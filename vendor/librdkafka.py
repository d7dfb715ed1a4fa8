"""Find librdkafka or build it, and say where it is.

    python vendor/librdkafka.py [--json] [--mode auto|system|bundled]

Prints the prefix of the library (`--json`: everything CMake needs to know). Needs nothing but
Python's own library, a C and C++ compiler, CMake, and the headers of what librdkafka links to.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from librdkafka_fixes import FIXES, apply_all
from librdkafka_source import (
    Cache,
    Pin,
    Source,
    SourceError,
    VendorError,
    cache_folder,
    extract,
    find_source,
    load_pin,
    log,
    version_of,
)

SONAME = "librdkafka.so.1"
MODES = ("auto", "system", "bundled")
# What users rely on, as `builtin.features` names it, and the Debian package it is built from.
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
# The pkg-config modules that come with those packages.
NEEDED_MODULES = {
    "openssl": "libssl-dev",
    "libsasl2": "libsasl2-dev",
    "libcurl": "libcurl4-openssl-dev",
    "libzstd": "libzstd-dev",
    "liblz4": "liblz4-dev",
    "zlib": "zlib1g-dev",
}
CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DRDKAFKA_BUILD_STATIC=OFF",
    "-DRDKAFKA_BUILD_EXAMPLES=OFF",
    "-DRDKAFKA_BUILD_TESTS=OFF",
    "-DWITH_SSL=ON",
    "-DWITH_SASL=ON",
    "-DWITH_ZSTD=ON",
    "-DENABLE_LZ4_EXT=ON",
    "-DWITH_ZLIB=ON",
    "-DWITH_CURL=ON",
    "-DWITH_PLUGINS=ON",
    # Beside the extension modules in a wheel: whatever it is shipped with lies there too.
    "-DCMAKE_INSTALL_RPATH=$ORIGIN",
    "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
)
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
    """A librdkafka to link against."""

    kind: str
    version: str
    prefix: str
    include_dir: str
    library: str
    features: list[str]


@dataclass
class Toolchain:
    """The programs that build librdkafka, and what of them decides the result."""

    cmake: str = "cmake"
    cc: str = "cc"
    generator: str = ""
    make_program: str = ""
    flags: dict[str, str] = field(
        default_factory=lambda: {
            name: os.environ[name] for name in ("CFLAGS", "LDFLAGS") if os.environ.get(name)
        }
    )

    def identity(self) -> str:
        """The compiler, the platform and the flags."""
        try:
            compiler = _output(self.cc, "--version").splitlines()[0]
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
    """What a built librdkafka says it can do (its property `builtin.features`)."""
    rdkafka = ctypes.CDLL(str(library))
    rdkafka.rd_kafka_conf_new.restype = ctypes.c_void_p
    conf = ctypes.c_void_p(rdkafka.rd_kafka_conf_new())
    value = ctypes.create_string_buffer(1024)
    size = ctypes.c_size_t(len(value))
    rdkafka.rd_kafka_conf_get(conf, b"builtin.features", value, ctypes.byref(size))
    rdkafka.rd_kafka_conf_destroy(conf)
    return sorted(value.value.decode().split(","))


def missing_features(features: Iterable[str]) -> dict[str, str]:
    """The wanted features that are not there, each with the package it needs."""
    present = set(features)
    return {name: need for name, need in WANTED_FEATURES.items() if name not in present}


def find_system(pin: Pin) -> Library:
    """The system's librdkafka, as pkg-config knows it.

    Raises
    ------
    SourceError
        There is none, or it is too old.
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
        raise SourceError("there is no pkg-config to ask") from error
    except subprocess.CalledProcessError as error:
        raise SourceError("pkg-config knows no rdkafka (Debian: librdkafka-dev)") from error
    try:
        if not pin.accepts(version):
            raise SourceError(f"the system's is {version}; at least {pin.oldest} is needed")
        library = Path(lib_dir) / SONAME
        features = features_of(library)
    except (ValueError, OSError) as error:
        raise SourceError(f"the system's cannot be used: {error}") from error
    return Library("system", version, prefix, include_dir, str(library), features)


def build_key(version: str, checksum: str, toolchain: Toolchain) -> str:
    """Names a build by all that decides what comes out of it."""
    inputs = "\n".join(
        [version, checksum, *map(repr, FIXES), *CMAKE_OPTIONS, toolchain.identity()]
    )
    return f"{version}-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"


def bundled(pin: Pin, cache: Cache, toolchain: Toolchain) -> Library:
    """The pinned librdkafka out of the cache, or built into it."""
    with cache.lock():
        if not os.environ.get("CYKAFKA_LIBRDKAFKA_SOURCE"):
            for checksum in pin.checksums:
                prefix = cache.builds / build_key(pin.version, checksum, toolchain)
                if prefix.is_dir():
                    return _built(prefix)
        source = find_source(pin, cache)
        prefix = cache.builds / build_key(source.version, source.checksum, toolchain)
        if not prefix.is_dir():
            build(source, prefix, cache, toolchain, pinned=source.checksum in pin.checksums)
        return _built(prefix)


def _built(prefix: Path) -> Library:
    facts = json.loads((prefix / "build.json").read_text())
    return Library(
        kind="bundled",
        version=facts["version"],
        prefix=str(prefix),
        include_dir=str(prefix / "include"),
        library=str(prefix / "lib" / SONAME),
        features=facts["features"],
    )


def build(
    source: Source, prefix: Path, cache: Cache, toolchain: Toolchain, *, pinned: bool
) -> None:
    """Build `source` as a shared library into `prefix`, which appears whole or not at all.

    The pinned source has every fault that is known; another need not have it.
    """
    check_modules()
    with cache.scratch() as scratch:
        try:
            if source.path.is_dir():  # somebody's own: a copy is mended
                tree = Path(shutil.copytree(source.path, scratch / "source", symlinks=True))
            else:
                (scratch / "source").mkdir()
                tree = extract(source.path, scratch / "source")
            version = version_of(tree)
            fixes = apply_all(tree, required=pinned)
        except SourceError as error:
            raise VendorError(str(error)) from error
        for fix in fixes:
            log(f"mended in {version}: {fix}")
        log(f"building {version}, Release (about half a minute on two cores)")
        run = _Runner(cache.root / "build.log")
        objects = scratch / "build"
        jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
        options = [*CMAKE_OPTIONS, *_toolchain_options(toolchain, tree, objects, version)]
        run(toolchain.cmake, "-S", str(tree), "-B", str(objects), *options)
        run(toolchain.cmake, "--build", str(objects), "--target", "rdkafka", "--parallel", jobs)
        staged = scratch / "prefix"
        _stage(tree, objects / "src" / SONAME, staged, version)
        features = features_of(staged / "lib" / SONAME)
        check_features(features)
        facts = {
            "version": version,
            "sha256": source.checksum,
            "fixes": fixes,
            "features": features,
            "options": CMAKE_OPTIONS,
            "toolchain": toolchain.identity(),
        }
        (staged / "build.json").write_text(json.dumps(facts, indent=1))
        os.rename(staged, prefix)


def _toolchain_options(toolchain: Toolchain, tree: Path, objects: Path, version: str) -> list[str]:
    # librdkafka's assertions carry the names of its files: not those of this machine's folders.
    name = f"librdkafka-{version}"
    flags = [f"-ffile-prefix-map={tree}={name}", f"-ffile-prefix-map={objects}={name}"]
    cflags = shlex.join([*shlex.split(toolchain.flags.get("CFLAGS", "")), *flags])
    options = [f"-DCMAKE_C_COMPILER={toolchain.cc}", f"-DCMAKE_C_FLAGS={cflags}"]
    if toolchain.generator:
        options.append(f"-G{toolchain.generator}")
    if toolchain.make_program:
        options.append(f"-DCMAKE_MAKE_PROGRAM={toolchain.make_program}")
    return options


def _stage(tree: Path, library: Path, staged: Path, version: str) -> None:
    headers = staged / "include" / "librdkafka"
    headers.mkdir(parents=True)
    for header in ("rdkafka.h", "rdkafka_mock.h"):
        shutil.copy(tree / "src" / header, headers)
    (staged / "lib" / "pkgconfig").mkdir(parents=True)
    shutil.copy(library, staged / "lib" / SONAME)
    (staged / "lib" / "librdkafka.so").symlink_to(SONAME)
    pkg_config = staged / "lib" / "pkgconfig" / "rdkafka.pc"
    pkg_config.write_text(PKG_CONFIG.format(version=version))
    shutil.copy(tree / "LICENSES.txt", staged)


class _Runner:
    """Runs the build's commands into a log and shows its end when one fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Set already in CMAKE_C_FLAGS, where ours are added.
        self.environment = {k: v for k, v in os.environ.items() if k != "CFLAGS"}
        self.path.write_text("")

    def __call__(self, *command: str) -> None:
        with self.path.open("a") as file:
            print(shlex.join(command), file=file, flush=True)
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=self.environment,
                    check=False,
                )
            except OSError as error:
                raise VendorError(
                    f"{command[0]}: {error.strerror}; install CMake >= 3.25 (pip install cmake)"
                ) from error
        if done.returncode != 0:
            end = "\n".join(self.path.read_text(errors="replace").splitlines()[-40:])
            raise VendorError(f"the build failed:\n{end}\nThe whole log: {self.path}")


def check_modules() -> None:
    """Refuse to build without what the wanted features need, naming the packages."""
    if shutil.which("pkg-config") is None:
        raise VendorError("there is no pkg-config; on Debian: apt-get install pkg-config")
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
    """Refuse a library that was built without a wanted feature."""
    missing = missing_features(features)
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise VendorError(
            f"librdkafka came out without {', '.join(missing)}; "
            f"on Debian: apt-get install {packages}"
        )


def locate(mode: str, pin: Pin, cache: Cache, toolchain: Toolchain) -> Library:
    """The librdkafka that `mode` (CYKAFKA_LIBRDKAFKA) asks for."""
    if mode not in MODES:
        raise VendorError(f"CYKAFKA_LIBRDKAFKA is {mode!r}; it must be one of {', '.join(MODES)}")
    if mode != "bundled":
        try:
            library = find_system(pin)
        except SourceError as error:
            if mode == "system":
                raise VendorError(
                    f"CYKAFKA_LIBRDKAFKA=system: {error}. Install it, point PKG_CONFIG_PATH to "
                    "it, or set CYKAFKA_LIBRDKAFKA=bundled."
                ) from error
            log(f"not the system's: {error}")
        else:
            missing = ", ".join(missing_features(library.features))
            if missing:
                log(f"the system's {library.version} lacks {missing}")
            if mode == "system" or not missing:
                return library
    return bundled(pin, cache, toolchain)


def main() -> int:
    parser = argparse.ArgumentParser(description="Find librdkafka or build it.")
    parser.add_argument("--mode", default="", help="auto, system or bundled")
    parser.add_argument("--json", action="store_true", help="print all that CMake needs")
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--cc", default=os.environ.get("CC") or "cc")
    parser.add_argument("--generator", default="")
    parser.add_argument("--make-program", default="")
    arguments = parser.parse_args()
    # The tools of the environment that this Python belongs to come first.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    generator, make_program = arguments.generator, arguments.make_program
    if not generator and shutil.which("ninja"):
        generator = "Ninja"
    toolchain = Toolchain(arguments.cmake, arguments.cc, generator, make_program)
    mode = arguments.mode or os.environ.get("CYKAFKA_LIBRDKAFKA") or "auto"
    try:
        library = locate(mode, load_pin(), Cache(cache_folder()), toolchain)
    except VendorError as error:
        print(f"librdkafka: {error}", file=sys.stderr)
        return 1
    log(f"{library.kind} {library.version}, {library.library}")
    log(f"features: {', '.join(library.features)}")
    print(json.dumps(asdict(library)) if arguments.json else library.prefix)
    return 0


if __name__ == "__main__":
    sys.exit(main())
