"""Formats of keys and values, and the options for Schema Registry, without brokers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from proto_files import proto

from cykafka.cli.cluster.connection import Connection, Settings
from cykafka.cli.cluster.registry import Registry, parse_version
from cykafka.cli.main import main
from cykafka.cli.records.avro_json import AvroForm, name_branches
from cykafka.cli.records.json_record import (
    Writers,
    decode,
    encode_batch,
    strict_json,
    to_json,
)
from cykafka.cli.records.value_formats import Decoder, Pack, ValueFormat, reader, writer
from cykafka.cli.terminal.failures import BadRecords, Failed, UsageError
from cykafka.schemas.model.document import UnfitError
from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

SECRET = "geheim-4711"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of configurations, and an environment without ours."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PROFILE", "BOOTSTRAP_SERVERS", "SCHEMA_REGISTRY_URL"):
        monkeypatch.delenv(f"CYKAFKA_{name}", raising=False)
    return tmp_path


# -- pack formats


@pytest.mark.parametrize(
    ("text", "data", "value"),
    [
        (">q", b"\xff" * 8, -1),
        ("<I", b"\1\0\0\0", 1),
        (">bH?", b"\xff\1\0\1", [-1, 256, True]),
        (">b H $", b"\xff\1\0", [-1, 256]),
        (">is", b"\0\0\0\7\xc3\xbc", [7, "\u00fc"]),
        (">s", b"", ""),
        ("<d", b"\0\0\0\0\0\0\xf0\x7f", math.inf),
    ],
)
def test_pack_reads_and_writes(text: str, data: bytes, value: Any) -> None:
    pack = Pack(text)
    assert pack.read(data) == value
    assert pack.write(json.loads(to_json(value))) == data


@pytest.mark.parametrize("text", ["", ">", "q", "@q", ">x", ">sq", "> ", ">4q", ">é"])
def test_pack_refuses_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match="a pack format is"):
        Pack(text)


@pytest.mark.parametrize(
    ("text", "data"), [(">q", b"\0" * 7), (">q", b"\0" * 9), (">bs", b""), (">s", b"\xff")]
)
def test_pack_refuses_bytes_that_do_not_fit(text: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes|utf-8"):
        Pack(text).read(data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (">b", 128),
        (">b", "x"),
        (">b", None),
        (">b", [1]),
        (">bb", 1),
        (">bb", [1]),
        (">bs", [1, 2]),
    ],
)
def test_pack_refuses_values_that_do_not_fit(text: str, value: Any) -> None:
    with pytest.raises(ValueError, match=text):
        Pack(text).write(value)


# -- JSON


def test_decoded_values_have_a_form_in_json() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    value = {
        "bytes": b"\xff",
        "decimal": Decimal("1E-7"),
        "instant": moment,
        "local": moment.replace(tzinfo=None),
        "date": date(2026, 1, 31),
        "time": time(12, 0, 0, 5),
        "uuid": UUID(int=1),
        "floats": [math.nan, -math.inf, 0.5],
    }
    assert json.loads(to_json(value)) == {
        "bytes": "/w==",
        "decimal": "0.0000001",
        "instant": "2026-01-31T12:00:00Z",
        "local": "2026-01-31T12:00:00",
        "date": "2026-01-31",
        "time": "12:00:00.000005",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "floats": ["NaN", "-Infinity", 0.5],
    }
    with pytest.raises(ValueError, match="JSON"):
        strict_json(math.inf)


class Batch:
    """Two records: a value that is JSON null, and a tombstone."""

    topics = ("t", "t")
    partitions = (0, 0)
    offsets = (0, 1)
    timestamps = (1, 2)

    def __len__(self) -> int:
        return 2

    def keys(self) -> list[bytes | None]:
        return [b"7", b"null"]

    def values(self) -> list[bytes | None]:
        return [b"null", None]

    def headers(self) -> list[None]:
        return [None, None]


def test_json_null_is_no_tombstone() -> None:
    writers = Writers(strict_json, strict_json)
    first, second = encode_batch(Batch(), "json", "json")  # type: ignore[arg-type]
    assert json.loads(first)["value_json"] == "null"
    assert decode(first.encode(), writers)[:2] == (b"7", b"null")
    assert decode(second.encode(), writers)[:2] == (b"null", None)
    assert decode(first.encode())[:2] == (b"7", b"null")


def test_bytes_are_base64_in_json() -> None:
    lines = encode_batch(Batch(), "base64", "base64")  # type: ignore[arg-type]
    found = [decode(line.encode(), Writers(Pack(">q").write, Pack(">q").write)) for line in lines]
    assert [(parts.key, parts.value) for parts in found] == [(b"7", b"null"), (b"null", None)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"value":1,"value_json":"1"}', "both value and value_json"),
        ('{"value_json":1}', "expected a string with JSON"),
        ('{"value_json":"{"}', "value: .*|not JSON"),
        ('{"value":"x"}', "value: >q"),
    ],
)
def test_lines_that_cannot_be_encoded_say_why(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(line.encode(), Writers(value=Pack(">q").write))


# -- Avro


def test_branches_have_full_names() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "namespace": "shop",
        "fields": [
            {"name": "next", "type": ["null", "Node", "int"], "default": None},
            {"name": "kind", "type": ["int", "string"], "default": 5},
            {
                "name": "inner",
                "type": {
                    "type": "record",
                    "name": "other.Inner",
                    "fields": [{"name": "x", "type": ["null", "Inner", "shop.Node"]}],
                },
            },
        ],
    }
    form = AvroForm([name_branches(json.dumps(schema))])
    inner = {"x": {"other.Inner": {"x": None}}}
    node = {"next": {"shop.Node": {"inner": {"x": None}}}, "kind": {"string": "x"}, "inner": inner}
    assert form.value(node) == node
    for wrong in ({"Node": {}}, {"int": 1, "shop.Node": {}}, 5, {"long": 1}):
        with pytest.raises(
            ValueError, match=r"next: expected an object with one of shop.Node, int"
        ):
            form.value({**node, "next": wrong})


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ("int", 2**31, "the value: expected int, got 2147483648"),
        ("long", 2**63, "expected long"),
        ("long", True, "expected long, got true"),
        ("double", "nan", 'expected double, got "nan"'),
        ("string", 5, "expected string"),
        ("bytes", "\u00fc", "expected bytes"),
        ("boolean", 0, "expected boolean"),
        ("null", 0, "expected null"),
        (["null", "int"], "x", "expected int"),
        ({"type": "array", "items": "int"}, [1, None], r"\[1\]: expected int, got null"),
        ({"type": "array", "items": "int"}, {}, "expected array"),
        ({"type": "map", "values": "int"}, {"a": "x"}, "a: expected int"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", 'expected enum, got "B"'),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, [], "expected enum"),
        ({"type": "fixed", "name": "F", "size": 2}, "/w==", "expected fixed"),
        ({"type": "int", "logicalType": "date"}, "31.1.2026", r"expected int \(date\)"),
        ({"type": "int", "logicalType": "date"}, 5, r"expected int \(date\)"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "2026-01-31T12:00:00", "expected"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "2026-01-31T12Z", "expected"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, "NaN", "expected bytes"),
        ({"type": "record", "name": "R", "fields": []}, [], "an object for R"),
        ({"type": "record", "name": "R", "fields": []}, {"a": 1}, "R has no field 'a'"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, {},
         "the field a is missing"),
    ],
)  # fmt: skip
def test_avro_value_that_does_not_fit_is_named(schema: Any, value: Any, words: str) -> None:
    form = AvroForm([name_branches(json.dumps(schema))])
    with pytest.raises(ValueError, match=words):
        form.value(value)


@pytest.mark.parametrize("text", ["", "{", '{"type":"record"}', "5", '"nothing"', "[" * 100_000])
def test_text_that_is_no_avro_schema_is_refused(text: str) -> None:
    with pytest.raises(UnfitError, match="it is not an Avro schema"):
        AvroForm([name_branches(text)])


def test_defaults_of_unions_are_written() -> None:
    field = {"name": "a", "type": ["int", "string"], "default": 5}
    schema = {"type": "record", "name": "R", "fields": [field]}
    with SchemaRegistry() as registry, Registry(Settings(), registry.url) as opened:
        registry.add("t-value", schema)
        form = ValueFormat.parse("value", "avro")
        assert form is not None
        client = opened.client("the test")
        write = writer(form, client, client.document_by_version("t-value"))
        assert write is not None
        assert write({}) == b"\0\0\0\0\1\0\x0a"
        assert reader(form, opened)(write({}), "t", None) == b'{"a":{"int":5}}'


# -- schemas of other types, and of headers


def test_guid_in_a_header_names_the_schema() -> None:
    import base64

    with SchemaRegistry() as registry, Registry(Settings(), registry.url) as opened:
        registry.add("a", {"type": "array", "items": "int"})
        file = proto("a.proto", "shop", {"A": {"x": (1, "int32")}})
        registry.add("b", base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
        registry.add("c", {"type": "integer"}, "JSON")
        client = opened.client("the test")
        for name, subject, data, indexes, shown in (
            ("avro", "a", b"\2\2\0", b"", b"[1]"),
            ("protobuf", "b", b"\x08\1", b"\0", b'{"x":1}'),
            ("json", "c", b"1", b"", b"1"),
        ):
            form = ValueFormat.parse("value", name)
            assert form is not None
            guid = client.get_latest_version(subject).guid
            assert guid is not None
            header = b"\1" + UUID(guid).bytes + indexes
            assert reader(form, opened)(data, "t", [("__value_schema_id", header)]) == shown


@pytest.mark.parametrize(
    ("name", "other"), [("avro", "JSON"), ("protobuf", "JSON"), ("json", "AVRO")]
)
def test_schema_of_another_type_is_named(name: str, other: str) -> None:
    with SchemaRegistry() as registry, Registry(Settings(), registry.url) as opened:
        registry.add("c", {"type": "array", "items": "int"}, other)
        words = f"the type of the schema is {other}, expected {name.upper()}"
        form = ValueFormat.parse("value", name)
        assert form is not None
        with pytest.raises(ValueError, match=words):
            reader(form, opened)(b"\0\0\0\0\1\2", "t", None)


# -- bad records


def test_first_bad_record_ends_a_batch_and_others_are_skipped() -> None:
    class Raw(Batch):
        def values(self) -> list[bytes | None]:
            return [b"\0", b"\1"]

    read = reader(ValueFormat.parse("value", ">q"), Registry(Settings(), None))  # type: ignore[arg-type]
    raw: Any = Raw()
    found = Decoder(None, read, BadRecords(False, print, "; hint")).decode(raw, None, None)
    assert (len(found), found.used) == (0, 0)
    assert isinstance(found.failure, Failed)
    assert str(found.failure) == "t[0] at offset 0: value: 1 bytes, >q takes 8; hint"

    told: list[str] = []
    decoder = Decoder(None, read, BadRecords(True, told.append, ""))
    found = decoder.decode(raw, None, None)
    assert (len(found), found.used, found.failure, decoder.bad.count) == (0, 2, None, 2)
    assert told[1].startswith("skipped t[0] at offset 1")
    # Records with other keys are not decoded.
    assert Decoder(None, read, BadRecords(False, print, "")).decode(raw, b"x", None).used == 2


# -- options


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "t", "--value-format", "avor"], "--value-format: expected avro, protobuf"),
        (["consume", "t", "--value-format", ">"], "a pack format is"),
        (["consume", "t", "--value-format", "avro"], "avro needs Schema Registry: use --sch"),
        (["consume", "t", "--key-format", "protobuf"], "protobuf needs Schema Registry"),
        (["consume", "t", "--skip-bad"], "--skip-bad needs --value-format"),
        (["consume", "t", "-r", "http://x"], "--schema-registry needs --value-format"),
        (["consume", "t", "--hex", "--value-format", "string"], "--hex shows bytes"),
        (["consume", "t", "--value-format", "avro", "-r", "x"], "registry.url: expected http"),
        (["consume", "t", "--value-format", "avro", "-r", "http://x", "-X",
          f"schema.registry.basic.auth.user.info={SECRET}"],
         "schema.registry.basic.auth.user.info: expected USER:PASSWORD"),
        (["consume", "t", "--value-format", "avro", "-r", "http://x", "-X",
          f"schema.registry.basic.auth.usr.info={SECRET}"], "no such option; did you mean"),
        (["consume", "t", "-X", f"basic.auth.user.info=a:{SECRET}"],
         "use schema.registry.basic.auth.user.info"),
        (["produce", "t", "--schema", "x.avsc"], "--schema and --subject need --value-format"),
        (["produce", "t", "--key-subject", "x", "--key-format", ">q"], "need --key-format avro"),
        (["produce", "t", "--csv", "--value-format", "avro"], "--csv has only texts"),
        (["produce", "t", "--value-format", "json", "-r", "http://x"], "--schema-registry needs"),
        (["produce", "t", "--value-format", "avro"], "needs Schema Registry"),
        (["schemas", "list"], "cykafka schemas needs Schema Registry"),
        (["schemas", "register", "s", "order.txt", "-r", "http://x"], "--type says what it is"),
        (["schemas", "check", "s", "none.avsc", "-r", "http://x"], "cannot read none.avsc"),
        (["schemas", "check", "s", "x.avsc", "-r", "http://x", "--reference", "a"],
         "--reference: expected NAME=SUBJECT:VERSION"),
        (["schemas", "check", "s", "x.avsc", "-r", "http://x", "--reference", "a=b"],
         "--reference a: expected SUBJECT:VERSION"),
    ],
)  # fmt: skip
def test_wrong_options_say_what_to_do(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = [] if arguments[0] == "schemas" else ["-b", "localhost:1"]
    assert main([*arguments, *broker]) == 2
    out, err = capfd.readouterr()
    assert words in err
    assert out == ""
    assert SECRET not in err


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("orders-value", ("orders-value", None)),
        ("orders-value:2", ("orders-value", 2)),
        ("orders-value:latest", ("orders-value", "latest")),
        (":.context:orders", (":.context:orders", None)),
        (":.context:orders:3", (":.context:orders", 3)),
    ],
)
def test_subject_may_have_a_version(text: str, found: tuple[str, Any]) -> None:
    assert parse_version(text) == found


def test_registry_options_come_from_all_places(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "cykafka" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        '[default]\nbootstrap.servers = "default:1"\n'
        'schema.registry.url = "http://default"\nschema.registry.max.retries = 0\n'
    )
    assert Connection().registry() == {"url": "http://default", "max.retries": "0"}
    assert Connection().properties() == {"bootstrap.servers": "default:1"}
    monkeypatch.setenv("CYKAFKA_SCHEMA_REGISTRY_URL", "http://environment")
    assert Connection().registry() == {"url": "http://environment", "max.retries": "0"}
    file = home / "client.properties"
    file.write_text("schema.registry.url=http://file\nlinger.ms=5\n")
    assert Settings(config=file).registry() == {"url": "http://file"}
    assert Connection(config=file).explicit() == {"linger.ms": "5"}
    overrides = ("schema.registry.url=http://override",)
    assert Settings(config=file, overrides=overrides).registry() == {"url": "http://override"}


def test_timeout_is_also_the_registrys() -> None:
    with SchemaRegistry() as registry:
        registry.delay_next(9, 30)
        settings = Settings(timeout=0.2, overrides=("schema.registry.max.retries=0",))
        with (
            Registry(settings, registry.url) as opened,
            pytest.raises(Exception, match=registry.url),
        ):
            opened.client("the test").get_subjects()


@pytest.mark.parametrize(
    ("package", "form"),
    [
        ("urllib3", "avro"),
        ("fastavro", "avro"),
        ("google.protobuf", "protobuf"),
    ],
)
def test_missing_library_is_named_with_its_extra(package: str, form: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None; from cykafka.cli.main import main; "
        f"sys.exit(main(['consume', 't', '-b', 'localhost:1', '--value-format', {form!r}, '-r', "
        "'http://localhost:1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"cykafka: --value-format {form}: ")
    assert package.split(".")[0] in done.stderr
    assert done.stderr.endswith("pip install 'cykafka[schemas]'\n")


def test_help_imports_no_library_of_schemas() -> None:
    program = (
        "import sys; from cykafka.cli.main import main; main(['--help']); "
        "print(sorted({'fastavro', 'google.protobuf', 'jsonschema_rs', 'pyarrow', 'urllib3'} "
        "& sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == "[]\n"


def test_protobuf_writer_needs_a_message_of_the_file(tmp_path: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from cykafka.cli.cluster.registry import read_schema, register

    file = proto("a.proto", "shop", {"A": {"x": (1, "int32")}, "A.B": {"y": (1, "int32")}})
    path = tmp_path / "a.desc"
    path.write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    with SchemaRegistry() as registry, Registry(Settings(), registry.url) as opened:
        client = opened.client("the test")
        register(client, "a", path, read_schema(path, "protobuf"))
        form = ValueFormat.parse("value", "protobuf")
        assert form is not None
        document = client.document_by_version("a")
        write = writer(form, client, document, "shop.A.B")
        assert write is not None
        assert write({"y": 1}) == b"\0\0\0\0\1\4\0\0\x08\1"
        assert reader(form, opened)(write({"y": 1}), "t", None) == b'{"y":1}'
        with pytest.raises(ValueError, match="no field named"):
            write({"z": 1})
        with pytest.raises(Failed, match=r"no message shop\.C"):
            writer(form, client, document, "shop.C")


@pytest.mark.parametrize("content", [b"", b"\xff", b"text"])
def test_file_without_descriptors_is_refused(tmp_path: Path, content: bytes) -> None:
    from cykafka.cli.cluster.registry import read_schema

    path = tmp_path / "a.desc"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="protoc --include_imports"):
        read_schema(path, "protobuf")
