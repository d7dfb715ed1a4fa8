"""How the build finds, checks, builds and caches librdkafka."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

VENDOR = Path(__file__).parents[2] / "vendor"
TIMEOUT_S = 60
FEATURES = "gzip,lz4,oidc,sasl_gssapi,sasl_oauthbearer,sasl_scram,ssl,zstd"
# A library with the functions that the build calls, so that a build takes a second. Its version is
# not the pinned one, so the build does not patch it.
FAKE_TREE = {
    "configure": """\
#!/bin/sh
# As librdkafka's: it compiles with the words of the flags, and no shell removes quotes.
echo "int x;" > t.c && cc $CFLAGS -c t.c || exit 1
echo "CFLAGS = $CFLAGS" > Makefile.config
echo "LDFLAGS = $LDFLAGS" >> Makefile.config
echo build >> "$BUILDS_SEEN"
""",
    "src/Makefile": """\
include ../Makefile.config
librdkafka.so.1: rdkafka.c
\t$(CC) $(CFLAGS) $(LDFLAGS) -shared -fPIC -o $@ rdkafka.c
""",
    "src/rdkafka.h": "#define RD_KAFKA_VERSION 0x021000ff\n",
    "src/rdkafka_mock.h": "",
    "src/rdkafka.c": """\
#include <string.h>
void *rd_kafka_conf_new(void) { return 0; }
void rd_kafka_conf_destroy(void *conf) { (void)conf; }
int rd_kafka_conf_get(void *conf, const char *name, char *value, size_t *size) {
    (void)conf, (void)name, (void)size;
    strcpy(value, "@FEATURES@");
    return 0;
}
""",
    "LICENSES.txt": "",
}
PINNED = "0x020f01ff"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CYKAFKA_LIBRDKAFKA", "CYKAFKA_LIBRDKAFKA_SOURCE", "CYKAFKA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(VENDOR))


@pytest.fixture
def src() -> ModuleType:
    import librdkafka_source

    return librdkafka_source


@pytest.fixture
def apt() -> ModuleType:
    import apt_source

    return apt_source


@pytest.fixture
def cache(src: ModuleType, tmp_path: Path) -> Iterator[Any]:
    cache = src.Cache(tmp_path / "cache")
    with cache.lock():
        yield cache


def write_tree(folder: Path, features: str = FEATURES, **changes: str) -> Path:
    for name, text in FAKE_TREE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changes.get(path.name.replace(".", "_"), text))
    (folder / "configure").chmod(0o755)
    code = folder / "src" / "rdkafka.c"
    code.write_text(code.read_text().replace("@FEATURES@", features))
    return folder


def write_archive(path: Path, version: str = PINNED, inside: str = "librdkafka-x") -> Path:
    """An archive with a source tree in the folder `inside`, and more files than the build uses."""
    files = {
        f"{inside}/src/rdkafka.h": f"#define RD_KAFKA_VERSION {version}\n",
        f"{inside}/.gitignore": path.name,
        f"{inside}/examples/{path.name}.c": "",
        "README": "",
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def pin(src: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real pin, for a local release archive. No other place has that source."""
    archive = write_archive(tmp_path / "release.tar.gz")
    monkeypatch.setitem(src.PLACES, "debian", nothing(src))
    monkeypatch.setitem(src.PLACES, "npm", nothing(src))
    return dataclasses.replace(
        src.load_pin(),
        release_url=archive.as_uri(),
        checksum=src.checksum_of(src.extract(archive, tmp_path / "release")),
    )


def nothing(src: ModuleType) -> Callable[..., Path]:
    def nothing(*_: object) -> Path:
        raise src.SourceError("has nothing")

    return nothing


def test_pin_is_complete(src: ModuleType) -> None:
    pin = src.load_pin()
    assert pin.version in pin.release_url
    assert pin.accepts(pin.version)
    assert not pin.accepts("2.14.2")
    assert re.fullmatch(r"[0-9a-f]{64}", pin.checksum)
    assert {"debian", "ubuntu"} <= set(pin.suites)
    assert re.fullmatch(r"@\w+/[\w-]+@\d+\.\d+\.\d+", pin.npm_package)


