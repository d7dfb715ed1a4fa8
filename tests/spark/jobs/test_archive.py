"""The job archive on a real broker: Parquet has each record of the topics once."""

from __future__ import annotations

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pyarrow.parquet
import pytest
from spark_jobs import Bench, offsets_by_listing, offsets_by_spark, once

from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.run.session import Stop

KINDS = ("spark", "deterministic")


@pytest.mark.parametrize("file_names", KINDS)
def test_archive_keeps_each_record_unchanged(
    bench: Bench, topic: str, places: dict[str, str], file_names: str
) -> None:
    bench.fill(topic, 25)
    bench.send(topic, [{"value": None, "key": None, "partition": 0, "timestamp": 1_000}])

    summary = bench.run("archive", topics=topic, file_names=file_names, **places)

    assert summary.records == 101
    assert summary.bad == 0
    assert summary.bytes == sum(len(f"k0-{n % 7}v0-{n}") * 4 for n in range(25))
    assert summary.ranges == {(topic, 0): (0, 26), **{(topic, n): (0, 25) for n in (1, 2, 3)}}
    found = bench.spark.read.parquet(places["path"])
    rows = {(row.partition, row.offset): row for row in found.collect()}
    assert len(rows) == 101
    row = rows[2, 7]
    assert (bytes(row.key), bytes(row.value)) == (b"k2-0", b"v2-7")
    assert [(header.key, header.value) for header in row.headers] == [
        ("n", b"7"), ("n", b"again"), ("null", None),
    ]  # fmt: skip
    assert row.timestamp.timestamp() == pytest.approx(1_700_000_000.007)
    assert (row.topic, str(row.date), row.timestampType) == (topic, "2023-11-14", 0)
    assert (rows[0, 25].key, rows[0, 25].value, rows[0, 25].headers) == (None, None, [])
    assert str(rows[0, 25].date) == "1970-01-01"


@pytest.mark.parametrize(
    ("name", "value", "kind", "writer"),
    [
        ("spark.sql.parquet.outputTimestampType", "INT96", "INT96", "parquet-cpp"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS", "INT64", "parquet-cpp"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS", "INT64", "parquet-mr"),
        ("spark.sql.parquet.fieldId.write.enabled", "false", "INT64", "parquet-mr"),
    ],
)
def test_settings_of_sparks_parquet_writer_hold(
    bench: Bench,
    topic: str,
    places: dict[str, str],
    name: str,
    value: str,
    kind: str,
    writer: str,
) -> None:
    before = bench.spark.conf.getAll.get(name)
    bench.fill(topic, 5)
    bench.spark.conf.set(name, value)
    try:
        bench.run("archive", topics=topic, **places)
    finally:
        bench.spark.conf.unset(name)
        if before is not None:
            bench.spark.conf.set(name, before)

    rows = bench.spark.read.parquet(places["path"]).where("partition = 2").sort("offset")
    assert [row.timestamp.timestamp() for row in rows.collect()] == [
        pytest.approx(1_700_000_000 + n / 1000) for n in range(5)
    ]
    for file in Path(places["path"]).rglob("*.parquet"):
        found = pyarrow.parquet.ParquetFile(file)
        columns = map(found.schema.column, range(8))
        assert {column.path: column.physical_type for column in columns}["timestamp"] == kind
        assert found.metadata.created_by.startswith(writer)


@pytest.mark.parametrize("file_names", KINDS)
def test_restart_continues_where_the_last_run_ended(
    bench: Bench, topic: str, places: dict[str, str], file_names: str
) -> None:
    keys = {"topics": topic, "file_names": file_names, **places}
    bench.fill(topic, 10)
    bench.run("archive", **keys)
    nothing = bench.run("archive", **keys)
    bench.fill(topic, 5)

    more = bench.run("archive", **keys)

    assert (nothing.records, nothing.ranges, nothing.outcome) == (0, {}, "finished")
    assert more.records == 20
    assert more.ranges == {(topic, partition): (10, 15) for partition in range(4)}
    assert offsets_by_spark(bench, places["path"]) == once(topic, 15)
    assert offsets_by_listing(places["path"]) == once(topic, 15)


