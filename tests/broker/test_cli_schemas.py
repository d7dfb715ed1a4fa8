"""`cykafka produce`, `consume` and `schemas` with values that have schemas."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fixture_types import MakeProducer, Unique
from proto_files import proto

from cykafka.cli.main import main
from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price",
         "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "raw", "type": "bytes"},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "size", "type": "double"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "one", "type": ["null", "int", "long", "string", "bytes", "State"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
VALUE = {
    "id": 2**53 + 1,
    "note": None,
    "price": "12.50",
    "made": "2026-01-31T12:00:00.123000Z",
    "day": "2026-01-31",
    "at": "12:00:00.000001",
    "raw": "/w==",
    "key": "6f1b6f0e-3c8e-4b6d-9a53-2f0f5f3c8e4b",
    "size": "NaN",
    "state": "PAID",
    "one": {"long": 7},
    "tags": ["a", "\u00fc"],
    "counts": {"a": 1},
}


class Result(NamedTuple):
    """A command that has ended."""

    status: int
    out: bytes
    err: str


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with SchemaRegistry() as registry:
        yield registry


@pytest.fixture(autouse=True)
def environment(
    tmp_path: Path, cluster: Any, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("CYKAFKA_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("CYKAFKA_SCHEMA_REGISTRY_URL", registry.url)
    monkeypatch.delenv("CYKAFKA_PROFILE", raising=False)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Result]:
    def run(*arguments: object) -> Result:
        capfdbinary.readouterr()
        status = main([str(item) for item in arguments])
        out, err = capfdbinary.readouterr()
        return Result(status, out, err.decode())

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: Any, name: str = "input") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return write


@pytest.fixture
def topic(cluster: Any, unique: Unique) -> str:
    name = unique("topic")
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def copy(cluster: Any, unique: Unique) -> str:
    name = unique("copy")
    cluster.create_topic(name, 1)
    return name


def lines(result: Result) -> list[Any]:
    assert result.status == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def test_avro_round_trip_loses_nothing(
    run: Any, write: Any, topic: str, copy: str, registry: SchemaRegistry
) -> None:
    more = [{**VALUE, "one": one, "size": 0.1} for one in (
        None, {"int": 7}, {"string": "x"}, {"bytes": "/w=="}, {"shop.State": "NEW"})]  # fmt: skip
    file = write(b"".join(json.dumps(value).encode() + b"\n" for value in [VALUE, *more]))
    schema = write(ORDER, "order.avsc")
    sent = run("produce", topic, file, "--value-format", "avro", "--schema", schema)
    assert sent.status == 0, sent.err
    assert registry.subjects() == {f"{topic}-value": [1]}

    found = run("consume", topic, "-e", "--json", "--value-format", "avro")
    values = [line["value"] for line in lines(found)]
    assert values == [VALUE, *more]
    plain = run("consume", topic, "-e", "--value-format", "avro")
    assert [json.loads(line) for line in plain.out.splitlines()] == values

    back = write(found.out)
    sent = run("produce", copy, back, "--json", "--value-format", "avro",
               "--subject", f"{topic}-value")  # fmt: skip
    assert sent.status == 0, sent.err
    raw = [
        run("consume", name, "-e", "--json", "--value-format", "bytes") for name in (topic, copy)
    ]
    first, second = ([line["value_base64"] for line in lines(each)] for each in raw)
    assert first == second
    assert base64.b64decode(first[0]).startswith(b"\0\0\0\0\1")


def test_protobuf_round_trip_loses_nothing(
    run: Any, write: Any, topic: str, copy: str, registry: SchemaRegistry
) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    shared = proto("shared.proto", "shop", {"Item": {"name": (1, "string")}})
    own = proto(
        "order.proto",
        "shop",
        {
            "Other": {"x": (1, "int32")},
            "Order": {
                "id": (1, "int64"),
                "raw_data": (2, "bytes"),
                "size": (3, "double"),
                "items": (4, "repeated .shop.Item"),
            },
        },
        "shared.proto",
    )
    schema = write(FileDescriptorSet(file=[shared, own]).SerializeToString(), "order.desc")
    values = [
        {"id": str(2**53 + 1), "raw_data": "/w==", "size": "NaN", "items": [{"name": "a"}]},
        {"id": "0", "raw_data": "", "size": 0.5, "items": []},
    ]
    file = write(b"".join(json.dumps(value).encode() + b"\n" for value in values))
    sent = run("produce", topic, file, "--value-format", "protobuf", "--schema",
               f"{schema}#shop.Order")  # fmt: skip
    assert sent.status == 0, sent.err
    assert set(registry.subjects()) == {"shared.proto", f"{topic}-value"}

    found = run("consume", topic, "-e", "--json", "--value-format", "protobuf")
    assert [line["value"] for line in lines(found)] == values

    sent = run("produce", copy, write(found.out), "--json", "--value-format", "protobuf",
               "--subject", f"{topic}-value:1#shop.Order")  # fmt: skip
    assert sent.status == 0, sent.err
    raw = [
        run("consume", name, "-e", "--json", "--value-format", "bytes") for name in (topic, copy)
    ]
    first, second = ([line["value_base64"] for line in lines(each)] for each in raw)
    assert first == second
    assert base64.b64decode(first[0]).startswith(b"\0\0\0\0\2\2\2")


def test_json_with_and_without_schemas(run: Any, write: Any, topic: str) -> None:
    schema = write({"type": "object", "properties": {"id": {"type": "integer"}}}, "order.json")
    one = write(b'{"id": 1}\n')
    assert run("produce", topic, one, "--value-format", "json", "--schema", schema).status == 0
    assert run("produce", topic, one, "--value-format", "json").status == 0
    assert run("produce", topic, write(b'{"id": "x"}\n'), "--value-format", "json", "--subject",
               f"{topic}-value").status == 1  # fmt: skip
    assert run("produce", topic, write(b"null\n"), "--value-format", "json").status == 0
    assert run("produce", topic, write(b"\n"), "-Z", "--value-format", "json").status == 0

    found = lines(run("consume", topic, "-e", "--json", "--value-format", "json"))
    values = [{name: line[name] for name in line if name.startswith("value")} for line in found]
    assert values == [{"value": {"id": 1}}] * 2 + [{"value_json": "null"}, {"value": None}]
    raw = run("consume", topic, "-e", "-f", r"%s\n").out
    assert raw == b'\0\0\0\0\1{"id":1}\n{"id":1}\nnull\n\n'


def test_numbers_as_keys(run: Any, write: Any, topic: str, make_producer: MakeProducer) -> None:
    producer = make_producer()
    for number in (7, -1):
        producer.produce(topic, b"v", key=struct.pack(">q", number), partition=0)
    producer.flush()
    found = run("consume", topic, "-e", "--json", "--key-format", ">q")
    assert [line["key"] for line in lines(found)] == [7, -1]
    assert run("consume", topic, "-e", "-K", ":", "--key-format", ">q").out == b"7:v\n-1:v\n"
    assert run("consume", topic, "-e", "-k", "7", "-K", ":", "--key-format", ">q").out == b"7:v\n"
    sent = run("produce", topic, write(b"8:w\n"), "-K", ":", "--key-format", ">q")
    assert sent.status == 0, sent.err
    assert run("produce", topic, write(b"x\n"), "-k", "9", "--key-format", ">q").status == 0
    keys = run("consume", topic, "-o", "-2", "-e", "--json", "--key-format", "bytes")
    assert [base64.b64decode(line["key_base64"]) for line in lines(keys)] == [
        struct.pack(">q", 8),
        struct.pack(">q", 9),
    ]
    wrong = run("produce", topic, "-k", "x", "--key-format", ">q")
    assert wrong.status == 2
    assert "-k: key: not JSON" in wrong.err


@pytest.fixture
def mixed(run: Any, write: Any, topic: str, make_producer: MakeProducer) -> str:
    """A topic with a good value, two bad ones and a good one."""
    schema = write(b'"string"', "name.avsc")
    producer = make_producer()
    for at, value in enumerate([None, b"{}", b"\0\0\0\0\x63x", None]):
        if value is None:
            line = write(f'"good {at}"\n'.encode())
            sent = run("produce", topic, line, "--value-format", "avro", "--schema", schema)
            assert sent.status == 0, sent.err
        else:
            producer.produce(topic, value, partition=0)
            producer.flush()
    return topic


def test_bad_record_ends_the_work_after_those_before_it(run: Any, mixed: str) -> None:
    found = run("consume", mixed, "-e", "--value-format", "avro")
    assert (found.status, found.out) == (1, b'"good 0"\n')
    last = found.err.splitlines()[-1]
    assert last.startswith(f"cykafka: {mixed}[0] at offset 1: value: unknown magic byte 123")
    assert last.endswith("; --skip-bad skips such records")
    # What is not wanted is not decoded.
    assert run("consume", mixed, "-c", "1", "--value-format", "avro").status == 0


def test_bad_records_are_skipped_and_counted(run: Any, mixed: str) -> None:
    found = run("consume", mixed, "-e", "--value-format", "avro", "--skip-bad")
    assert (found.status, found.out) == (0, b'"good 0"\n"good 3"\n')
    *skipped, summary = found.err.splitlines()
    assert [line.split(": value: ")[0] for line in skipped] == [
        f"cykafka: skipped {mixed}[0] at offset {offset}" for offset in (1, 2)
    ]
    assert "99" in skipped[1]
    assert summary.endswith("; 2 bad records skipped")


def test_group_commits_the_records_before_a_bad_one(run: Any, mixed: str, unique: Unique) -> None:
    group = unique("group")
    found = run("consume", mixed, "-e", "-G", group, "--value-format", "avro")
    assert (found.status, found.out) == (1, b'"good 0"\n')
    found = run("consume", mixed, "-e", "-G", group, "--value-format", "avro", "--skip-bad")
    assert (found.status, found.out) == (0, b'"good 3"\n')


def test_registry_that_fails_ends_the_work(run: Any, mixed: str, registry: SchemaRegistry) -> None:
    registry.close()
    found = run("consume", mixed, "-e", "--value-format", "avro", "--skip-bad",
                "-X", "schema.registry.max.retries=0")  # fmt: skip
    assert (found.status, found.out) == (1, b"")
    assert registry.url in found.err


def test_authentication_from_the_profile(
    run: Any, write: Any, tmp_path: Path, mixed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SchemaRegistry(users={"ada": "geheim-4711"}) as registry:
        monkeypatch.delenv("CYKAFKA_SCHEMA_REGISTRY_URL")
        registry.add("x-value", {"type": "string"})
        refused = run("schemas", "list", "-r", registry.url)
        assert refused.status == 1
        assert "401" in refused.err
        wrong = run("schemas", "list", "-r", registry.url.replace("//", "//ada:geheim-4711-no@"))
        assert wrong.status == 1
        assert "geheim" not in wrong.err
        write(b"ada:geheim-4711\n", "secret")
        (tmp_path / "cykafka").mkdir()
        (tmp_path / "cykafka" / "config.toml").write_text(
            f'[default]\nschema.registry.url = "{registry.url}"\n'
            f'schema.registry.basic.auth.user.info = "@{tmp_path}/secret"\n'
        )
        assert lines(run("schemas", "list", "--json")) == [{"subject": "x-value", "versions": [1]}]
        # Commands for brokers leave these options out.
        assert run("topics", "list").status == 0
        found = run("consume", mixed, "-c", "1", "--value-format", "avro")
        assert (found.status, found.out) == (0, b'"good 0"\n')


def test_schemas_are_registered_checked_and_shown(
    run: Any, write: Any, registry: SchemaRegistry
) -> None:
    order = write(ORDER, "order.avsc")
    done = run("schemas", "register", "orders-value", order, "--json")
    assert lines(done) == [{"subject": "orders-value", "version": 1, "id": 1}]
    assert json.loads(run("schemas", "show", "orders-value").out) == ORDER
    assert run("schemas", "show", "1").out == run("schemas", "show", "orders-value:1").out
    (shown,) = lines(run("schemas", "show", "1", "--json"))
    assert (shown["id"], shown["schemaType"]) == (1, "AVRO")
    assert shown["versions"] == [{"subject": "orders-value", "version": 1}]

    wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int"}]}  # type: ignore[misc]
    bad = write(wider, "bad.avsc")
    refused = run("schemas", "check", "orders-value", bad)
    assert refused.status == 1
    assert "bad.avsc is not compatible with orders-value" in refused.err
    assert "more" in refused.err
    (answer,) = [json.loads(run("schemas", "check", "orders-value:1", bad, "--json").out)]
    assert answer["compatible"] is False
    refused = run("schemas", "register", "orders-value", bad)
    assert refused.status == 1
    assert run("schemas", "check", "orders-value", order).status == 0
    assert run("schemas", "check", "new-value", order).status == 0

    listed = run("schemas", "list")
    assert listed.out.decode().split() == ["subject", "versions", "orders-value", "1"]
    assert run("schemas", "list", "orders-*").status == 0
    assert "did you mean" in run("schemas", "list", "order-value").err
    missing = run("schemas", "show", "nothing")
    assert missing.status == 1
    assert "nothing" in missing.err


def test_schema_refers_to_others(run: Any, write: Any, topic: str) -> None:
    item = write({"type": "record", "name": "shop.Item", "fields": [{"name": "n", "type": "int"}]},
                 "item.avsc")  # fmt: skip
    order = write({"type": "array", "items": ["shop.Item", "string"]}, "order.avsc")
    assert run("schemas", "register", "item", item).status == 0
    done = run("schemas", "register", "orders", order, "--reference", "shop.Item=item:1")
    assert done.status == 0, done.err
    file = write(b'[{"shop.Item":{"n":1}},{"string":"x"}]\n')
    sent = run("produce", topic, file, "--value-format", "avro", "--subject", "orders")
    assert sent.status == 0, sent.err
    found = run("consume", topic, "-e", "--value-format", "avro")
    assert found.out == file.read_bytes()


def test_lines_that_do_not_fit_are_named(run: Any, write: Any, topic: str) -> None:
    schema = write(ORDER, "order.avsc")
    file = write(json.dumps({**VALUE, "tags": ["a", 1]}).encode() + b"\n")
    sent = run("produce", topic, file, "--value-format", "avro", "--schema", schema)
    assert sent.status == 1
    assert f"{file}, line 1: value: tags[1]: expected string, got 1; --skip-bad" in sent.err


def test_keys_have_schemas_too(run: Any, write: Any, topic: str, registry: SchemaRegistry) -> None:
    schema = write({"type": "long"}, "key.avsc")
    sent = run("produce", topic, write(b"7|x\n"), "-K", "|", "--key-format", "avro",
               "--key-schema", schema)  # fmt: skip
    assert sent.status == 0, sent.err
    sent = run("produce", topic, write(b"y\n"), "-k", "8", "--key-format", "avro",
               "--key-subject", f"{topic}-key:1")  # fmt: skip
    assert sent.status == 0, sent.err
    assert registry.subjects() == {f"{topic}-key": [1]}
    assert run("consume", topic, "-e", "--key-format", "avro", "-K", "|").out == b"7|x\n8|y\n"
    assert run("consume", topic, "-e", "--key-format", "avro", "-k", "8").out == b"y\n"


def test_share_group_accepts_what_was_printed_or_skipped(
    run: Any, mixed: str, unique: Unique
) -> None:
    group = unique("group")
    run("configs", "alter", "group", group, "--set", "share.auto.offset.reset=earliest")
    share = ("consume", mixed, "--share-group", group, "--value-format", "avro")
    found = run(*share)
    assert (found.status, found.out) == (1, b'"good 0"\n')
    assert "offset 1: value: unknown magic byte" in found.err
    found = run(*share, "--skip-bad", "-c", "1")
    assert (found.status, found.out) == (0, b'"good 3"\n')


def test_templates_show_decoded_values(run: Any, mixed: str) -> None:
    found = run("consume", mixed, "-c", "1", "--value-format", "avro", "-f", r"%o %s %S\n")
    assert found.out == b'0 "good 0" 8\n'


def test_schema_is_not_registered_before_the_input_and_the_topic_are_checked(
    run: Any, write: Any, topic: str, registry: SchemaRegistry
) -> None:
    options = ("--value-format", "avro", "--schema", write(ORDER, "order.avsc"))
    assert run("produce", topic, "/nonexistent", *options).status == 2
    assert run("produce", topic, "-p", "9", write(b""), *options).status == 2
    assert registry.subjects() == {}
