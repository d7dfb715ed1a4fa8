"""Archives of Java's classes are optional, and created once per Java and jars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cykafka.testing import KafkaClusterError
from cykafka.testing._java import archived_classes

pytestmark = pytest.mark.ours


@pytest.fixture
def make_java(tmp_path: Path) -> Callable[[str], str]:
    def make_java(version: str) -> str:
        program = tmp_path / f"java-{version}"
        program.write_text(f"#!{sys.executable}\nprint('openjdk version \"{version}\"')\n")
        program.chmod(0o755)
        return str(program)

    return make_java


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CYKAFKA_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "kafka.jar").write_text("classes")
    return folder


class Runs:
    """Counts the runs of Java that create an archive, and sets their outcome."""

    def __init__(self, text: str = "archive", error: Exception | None = None) -> None:
        self.count = 0
        self._text = text
        self._error = error

    def __call__(self, options: Sequence[str]) -> None:
        self.count += 1
        (path,) = (option.partition("AtExit=")[2] for option in options if "AtExit=" in option)
        if self._text:
            Path(path).write_text(self._text)
        if self._error is not None:
            raise self._error


def archive_in(options: list[str]) -> str:
    (path,) = (
        option.partition("File=")[2] for option in options if "SharedArchiveFile=" in option
    )
    return Path(path).read_text()


def test_archive_is_created_once(make_java: Callable[[str], str], jars: Path) -> None:
    java, runs = make_java("17"), Runs()

    assert archived_classes(java, jars) == []
    found = [archived_classes(java, jars, runs), archived_classes(java, jars, runs)]

    assert runs.count == 1
    assert found[0] == found[1] == archived_classes(java, jars)
    assert archive_in(found[0]) == "archive"


def test_each_java_and_jar_has_its_own_archive(
    make_java: Callable[[str], str], jars: Path
) -> None:
    archived_classes(make_java("17"), jars, Runs("first"))

    other = archived_classes(make_java("21"), jars, Runs("second"))
    (jars / "more.jar").touch()
    more = archived_classes(make_java("17"), jars, Runs("third"))

    assert (archive_in(other), archive_in(more)) == ("second", "third")


@pytest.mark.parametrize(
    "runs", [Runs(""), Runs("", KafkaClusterError("no such option"))], ids=["silent", "error"]
)
def test_java_that_cannot_create_an_archive_is_tried_once(
    make_java: Callable[[str], str], jars: Path, runs: Runs
) -> None:
    java = make_java("17")

    assert archived_classes(java, jars, runs) == []
    assert archived_classes(java, jars, runs) == []
    assert runs.count == 1


def test_interrupted_run_leaves_no_archive(
    make_java: Callable[[str], str], jars: Path, tmp_path: Path
) -> None:
    java = make_java("17")

    with pytest.raises(ZeroDivisionError):
        archived_classes(java, jars, Runs("half", ZeroDivisionError()))

    assert archived_classes(java, jars) == []
    assert not [path for path in (tmp_path / "cache").rglob("*") if "scratch" in path.name]


def test_unwritable_cache_is_not_used(
    make_java: Callable[[str], str], jars: Path, tmp_path: Path
) -> None:
    (tmp_path / "cache").touch()

    assert archived_classes(make_java("17"), jars, Runs()) == []
