"""The choice of a Java, and the error without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cykafka.spark import java
from cykafka.spark.java import JavaError, find_java


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java. Its folder `usual` is among the searched places."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(java, "_PLACES", (str(tmp_path / "usual" / "*"),))
    monkeypatch.setattr(java.sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(java.sys, "base_prefix", str(tmp_path / "python"))
    return tmp_path


def install(home: Path, version: str, *, release: bool = True) -> Path:
    """Make a Java whose version is in its file `release`, or only in its output."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    said = version if not release else "99.0.0"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{said}\" 2024-01-01' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    return home


def on_path(machine: Path, home: Path) -> None:
    (machine / "path").mkdir(exist_ok=True)
    (machine / "path" / "java").symlink_to(home / "bin" / "java")


@pytest.mark.parametrize(
    "release", [True, False], ids=["version in a file", "version in the output"]
)
def test_java_home_is_checked_first(
    machine: Path, monkeypatch: pytest.MonkeyPatch, release: bool
) -> None:
    home = install(machine / "mine", "21.0.2", release=release)
    on_path(machine, install(machine / "other", "17.0.1"))
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert find_java() == home


def test_java_on_the_path_is_checked_second(machine: Path) -> None:
    home = install(machine / "real" / "jdk", "17")
    on_path(machine, home)
    install(machine / "usual" / "a", "17.0.9")

    assert find_java() == home


def test_java_in_the_usual_places_is_checked_last(machine: Path) -> None:
    install(machine / "usual" / "a", "25")
    home = install(machine / "usual" / "b", "17.0.1")
    install(machine / "usual" / "c", "11.0.1")
    install(machine / "usual" / "d", "1.8.0_392")

    assert find_java() == home


def test_java_version_that_spark_is_tested_with_is_preferred(machine: Path) -> None:
    on_path(machine, install(machine / "new", "26"))
    install(machine / "usual" / "a", "18.0.2")
    home = install(machine / "usual" / "b", "21.0.2")
    install(machine / "usual" / "c", "25.0.1")

    assert find_java() == home


def test_java_on_the_path_may_be_newer_than_the_tested_versions(machine: Path) -> None:
    home = install(machine / "new", "26")
    on_path(machine, home)
    install(machine / "usual" / "a", "25")

    assert find_java() == home


def test_java_home_may_be_any_recent_version(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = install(machine / "new", "26")
    monkeypatch.setenv("JAVA_HOME", str(home))
    install(machine / "usual" / "a", "17")

    assert find_java() == home
    assert java.java_version(home) == 26


def test_java_of_a_conda_environment_is_found(machine: Path) -> None:
    home = install(machine / "venv" / "lib" / "jvm", "21.0.1")
    assert find_java() == home


def test_too_old_java_is_skipped(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(machine / "old", "1.8.0_392", release=False)))
    on_path(machine, install(machine / "path-old", "16.0.2"))
    home = install(machine / "usual" / "good", "17.0.1", release=False)

    assert find_java() == home


def test_java_home_without_java_is_skipped(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(machine / "gone"))
    home = install(machine / "usual" / "good", "17.0.1")

    assert find_java() == home


def test_error_without_java_explains_how_to_install_it() -> None:
    with pytest.raises(JavaError) as info:
        find_java()

    text = str(info.value)
    assert text.startswith("Spark needs Java 17 or newer. Found: none.")
    for words in ("apt-get install openjdk-17", "dnf install", "brew install", "JAVA_HOME"):
        assert words in text


def test_unsuitable_java_is_reported(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, gone = install(machine / "usual" / "old", "11.0.2"), machine / "gone"
    broken = install(machine / "broken", "17", release=False)
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    on_path(machine, broken)
    monkeypatch.setenv("JAVA_HOME", str(gone))

    with pytest.raises(JavaError) as info:
        find_java()

    text = str(info.value)
    assert f"JAVA_HOME: {gone}, no working Java" in text
    assert f"PATH: {broken}, no working Java" in text
    assert f"{old}, Java 11" in text
