"""The places that may have librdkafka's source, and the check of its checksum.

    python vendor/librdkafka_source.py DIRECTORY-OR-ARCHIVE

Prints the version of a source and the checksum for librdkafka.toml.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apt_source

PIN_FILE = Path(__file__).with_name("librdkafka.toml")
SETTING = "CYKAFKA_LIBRDKAFKA_SOURCE"
# What the build uses of the source. The archives of upstream, Debian and npm differ in the rest.
USED = ("LICENSE*", "Makefile", "configure", "configure.self", "lds-gen.py", "mklove", "src")
# But not dot files, which npm lacks, nor what an earlier build left in the tree: make would
# link it instead of compiling.
UNUSED = re.compile(r"(^|/)\.|\.(o|d|a|lds|so(\.\d+)?)$")
RELEASE_TIMEOUT_S = 10
NPM_TIMEOUT_S = 180
Version = tuple[int, int, int]


class VendorError(Exception):
    """librdkafka cannot be found or built; the message says what to do."""


class SourceError(Exception):
    """A place has no usable source."""


def log(message: str) -> None:
    print(f"librdkafka: {message}", file=sys.stderr, flush=True)


def parse_version(text: str) -> Version:
    """`(2, 15, 1)` for any text that begins with `2.15.1`."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"not a version: {text!r}")
    return int(found[1]), int(found[2]), int(found[3])


@dataclass(frozen=True)
class Pin:
    """The contents of librdkafka.toml."""

    version: str
    checksum: str
    release_url: str
    debian_package: str
    suites: dict[str, apt_source.Suites]
    npm_package: str

    def accepts(self, version: str) -> bool:
        """Whether cykafka works with this version: the pinned one or a newer one."""
        return parse_version(version) >= parse_version(self.version)


def load_pin(path: Path = PIN_FILE) -> Pin:
    pin = tomllib.loads(path.read_text())
    debian = pin["debian"]
    return Pin(
        version=pin["version"],
        checksum=pin["sha256"],
        release_url=pin["release"]["url"].format(version=pin["version"]),
        debian_package=debian["package"],
        suites={
            name: apt_source.Suites(tuple(table["suites"]), table["components"])
            for name, table in debian.items()
            if isinstance(table, dict)
        },
        npm_package=pin["npm"]["package"],
    )


@dataclass(frozen=True)
class Source:
    """A folder with librdkafka's source; `origin` is the place that it came from."""

    tree: Path
    version: str
    checksum: str
    origin: str


