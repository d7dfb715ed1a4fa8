"""How the build finds, checks, builds and caches librdkafka."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

VENDOR = Path(__file__).parents[2] / "vendor"
TIMEOUT_S = 60
FEATURES = "gzip,lz4,oidc,sasl_gssapi,sasl_oauthbearer,sasl_scram,ssl,zstd"
# A library with the functions that the build calls, so that a build takes a second. Its version is
# not the pinned one, so no patch applies to it.
FAKE_TREE = {
    "configure": """\
#!/bin/sh
echo "CFLAGS = $CFLAGS" > Makefile.config
echo "LDFLAGS = $LDFLAGS" >> Makefile.config
echo build >> "$BUILDS_SEEN"
""",
    "src/Makefile": """\
include ../Makefile.config
librdkafka.so.1: rdkafka.c
\t$(CC) $(CFLAGS) $(LDFLAGS) -shared -fPIC -o $@ rdkafka.c
""",
    "src/rdkafka.h": "#define RD_KAFKA_VERSION 0x020f00ff\n",
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
def cache(src: ModuleType, tmp_path: Path) -> Iterator[object]:
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


def write_archive(path: Path, version: str = "0x020e02ff") -> Path:
    header = f"#define RD_KAFKA_VERSION {version}\n".encode()
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("librdkafka-x/src/rdkafka.h")
        member.size = len(header)
        tar.addfile(member, io.BytesIO(header))
    return path


@pytest.fixture
def pin(src: ModuleType, tmp_path: Path) -> object:
    """The real pin, but with a local release archive and without a distribution's."""
    archive = write_archive(tmp_path / "release.tar.gz")
    return dataclasses.replace(
        src.load_pin(),
        release_url=archive.as_uri(),
        release_sha256=src.sha256_of(archive),
        suites={},
    )


def test_pin_is_complete(src: ModuleType) -> None:
    pin = src.load_pin()
    assert pin.version in pin.release_url
    assert pin.accepts(pin.version)
    assert not pin.accepts("2.0.2")
    assert all(len(checksum) == 64 for checksum in pin.checksums)
    assert {"debian", "ubuntu"} <= set(pin.suites)


# Order


def test_source_setting_takes_precedence(
    src: ModuleType, pin: object, cache: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    src.find_source(pin, cache)  # this fills the cache
    tree = write_tree(tmp_path / "tree")
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(tree))
    assert src.find_source(pin, cache).path == tree


def test_wrong_source_setting_is_an_error(
    src: ModuleType, pin: object, cache: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(tmp_path / "nowhere"))
    with pytest.raises(src.VendorError, match=r"CYKAFKA_LIBRDKAFKA_SOURCE: .*nowhere"):
        src.find_source(pin, cache)


def test_source_setting_refuses_an_older_version(
    src: ModuleType, pin: object, cache: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "old.tar.gz", "0x020002ff")
    monkeypatch.setenv("CYKAFKA_LIBRDKAFKA_SOURCE", str(archive))
    with pytest.raises(src.VendorError, match=r"is 2\.0\.2; at least 2\.14\.2"):
        src.find_source(pin, cache)


def test_cache_takes_precedence_over_the_release(
    src: ModuleType, pin: object, cache: object
) -> None:
    first = src.find_source(pin, cache)
    gone = dataclasses.replace(pin, release_url="file:///nowhere")  # type: ignore[type-var]
    second = src.find_source(gone, cache)
    assert second.path == first.path
    assert second.checksum == src.sha256_of(second.path)


def test_release_takes_precedence_over_the_distribution(
    src: ModuleType, pin: object, cache: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: object) -> None:
        pytest.fail("apt was called")

    monkeypatch.setattr(src.apt_source, "fetch", fetch)
    assert "checksum as pinned" in src.find_source(pin, cache).origin


# Checks


def test_release_with_another_checksum_is_refused(
    src: ModuleType, pin: object, cache: object
) -> None:
    other = dataclasses.replace(pin, release_sha256="0" * 64)  # type: ignore[type-var]
    with pytest.raises(src.SourceError, match=r"its sha256 is \w{64}, not 0{64}"):
        src.from_release(other, cache)
    assert not list(cache.sources.iterdir())  # type: ignore[attr-defined]


def test_other_version_in_the_cache_is_skipped(
    src: ModuleType, pin: object, cache: object, tmp_path: Path
) -> None:
    other = write_archive(tmp_path / "other.tar.gz", "0x090909ff")
    cache.keep(other, "9.9.9", src.sha256_of(other))  # type: ignore[attr-defined]
    with pytest.raises(src.SourceError, match=r"no archive of 2\.14\.2"):
        src.from_cache(pin, cache)
    assert src.find_source(pin, cache).version == "2.14.2"


def test_damaged_archive_in_the_cache_is_fetched_again(
    src: ModuleType, pin: object, cache: object
) -> None:
    kept = src.find_source(pin, cache).path
    kept.write_bytes(kept.read_bytes()[:-1])
    again = src.find_source(pin, cache)
    assert src.sha256_of(again.path) == again.checksum


@pytest.mark.parametrize("name", ["../outside", "/outside", "librdkafka-x/../../outside"])
def test_archive_with_paths_outside_its_folder_is_refused(
    src: ModuleType, tmp_path: Path, name: str
) -> None:
    archive = tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name))
    (tmp_path / "into").mkdir()
    with pytest.raises(src.SourceError, match="unsafe member"):
        src.extract(archive, tmp_path / "into")
    assert not (tmp_path / "outside").exists()


