"""Jobs with values of Schema Registry, on a real broker: decoded, encoded, bad records kept."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from machine import WAIT_S
from proto_files import message, proto, text
from spark_jobs import Bench

from cykafka.spark.jobs.archive import archiving
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.records.decoding import check_schemas
from cykafka.testing import SchemaRegistry

OLD = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"}]}  # fmt: skip
NEW = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
     "default": None}]}  # fmt: skip
JSON = {"type": "object", "title": "Order", "required": ["id"], "properties": {
    "id": {"type": "integer", "minimum": 0}}}  # fmt: skip


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry(users={"ada": "secret"}) as made:
        yield made


@pytest.fixture
def keys(registry: SchemaRegistry) -> dict[str, str]:
    """The keys of the registry."""
    return {
        "registry__url": registry.url,
        "registry__basic.auth.user.info": "ada:secret",
        "registry__retries.wait.ms": "1",
    }


def avro(number: int, schema: Any, **fields: Any) -> bytes:
    out = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), fields)
    return out.getvalue()


def filled(bench: Bench, registry: SchemaRegistry, topic: str) -> None:
    """Send records of two schemas, with bad records and a null between them."""
    begun(bench, registry, topic)
    new = registry.add(f"{topic}-value", NEW)
    values = [
        b"no wire format",
        avro(new, NEW, id=2, at=1_700_000_000_123),
        None,
        b"\0\0\0\x03\xe7x",
        avro(new, NEW, id=2**40, at=None),
    ]
    bench.send(topic, [{"value": item, "key": str(at), "partition": 0}
                       for at, item in enumerate(values, 1)])  # fmt: skip


def begun(bench: Bench, registry: SchemaRegistry, topic: str) -> None:
    """Send the first record, by the first schema."""
    old = registry.add(f"{topic}-value", OLD)
    bench.send(topic, [{"value": avro(old, OLD, id=0), "key": "0", "partition": 0}])


def test_archive_decodes_and_replay_encodes_again(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str, other_topic: str,
    places: dict[str, str],
) -> None:  # fmt: skip
    begun(bench, registry, topic)
    narrow = {**NEW, "fields": NEW["fields"][:1]}
    bench.run("archive", topics=topic, decode="avro", schema=narrow, **keys, **places)
    filled(bench, registry, topic)  # the first record is there twice
    keys["registry__cache.latest.ttl.sec"] = "0"

    summary = bench.run("archive", topics=topic, decode="avro", **keys, **places)

    assert (summary.records, summary.bad) == (6, 2)
    found = bench.spark.read.option("mergeSchema", True).parquet(places["path"])
    first, *later = found.orderBy("offset").collect()
    assert (first.avro.id, first.avro.at) == (0, None)  # its file has no field "at"
    rows = dict(enumerate(later))
    assert [(rows[at].status, rows[at].avro and rows[at].avro.id) for at in range(6)] == [
        ("good", 0), ("bad", None), ("good", 2), ("good", None), ("bad", None), ("good", 2**40),
    ]  # fmt: skip
    assert rows[2].avro.at.timestamp() == pytest.approx(1_700_000_000.123)
    assert "not in the wire format" in rows[1].error
    assert "no schema with the id 999" in rows[4].error
    assert bytes(rows[1].value) == b"no wire format"

    number = registry.add(f"{other_topic}-value", {**NEW, "name": "Another"})
    bench.run("replay", path=places["path"], to=other_topic, encode="avro", **keys)

    sent = [message.value() for message in bench.read(other_topic, 7)][1:]
    another = {**NEW, "name": "Another"}
    assert sent == [
        avro(number, another, id=0, at=None),
        b"no wire format",
        avro(number, another, id=2, at=1_700_000_000_123),
        None,
        b"\0\0\0\x03\xe7x",
        avro(number, another, id=2**40, at=None),
    ]
    # A value without a place in the schema fails the replay; nothing is left out.
    registry.add(f"{other_topic}-value", OLD)
    with pytest.raises(ConfigError, match=r'key "encode": .*no field at'):
        bench.run("replay", path=places["path"], to=other_topic, encode="avro",
                  encode_schema=f"{other_topic}-value:2", **keys)  # fmt: skip
    bigs = {
        **NEW,
        "name": "Small",
        "fields": [{**NEW["fields"][0], "type": "int"}, NEW["fields"][1]],
    }
    registry.add(f"{other_topic}-small", bigs)
    with pytest.raises(Exception, match=rf"offset \d+ of {topic} \[\d\] cannot be encoded"):
        bench.run("replay", path=places["path"], to=other_topic, encode="avro",
                  encode_schema=f"{other_topic}-small:latest", **keys)  # fmt: skip


RICH = {"type": "record", "name": "Rich", "fields": [
    {"name": "id", "type": "long"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8,
                               "scale": 2}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    {"name": "tags", "type": {"type": "map", "values": "double"}},
    {"name": "parts", "type": {"type": "array", "items": {
        "type": "record", "name": "Part", "fields": [{"name": "n", "type": ["null", "int"]}]}}},
    {"name": "raw", "type": "bytes"}]}  # fmt: skip
LOCAL = {"name": "seen", "type": {"type": "long", "logicalType": "local-timestamp-micros"}}


@pytest.mark.parametrize("file_names", ["spark", "deterministic"])
@pytest.mark.parametrize("keep_raw", [True, False])
def test_tasks_and_spark_write_the_same_decoded_values(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, file_names: str, keep_raw: bool,
) -> None:  # fmt: skip
    number = registry.add(f"{topic}-value", RICH)
    values = [b"\0\0\0\x01\x07"] + [
        avro(number, RICH, id=at, day=at - 200_000, at=at - 10**13 if at % 3 else None,
             price=b"\x01%c" % at, kind="AB"[at % 2], tags={"t": at / 2} if at % 4 else {},
             raw=b"%d" % at, parts=[{"n": None}, {"n": at}][: at % 3])
        for at in range(20)
    ]  # fmt: skip
    bench.send(topic, [{"value": value, "timestamp": 1_700_000_000_000 + 50_000_000 * at}
                       for at, value in enumerate(values)])  # fmt: skip
    given = {"topics": topic, "decode": "avro", "file_names": file_names, "keep_raw": keep_raw}
    given |= keys
    archives = [str(tmp_path / writer) for writer in ("tasks", "spark")]

    counts = []
    for archive in archives:
        with monkeypatch.context() as patched:
            if archive.endswith("spark"):
                patched.setattr(archiving, "knows_zone", lambda _zone: False)
            summary = bench.run("archive", path=archive, checkpoint=f"{archive}-c", **given)
        counts.append((summary.records, summary.bytes, summary.bad))

    assert counts == [(21, sum(map(len, values)), 1)] * 2
    by_tasks, by_spark = (bench.spark.read.parquet(archive) for archive in archives)
    assert by_tasks.schema == by_spark.schema
    assert ("value" in by_tasks.columns) == keep_raw
    order = "partition", "offset"
    assert by_tasks.sort(*order).collect() == by_spark.sort(*order).collect()
    for archive, writer in zip(archives, ("parquet-cpp-arrow", "parquet-mr"), strict=True):
        for file in Path(archive).rglob("*.parquet"):
            assert pyarrow.parquet.ParquetFile(file).metadata.created_by.startswith(writer)


def test_intervals_and_old_times_keep_their_values(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str,
    places: dict[str, str],
) -> None:  # fmt: skip
    fields = {"took": (1, ".google.protobuf.Duration"), "at": (2, ".google.protobuf.Timestamp")}
    known = [file.DESCRIPTOR for file in (duration_pb2, timestamp_pb2)]
    files = [descriptor_pb2.FileDescriptorProto.FromString(file.serialized_pb) for file in known]
    made = proto("took.proto", "", {"Took": fields}, *(file.name for file in files))
    number = registry.add(f"{topic}-value", text(made), "PROTOBUF")
    value = message("Took", *files, made)()
    value.took.FromTimedelta(timedelta(seconds=90))
    value.at.FromDatetime(datetime(1500, 1, 2, tzinfo=UTC))
    head = b"\0" + number.to_bytes(4, "big") + b"\0"
    bench.send(topic, [{"value": head + value.SerializeToString()}])
    bench.run("archive", topics=topic, decode="protobuf", **keys, **places)

    # Files without a version of Spark have the calendar that this setting names.
    bench.spark.conf.set("spark.sql.parquet.int96RebaseModeInRead", "LEGACY")
    try:
        (row,) = bench.spark.read.parquet(places["path"]).collect()
    finally:
        bench.spark.conf.unset("spark.sql.parquet.int96RebaseModeInRead")

    assert row.protobuf.took == timedelta(seconds=90)
    assert row.protobuf.at.astimezone(UTC) == datetime(1500, 1, 2, tzinfo=UTC)


def test_local_times_keep_their_type(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str,
    places: dict[str, str],
) -> None:  # fmt: skip
    schema = {**RICH, "fields": [LOCAL]}
    number = registry.add(f"{topic}-value", schema)
    bench.send(topic, [{"value": avro(number, schema, seen=1_700_000_000_000_001)}])

    bench.run("archive", topics=topic, decode="avro", **keys, **places)

    found = bench.spark.read.parquet(places["path"])
    assert found.select("avro.seen").dtypes == [("seen", "timestamp_ntz")]
    assert found.first().avro.seen == datetime(2023, 11, 14, 22, 13, 20, 1)


def test_replay_sends_bad_json_unchanged(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str, other_topic: str,
    places: dict[str, str],
) -> None:  # fmt: skip
    schema = {"type": "record", "name": "Read", "fields": [
        {"name": "id", "type": ["null", "long"]},
        {"name": "n", "type": ["null", "int"]}]}  # fmt: skip
    number = registry.add(f"{other_topic}-value", schema)
    values = [b'{"id": 1, "n": 2}', b'{"id": "text", "n": 3}']
    bench.send(topic, [{"value": value, "partition": 0} for value in values])
    bench.run("archive", topics=topic, decode="json", schema="id BIGINT, n INT", **places)

    bench.run("replay", path=places["path"], to=other_topic, encode="avro", **keys)

    # Spark could read "n" of the second one.
    sent = [message.value() for message in bench.read(other_topic, 2)]
    assert sent == [avro(number, schema, id=1, n=2), values[1]]


def test_replay_refuses_values_of_types_that_do_not_fit_together(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], tmp_path: Path
) -> None:
    for name, value in (("a", 1), ("b", "text")):
        pyarrow.parquet.write_table(
            pa.table({"avro": [{"id": value}]}), tmp_path / f"{name}.parquet"
        )

    with pytest.raises(ConfigError, match=r'key "path" = .* incompatible types'):
        bench.run("replay", path=str(tmp_path), encode="avro", **keys)


def test_mirror_encodes_a_struct_and_sends_dead_letters(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str, other_topic: str,
    dead: str, checkpoint: str,
) -> None:  # fmt: skip
    filled(bench, registry, topic)
    number = registry.add(f"{other_topic}-value", JSON, "JSON")

    summary = bench.run(
        "mirror",
        topics=topic,
        to=other_topic,
        dead_letter_topic=dead,
        checkpoint=checkpoint,
        decode="avro",
        encode="json",
        transform="SELECT if(avro IS NULL, NULL, struct(avro.id - 1 AS id)) AS value FROM records",
        source_headers=False,
        keep_partitions=True,
        **keys,
    )

    assert (summary.counts, summary.bad) == ({"sent": 3}, 3)
    head = b"\0" + number.to_bytes(4, "big")
    assert [message.value() for message in bench.read(other_topic)] == [
        head + b'{"id":1}', None, head + b'{"id":1099511627775}',
    ]  # fmt: skip
    letters = bench.read(dead, 3)
    errors = {message.key(): dict(message.headers())["dlq_error"].decode() for message in letters}
    assert errors.keys() == {b"0", b"1", b"4"}
    assert "/id: -1 is less than the minimum of 0" in errors[b"0"]
    assert {message.value() for message in letters} >= {b"no wire format"}


def test_mirror_without_a_transform_changes_the_format(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str, other_topic: str,
    checkpoint: str,
) -> None:  # fmt: skip
    number = registry.add(f"{topic}-value", JSON, "JSON")
    head = b"\0" + number.to_bytes(4, "big")
    values = [head + b'{"id": 7}', head + b'{"id": -1}', head + b'{"id": 8, "more": 1}']
    bench.send(topic, [{"value": value, "partition": 0} for value in values])

    summary = bench.run(
        "mirror", topics=topic, to=other_topic, checkpoint=checkpoint, decode="json",
        encode="avro", encode_schema={**OLD, "name": "Mirrored"}, keep_partitions=True,
        **keys, **{"registry__auto.register.schemas": True},
    )  # fmt: skip

    assert (summary.counts, summary.bad) == ({"sent": 2}, 1)
    (made,) = registry.subjects()[f"{other_topic}-value"]
    assert [message.value() for message in bench.read(other_topic)] == [
        avro(made, OLD, id=7), avro(made, OLD, id=8),
    ]  # fmt: skip


def test_registry_that_is_away_fails_the_job_and_no_record_is_bad(
    bench: Bench, topic: str, places: dict[str, str], tmp_path: Path
) -> None:
    with SchemaRegistry() as registry:
        filled(bench, registry, topic)
        schema = tmp_path / "order.avsc"
        schema.write_text(json.dumps(NEW))
        away = {"registry__url": registry.url, "registry__retries.wait.ms": "1"}

    with pytest.raises(Exception, match=r"Schema Registry .* does not respond") as caught:
        bench.run("archive", topics=topic, decode="avro", schema=str(schema), **away, **places)

    from cykafka.spark.jobs.problems import explain_error

    errors = explain_error(caught.value)
    assert errors.startswith('key "registry.url": Schema Registry http://localhost:')
    assert "\n" not in errors
    assert not list(Path(places["path"]).rglob("*.parquet"))


def test_each_worker_requests_a_schema_once(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], topic: str,
    places: dict[str, str],
) -> None:  # fmt: skip
    schema = {**OLD, "name": "Counted"}
    number = registry.add(f"{topic}-value", schema)
    bench.send(topic, [{"value": avro(number, schema, id=at)} for at in range(400)])

    summary = bench.run("archive", topics=topic, decode="avro", source__maxOffsetsPerTrigger=100,
                        **keys, **places)  # fmt: skip

    assert (summary.records, summary.bad) == (400, 0)
    assert summary.batches >= 4
    # The session has two cores. A worker that is idle for a minute ends.
    assert 1 <= registry.requests[f"GET /schemas/ids/{number}"] <= 4


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ({"basic.auth.user.info": "ada:mistaken"}, 1,
         'archive: key "registry.basic.auth.user.info": Schema Registry refuses the request'),
        ({"basic.auth.user.info": "ada:secret"}, 2, "does not have {topic}-value:latest: 404"),
        ({"url": "http://localhost:1", "retries.wait.ms": "1"}, 1,
         'archive: key "registry.url": Schema Registry http://localhost:1 does not respond'),
    ],
)  # fmt: skip
def test_command_fails_before_spark_starts(
    bench: Bench, registry: SchemaRegistry, topic: str, places: dict[str, str],
    given: dict[str, str], status: int, words: str,
) -> None:  # fmt: skip
    options = {"url": registry.url, **given}
    command = bench.command("archive", "--topics", topic, "--decode", "avro")
    for name, value in places.items():
        command += [f"--{name}", value]
    for name, value in options.items():
        command += ["--registry", f"{name}={value}"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert done.returncode == status, done.stderr
    assert words.format(topic=topic) in done.stderr
    assert "mistaken" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not Path(places["checkpoint"]).exists()


def test_mistakes_are_reported_before_spark_starts(
    bench: Bench, registry: SchemaRegistry, keys: dict[str, str], unique: Any
) -> None:
    from cykafka.schemas.model.error import SchemaRegistryError as RegistryError
    from cykafka.spark.jobs.config.load import load
    from cykafka.spark.jobs.config.models import JOBS

    topic = unique("t")

    def checked(**more: Any) -> None:
        given = {"topics": topic, "path": "/p", "checkpoint": "/c", "decode": "avro", **keys,
                 "registry__cache.latest.ttl.sec": 0, **more}  # fmt: skip
        given = {name.replace("__", "."): value for name, value in given.items()}
        check_schemas(load(JOBS["archive"], None, {"kafka.bootstrap.servers": "b", **given}, {}))

    with pytest.raises(ConfigError, match=f'key "schema": .*not have {topic}-value:latest: 404'):
        checked()
    registry.add(f"{topic}-value", OLD)
    checked()
    checked(schema=NEW)
    with pytest.raises(ConfigError, match=f"does not fit the subject {topic}-value"):
        checked(schema={**OLD, "fields": [{"name": "id", "type": "string"}]})
    with pytest.raises(ConfigError, match="is of AVRO, expected PROTOBUF"):
        checked(decode="protobuf")
    with pytest.raises(ConfigError, match='key "schema" is missing: the reader'):
        checked(topics="a,b")
    with pytest.raises(RegistryError, match="401 Unauthorized") as caught:
        checked(**{"registry__basic.auth.user.info": "ada:mistaken"})
    assert "mistaken" not in str(caught.value)
    for more, words in (
        ({"schema": {"type": "record"}}, "not an Avro schema"),
        ({"registry__url": ""}, 'key "registry.url" is missing'),
        ({"registry__urll": "x"}, 'no such option; did you mean "url"'),
        ({"decode": "envelope-json"}, 'key "registry" has no effect'),
    ):
        with pytest.raises(ConfigError, match=words):
            checked(**more)
