"""Archives that are tables, in each format: write, restart, replay, evolve, partition, compact."""

from __future__ import annotations

import fcntl
import json
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from spark_jobs import Bench, archive_rows, iceberg, once

from cykafka.spark.jobs.problems import ConfigError

FORMATS = ("iceberg", "delta")
BY_TIME = {"partition_by": ["topic", "hour(timestamp)", "bucket(4, key)"]}


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest, tables: dict[str, Any]) -> str:
    """A format whose package works with this Spark."""
    return usable(str(request.param), tables)


def usable(name: str, tables: dict[str, Any]) -> str:
    from cykafka.testing.plugin import no_broker

    if name not in tables:
        pytest.skip("Delta Lake 4.4.0 is for Spark 4.2: make test-delta")
    if isinstance(tables[name], Exception):
        no_broker(tables[name])
    return name


def offsets(bench: Bench, form: str, path: str) -> Counter[tuple[str, int, int]]:
    found = archive_rows(bench, form, path).select("topic", "partition", "offset").collect()
    return Counter((row.topic, row.partition, row.offset) for row in found)


def forget_commit(places: dict[str, str]) -> None:
    """Restore the state of a crash between the table's commit and the checkpoint's."""
    commits = Path(places["checkpoint"], "commits")
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)


def test_records_return_from_a_table_unchanged(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], form: str
) -> None:
    keys = {"topics": topic, "format": form, **BY_TIME, **places}
    bench.fill(topic, 10)
    bench.send(topic, [{"value": None, "key": None, "partition": 0, "timestamp": 1_000}])

    first = bench.run("archive", source__maxOffsetsPerTrigger=20, **keys)
    forget_commit(places)
    bench.fill(topic, 5)
    bench.run("archive", **keys)

    assert (first.records, first.bad) == (41, 0)
    expected = once(topic, 15)
    expected[topic, 0, 15] = 1
    assert offsets(bench, form, places["path"]) == expected
    again = bench.run("replay", path=places["path"], format=form, topics=topic, to=other_topic)
    assert again.counts == {"sent": 61}
    sent, copies = bench.read(topic), bench.read(other_topic)
    assert [content(message) for message in copies] == [content(message) for message in sent]


def content(message: Any) -> Any:
    return (message.partition(), message.key(), message.value(), message.headers(),
            message.timestamp())  # fmt: skip