@pytest.mark.parametrize("file_names", KINDS)
def test_several_micro_batches_are_counted_as_one_run(
    bench: Bench, topic: str, places: dict[str, str], file_names: str
) -> None:
    bench.fill(topic, 30)

    summary = bench.run(
        "archive", topics=topic, file_names=file_names, source__maxOffsetsPerTrigger=40, **places
    )

    assert summary.batches == 3
    assert summary.records == 120
    assert summary.ranges == {(topic, partition): (0, 30) for partition in range(4)}
    assert offsets_by_spark(bench, places["path"]) == once(topic, 30)


def test_file_names_have_topic_partition_and_offsets(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    bench.fill(topic, 10, partitions=2)
    bench.fill(topic, 10, partitions=2, timestamp=1_700_100_000_000)  # another day

    bench.run("archive", topics=topic, file_names="deterministic", **places)

    found = sorted(
        str(file.relative_to(places["path"])) for file in Path(places["path"]).rglob("*.*")
    )
    folder = f"topic={topic}/date="
    days = ["2023-11-14", "2023-11-16"]
    assert [name for name in found if name.endswith(".parquet")] == [
        f"{folder}{days[0]}/{topic}-0-0-9.parquet",
        f"{folder}{days[0]}/{topic}-1-0-9.parquet",
        f"{folder}{days[1]}/{topic}-0-10-19.parquet",
        f"{folder}{days[1]}/{topic}-1-10-19.parquet",
    ]
    assert len(set(found) - {"_cykafka.json"}) == 4, "the archive has other files too"
    assert not list(Path(places["path"] + ".unfinished").iterdir())


@pytest.mark.parametrize("sign", ["_", "."])
@pytest.mark.parametrize("form", [{}, {"schema": "id BIGINT"}])
def test_readers_find_topics_whose_names_begin_with_a_hidden_file_sign(
    bench: Bench,
    cluster: Any,
    unique: Any,
    other_topic: str,
    places: dict[str, str],
    sign: str,
    form: dict[str, str],
) -> None:
    topic = sign + unique("hidden")
    cluster.create_topic(topic, 2, config={"retention.ms": -1})
    keys = {"topics": topic, "file_names": "deterministic", **form, **places}
    for count in (10, 5):
        bench.fill(topic, count, partitions=2, value='{"id": 1}')
        bench.run("archive", **keys)

    replayed = bench.run("replay", topics=topic, to=other_topic, path=places["path"])

    assert sorted(path.name for path in Path(places["path"]).rglob("*.parquet")) == [
        f"+{topic}-{span}.parquet" for span in ("0-0-9", "0-10-14", "1-0-9", "1-10-14")
    ]
    assert offsets_by_spark(bench, places["path"]) == once(topic, 15, 2)
    assert offsets_by_listing(places["path"]) == once(topic, 15, 2)
    table = pyarrow.dataset.dataset(places["path"], partitioning="hive").to_table()
    columns = (table[name].to_pylist() for name in ("topic", "partition", "offset"))
    assert sorted(zip(*columns, strict=True)) == sorted(once(topic, 15, 2))
    assert replayed.ranges == {(topic, partition): (0, 15) for partition in range(2)}
    assert replayed.records == len(bench.read(other_topic)) == 30


def test_other_files_in_the_staging_folder_stay(
    bench: Bench, topic: str, places: dict[str, str], tmp_path: Path
) -> None:
    staging = tmp_path / "staging"
    staging.mkdir()
    (staging / "others.txt").write_text("important")
    bench.fill(topic, 5)

    bench.run("archive", topics=topic, file_names="deterministic", staging=str(staging), **places)

    assert [path.name for path in staging.iterdir()] == ["others.txt"]


@pytest.mark.parametrize("kinds", [KINDS, KINDS[::-1]])
def test_archive_with_the_other_kind_of_file_names_is_refused(
    bench: Bench, topic: str, places: dict[str, str], kinds: tuple[str, str]
) -> None:
    bench.fill(topic, 1)
    bench.run("archive", topics=topic, file_names=kinds[0], **places)
    other = {**places, "checkpoint": places["checkpoint"] + "-2"}

    with pytest.raises(ConfigError, match="use another directory"):
        bench.run("archive", topics=topic, file_names=kinds[1], **other)


@pytest.mark.parametrize("form", ["spark", "deterministic"])
def test_folder_that_cannot_be_created_is_a_configuration_error(
    bench: Bench, topic: str, places: dict[str, str], tmp_path: Path, form: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    keys = {**places, "path": str(tmp_path / "file" / "archive"), "file_names": form}

    with pytest.raises(ConfigError, match=r'key "path" = .*cannot read or create it: .*Not a dir'):
        bench.run("archive", topics=topic, **keys)

    assert not Path(places["checkpoint"], "offsets").exists()


def test_topics_with_numeric_names_stay_strings(
    bench: Bench, cluster: Any, unique: Any, places: dict[str, str]
) -> None:
    number = str(int(unique("x").encode().hex()[-12:], 16))
    cluster.create_topic("00" + number, 1, config={"retention.ms": -1})
    bench.fill("00" + number, 3, partitions=1)

    bench.run("archive", topic_pattern=f"0+{number}", file_names="deterministic", **places)

    (folder,) = Path(places["path"]).glob("topic*")
    assert folder.name == f"topic=00{number}"


def envelope(number: int, **other: Any) -> bytes:
    document = {
        "message_id": f"id{number}",
        "trace_id": "t",
        "message_type": "order",
        "sent_time": "2026-01-02T03:04:05.678+00:00",
        "message": base64.b64encode(json.dumps({"id": number}).encode()).decode(),
    }
    return json.dumps({**document, **other}).encode()


BAD = {
    1: b"no json",
    2: b"[1]",
    3: None,
    4: envelope(4, message="%%%"),
    5: envelope(5, sent_time="yesterday"),
    6: envelope(6, message=base64.b64encode(b'{"id": "x"}').decode()),
    7: envelope(7, message=base64.b64encode(b"{}").decode()),
    8: b'{"other": 1}',
    9: b"",
}


@pytest.mark.parametrize("file_names", KINDS)
def test_envelopes_are_decoded_and_bad_ones_are_quarantined(
    bench: Bench, topic: str, places: dict[str, str], file_names: str
) -> None:
    values = [BAD.get(number, envelope(number)) for number in range(20)]
    bench.send(topic, [{"value": value, "partition": 0} for value in values])

    summary = bench.run(
        "archive",
        topics=topic,
        decode="envelope-json",
        schema={"properties": {"id": {"type": "integer"}}, "required": ["id"]},
        file_names=file_names,
        **places,
    )

    assert (summary.records, summary.bad) == (20, len(BAD))
    rows = {row.offset: row for row in bench.spark.read.parquet(places["path"]).collect()}
    assert {offset for offset, row in rows.items() if row.status == "bad"} == BAD.keys()
    good = rows[12]
    assert (good.message_id, good.trace_id, good.message_type) == ("id12", "t", "order")
    assert good.sent_time.timestamp() == pytest.approx(1_767_323_045.678)
    assert (json.loads(good.body), good.json.id, good.error) == ({"id": 12}, 12, None)
    for offset, words in ((1, "not the JSON object"), (3, "is null"), (4, "not base64"),
                          (5, "sent_time is not a time"), (6, "does not match"), (7, "has no id"),
                          (8, "not the JSON object"), (9, "not the JSON object")):  # fmt: skip
        assert words in rows[offset].error, offset
    # Unchanged, so that it can be examined and replayed.
    assert bytes(rows[1].value) == b"no json"
    folders = {path.name for path in Path(places["path"]).glob("[!_]*")}
    assert folders == {"status=good", "status=bad"}


def test_envelopes_of_the_form_headers_are_decoded(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    bench.send(
        topic,
        [
            {
                "key": "id1",
                "value": b'{"id": 1}',
                "headers": [("message_type", b"order"), ("message_type", b"late"),
                            ("correlation_id", b"c")],
                "timestamp": 5_000,
                "partition": 0,
            },
            {"key": "id2", "value": None, "partition": 0},
        ],
    )  # fmt: skip

    summary = bench.run(
        "archive",
        topics=topic,
        decode="envelope-headers",
        schema="id BIGINT",
        keep_raw=False,
        **places,
    )

    assert summary.bad == 0
    rows = {row.offset: row for row in bench.spark.read.parquet(places["path"]).collect()}
    assert (rows[0].message_id, rows[0].message_type, rows[0].trace_id) == ("id1", "order", "c")
    assert (rows[0].sent_time.timestamp(), rows[0].json.id) == (5.0, 1)
    assert (rows[1].message_id, rows[1].body, rows[1].json) == ("id2", None, None)
    assert not {"key", "value", "headers"} & set(rows[0].asDict())


def test_invalid_schema_is_a_configuration_error(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    with pytest.raises(ConfigError, match=r'key "schema".*is not DDL'):
        bench.run("archive", topics=topic, schema="id NUMBRE, x", **places)


@pytest.mark.parametrize("file_names", KINDS)
def test_stopped_stream_ends_and_reports_all_its_work(
    bench: Bench, topic: str, places: dict[str, str], file_names: str
) -> None:
    stop = Stop()
    keys = {"topics": topic, "file_names": file_names, "trigger": "continuous", **places}
    run = bench.prepare("archive", stop, **keys)
    bench.fill(topic, 10)

    def write_more() -> None:
        # At least two micro-batches.
        while run.summary.records < 40 and not stop.asked:
            time.sleep(0.1)
        bench.fill(topic, 5)
        while run.summary.records < 60 and not stop.asked:
            time.sleep(0.1)
        stop.ask()

    thread = threading.Thread(target=write_more)
    thread.start()
    timer = threading.Timer(100, stop.ask)
    timer.start()
    try:
        summary = bench.work("archive", run)
    finally:
        timer.cancel()
        stop.ask()
        thread.join(30)

    assert (summary.outcome, summary.records) == ("stopped", 60)
    assert summary.batches >= 2
    assert offsets_by_spark(bench, places["path"]) == once(topic, 15)
    assert not bench.spark.streams.active


def test_pyarrow_reads_the_archive_by_folders(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    bench.fill(topic, 10)
    bench.run("archive", topics=topic, file_names="deterministic", compression="snappy", **places)

    found = pyarrow.dataset.dataset(places["path"], partitioning="hive").to_table()

    assert found.num_rows == 40
    assert set(found.column("date").to_pylist()) == {"2023-11-14"}


@pytest.mark.parametrize("file_names", KINDS)
def test_empty_topic_is_archived_once_it_has_records(
    bench: Bench, topic: str, places: dict[str, str], file_names: str
) -> None:
    keys = {"topics": topic, "file_names": file_names, **places}

    nothing = [bench.run("archive", **keys) for _ in range(2)]
    bench.fill(topic, 5)
    more = bench.run("archive", **keys)

    assert [(summary.outcome, summary.records) for summary in nothing] == [("finished", 0)] * 2
    assert more.records == 20
    assert offsets_by_spark(bench, places["path"]) == once(topic, 5)


def test_missing_required_fields_in_lists_and_maps_are_found(
    bench: Bench, topic: str, places: dict[str, str]
) -> None:
    one = {"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}}
    schema = {
        "required": ["may be null"],
        "properties": {
            "may be null": {"type": ["integer", "null"]},
            "list": {"type": "array", "items": {"type": "array", "items": one}},
            "a.b": {"type": "object", "additionalProperties": one},
        },
    }
    values = [
        '{"may be null": null, "list": [[{"x": "1"}], [], null], "a.b": {"k": {"x": "2"}}}',
        '{"list": [null, [null]], "a.b": {}}',
        '{"list": [[{"x": "1"}], [{"x": "2"}, {}]]}',
        '{"a.b": {"k": {"x": "2"}, "l": {"x": null}}}',
    ]
    bench.send(topic, [{"value": value, "partition": 0} for value in values])

    summary = bench.run("archive", topics=topic, schema=schema, **places)

    assert summary.bad == 2
    rows = bench.spark.read.parquet(places["path"]).select("offset", "error").collect()
    assert dict(rows) == {
        0: None, 1: None, 2: "the value has no list[][].x", 3: "the value has no a.b{}.x",
    }  # fmt: skip
