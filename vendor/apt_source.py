"""Debian's source package of librdkafka, fetched by apt without touching the system's lists.

apt reads the machine's own configuration (proxies, credentials, certificates) and then ours,
which moves its source list, its lists and its cache into a temporary folder. Only the mirrors'
addresses and keys are taken from the machine's source lists.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

APT_TIMEOUT_S = 180
# Suites that name a distribution's main archive on every release of it.
ROLLING_SUITES = {"stable", "oldstable", "testing", "unstable", "sid", "devel"}


class AptError(Exception):
    """apt failed; the message has apt's own words."""


@dataclass(frozen=True)
class Mirror:
    """An archive that the machine uses: its address, its suites and the keys that sign it."""

    uri: str
    suites: tuple[str, ...]
    signed_by: str = ""

    def stanza(self, suite: str, components: str) -> str:
        """The deb822 stanza that makes apt read the sources of `suite` from this mirror."""
        lines = [
            "Types: deb-src",
            f"URIs: {self.uri}",
            f"Suites: {suite}",
            f"Components: {components}",
        ]
        if self.signed_by:
            lines.append(f"Signed-By: {self.signed_by}")
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Suites:
    """The suites of a distribution that may carry the package, in order."""

    suites: tuple[str, ...]
    components: str


def parse_one_line(text: str) -> list[Mirror]:
    """The mirrors of a `*.list` file (one line each)."""
    mirrors = []
    for line in text.splitlines():
        entry = re.match(
            r"\s*deb(?:-src)?\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)",
            line.split("#", 1)[0],
        )
        if entry is None or entry["uri"].startswith("cdrom:"):
            continue
        options = dict(re.findall(r"(\S+?)=(\S+)", entry["options"] or ""))
        keys = options.get("signed-by", "").replace(",", " ")
        mirrors.append(Mirror(entry["uri"], (entry["suite"],), keys))
    return mirrors


