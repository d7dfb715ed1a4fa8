"""Claims of archives: what an existing folder, table and checkpoint allow."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka.spark.jobs.archive.batch_writers import BATCH, Appends
from cykafka.spark.jobs.archive.ownership import Claim, Owner
from cykafka.spark.jobs.config import table_formats
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.config.partition_by import parse
from cykafka.spark.jobs.config.table_formats import ARCHIVE_NOTE, ICEBERG_NOTE
from cykafka.spark.jobs.problems import ConfigError

PARTS = [parse("topic")]


class Disk:
    """A local folder without Spark."""

    def __init__(self, address: str) -> None:
        self.address = address

    def exists(self, name: str = "") -> bool:
        return Path(self.address, name).exists()

    def names(self, name: str = "") -> list[str]:
        folder = Path(self.address, name)
        return [each.name for each in folder.iterdir()] if folder.exists() else []

    def read(self, name: str) -> str:
        return Path(self.address, name).read_text()


class OneTable:
    """An Iceberg table with these properties; without any the table does not exist."""

    columns: tuple[Any, ...] = ()

    def __init__(self, **properties: str) -> None:
        self.exists = bool(properties)
        self.expressions = PARTS
        self.get = properties.get

    def stored(self, columns: Any) -> Any:
        return columns

    def check(self, *given: Any) -> None:
        pass


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint that has planned two micro-batches and committed one."""
    monkeypatch.setattr(table_formats, "_spark_version", lambda: "4.2.9")
    for name in ("path", "c/offsets", "c/commits"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "c/metadata").write_text('{"id": "q"}')
    for name in ("offsets/0", "offsets/1", "commits/0"):
        (tmp_path / "c" / name).touch()
    return tmp_path


def run_of(places: Path, form: str) -> Any:
    given = {"topics": "a", "path": str(places / "path"), "checkpoint": str(places / "c"),
             "format": form, "kafka.bootstrap.servers": "a:1"}  # fmt: skip
    return SimpleNamespace(
        config=load(JOBS["archive"], None, given, {}),
        driver=SimpleNamespace(folder=Disk),
        spark=SimpleNamespace(conf=SimpleNamespace(get=lambda name: "UTC")),
    )


def claim(places: Path, form: str) -> Claim:
    folder: Any = Disk(str(places / "path"))
    return Claim(run_of(places, form), folder, PARTS)


def note(form: str) -> str:
    return json.dumps({"query": "q", "format": form, "folders": ["topic"], "time_zone": "UTC"},
                      indent=1)  # fmt: skip


def appends(places: Path, **properties: str) -> Appends:
    run, table = run_of(places, "iceberg"), OneTable(**properties)
    rows: Any = SimpleNamespace(schema=())
    return Appends(run, table, Owner(run, PARTS), rows, PARTS)  # type: ignore[arg-type]


def test_first_run_of_delta_that_was_killed_can_start_again(places: Path) -> None:
    """Delta makes its log with the first commit, after it has written the files."""
    (places / "c/commits/0").unlink()
    (places / "path/topic=a").mkdir()
    with pytest.raises(ConfigError, match="files that are not part of a Delta table"):
        claim(places, "delta").check()
    (places / "path" / ARCHIVE_NOTE).write_text(note("delta"))

    claim(places, "delta").check()

    (places / "path" / ARCHIVE_NOTE).write_text(note("other"))
    with pytest.raises(ConfigError, match="files that are not part of a Delta table"):
        claim(places, "delta").check()


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("topic=a/x.parquet", "files that are not part of an Iceberg table"),
        ("_delta_log/0.json", "it is a Delta table"),
        ("_spark_metadata/0", "it is an archive with file_names"),
        ("metadata/00000-1f8b.metadata.json", 'use the key "table" instead'),
    ],
)
def test_iceberg_table_is_not_made_among_other_files(
    places: Path, monkeypatch: pytest.MonkeyPatch, there: str, expected: str
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/nowhere")  # so that only Spark knows the path
    claim(places, "iceberg").check_kind()
    (places / "path" / there).parent.mkdir()
    (places / "path" / there).touch()

    with pytest.raises(ConfigError, match=expected):
        claim(places, "iceberg").check_kind()


def commit(places: Path, number: int, *actions: Any) -> None:
    log = places / "path/_delta_log"
    log.mkdir(exist_ok=True)
    (log / f"{number:020}.json").write_text("\n".join(map(json.dumps, actions)))


def test_delta_table_that_is_gone_is_not_made_again(places: Path) -> None:
    with pytest.raises(ConfigError, match=r'"checkpoint" = .* there is no table at "path"'):
        claim(places, "delta").check()
    (places / "path" / ARCHIVE_NOTE).write_text(note("delta"))
    with pytest.raises(ConfigError, match=r'"checkpoint" = .* there is no table at "path"'):
        claim(places, "delta").check()
    (places / "c/commits/0").unlink()

    claim(places, "delta").check()


@pytest.mark.parametrize(("last", "fits"), [(0, True), (1, True), (2, False)])
def test_checkpoint_that_is_older_than_a_delta_table_is_refused(
    places: Path, last: int, fits: bool
) -> None:
    (places / "path" / ARCHIVE_NOTE).write_text(note("delta"))
    commit(places, 0, {"commitInfo": {}}, {"txn": {"appId": "q", "version": 0}})
    commit(places, 1, {"txn": {"appId": "q", "version": last}}, {"add": {}})
    commit(places, 2, {"commitInfo": {"operation": "OPTIMIZE"}})
    commit(places, 3, {"txn": {"appId": "other", "version": 9}})
    (places / "path/_delta_log/00000000000000000003.crc").write_text("{}")
    if fits:
        claim(places, "delta").check()
        return

    with pytest.raises(ConfigError, match="it ends before micro-batch 2"):
        claim(places, "delta").check()


@pytest.mark.parametrize(("last", "fits"), [("1", True), ("2", False), ("9.compact", False)])
def test_checkpoint_that_is_older_than_sparks_log_is_refused(
    places: Path, last: str, fits: bool
) -> None:
    log = places / "path/_spark_metadata"
    log.mkdir()
    for name in ("0", last, f".{last}.crc"):
        (log / name).touch()
    given = {**json.loads(note("")), "file_names": "spark"}
    (places / "path" / ARCHIVE_NOTE).write_text(json.dumps(given))
    if fits:
        claim(places, "parquet").check()
        return

    with pytest.raises(ConfigError, match="it ends before micro-batch"):
        claim(places, "parquet").check()


def test_table_that_is_gone_is_not_made_again(places: Path) -> None:
    with pytest.raises(ConfigError, match=r'"checkpoint" = .* there is no table at "path"'):
        appends(places).check()
    (places / "c/commits/0").unlink()

    appends(places).check()  # a first run that was killed


@pytest.mark.parametrize(("last", "fits"), [("0", True), ("1", True), ("2", False)])
def test_old_copy_of_a_checkpoint_is_refused(
    places: Path, monkeypatch: pytest.MonkeyPatch, last: str, fits: bool
) -> None:
    monkeypatch.setattr(
        "cykafka.spark.jobs.archive.batch_writers.check_columns", lambda *given: None
    )
    made = appends(places, **{ICEBERG_NOTE: note("iceberg"), BATCH: last})
    if fits:
        made.check()
        return

    with pytest.raises(ConfigError, match="it ends before micro-batch 2"):
        made.check()
