"""Jobs without a JVM: folders by pyarrow, results of foreachBatch, the address of the server."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cykafka.spark.jobs.config.load import load, to_toml
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.folders import ArrowFolder, ConnectFolder, FolderSource, qualified
from cykafka.spark.jobs.records.outcome import BatchResults
from cykafka.spark.jobs.run.session import ConnectDriver, server_of


@pytest.fixture
def folder(tmp_path: Path) -> ArrowFolder:
    return ArrowFolder(str(tmp_path / "folder"))


@pytest.mark.parametrize(
    ("address", "whole"),
    [
        ("/data/a/", "file:/data/a"),
        ("file:///data//a", "file:/data/a"),
        ("s3a://bucket/a", "s3a://bucket/a"),
    ],
)
def test_address_has_the_form_of_hadoop(address: str, whole: str) -> None:
    assert qualified(address) == whole


def test_relative_path_is_refused() -> None:
    with pytest.raises(OSError, match="expected an absolute path"):
        qualified("data/a")


def test_unknown_file_system_is_refused() -> None:
    with pytest.raises(OSError, match="pyarrow does not support this file system"):
        ArrowFolder("wasb://container/a")


def test_files_are_written_read_and_listed(folder: ArrowFolder, tmp_path: Path) -> None:
    assert not folder.exists()
    assert list(folder.names()) == []
    folder.make("below")
    folder.write("a.txt", "first")
    folder.write("a.txt", "ä second")

    assert (tmp_path / "folder" / "a.txt").read_text() == folder.read("a.txt") == "ä second"
    assert set(folder.names()) == {"a.txt", "below"}
    folder.delete("a.txt")
    folder.delete("below")
    folder.delete("never")
    assert list(folder.names()) == []


def test_folders_are_copied_moved_and_deleted(folder: ArrowFolder, tmp_path: Path) -> None:
    other = ArrowFolder(str(tmp_path / "other"))
    folder.copy(other)
    assert not other.exists()
    folder.make()
    folder.write("a", "new")

    folder.copy(other)
    other.write("b", "old")
    other.take(folder, "a", "b")

    assert (other.read("a"), other.read("b")) == ("new", "new")
    assert not folder.exists("a")
    other.delete()
    assert not other.exists()


def test_folder_of_a_client_is_an_arrow_folder_on_the_server(tmp_path: Path) -> None:
    spark: Any = SimpleNamespace()

    there = pickle.loads(pickle.dumps(ConnectFolder(spark, str(tmp_path))))

    assert isinstance(there, ArrowFolder)
    assert there.address == f"file:{tmp_path}"


def test_data_source_makes_the_calls_of_a_client(tmp_path: Path) -> None:
    calls = []

    class Session:
        """A session whose data source runs in this process."""

        def __init__(self) -> None:
            self.dataSource = SimpleNamespace(register=lambda _: None)
            self.read = SimpleNamespace(format=lambda _: self)

        def option(self, _name: str, call: str) -> Session:
            calls.append(call)
            return self

        def load(self) -> Session:
            return self

        def collect(self) -> list[tuple[str]]:
            reader = FolderSource({"call": calls[-1]}).reader(Any)
            (partition,) = reader.partitions()
            return list(reader.read(partition))

    spark: Any = Session()
    here = ConnectFolder(spark, str(tmp_path / "a"))
    here.make()
    here.write("file", "words")
    here.copy(ConnectFolder(spark, str(tmp_path / "b")))

    assert (tmp_path / "b" / "file").read_text() == here.read("file") == "words"
    assert list(here.names()) == ["file"]
    assert not here.exists("other")


@pytest.mark.parametrize(
    ("server", "warned"), [("4.3.9", False), ("4.2.0", True), ("5.3.0", True)]
)
def test_other_version_of_the_server_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, server: str, warned: bool
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    spark: Any = SimpleNamespace(version=server, registerProgressHandler=lambda handler: None)

    found = ConnectDriver(spark).warnings()

    assert [f"'pyspark[connect]=={server}'" in words for words in found] == [True] * warned


def test_results_of_the_server_are_read_once(folder: ArrowFolder) -> None:
    client = BatchResults(folder)
    client.is_used = True
    server = pickle.loads(pickle.dumps(client))
    server.put(3, {"sent": 1})
    server.put(3, {"sent": 2})

    assert client.pop(3, {}) == {"sent": 2}
    assert client.pop(3, {}) == client.pop(4, {}) == {}


def test_master_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "topics": "a"}
    monkeypatch.delenv("SPARK_REMOTE", raising=False)

    def server(**more: str) -> str | None:
        return server_of(load(JOBS["profile"], None, {**given, **more}, {}))

    assert server() is server(master="local[2]") is None
    assert server(master="sc://a:1") == "sc://a:1"
    monkeypatch.setenv("SPARK_REMOTE", "sc://b")
    assert server() == "sc://b"
    assert server(master="local[2]") is None


@pytest.mark.parametrize("place", ["master", "spark.master", "SPARK_REMOTE"])
def test_token_of_the_server_is_hidden(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = "sc://a/;token=abcdef;x=1"
    given = {"kafka.bootstrap.servers": "a:1", "topics": "a"}
    if place == "SPARK_REMOTE":
        monkeypatch.setenv(place, server)
    else:
        given[place] = server
    config = load(JOBS["profile"], None, given, {})

    assert server_of(config) == server
    assert config.redact(f"cannot reach {server}") == "cannot reach sc://a/;token=********;x=1"
    assert "abcdef" not in config.redact(to_toml(config))