# Order


def test_source_setting_takes_precedence(
    src: ModuleType, pin: Any, cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    src.find_source(pin, cache, tmp_path)  # this fills the cache
    tree = write_tree(tmp_path / "tree")
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(tree))
    source = src.find_source(pin, cache, tmp_path)
    assert (source.tree, source.version, source.origin) == (tree, "2.16.0", src.SETTING)


def test_archive_of_the_source_setting_may_be_any_of_the_places(
    src: ModuleType, pin: Any, cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "package.tgz", inside="package/deps/librdkafka")
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(archive))
    source = src.find_source(pin, cache, tmp_path / "scratch")
    assert (source.version, source.checksum) == (pin.version, pin.checksum)
    assert source.tree.is_relative_to(tmp_path / "scratch")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no such file or directory"),
        (b"not an archive", r"cannot unpack source: .*; download the archive again"),
        ("old", r"librdkafka 2\.14\.2 is too old; use 2\.15\.1 or newer"),
        ("cut", r"cannot unpack source: .*; download the archive again"),
        ("changed", r"files differ from librdkafka 2\.15\.1's: .*; use an unchanged copy"),
        ("folder", r"source is not librdkafka's source: no src/rdkafka\.h"),
        ("other archive", r"source is not librdkafka's source: no src/rdkafka\.h"),
    ],
)
def test_wrong_source_setting_is_an_error_of_one_line(
    src: ModuleType,
    pin: Any,
    cache: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | str | None,
    message: str,
) -> None:
    path = tmp_path / "source"
    if content == "folder":
        path.mkdir()
    elif content == "old":
        write_archive(path, "0x020e02ff")
    elif content == "changed":
        write_archive(path, PINNED + " ")
    elif content == "other archive":
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(tarfile.TarInfo("README"))
    elif content == "cut":
        whole = write_archive(path).read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(path))
    with pytest.raises(src.VendorError) as caught:
        src.find_source(pin, cache, tmp_path / "scratch")
    assert re.fullmatch(f"CYKAFKA_LIBRDKAFKA_SOURCE={path}: .*{message}", str(caught.value))
    assert contents(cache) == {"sources", "builds", "lock"}


def contents(cache: Any) -> set[str]:
    return {path.name for path in cache.root.rglob("*")}


def test_cache_takes_precedence_over_the_release(
    src: ModuleType, pin: Any, cache: Any, tmp_path: Path
) -> None:
    first = src.find_source(pin, cache, tmp_path)
    assert first.tree == cache.sources / "2.15.1-release"
    gone = dataclasses.replace(pin, release_url="file:///nowhere")
    assert src.find_source(gone, cache, tmp_path) == first


