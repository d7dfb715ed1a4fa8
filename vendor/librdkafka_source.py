"""The places that may have librdkafka's source, and the check of its checksum."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import re
import shutil
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
RELEASE_TIMEOUT_S = 10
Version = tuple[int, int, int]


class VendorError(Exception):
    """librdkafka cannot be found or built; the message says what to do."""


class SourceError(Exception):
    """A place has no usable source."""


def log(message: str) -> None:
    print(f"librdkafka: {message}", file=sys.stderr, flush=True)


def parse_version(text: str) -> Version:
    """`(2, 14, 2)` for any text that begins with `2.14.2`."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"not a version: {text!r}")
    return int(found[1]), int(found[2]), int(found[3])


@dataclass(frozen=True)
class Pin:
    """The contents of librdkafka.toml."""

    version: str
    oldest: str
    release_url: str
    release_sha256: str
    debian_package: str
    debian_sha256: str
    suites: dict[str, apt_source.Suites]

    @property
    def checksums(self) -> tuple[str, str]:
        return self.release_sha256, self.debian_sha256

    def accepts(self, version: str) -> bool:
        return parse_version(version) >= parse_version(self.oldest)


def load_pin(path: Path = PIN_FILE) -> Pin:
    pin = tomllib.loads(path.read_text())
    debian = pin["debian"]
    return Pin(
        version=pin["version"],
        oldest=pin["oldest"],
        release_url=pin["release"]["url"].format(version=pin["version"]),
        release_sha256=pin["release"]["sha256"],
        debian_package=debian["package"],
        debian_sha256=debian["sha256"],
        suites={
            name: apt_source.Suites(tuple(table["suites"]), table["components"])
            for name, table in debian.items()
            if isinstance(table, dict)
        },
    )


@dataclass(frozen=True)
class Source:
    """A folder or an archive with librdkafka's source, and its origin."""

    path: Path
    version: str
    checksum: str
    origin: str


@dataclass
class Cache:
    """The per-user cache: archives in `sources/`, built libraries in `builds/`.

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
            lock = (self.root / "lock").open("w")
        except OSError as error:
            raise VendorError(
                f"cannot write the cache: {error}; set CYKAFKA_CACHE_DIR to a writable folder"
            ) from error
        with lock as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                log(f"waiting for another build, which has locked {self.root}")
                fcntl.flock(file, fcntl.LOCK_EX)
            # We hold the lock, so these scratch folders belong to builds that were killed.
            for left_over in self.root.glob("scratch-*"):
                shutil.rmtree(left_over, ignore_errors=True)
            yield

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder on the same file system; removed at the end."""
        folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=self.root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, archive: Path, version: str, checksum: str) -> Path:
        """Move a verified archive, already on this file system, into the cache."""
        kept = self.sources / f"librdkafka-{version}-{checksum}.tar{archive.suffix}"
        os.rename(archive, kept)
        return kept