def test_archive_with_a_link_is_refused(src: ModuleType, tmp_path: Path) -> None:
    archive = tmp_path / "link.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("librdkafka-x/link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    (tmp_path / "into").mkdir()
    with pytest.raises(src.SourceError, match="unsafe member"):
        src.extract(archive, tmp_path / "into")


def test_error_names_each_source_and_the_setting(
    src: ModuleType, pin: object, cache: object
) -> None:
    nothing = dataclasses.replace(pin, release_url="file:///nowhere.tar.gz")  # type: ignore[type-var]
    with pytest.raises(src.VendorError) as caught:
        src.find_source(nothing, cache)
    message = str(caught.value)
    for part in (
        "CYKAFKA_LIBRDKAFKA_SOURCE: not set",
        "the cache: no archive of 2.14.2 in",
        "the upstream release: file:///nowhere.tar.gz",
        "the source package of Debian or Ubuntu: ",
        "Set CYKAFKA_LIBRDKAFKA_SOURCE",
        "CYKAFKA_LIBRDKAFKA=system",
    ):
        assert part in message


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
if [ "$1" = source ]; then cp {archive}/* . || {{ echo "E: no such package"; exit 100; }}; fi
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


def debian_pin(src: ModuleType, apt: ModuleType, checksum: str) -> object:
    return dataclasses.replace(
        src.load_pin(),
        release_url="file:///nowhere",
        debian_sha256=checksum,
        suites={"debian": apt.Suites(("sid", "forky"), "main")},
    )


def test_apt_gets_its_own_configuration(
    src: ModuleType, apt: ModuleType, cache: object, fake_apt: Path, tmp_path: Path
) -> None:
    archive = write_archive(fake_apt / "librdkafka_2.14.2.orig.tar.gz")
    source = src.find_source(debian_pin(src, apt, src.sha256_of(archive)), cache)
    assert "sid (checksum as pinned)" in source.origin
    assert source.path.parent == cache.sources  # type: ignore[attr-defined]
    stanza = (tmp_path / "sources").read_text()
    for line in ("Types: deb-src", "URIs: http://mirror/debian", "Suites: sid"):
        assert line in stanza
    assert "Signed-By: /key.gpg" in stanza
    configuration = (tmp_path / "apt.conf").read_text()
    for name in ("Dir::Etc::sourceparts", "Dir::State::lists", "Dir::Cache "):
        assert name in configuration
    assert 'AllowUnauthenticated "false"' in configuration


@pytest.mark.parametrize("version", ["2.14.2", "2.0.2", "9.9.9"])
def test_archive_of_apt_with_another_checksum_is_refused(
    src: ModuleType, apt: ModuleType, cache: object, fake_apt: Path, version: str
) -> None:
    write_archive(fake_apt / f"librdkafka_{version}.orig.tar.gz")
    with pytest.raises(src.SourceError, match=rf"_{version}\.orig.*, not 2\.14\.2 .* as pinned"):
        src.from_apt(debian_pin(src, apt, "0" * 64), cache)
    assert not list(cache.sources.iterdir())  # type: ignore[attr-defined]


def test_apt_error_is_passed_on(
    src: ModuleType, apt: ModuleType, cache: object, fake_apt: Path
) -> None:
    with pytest.raises(src.SourceError, match=r"sid: .*E: no such package.*forky: "):
        src.from_apt(debian_pin(src, apt, "0" * 64), cache)


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
    src: ModuleType, pin: object, cache: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: io.BufferedIOBase, target: io.BufferedIOBase) -> None:
        target.write(source.read(10))
        raise KeyboardInterrupt

    monkeypatch.setattr(src.shutil, "copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        src.find_source(pin, cache)
    names = {path.name for path in cache.root.rglob("*")}  # type: ignore[attr-defined]
    assert names == {"sources", "builds", "lock"}


def test_leftover_of_a_killed_build_is_removed(src: ModuleType, tmp_path: Path) -> None:
    cache = src.Cache(tmp_path)
    (tmp_path / "scratch-killed").mkdir()
    with cache.lock():
        assert not (tmp_path / "scratch-killed").exists()


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
    status, out, err = finish(start(tree, tmp_path / "cache", tmp_path / "builds"))
    assert status == 0
    assert "2.15.0 is not the pinned version: building it without our patches" in err
    facts = json.loads((Path(out) / "build.json").read_text())
    assert facts["patches"] == []
    assert all(patch["effect"] for patch in facts["known_patches"].values())


@needs_build_tools
def test_source_of_the_pinned_version_is_refused_if_a_patch_does_not_apply(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", rdkafka_h="#define RD_KAFKA_VERSION 0x020e02ff\n")
    status, out, err = finish(start(tree, tmp_path / "cache", tmp_path / "builds"))
    assert (status, out) == (1, "")
    assert re.search(r"0001-[\w-]+\.patch does not apply to this source", err)
    assert not list((tmp_path / "cache" / "builds").iterdir())


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
    assert f"CYKAFKA_LIBRDKAFKA_SOURCE: {missing} does not exist" in err


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
    assert "the system's version is 2.0.2; at least 2.14.2 is needed" in err
    assert "CYKAFKA_LIBRDKAFKA=bundled" in err