def parse_deb822(text: str) -> list[Mirror]:
    """The mirrors of a `*.sources` file (stanzas); keys inside the file are kept unchanged."""
    mirrors = []
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", text):
        fields = {
            name.lower(): value.strip()
            for name, value in re.findall(r"^([\w-]+):(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
        }
        if fields.get("enabled", "yes").lower() in ("no", "false", "0", "off"):
            continue
        for uri in fields.get("uris", "").split():
            suites = tuple(fields.get("suites", "").split())
            mirrors.append(Mirror(uri, suites, fields.get("signed-by", "")))
    return mirrors


def read_mirrors(source_list: Path, source_parts: Path) -> list[Mirror]:
    """All mirrors of the machine, in apt's order. Skips unreadable files."""
    files = [source_list]
    if source_parts.is_dir():
        files += sorted(source_parts.iterdir())
    mirrors = []
    for file in files:
        parse = {".list": parse_one_line, ".sources": parse_deb822}.get(file.suffix)
        if parse is None or not os.access(file, os.R_OK) or not file.is_file():
            continue
        mirrors += parse(file.read_text(errors="replace"))
    return mirrors


def main_mirrors(mirrors: Iterable[Mirror], codenames: set[str]) -> list[Mirror]:
    """The mirrors that carry the distribution itself, the likeliest first.

    A third party's archive may call its suite `stable` too: such names count, but come last.
    """
    ranked: dict[str, tuple[bool, Mirror]] = {}
    for mirror in mirrors:
        bases = {re.sub(r"-(updates|backports|proposed)$", "", suite) for suite in mirror.suites}
        if bases & (codenames | ROLLING_SUITES):
            ranked.setdefault(mirror.uri.rstrip("/"), (not bases & codenames, mirror))
    return [mirror for _, mirror in sorted(ranked.values(), key=lambda entry: entry[0])]


def fetch(package: str, version: str, suites: Mapping[str, Suites], folder: Path) -> Path:
    """Download the upstream archive of `package` from the first suite that has the version.

    Parameters
    ----------
    package
        Name of the source package.
    version
        The wanted upstream version. apt downloads no other.
    suites
        Where to look, by distribution (`ID` of os-release).
    folder
        A temporary folder for everything apt writes.

    Returns
    -------
    The archive, which has passed apt's signature check.

    Raises
    ------
    AptError
        No suite has the version; the message has the reason of each.
    """
    if shutil.which("apt-get") is None:
        raise AptError("apt-get is not installed")
    release = _os_release()
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    wanted = next((suites[name] for name in names if name in suites), None)
    if wanted is None:
        raise AptError(f"librdkafka.toml has no suites for {names[0] or 'this distribution'}")
    codenames = {value for key, value in release.items() if key.endswith("CODENAME") and value}
    mirrors = main_mirrors(read_mirrors(*_source_lists()), codenames)
    if not mirrors:
        raise AptError("apt's source lists have no mirror of the distribution itself")
    failures = []
    tries = [(mirror, suite) for mirror in mirrors for suite in wanted.suites]
    for number, (mirror, suite) in enumerate(tries):
        apt = _Apt(folder / f"apt{number}", mirror.stanza(suite, wanted.components))
        try:
            return apt.fetch(package, version)
        except AptError as error:
            failures.append(f"{suite}: {error}")
    raise AptError("; ".join(failures))


class _Apt:
    """An apt of its own in the folder `place`, with one source list."""

    def __init__(self, place: Path, stanza: str) -> None:
        self.configuration = place / "apt.conf"
        self.download = place / "download"
        for name in ("sources.d", "lists/partial", "cache/archives/partial", "download"):
            (place / name).mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _open_to_sandbox(place)
        (place / "sources.d" / "mirror.sources").write_text(stanza)
        self.configuration.write_text(_configuration(place))

    def fetch(self, package: str, version: str) -> Path:
        self._run("update")
        source = ("source", "--download-only", "--tar-only")
        uris = self._run(*source, "--print-uris", package)
        names = re.findall(rf"\b{re.escape(package)}_(\S+)\.orig\.tar\.\w+ ", uris)
        if names != [version]:
            raise AptError(f"the suite has {', '.join(names) or 'no upstream archive'}")
        self._run(*source, package)
        (archive,) = self.download.glob(f"{package}_{version}.orig.tar.*")
        return archive

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                ["apt-get", "-q", "-c", str(self.configuration), *arguments],
                cwd=self.download,
                env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=APT_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise AptError(f"apt-get timed out after {APT_TIMEOUT_S} s") from error
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if line.startswith(("E:", "W:"))]
            said = " ".join(errors[-3:]) or f"exit status {done.returncode}"
            raise AptError(f"apt-get {arguments[0]}: {said}")
        return done.stdout


def _configuration(place: Path) -> str:
    # Drop the machine's hooks (package managers' caches and the like). Refuse everything unsigned,
    # whatever the machine's own configuration allows.
    return f"""\
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{place}/sources.d";
Dir::State::lists "{place}/lists";
Dir::Cache "{place}/cache";
Dir::Cache::archives "archives/";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
"""


def _open_to_sandbox(place: Path) -> None:
    # As root, apt downloads as the user `_apt`, which needs access to these folders.
    place.parent.chmod(0o755)
    for folder in (place / "lists/partial", place / "cache/archives/partial", place / "download"):
        try:
            shutil.chown(folder, "_apt")
        except LookupError:  # an apt without a sandbox
            return


def _source_lists() -> tuple[Path, Path]:
    done = subprocess.run(
        ["apt-config", "shell", "LIST", "Dir::Etc::sourcelist/f", "PARTS",
         "Dir::Etc::sourceparts/d"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    places = dict(re.findall(r"^(\w+)='(.*)'$", done.stdout, re.MULTILINE))
    return (
        Path(places.get("LIST", "/etc/apt/sources.list")),
        Path(places.get("PARTS", "/etc/apt/sources.list.d")),
    )


def _os_release() -> dict[str, str]:
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return {}
    return {key: value.strip("\"'") for key, value in re.findall(r"^(\w+)=(.*)$", text, re.M)}