@pytest.mark.parametrize("number", [0, 1, 2])
def test_places_are_tried_in_order_until_one_has_the_source(
    src: ModuleType,
    pin: Any,
    cache: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried = []

    def look(place: str) -> Callable[..., Path]:
        def look(_: object, folder: Path) -> Path:
            tried.append(place)
            if len(tried) <= number:
                raise src.SourceError(f"{place} has nothing")
            # The same tree in each archive, but other files around it.
            return write_archive(folder / f"{place}.tgz", inside=f"{place}/deps")

        return look

    order = ["release", "debian", "npm"]
    assert list(src.PLACES) == order
    for place in order:
        monkeypatch.setitem(src.PLACES, place, look(place))
    source = src.find_source(pin, cache, tmp_path)
    assert tried == order[: number + 1]
    assert (source.origin, source.checksum) == (order[number], pin.checksum)
    assert contents(cache) >= {f"2.15.1-{order[number]}", "rdkafka.h"}
    assert not contents(cache) & {"examples", ".gitignore", "README"}
    log = [f"librdkafka: no source from {p}: {p} has nothing" for p in order[:number]]
    assert capsys.readouterr().err.splitlines() == log


# Checks


def test_release_with_another_checksum_is_refused(src: ModuleType, pin: Any, cache: Any) -> None:
    other = dataclasses.replace(pin, checksum="0" * 64)
    with pytest.raises(src.SourceError, match=r"their sha256 is \w{64}, not 0{64}"):
        src.fetch("release", other, cache)
    assert contents(cache) == {"sources", "builds", "lock"}


def test_place_with_a_newer_version_is_refused(
    src: ModuleType, pin: Any, cache: Any, tmp_path: Path
) -> None:
    write_archive(tmp_path / "release.tar.gz", "0x021000ff")
    with pytest.raises(src.SourceError, match=r"has librdkafka 2\.16\.0, not 2\.15\.1"):
        src.fetch("release", pin, cache)
    assert contents(cache) == {"sources", "builds", "lock"}


@pytest.mark.parametrize("damage", ["change", "removal", "addition"])
def test_damaged_source_in_the_cache_is_fetched_again(
    src: ModuleType, pin: Any, cache: Any, tmp_path: Path, damage: str
) -> None:
    tree = src.find_source(pin, cache, tmp_path).tree
    header = tree / "src" / "rdkafka.h"
    if damage == "change":
        header.write_text("")
    elif damage == "removal":
        header.unlink()
    else:
        (tree / "src" / "more.c").write_text("")
    assert src.from_cache(pin, cache) is None
    again = src.find_source(pin, cache, tmp_path)
    assert src.checksum_of(again.tree) == pin.checksum


def test_checksum_leaves_out_dot_files_and_build_products(src: ModuleType, tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    first = src.checksum_of(tree)
    for ignored in (
        ".gitignore",
        "src/.clang-format",
        ".git/config",
        "examples/a.c",
        "src/a.o",
        "src/a.so.1",
    ):
        (tree / ignored).parent.mkdir(exist_ok=True)
        (tree / ignored).write_text("")
    assert src.checksum_of(tree) == first
    (tree / "src" / "rdkafka.c").rename(tree / "src" / "rdkafka.cc")  # the order is the same
    renamed = src.checksum_of(tree)
    (tree / "src" / "rdkafka.cc").write_text("")
    assert len({first, renamed, src.checksum_of(tree)}) == 3


def test_version_and_checksum_of_a_new_source_are_printed(src: ModuleType, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "new.tar.gz")
    tree = src.extract(archive, tmp_path / "unpacked")
    for source in (archive, tree):
        command = [sys.executable, str(VENDOR / "librdkafka_source.py"), str(source)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert printed == f"2.15.1 {src.checksum_of(tree)}\n"


@pytest.mark.parametrize("name", ["../outside", "/outside", "librdkafka-x/../../outside"])
def test_archive_with_paths_outside_its_folder_is_refused(
    src: ModuleType, tmp_path: Path, name: str
) -> None:
    archive = tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name))
    (tmp_path / "into").mkdir()
    with pytest.raises(
        src.SourceError, match="which is a link, a device or outside of the archive"
    ):
        src.extract(archive, tmp_path / "into")
    assert not (tmp_path / "outside").exists()


def test_archive_with_a_link_is_refused(src: ModuleType, tmp_path: Path) -> None:
    archive = tmp_path / "link.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("librdkafka-x/link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    (tmp_path / "into").mkdir()
    with pytest.raises(
        src.SourceError, match="which is a link, a device or outside of the archive"
    ):
        src.extract(archive, tmp_path / "into")


@pytest.mark.parametrize("npm", [True, False])
def test_error_says_in_one_sentence_what_to_do(
    src: ModuleType,
    pin: Any,
    cache: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    npm: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(src.shutil, "which", lambda _: "/npm" if npm else None)
    gone = dataclasses.replace(pin, release_url="file:///nowhere.tar.gz")
    with pytest.raises(src.VendorError) as caught:
        src.find_source(gone, cache, tmp_path)
    assert str(caught.value) == (
        "cannot fetch the source of librdkafka 2.15.1 (see the reasons above): "
        + ("" if npm else "install npm, or ")
        + f"download file:///nowhere.tar.gz (or run `npm pack {pin.npm_package}`) on another "
        "machine and set CYKAFKA_LIBRDKAFKA_SOURCE to the archive"
    )
    release, debian, other = capsys.readouterr().err.splitlines()
    assert release.startswith("librdkafka: no source from release: file:///nowhere.tar.gz: ")
    assert debian == "librdkafka: no source from debian: has nothing"
    assert other == "librdkafka: no source from npm: has nothing"
    assert contents(cache) == {"sources", "builds", "lock"}


# npm


@pytest.fixture
def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replace `npm` with a shell script."""

    def fake_npm(script: str) -> None:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "npm"
        program.write_text(f"#!/bin/sh\n{script}")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    return fake_npm


def test_npm_s_archive_is_the_source(
    src: ModuleType, cache: Any, tmp_path: Path, pin: Any, fake_npm: Callable[[str], None]
) -> None:
    write_archive(tmp_path / "package.tgz", inside="package/deps/librdkafka")
    fake_npm(f'echo "$@" > {tmp_path}/arguments; cp {tmp_path}/package.tgz .')
    (tmp_path / "npm").mkdir()
    archive = src.from_npm(pin, tmp_path / "npm")
    assert src.checksum_of(src.extract(archive, tmp_path / "unpacked")) == pin.checksum
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:2] == ["pack", pin.npm_package]
    assert {"--json", "--ignore-scripts", f"--pack-destination={tmp_path}/npm"} <= set(arguments)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            """echo '{"error": {"code": "E404", "summary": "Not Found"}}'; exit 1""",
            "E404: Not Found",
        ),
        ("echo nothing; exit 3", "exit status 3"),
        ("echo []", "0 archives instead of one"),
        ("touch a.tgz b.tgz", "2 archives instead of one"),
        (
            r"""printf '{"error": {"code": "E404", "summary": "a\\nb"}}'; exit 1""",
            "E404: a b",
        ),
        ("""echo '{"error": "E404"}'; exit 1""", "exit status 1"),
    ],
)
def test_npm_s_error_is_passed_on(
    src: ModuleType,
    tmp_path: Path,
    pin: Any,
    fake_npm: Callable[[str], None],
    script: str,
    message: str,
) -> None:
    fake_npm(script)
    (tmp_path / "npm").mkdir()
    with pytest.raises(src.SourceError, match=f"^npm pack {pin.npm_package}: {message}$"):
        src.from_npm(pin, tmp_path / "npm")


def test_machine_without_npm_says_so(
    src: ModuleType, tmp_path: Path, pin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(src.SourceError, match=r"^cannot run npm: No such file or directory$"):
        src.from_npm(pin, tmp_path)


def test_npm_that_hangs_is_ended(
    src: ModuleType,
    tmp_path: Path,
    pin: Any,
    fake_npm: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_npm("exec sleep 60")
    monkeypatch.setattr(src, "NPM_TIMEOUT_S", 0.1)
    with pytest.raises(src.SourceError, match=r"npm timed out after 0\.1 s"):
        src.from_npm(pin, tmp_path)


# apt


def test_one_line_sources_are_parsed(apt: ModuleType) -> None:
    mirrors = apt.parse_one_line(
        "# deb http://commented/ x main\n"
        "deb http://plain/debian bookworm main # a remark\n"
        "deb-src [arch=amd64 signed-by=/a.gpg,/b.gpg] https://keyed/debian sid main contrib\n"
        "deb cdrom:[Debian]/ bookworm main\n"
    )
    assert mirrors == [
        apt.Mirror("http://plain/debian", ("bookworm",)),
        apt.Mirror("https://keyed/debian", ("sid",), "/a.gpg /b.gpg"),
    ]


def test_deb822_sources_are_parsed(apt: ModuleType) -> None:
    mirrors = apt.parse_deb822(
        "Types: deb\n"
        "# a remark\n"
        "URIs: http://one/debian\n"
        "  http://two/debian\n"
        "Suites: bookworm bookworm-updates\n"
        "Components: main\n"
        "Signed-By:\n"
        " -----BEGIN PGP PUBLIC KEY BLOCK-----\n"
        " .\n"
        " abc\n"
        "\n"
        "Enabled: no\n"
        "URIs: http://off/debian\n"
        "Suites: bookworm\n"
    )
    key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc"
    suites = ("bookworm", "bookworm-updates")
    assert mirrors == [
        apt.Mirror("http://one/debian", suites, key),
        apt.Mirror("http://two/debian", suites, key),
    ]
    assert apt.parse_deb822(mirrors[0].stanza("sid", "main"))[0].signed_by == key


def test_main_mirrors_exclude_security_and_other_suites(apt: ModuleType) -> None:
    main = apt.Mirror("http://main/debian", ("bookworm", "bookworm-updates"))
    stable = apt.Mirror("http://third/party", ("stable",))
    chosen = apt.main_mirrors(
        [
            stable,
            apt.Mirror("http://main/security", ("bookworm-security",)),
            apt.Mirror("http://third/node", ("nodistro",)),
            main,
            apt.Mirror("http://main/debian/", ("bookworm-backports",)),
        ],
        {"bookworm"},
    )
    assert chosen == [main, stable]


@pytest.fixture
def fake_apt(apt: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `apt-get` that delivers the one file in the folder `archive`, and logs its input."""
    programs, archive = tmp_path / "bin", tmp_path / "archive"
    programs.mkdir()
    archive.mkdir()
    script = programs / "apt-get"
    script.write_text(
        f"""#!/bin/sh
while [ "$1" != update ] && [ "$1" != source ]; do
    if [ "$1" = -c ]; then cp "$2" {tmp_path}/apt.conf; place=$(dirname "$2"); fi
    shift
done
cat "$place"/sources.d/* >> {tmp_path}/sources
[ "$1" = source ] || exit 0
[ "$(ls {archive})" ] || {{ echo "E: no such package"; exit 100; }}
case $* in
*--print-uris*) ls {archive} | sed "s,.*,'http://mirror/&' & 9 SHA256:0," ;;
*) echo downloaded >> {tmp_path}/downloads; cp {archive}/* . ;;
esac
"""
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    lists = tmp_path / "mirror.list"
    lists.write_text("deb [signed-by=/key.gpg] http://mirror/debian bookworm main\n")
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setattr(apt, "_source_lists", lambda: (lists, tmp_path / "no.d"))
    monkeypatch.setattr(
        apt, "_os_release", lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"}
    )
    return archive


@pytest.fixture
def debian_pin(pin: Any, apt: ModuleType) -> Any:
    return dataclasses.replace(pin, suites={"debian": apt.Suites(("sid", "forky"), "main")})


def test_apt_gets_its_own_configuration(
    src: ModuleType, debian_pin: Any, fake_apt: Path, tmp_path: Path
) -> None:
    write_archive(fake_apt / "librdkafka_2.15.1.orig.tar.gz")
    (tmp_path / "folder").mkdir()
    archive = src.from_debian(debian_pin, tmp_path / "folder")
    assert archive == tmp_path / "folder" / "librdkafka_2.15.1.orig.tar.gz"
    assert src.checksum_of(src.extract(archive, tmp_path / "unpacked")) == debian_pin.checksum
    stanza = (tmp_path / "sources").read_text()
    for line in ("Types: deb-src", "URIs: http://mirror/debian", "Suites: sid"):
        assert line in stanza
    assert "Signed-By: /key.gpg" in stanza
    configuration = (tmp_path / "apt.conf").read_text()
    for name in ("Dir::Etc::sourceparts", "Dir::State::lists", "Dir::Cache "):
        assert name in configuration
    assert 'AllowUnauthenticated "false"' in configuration


@pytest.mark.parametrize("version", ["2.14.2", "2.15.1+dfsg", "9.9.9"])
def test_other_version_of_apt_is_not_downloaded(
    src: ModuleType, debian_pin: Any, fake_apt: Path, tmp_path: Path, version: str
) -> None:
    write_archive(fake_apt / f"librdkafka_{version}.orig.tar.gz")
    with pytest.raises(src.SourceError) as caught:
        src.from_debian(debian_pin, tmp_path)
    assert str(caught.value) == f"sid: the suite has {version}; forky: the suite has {version}"
    assert not (tmp_path / "downloads").exists()


def test_apt_error_is_passed_on(
    src: ModuleType, debian_pin: Any, fake_apt: Path, tmp_path: Path
) -> None:
    with pytest.raises(src.SourceError, match=r"sid: .*E: no such package.*forky: "):
        src.from_debian(debian_pin, tmp_path)


# Cache and build


def test_cache_folder_follows_the_environment(src: ModuleType, tmp_path: Path) -> None:
    own = {"CYKAFKA_CACHE_DIR": str(tmp_path / "own"), "XDG_CACHE_HOME": "/xdg"}
    assert src.cache_folder(own) == tmp_path / "own"
    assert src.cache_folder({"XDG_CACHE_HOME": "/xdg"}) == Path("/xdg/cykafka")
    assert src.cache_folder({}) == Path.home() / ".cache" / "cykafka"


def test_unwritable_cache_error_names_the_setting(src: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(src.VendorError, match="set CYKAFKA_CACHE_DIR"),
        src.Cache(tmp_path / "file" / "cache").lock(),
    ):
        pass


def test_interrupted_fetch_leaves_nothing_behind(
    src: ModuleType, pin: Any, cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: io.BufferedIOBase, target: io.BufferedIOBase) -> None:
        target.write(source.read(10))
        raise KeyboardInterrupt

    monkeypatch.setattr(src.shutil, "copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        src.find_source(pin, cache, tmp_path)
    assert contents(cache) == {"sources", "builds", "lock"}


def test_cache_leaves_other_files_of_its_folder_alone(
    src: ModuleType, pin: Any, tmp_path: Path
) -> None:
    cache = src.Cache(tmp_path / "cache")
    others = [cache.root / "scratch-mine" / "a", cache.sources / "2.15.1-mine" / "a"]
    others.append(cache.root / "lock")
    for other in others:
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text("mine")
    with cache.lock():
        src.find_source(pin, cache, tmp_path)
    assert [other.read_text() for other in others] == ["mine"] * 3


def test_leftover_of_a_killed_build_is_removed(src: ModuleType, tmp_path: Path) -> None:
    cache = src.Cache(tmp_path)
    (tmp_path / "cykafka-scratch-killed").mkdir()
    with cache.lock():
        assert not (tmp_path / "cykafka-scratch-killed").exists()


def start(tree: Path, cache: Path, builds: Path, **settings: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "CYKAFKA_LIBRDKAFKA": "bundled",
        "CYKAFKA_LIBRDKAFKA_SOURCE": str(tree),
        "CYKAFKA_CACHE_DIR": str(cache),
        "BUILDS_SEEN": str(builds),
        **settings,
    }
    return subprocess.Popen(
        [sys.executable, str(VENDOR / "librdkafka.py")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return process.returncode, out.strip(), err


needs_build_tools = pytest.mark.skipif(
    shutil.which("pkg-config") is None or shutil.which("cc") is None,
    reason="needs cc and pkg-config",
)


@needs_build_tools
def test_two_builds_at_once_compile_once(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    builds = tmp_path / "builds"
    processes = [start(tree, tmp_path / "cache", builds) for _ in range(2)]
    results = [finish(process) for process in processes]
    assert [status for status, _, _ in results] == [0, 0], results
    assert builds.read_text() == "build\n"
    prefixes = {Path(out) for _, out, _ in results}
    assert len(prefixes) == 1
    prefix = prefixes.pop()
    assert (prefix / "lib" / "librdkafka.so.1").is_file()
    assert (prefix / "include" / "librdkafka" / "rdkafka_mock.h").is_file()
    text = b"".join(path.read_bytes() for path in prefix.rglob("*") if path.is_file())
    assert str(tmp_path).encode() not in text


@needs_build_tools
@pytest.mark.parametrize("name", ["José", "a'b", "a$HOME", "a&b"])
def test_cache_may_have_any_name_without_spaces(tmp_path: Path, name: str) -> None:
    tree = write_tree(tmp_path / "tree")
    status, out, err = finish(start(tree, tmp_path / name, tmp_path / "builds"))
    assert (status, Path(out).parent) == (0, tmp_path / name / "builds"), err


@needs_build_tools
def test_cache_with_a_space_in_its_path_is_refused(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    status, _, err = finish(start(tree, tmp_path / "a b", tmp_path / "builds"))
    assert status == 1
    assert "set CYKAFKA_CACHE_DIR to a path without spaces" in err


def test_full_disk_is_an_error_of_one_line(
    src: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    import librdkafka

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(write_archive(tmp_path / "a.tgz")))
    monkeypatch.setenv("CYKAFKA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["librdkafka.py"])
    assert librdkafka.main() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "No space left on device; free space" in line


def test_damaged_xz_archive_is_an_error_of_one_line(src: ModuleType, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.xz", "w:xz") as tar:
        member = tarfile.TarInfo("a")
        member.size = 100_000
        tar.addfile(member, io.BytesIO(random.Random(1).randbytes(member.size)))
    damaged = bytearray((tmp_path / "a.tar.xz").read_bytes())
    damaged[50_000] ^= 0xFF
    (tmp_path / "a.tar.xz").write_bytes(damaged)
    with pytest.raises(src.SourceError, match=r"Corrupt input data; download the archive again"):
        src.extract(tmp_path / "a.tar.xz", tmp_path / "unpacked")


@needs_build_tools
def test_build_that_lost_files_is_built_again(tmp_path: Path) -> None:
    tree, builds = write_tree(tmp_path / "tree"), tmp_path / "builds"
    prefix = Path(finish(start(tree, tmp_path / "cache", builds))[1])
    for name in ("build.json", "lib/librdkafka.so.1"):
        (prefix / name).unlink()
        assert finish(start(tree, tmp_path / "cache", builds))[:2] == (0, str(prefix))
    assert builds.read_text() == "build\n" * 3


@needs_build_tools
def test_other_flags_cause_another_build(tmp_path: Path) -> None:
    tree, builds = write_tree(tmp_path / "tree"), tmp_path / "builds"
    plain = finish(start(tree, tmp_path / "cache", builds))
    flagged = finish(start(tree, tmp_path / "cache", builds, CFLAGS="-DANYTHING"))
    assert (plain[0], flagged[0]) == (0, 0)
    assert plain[1] != flagged[1]


@needs_build_tools
@pytest.mark.parametrize(
    ("tree_options", "reason"),
    [
        ({"rdkafka_c": "this is not C"}, "the build failed"),
        ({"features": "ssl,gzip"}, "was built without .*zstd.*apt-get install .*libzstd-dev"),
    ],
)
def test_failed_build_is_not_kept(
    tmp_path: Path, tree_options: dict[str, str], reason: str
) -> None:
    tree = write_tree(tmp_path / "tree", **tree_options)
    status, out, err = finish(start(tree, tmp_path / "cache", tmp_path / "builds"))
    assert status == 1
    assert out == ""
    assert re.search(reason, err)
    assert not list((tmp_path / "cache" / "builds").iterdir())


@needs_build_tools
def test_source_of_another_version_is_built_without_patches(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree")
    (tree / "src" / ".hidden").write_text("")
    status, out, err = finish(start(tree, tmp_path / "cache", tmp_path / "builds"))
    assert status == 0
    warning = "2.16.0 is not the pinned version: the build neither checks its checksum"
    assert warning in err
    assert warning in finish(start(tree, tmp_path / "cache", tmp_path / "builds"))[2]
    facts = json.loads((Path(out) / "build.json").read_text())
    assert facts["patches"] == []
    assert all(patch["effect"] for patch in facts["known_patches"].values())
    assert facts["source"] == "CYKAFKA_LIBRDKAFKA_SOURCE"
    assert f"source 2.16.0 from CYKAFKA_LIBRDKAFKA_SOURCE, sha256 {facts['sha256']}" in err
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {
        "sources",
        "builds",
        "lock",
        "build.log",
    }


def test_source_of_the_pinned_version_with_other_files_is_not_built(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", rdkafka_h=f"#define RD_KAFKA_VERSION {PINNED}\n")
    status, out, err = finish(start(tree, tmp_path / "cache", tmp_path / "builds"))
    assert (status, out) == (1, "")
    line = (
        f"librdkafka: CYKAFKA_LIBRDKAFKA_SOURCE={tree}: the files differ from librdkafka 2.15.1's"
    )
    assert err.splitlines()[-1].startswith(line)
    assert not list((tmp_path / "cache" / "builds").iterdir())


def test_source_setting_is_built_although_the_pinned_version_is_cached(
    src: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import librdkafka as vendored

    pin, cache = src.load_pin(), src.Cache(tmp_path / "cache")
    toolchain = vendored.Toolchain()
    key = vendored.build_key(pin.version, pin.checksum, toolchain, vendored.load_patches())
    pinned = cache.builds / key
    (pinned / "lib").mkdir(parents=True)
    (pinned / "lib" / "librdkafka.so.1").touch()
    (pinned / "build.json").write_text("{}")
    assert vendored.bundled(pin, cache, toolchain).prefix == str(pinned)
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(tmp_path / "nowhere"))
    with pytest.raises(src.VendorError, match="no such file or directory"):
        vendored.bundled(pin, cache, toolchain)


def test_build_key_changes_with_each_input(src: ModuleType, tmp_path: Path) -> None:
    import librdkafka as vendored

    patches = vendored.load_patches()
    (tmp_path / "0001-it.patch").write_text(patches[0].path.read_text() + " ")
    other = dataclasses.replace(patches[0], path=tmp_path / "0001-it.patch")
    toolchain, flagged = vendored.Toolchain(), vendored.Toolchain(flags={"CFLAGS": "-O3"})
    keys = {
        vendored.build_key("2.15.1", "a", toolchain, patches),
        vendored.build_key("2.15.2", "a", toolchain, patches),
        vendored.build_key("2.15.1", "b", toolchain, patches),
        vendored.build_key("2.15.1", "a", flagged, patches),
        vendored.build_key("2.15.1", "a", toolchain, [other, *patches[1:]]),
        vendored.build_key("2.15.1", "a", toolchain, patches[1:]),
    }
    assert len(keys) == 6


def test_bundled_is_the_default(tmp_path: Path) -> None:
    missing = str(tmp_path / "no-source")
    status, _, err = finish(
        start(
            tmp_path,
            tmp_path / "cache",
            tmp_path / "builds",
            CYKAFKA_LIBRDKAFKA="",
            CYKAFKA_LIBRDKAFKA_SOURCE=missing,
        )
    )
    assert status == 1
    assert f"CYKAFKA_LIBRDKAFKA_SOURCE={missing}: no such file or directory" in err


def test_unknown_mode_is_named(tmp_path: Path) -> None:
    status, _, err = finish(
        start(tmp_path, tmp_path / "cache", tmp_path / "builds", CYKAFKA_LIBRDKAFKA="static")
    )
    assert status == 1
    assert "'static'; it must be one of bundled, system" in err


def test_error_for_an_old_system_library_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config")
    (tmp_path / "rdkafka.pc").write_text(
        "prefix=/usr\nlibdir=/usr/lib\nincludedir=/usr/include\n"
        "Name: librdkafka\nDescription: old\nVersion: 2.0.2\n"
    )
    monkeypatch.setenv("PKG_CONFIG_PATH", str(tmp_path))
    status, _, err = finish(
        start(tmp_path, tmp_path / "cache", tmp_path / "builds", CYKAFKA_LIBRDKAFKA="system")
    )
    assert status == 1
    assert "the system's version is 2.0.2; at least 2.15.1 is needed" in err
    assert "CYKAFKA_LIBRDKAFKA=bundled" in err