def test_table_of_another_writer_is_refused(
    bench: Bench,
    topic: str,
    places: dict[str, str],
    form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.fill(topic, 5)
    foreign = bench.spark.range(3).selectExpr("id AS offset", "'x' AS topic")
    if form == "delta":
        foreign.write.format("delta").save(places["path"])
        before = bench.spark.read.format("delta").load(places["path"]).count()
    else:
        create_iceberg(bench, foreign, places["path"])
        before = 0

    with pytest.raises(ConfigError, match=r'"path" = .* another writer created this table'):
        bench.prepare("archive", topics=topic, format=form, **places)
    # Before Spark starts, a path may be of any file system.
    monkeypatch.setenv("HADOOP_CONF_DIR", "/nowhere")
    with pytest.raises(ConfigError, match=r'"path" = .* another writer created this table'):
        bench.run("archive", topics=topic, format=form, **places)

    if form == "delta":
        assert bench.spark.read.format("delta").load(places["path"]).count() == before
    else:
        assert iceberg(places["path"]).current_snapshot() is None
        with pytest.raises(ConfigError, match="no job archive has written this Iceberg table"):
            bench.run("compact", path=places["path"], format=form)
    with pytest.raises(ConfigError, match=r"missing: key, value"):
        bench.run("replay", path=places["path"], format=form)


def create_iceberg(bench: Bench, frame: Any, path: str) -> None:
    jvm: Any = bench.spark._jvm
    root = jvm.org.apache.iceberg
    inner: Any = bench.spark._jsparkSession
    conf = inner.sessionState().newHadoopConf()
    schema = root.spark.SparkSchemaUtil.convert(frame._jdf.schema())
    root.hadoop.HadoopTables(conf).create(schema, path)


def test_a_table_has_one_checkpoint_one_kind_and_one_form(
    bench: Bench,
    topic: str,
    places: dict[str, str],
    form: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench.fill(topic, 5)
    keys = {"topics": topic, "format": form}
    four = "topic,date,bucket(4, key)"
    bench.run("archive", partition_by=four, **keys, **places)
    other = {**places, "checkpoint": places["checkpoint"] + "-2"}

    with pytest.raises(ConfigError, match="was archived with another checkpoint"):
        bench.run("archive", partition_by=four, **keys, **other)
    for parts in ("topic", "topic,date,bucket(8,key)"):
        with pytest.raises(ConfigError, match=r"is partitioned by topic, date, bucket\(4, key\)"):
            bench.run("archive", partition_by=parts, **keys, **places)
    with pytest.raises(ConfigError, match=f'it is a table; set format = "{form}"'):
        bench.prepare("archive", topics=topic, **other)
    # Before Spark starts, a path may be of any file system.
    monkeypatch.setenv("HADOOP_CONF_DIR", "/nowhere")
    for names in ("spark", "deterministic"):
        with pytest.raises(ConfigError, match=r"it is an? (Delta|Iceberg) table"):
            bench.run("archive", topics=topic, file_names=names, **other)
    with pytest.raises(ConfigError, match=f'it is a table; set format = "{form}"'):
        bench.run("replay", path=places["path"])
    assert offsets(bench, form, places["path"]) == once(topic, 5)


def test_new_columns_come_with_merge_schema_only(
    bench: Bench, topic: str, places: dict[str, str], form: str
) -> None:
    keys = {"topics": topic, "format": form, **places}
    bench.send(topic, [{"value": '{"id": 1, "city": "Rome"}', "partition": 0}])
    bench.run("archive", schema="id BIGINT", **keys)
    bench.send(topic, [{"value": '{"id": 2, "city": "Oslo"}', "partition": 0}])
    wider = {"schema": "id BIGINT, city STRING", **keys}

    with pytest.raises(ConfigError, match=r"(?s)json is struct.*merge_schema = true"):
        bench.run("archive", **wider)
    bench.run("archive", merge_schema=True, **wider)

    if form == "delta":
        table = bench.spark.read.format("delta").load(places["path"])
        got = {(row.offset, row.json.id, row.json.city) for row in table.collect()}
    else:
        rows = iceberg(places["path"]).scan().to_arrow().to_pylist()
        got = {(row["offset"], row["json"]["id"], row["json"]["city"]) for row in rows}
        with pytest.raises(ConfigError, match=r'"path" = .*Cannot change column type'):
            bench.run("archive", merge_schema=True, schema="id DATE, city STRING", **keys)
    assert got == {(0, 1, None), (1, 2, "Oslo")}
    assert offsets(bench, form, places["path"]) == Counter({(topic, 0, 0): 1, (topic, 0, 1): 1})


def test_small_integers_do_not_stop_a_restart(
    bench: Bench, topic: str, places: dict[str, str], form: str
) -> None:
    """Iceberg has no type for them, so the table's columns are wider than those of the rows."""
    keys = {"topics": topic, "format": form, "schema": "id TINYINT, n SMALLINT", **places}

    for number in range(2):
        bench.send(topic, [{"value": json.dumps({"id": number, "n": 300}), "partition": 0}])
        assert bench.run("archive", **keys).bad == 0

    assert offsets(bench, form, places["path"]) == Counter({(topic, 0, 0): 1, (topic, 0, 1): 1})


def test_compaction_merges_small_files_and_keeps_the_rows(
    bench: Bench, topic: str, places: dict[str, str], form: str
) -> None:
    keys = {"topics": topic, "format": form, "partition_by": "topic", **places}
    for _ in range(2):
        bench.fill(topic, 10)
        bench.run("archive", source__maxOffsetsPerTrigger=20, **keys)
    before = sorted(
        archive_rows(bench, form, places["path"]).select("partition", "offset").collect()
    )

    done = bench.run("compact", path=places["path"], format=form)

    assert done.details["files_removed"] >= 4
    assert done.details["files_added"] == 1
    if form == "iceberg":
        for task in iceberg(places["path"]).scan().plan_files():
            column = pq.ParquetFile(task.file.file_path.removeprefix("file:")).metadata
            assert column.row_group(0).column(0).compression == "ZSTD"
    after = sorted(
        archive_rows(bench, form, places["path"]).select("partition", "offset").collect()
    )
    assert after == before
    nothing = bench.run("compact", path=places["path"], format=form)
    assert nothing.details["files_removed"] == 0
    # The archive goes on: its last micro-batch is known after the compaction, too.
    forget_commit(places)
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    assert offsets(bench, form, places["path"]) == once(topic, 25)


@pytest.mark.parametrize(
    ("expressions", "kinds", "folder"),
    [
        (["year(timestamp)", "truncate(2, topic)"], ["year", "truncate[2]"],
         "timestamp_year=2023"),
        (["month(timestamp)", "bucket(8, partition)"], ["month", "bucket[8]"],
         "timestamp_month=2023-11"),
        (["day(timestamp)", "truncate(3, offset)"], ["day", "truncate[3]"],
         "timestamp_day=2023-11-14"),
    ],
)  # fmt: skip
def test_partitions_of_an_iceberg_table_are_its_own_transforms(
    bench: Bench,
    topic: str,
    places: dict[str, str],
    tables: dict[str, Any],
    expressions: list[str],
    kinds: list[str],
    folder: str,
) -> None:
    form = usable("iceberg", tables)
    bench.fill(topic, 5)
    keys = {"topics": topic, "format": form, **places}
    twice = [*expressions, "hour(timestamp)"]

    with pytest.raises(ConfigError, match=r'"partition_by" = .* redundant partition'):
        bench.run("archive", partition_by=twice, **keys)
    bench.run("archive", partition_by=expressions, **keys)

    table = iceberg(places["path"])
    for kind in kinds:
        assert kind in str(table.spec())
    for file in table.scan().plan_files():
        path = table.spec().partition_to_path(file.file.partition, table.schema())
        assert path.partition("/")[0] == folder
        # remove_orphan_files skips hidden folders.
        parts = file.file.file_path.removeprefix(table.location()).split("/")
        assert not [part for part in parts if part.startswith(("_", "."))]
    assert not list(Path(places["path"]).rglob("_*"))
    # Readers that skip files by their partitions find each record: the values are Iceberg's.
    for partition in range(4):
        for offset in range(5):
            where = f"topic = '{topic}' AND partition = {partition} AND offset = {offset}"
            assert table.scan(row_filter=where).to_arrow().num_rows == 1, where


@pytest.mark.parametrize(
    ("kind", "expression", "expected"),
    [
        ("TIMESTAMP", "json.x", "json.x: cannot partition by a timestamp"),
        ("BINARY", "json.x", "json.x: cannot partition by a binary"),
        ("DECIMAL(9, 2)", "truncate(10, json.x)", "cannot partition by a decimal"),
        ("DATE", "day(json.x)", "day(json.x): cannot partition by a date"),
    ],
)
def test_unwritable_partitions_are_refused_before_the_table_exists(
    bench: Bench,
    topic: str,
    places: dict[str, str],
    tables: dict[str, Any],
    kind: str,
    expression: str,
    expected: str,
) -> None:
    keys = {"topics": topic, "format": usable("iceberg", tables), **places}

    with pytest.raises(ConfigError, match=re.escape(expected)):
        bench.run("archive", partition_by=["topic", expression], schema=f"x {kind}", **keys)

    assert not Path(places["path"]).exists()


def test_iceberg_table_of_a_catalog(
    bench: Bench, topic: str, other_topic: str, tmp_path: Path, tables: dict[str, Any]
) -> None:
    keys = {
        "format": usable("iceberg", tables),
        "table": "lake.kafka.orders",
        "spark__sql.catalog.lake.type": "hadoop",
        "spark__sql.catalog.lake.warehouse": str(tmp_path / "warehouse"),
    }
    bench.fill(topic, 5)
    stream = {"topics": topic, "checkpoint": str(tmp_path / "checkpoint")}

    with pytest.raises(ConfigError, match=r"catalog lake has no type; set sql\.catalog\.lake"):
        bench.run("archive", format="iceberg", table="lake.kafka.orders", **stream)
    for _ in range(2):
        bench.run("archive", **keys, **stream)

    assert offsets(bench, "iceberg", str(tmp_path / "warehouse/kafka/orders")) == once(topic, 5)
    bench.run("replay", to=other_topic, **keys)
    assert len(bench.read(other_topic)) == 20


def test_batch_of_two_drivers_is_committed_once(
    bench: Bench, topic: str, places: dict[str, str], tables: dict[str, Any]
) -> None:
    """A driver that was taken for dead commits between the other one's look and its commit."""
    from cykafka.spark.jobs.tables.iceberg import Table

    keys = {"topics": topic, "format": usable("iceberg", tables), **places}
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    table = Table(bench.prepare("replay", format="iceberg", path=places["path"]))
    other = Table(bench.prepare("replay", format="iceberg", path=places["path"]))
    looks = []

    def change(transaction: Any) -> bool:
        looks.append(transaction.table().properties().get("winner"))
        if looks[-1] is not None:
            return False
        transaction.updateProperties().set("winner", "first").commit()
        if len(looks) == 1:

            def sooner(transaction: Any) -> bool:
                transaction.updateProperties().set("winner", "other").commit()
                return True

            other.commit(sooner)
        return True

    table.commit(change)

    assert looks == [None, "other"]
    mapping = json.loads(table.get("schema.name-mapping.default") or "[]")
    assert ["headers"] in [field["names"] for field in mapping]
    table.load()
    assert table.get("winner") == "other"


def test_partitions_that_another_writer_has_changed_are_noticed(
    bench: Bench, topic: str, places: dict[str, str], tables: dict[str, Any]
) -> None:
    """With the old values of new partitions, readers would skip files that they need."""
    form = usable("iceberg", tables)
    keys = {"topics": topic, "format": form, "partition_by": "topic,bucket(4, key)", **places}
    bench.fill(topic, 5)
    bench.run("archive", **keys)
    table = java_table(bench, places["path"])
    expressions = bench.spark._jvm.org.apache.iceberg.expressions.Expressions
    update = table.updateSpec().removeField("key_bucket")
    update.addField(expressions.bucket("key", 8)).commit()

    bench.fill(topic, 5)
    with pytest.raises(ConfigError, match=r"is partitioned by topic, bucket\(8, key\), but"):
        bench.run("archive", **keys)

    assert offsets(bench, form, places["path"]) == once(topic, 5)
    assert bench.run("compact", path=places["path"], format=form).details["files_removed"] == 0


def test_columns_that_another_writer_has_renamed_are_not_lost(
    bench: Bench, topic: str, places: dict[str, str], tables: dict[str, Any]
) -> None:
    """Spark would read null from the files with the old name, and compact would write it."""
    form = usable("iceberg", tables)
    for _ in range(2):
        bench.fill(topic, 5)
        bench.run("archive", topics=topic, format=form, **places)
    table = java_table(bench, places["path"])
    table.updateSchema().renameColumn("headers", "tags").commit()

    with pytest.raises(ConfigError, match="another writer has renamed columns"):
        bench.run("compact", path=places["path"], format=form)


def java_table(bench: Bench, path: str) -> Any:
    inner: Any = bench.spark._jsparkSession
    conf = inner.sessionState().newHadoopConf()
    return bench.spark._jvm.org.apache.iceberg.hadoop.HadoopTables(conf).load(path)


def test_processes_of_a_machine_commit_to_a_local_table_one_by_one(
    bench: Bench, topic: str, places: dict[str, str], tables: dict[str, Any]
) -> None:
    """A local rename would replace what the other process has committed."""
    from cykafka.spark.jobs.tables.iceberg import Table

    bench.fill(topic, 1)
    bench.run("archive", topics=topic, format=usable("iceberg", tables), **places)
    table = Table(bench.prepare("replay", format="iceberg", path=places["path"]))

    def change(transaction: Any) -> bool:
        transaction.updateProperties().set("done", "yes").commit()
        return True

    committing = threading.Thread(target=table.commit, args=[change], daemon=True)
    with open(f"{places['path']}/metadata/.cykafka.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        committing.start()
        committing.join(2)
        assert committing.is_alive()
        assert "done" not in iceberg(places["path"]).properties
    committing.join(60)
    assert iceberg(places["path"]).properties["done"] == "yes"


@pytest.mark.parametrize("names", ["spark", "deterministic"])
def test_parquet_is_partitioned_by_expressions(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str], names: str
) -> None:
    bench.fill(topic, 5)
    keys = {"topics": topic, "file_names": names, **BY_TIME, **places}

    for _ in range(2):
        bench.run("archive", **keys)

    found = {path.parent.relative_to(places["path"]) for path in
             Path(places["path"]).rglob("*.parquet")}  # fmt: skip
    assert {path.parts[:2] for path in found} == {
        (f"topic={topic}", "timestamp_hour=2023-11-14-22")
    }
    assert {path.parts[2].partition("=")[0] for path in found} == {"key_bucket"}
    assert bench.run("replay", path=places["path"], to=other_topic).records == 20


ODD = ["New York", "50% + {x}", "a/b:c#d?e", "[*]", "Zürich", "ab"]


@pytest.mark.parametrize("kind", ["iceberg", "deterministic"])
def test_folders_and_partitions_may_have_any_characters(
    bench: Bench, topic: str, tmp_path: Path, tables: dict[str, Any], kind: str
) -> None:
    """Spark names the files that it has written by URIs."""
    if kind == "iceberg":
        keys = {"format": usable(kind, tables), "schema": "city STRING"}
        by = "topic,json.city"
    else:
        keys = {"file_names": kind, "decode": "envelope-headers"}
        by = "topic,message_type"
    path = str(tmp_path / "my archive")
    bench.send(
        topic,
        [
            {"value": json.dumps({"city": name}), "partition": 0,
             "headers": [("message_type", name.encode())]}
            for name in ODD
        ],
    )  # fmt: skip

    bench.run("archive", topics=topic, path=path, checkpoint=str(tmp_path / "c"),
              partition_by=by, **keys)  # fmt: skip

    if kind == "iceberg":
        rows = iceberg(path).scan().to_arrow().to_pylist()
        assert {row["offset"]: row["json"]["city"] for row in rows} == dict(enumerate(ODD))
        # Files of a partition hold the partition's values only.
        found = {file.file.partition[2] for file in iceberg(path).scan().plan_files()}
        assert found == set(ODD)
    else:
        found = bench.spark.read.parquet(path).select("offset", "message_type").collect()
        assert {row.offset: row.message_type for row in found} == dict(enumerate(ODD))