def cache_folder(environment: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """CYKAFKA_CACHE_DIR, else `cykafka` in XDG_CACHE_HOME, else in ~/.cache."""
    if chosen := environment.get("CYKAFKA_CACHE_DIR"):
        return Path(chosen).expanduser().absolute()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "cykafka"


def sha256_of(path: Path) -> str:
    """Checksum of an archive, or of a folder's files and their names."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file_path in sorted(path.rglob("*")):
        name = file_path.relative_to(path)
        if name.parts[0] != ".git" and file_path.is_file():
            digest.update(f"{name}\0{sha256_of(file_path)}\0".encode())
    return digest.hexdigest()


def version_of(tree: Path) -> str:
    """The version that a source folder's header declares."""
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


def extract(archive: Path, folder: Path) -> Path:
    """Unpack an archive of one folder; no member may land outside `folder`."""
    try:
        with tarfile.open(archive) as tar:
            members = [_checked(member) for member in tar]
            if hasattr(tarfile, "data_filter"):
                tar.extraction_filter = tarfile.data_filter
            tar.extractall(folder, members)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceError(f"cannot unpack {archive.name}: {error}") from error
    trees = [entry for entry in folder.iterdir() if entry.is_dir()]
    if len(trees) != 1:
        raise SourceError(f"expected one folder in {archive.name}, found {len(trees)}")
    return trees[0]


def _checked(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # Python before 3.11.4 has no `data` filter. This refuses unsafe members; librdkafka's archive
    # has none.
    path = Path(member.name)
    if not (member.isfile() or member.isdir()) or path.is_absolute() or ".." in path.parts:
        raise tarfile.ExtractError(f"unsafe member {member.name!r}")
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def from_setting(setting: str, pin: Pin, cache: Cache) -> Source:
    """The folder or archive of CYKAFKA_LIBRDKAFKA_SOURCE."""
    path = Path(setting).expanduser().absolute()
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    checksum = sha256_of(path)
    if path.is_dir():
        version = version_of(path)
    else:
        with cache.scratch() as folder:
            version = version_of(extract(path, folder))
    if not pin.accepts(version):
        raise SourceError(f"{path} is {version}; at least {pin.oldest} is needed")
    known = "checksum as pinned" if checksum in pin.checksums else f"sha256 {checksum}, unpinned"
    return Source(path, version, checksum, f"CYKAFKA_LIBRDKAFKA_SOURCE ({known})")


def from_cache(pin: Pin, cache: Cache) -> Source:
    """The pinned archive that an earlier run has cached."""
    for checksum in pin.checksums:
        for path in cache.sources.glob(f"librdkafka-{pin.version}-{checksum}.tar*"):
            if sha256_of(path) == checksum:
                return Source(path, pin.version, checksum, f"{path}")
            log(f"removed {path}: its checksum is wrong")
            path.unlink()
    raise SourceError(f"no archive of {pin.version} in {cache.sources}")


def from_release(pin: Pin, cache: Cache) -> Source:
    """Upstream's archive of the pinned version, verified by its checksum."""
    with cache.scratch() as folder:
        archive = folder / "release.tar.gz"
        try:
            with (
                urllib.request.urlopen(pin.release_url, timeout=RELEASE_TIMEOUT_S) as answer,
                archive.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
        except (OSError, http.client.HTTPException) as error:
            raise SourceError(f"{pin.release_url}: {error}") from error
        checksum = sha256_of(archive)
        if checksum != pin.release_sha256:
            raise SourceError(
                f"{pin.release_url}: its sha256 is {checksum}, not {pin.release_sha256} as pinned"
            )
        kept = cache.keep(archive, pin.version, checksum)
    return Source(kept, pin.version, checksum, f"{pin.release_url} (checksum as pinned)")


def from_apt(pin: Pin, cache: Cache) -> Source:
    """The pinned archive from the source package of Debian or Ubuntu."""
    refused = []
    # Not into the cache: as root, apt downloads as another user, who may lack access there.
    with tempfile.TemporaryDirectory(prefix="cykafka-apt-") as folder:
        try:
            for archive, origin in apt_source.fetch(pin.debian_package, pin.suites, Path(folder)):
                checksum = sha256_of(archive)
                if checksum == pin.debian_sha256:
                    with cache.scratch() as scratch:
                        near = Path(shutil.copy(archive, scratch))
                        kept = cache.keep(near, pin.version, checksum)
                    return Source(kept, pin.version, checksum, f"{origin} (checksum as pinned)")
                refused.append(
                    f"{origin} has {archive.name} with sha256 {checksum}, not {pin.version} "
                    f"with {pin.debian_sha256} as pinned"
                )
        except apt_source.AptError as error:
            refused.append(str(error))
    raise SourceError("; ".join(refused))


def find_source(pin: Pin, cache: Cache) -> Source:
    """The first usable source, in the order CONTRIBUTING.md gives.

    Raises
    ------
    VendorError
        No source is usable; the message has each place, its failure and what to set.
    """
    setting = os.environ.get("CYKAFKA_LIBRDKAFKA_SOURCE")
    if setting:
        try:
            return from_setting(setting, pin, cache)
        except SourceError as error:  # an explicit setting: do not fall back to another source
            raise VendorError(f"CYKAFKA_LIBRDKAFKA_SOURCE: {error}") from error
    places: list[tuple[str, Callable[[Pin, Cache], Source]]] = [
        ("the cache", from_cache),
        ("the upstream release", from_release),
        ("the source package of Debian or Ubuntu", from_apt),
    ]
    failures = ["CYKAFKA_LIBRDKAFKA_SOURCE: not set"]
    for name, look in places:
        try:
            source = look(pin, cache)
        except SourceError as error:
            failures.append(f"{name}: {error}")
            log(f"no source from {failures[-1]}")
        else:
            log(f"source {source.version} from {source.origin}")
            return source
    tried = "\n".join(f"  - {failure}" for failure in failures)
    raise VendorError(
        f"no source of librdkafka {pin.version} found. Tried:\n{tried}\n"
        f"Set CYKAFKA_LIBRDKAFKA_SOURCE to its source folder or archive ({pin.release_url}), or "
        f"install librdkafka >= {pin.oldest} with its headers and set CYKAFKA_LIBRDKAFKA=system."
    )