@dataclass
class Cache:
    """The per-user cache: source trees in `sources/`, built libraries in `builds/`.

    Files and folders under their final names are complete: the cache writes them in a scratch
    folder and then renames them. Use the cache inside `lock()`.
    """

    root: Path
    sources: Path = field(init=False)
    builds: Path = field(init=False)

    def __post_init__(self) -> None:
        self.sources = self.root / "sources"
        self.builds = self.root / "builds"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the cache exclusively, so that two builds do not do the same work at once."""
        try:
            for folder in (self.sources, self.builds):
                folder.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "lock").open("a")
        except OSError as error:
            raise VendorError(
                f"cannot write the cache: {error}; set CYKAFKA_CACHE_DIR to a writable directory"
            ) from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log(f"waiting for another build, which has locked {self.root}")
                fcntl.flock(file, fcntl.LOCK_EX)
            # We hold the lock, so these scratch folders belong to builds that were killed.
            for left_over in self.root.glob("cykafka-scratch-*"):
                shutil.rmtree(left_over, ignore_errors=True)
            yield

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder on the same file system; removed at the end."""
        folder = Path(tempfile.mkdtemp(prefix="cykafka-scratch-", dir=self.root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def cache_folder(environment: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """CYKAFKA_CACHE_DIR, else `cykafka` in XDG_CACHE_HOME, else in ~/.cache."""
    try:
        if chosen := environment.get("CYKAFKA_CACHE_DIR"):
            return Path(chosen).expanduser().absolute()
        base = environment.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(base).expanduser().absolute() / "cykafka"
    except RuntimeError as error:
        raise VendorError("no home directory: set CYKAFKA_CACHE_DIR") from error


# A source tree


def used_files(tree: Path) -> list[str]:
    """The files of a source tree that the build uses, as sorted relative POSIX paths."""
    found = (path for pattern in USED for path in tree.glob(pattern))
    files = (file for path in found for file in (path, *path.rglob("*")) if file.is_file())
    names = (file.relative_to(tree).as_posix() for file in files)
    return sorted(name for name in names if not UNUSED.search(name))


def checksum_of(tree: Path) -> str:
    """The SHA-256 of the names and contents of the used files."""
    digest = hashlib.sha256()
    for name in used_files(tree):
        content = hashlib.sha256((tree / name).read_bytes()).hexdigest()
        digest.update(os.fsencode(f"{name}\0{content}\0"))
    return digest.hexdigest()


def copy_used(tree: Path, folder: Path) -> Path:
    """Copy the used files into `folder`, which is created."""
    for name in used_files(tree):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tree / name, target)
    return folder


def version_of(tree: Path) -> str:
    """The version that a source tree's header declares."""
    header = tree / "src" / "rdkafka.h"
    try:
        text = header.read_text(errors="replace")
    except OSError as error:
        raise SourceError(f"{tree} is not librdkafka's source: no src/rdkafka.h") from error
    declared = re.search(r"^#define\s+RD_KAFKA_VERSION\s+0x([0-9a-fA-F]{8})", text, re.MULTILINE)
    if declared is None:
        raise SourceError(f"{header} declares no RD_KAFKA_VERSION")
    number = bytes.fromhex(declared[1])
    return f"{number[0]}.{number[1]}.{number[2]}"


def checked(tree: Path, pin: Pin, origin: str) -> Source:
    """The source in `tree`.

    Raises
    ------
    SourceError
        The tree claims to be the pinned version and has another checksum.
    """
    version, checksum = version_of(tree), checksum_of(tree)
    if version == pin.version and checksum != pin.checksum:
        raise SourceError(
            f"the files differ from librdkafka {version}'s: their sha256 is {checksum}, not "
            f"{pin.checksum}; use an unchanged copy"
        )
    return Source(tree, version, checksum, origin)


def extract(archive: Path, folder: Path) -> Path:
    """Unpack an archive into `folder`, and return the source tree in it.

    No member may land outside `folder`.
    """
    try:
        with tarfile.open(archive) as tar:
            members = [_safe(member) for member in tar]
            if hasattr(tarfile, "data_filter"):
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(folder, members)
    except Exception as error:  # each compression has errors of its own
        if isinstance(error, SourceError) or (isinstance(error, OSError) and error.errno):
            raise  # the second is an error of the disk, not of the archive
        reason = str(error).partition(":\n")[0]
        raise SourceError(
            f"cannot unpack {archive.name}: {reason}; download the archive again"
        ) from error
    headers = sorted(folder.rglob("src/rdkafka.h"), key=lambda header: len(header.parts))
    if not headers:
        raise SourceError(f"{archive.name} is not librdkafka's source: no src/rdkafka.h")
    return headers[0].parents[1]


def _safe(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # Python before 3.11.4 has no `data` filter. This refuses unsafe members; librdkafka's archive
    # has none.
    path = Path(member.name)
    if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
        raise SourceError(
            f"the archive contains {member.name!r}, which is a link, a device or outside of the "
            "archive; pack regular files only"
        )
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


# Places


def from_setting(setting: str, pin: Pin, scratch: Path) -> Source:
    """The folder or archive of CYKAFKA_LIBRDKAFKA_SOURCE."""
    path = Path(os.path.expanduser(setting)).absolute()
    if not path.exists():
        hint = "" if Path(setting).is_absolute() else f" in {Path.cwd()}; use an absolute path"
        raise SourceError(f"no such file or directory{hint}")
    source = checked(path if path.is_dir() else extract(path, scratch / "unpacked"), pin, SETTING)
    if not pin.accepts(source.version):
        raise SourceError(f"librdkafka {source.version} is too old; use {pin.version} or newer")
    return source


def from_cache(pin: Pin, cache: Cache) -> Source | None:
    """The pinned source that an earlier run has cached."""
    for place in PLACES:
        tree = cache.sources / f"{pin.version}-{place}"
        if not tree.is_dir():
            continue
        if checksum_of(tree) == pin.checksum:
            return Source(tree, pin.version, pin.checksum, place)
        log(f"removed {tree}: its checksum is wrong")
        shutil.rmtree(tree)
    return None


def from_release(pin: Pin, folder: Path) -> Path:
    """Upstream's archive of the pinned version."""
    archive = folder / "release.tar.gz"
    try:
        with (
            urllib.request.urlopen(pin.release_url, timeout=RELEASE_TIMEOUT_S) as answer,
            archive.open("wb") as file,
        ):
            shutil.copyfileobj(answer, file)
    except (OSError, http.client.HTTPException) as error:
        raise SourceError(f"{pin.release_url}: {error}") from error
    return archive


def from_debian(pin: Pin, folder: Path) -> Path:
    """The archive in the source package of Debian or Ubuntu."""
    # Not in `folder`: as root, apt downloads as another user, who may lack access to the cache.
    with tempfile.TemporaryDirectory(prefix="cykafka-apt-") as private:
        try:
            archive = apt_source.fetch(pin.debian_package, pin.version, pin.suites, Path(private))
        except (apt_source.AptError, OSError) as error:
            raise SourceError(str(error)) from error
        return Path(shutil.copy(archive, folder))


def from_npm(pin: Pin, folder: Path) -> Path:
    """The archive of the package that npm fetches, with the user's settings for npm."""
    command = ["npm", "pack", pin.npm_package, "--json", "--ignore-scripts"]
    retries = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    try:
        done = subprocess.run(
            [*command, *retries, f"--pack-destination={folder}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=NPM_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"npm timed out after {NPM_TIMEOUT_S} s") from error
    except OSError as error:
        raise SourceError(f"cannot run npm: {error.strerror}") from error
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        count = f"{len(archives)} archives instead of one"
        reason = _npm_error(done) if done.returncode else count
        raise SourceError(f"npm pack {pin.npm_package}: {reason}")
    return archives[0]


def _npm_error(done: subprocess.CompletedProcess[str]) -> str:
    try:
        error = json.loads(done.stdout)["error"]
        return " ".join(f"{error['code']}: {error['summary']}".split())
    except (ValueError, LookupError, TypeError):
        return f"exit status {done.returncode}"


# In the order in which they are tried; the names are the origins of sources.
PLACES: dict[str, Callable[[Pin, Path], Path]] = {
    "release": from_release,
    "debian": from_debian,
    "npm": from_npm,
}


def fetch(place: str, pin: Pin, cache: Cache) -> Source:
    """Fetch the source from one of PLACES into the cache."""
    with cache.scratch() as folder:
        tree = extract(PLACES[place](pin, folder), folder / "unpacked")
        source = checked(tree, pin, place)
        if source.version != pin.version:
            raise SourceError(f"the archive has librdkafka {source.version}, not {pin.version}")
        kept = cache.sources / f"{pin.version}-{place}"
        os.rename(copy_used(tree, folder / "used"), kept)
    return Source(kept, source.version, source.checksum, place)


def find_source(pin: Pin, cache: Cache, scratch: Path) -> Source:
    """The first usable source, in the order CONTRIBUTING.md gives.

    Parameters
    ----------
    pin
        The wanted version.
    cache
        Where fetched sources are kept. The caller holds its lock.
    scratch
        A folder for the archive of CYKAFKA_LIBRDKAFKA_SOURCE.

    Raises
    ------
    VendorError
        No source is usable. The failure of each place is in the log; the message says what to do.
    """
    setting = os.environ.get(SETTING)
    if setting:
        try:
            return from_setting(setting, pin, scratch)
        except SourceError as error:  # an explicit setting: do not fall back to another source
            raise VendorError(f"{SETTING}={setting}: {error}") from error
    if cached := from_cache(pin, cache):
        return cached
    for place in PLACES:
        try:
            return fetch(place, pin, cache)
        except SourceError as error:
            log(f"no source from {place}: {error}")
    npm = "" if shutil.which("npm") else "install npm, or "
    raise VendorError(
        f"cannot fetch the source of librdkafka {pin.version} (see the reasons above): {npm}"
        f"download {pin.release_url} (or run `npm pack {pin.npm_package}`) on another machine and "
        f"set {SETTING} to the archive"
    )


if __name__ == "__main__":
    given = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as unpacked:
        found = given if given.is_dir() else extract(given, Path(unpacked))
        print(version_of(found), checksum_of(found))
