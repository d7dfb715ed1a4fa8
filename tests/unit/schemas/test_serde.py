"""What serializers and deserializers of all formats have in common."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import proto_files
import pytest
from memory_registry import MemoryRegistry

from cykafka.schemas.model.error import SchemaRegistryError
from cykafka.schemas.model.framing import (
    header_schema_id_serializer,
    prefix_schema_id_deserializer,
)
from cykafka.schemas.model.schema import Schema
from cykafka.schemas.model.subjects import (
    AssociatedNameStrategy,
    record_subject_name_strategy,
    topic_subject_name_strategy,
)
from cykafka.schemas.registry.client import SchemaRegistryClient
from cykafka.schemas.serdes.avro_serde import AvroDeserializer, AvroSerializer
from cykafka.schemas.serdes.json_serde import JSONDeserializer, JSONSerializer
from cykafka.schemas.serdes.protobuf_serde import ProtobufDeserializer, ProtobufSerializer
from cykafka.serialization import MessageField, SerializationContext, SerializationError
from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

AVRO = '{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"long"}]}'
JSON = '{"title":"shop.Order","type":"object","properties":{"id":{"type":"integer"}}}'
FILE = proto_files.proto("order.proto", "shop", {"Order": {"id": (1, "int64")}})
Order = proto_files.message("shop.Order", FILE)
FORMATS = ["avro", "json", "protobuf"]
TEXTS = {"avro": AVRO, "json": JSON, "protobuf": proto_files.text(FILE)}
VALUES = {"avro": {"id": 5}, "json": {"id": 5}, "protobuf": Order(id=5)}


def serializer(kind: str, registry: Any, **conf: Any) -> Any:
    given = {name.replace("_", "."): value for name, value in conf.items()}
    if kind == "avro":
        return AvroSerializer(registry, AVRO, conf=given)
    if kind == "json":
        return JSONSerializer(JSON, registry, conf=given)
    return ProtobufSerializer(Order, registry, given)


def deserializer(kind: str, registry: Any, **conf: Any) -> Any:
    given = {name.replace("_", "."): value for name, value in conf.items()}
    if kind == "avro":
        return AvroDeserializer(registry, conf=given)
    if kind == "json":
        return JSONDeserializer(None, None, registry, given)
    return ProtobufDeserializer(Order, given, registry)


def context(topic: str = "orders", headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.mark.parametrize("kind", FORMATS)
def test_values_go_through_with_few_requests(registry: MemoryRegistry, kind: str) -> None:
    write, read = serializer(kind, registry), deserializer(kind, registry)

    data = [write(VALUES[kind], context()) for _ in range(3)]

    assert data[0].startswith(b"\0\0\0\0\1")
    assert [read(each, context()) for each in data] == [VALUES[kind]] * 3
    assert registry.subjects() == {"orders-value": [1]}
    assert registry.calls == {"associations": 2, "register": 1, "get": 1}


@pytest.mark.parametrize("kind", FORMATS)
def test_null_stays_null(registry: MemoryRegistry, kind: str) -> None:
    assert serializer(kind, registry)(None, context()) is None
    assert deserializer(kind, registry)(None, context()) is None
    assert not registry.calls


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ({"subject.name.strategy": topic_subject_name_strategy}, "orders-value"),
        ({"subject.name.strategy": record_subject_name_strategy}, "shop.Order"),
        ({"subject.name.strategy.type": "TOPIC"}, "orders-value"),
        ({"subject.name.strategy.type": "record"}, "shop.Order"),
        ({"subject.name.strategy.type": "TOPIC_RECORD"}, "orders-shop.Order"),
        ({"subject.name.strategy.type": "ASSOCIATED"}, "all-orders"),
        ({"subject.name.strategy": AssociatedNameStrategy()}, "all-orders"),
        ({}, "all-orders"),
        ({"subject.name.strategy": lambda ctx, name: f"{ctx.topic}/{name}"}, "orders/shop.Order"),
    ],
)
def test_strategy_names_the_subject(
    registry: MemoryRegistry, kind: str, strategy: dict[str, Any], subject: str
) -> None:
    registry.associations["orders"] = ["all-orders"]
    strategy = dict(strategy)
    if isinstance(strategy.get("subject.name.strategy"), AssociatedNameStrategy):
        strategy["subject.name.strategy"] = AssociatedNameStrategy()
    write = serializer(kind, registry, **strategy)

    data = write(VALUES[kind], context())

    assert write(VALUES[kind], context()) == data
    assert registry.subjects() == {subject: [1]}
    read = deserializer(kind, registry, **strategy)
    assert [read(data, context()) for _ in range(2)] == [VALUES[kind]] * 2


def test_no_subject_is_an_error(registry: MemoryRegistry) -> None:
    write = JSONSerializer("{}", registry, conf={"subject.name.strategy.type": "RECORD"})
    with pytest.raises(SerializationError, match="no subject"):
        write({}, context())


@pytest.mark.parametrize("kind", FORMATS)
def test_schema_must_be_registered_without_auto_register(
    registry: MemoryRegistry, kind: str
) -> None:
    write = serializer(kind, registry, auto_register_schemas=False)
    with pytest.raises(SchemaRegistryError, match="not found"):
        write(VALUES[kind], context())
    registry.add("orders-value", TEXTS[kind], kind.upper())
    assert write(VALUES[kind], context())[:5] == b"\0\0\0\0\1"


@pytest.mark.parametrize("kind", FORMATS)
def test_normalize_is_passed_on(kind: str) -> None:
    given: list[Any] = []

    class Registry(MemoryRegistry):
        def register_schema_full_response(self, *args: Any, **kwargs: Any) -> Any:
            given.append(kwargs)
            return super().register_schema_full_response(*args, **kwargs)

    serializer(kind, Registry(), normalize_schemas=True)(VALUES[kind], context())

    assert given == [{"normalize_schemas": True}]


def test_latest_version_writes_and_reads(registry: MemoryRegistry) -> None:
    old = json.loads(AVRO)
    new = {**old, "fields": [*old["fields"], {"name": "n", "type": "int", "default": 7}]}
    write = AvroSerializer(
        registry, conf={"auto.register.schemas": False, "use.latest.version": True}
    )
    read = AvroDeserializer(registry, conf={"use.latest.version": True})
    registry.add("orders-value", AVRO)
    data = write({"id": 5}, context())
    assert read(data, context()) == {"id": 5}

    registry.add("orders-value", json.dumps(new))

    assert write({"id": 5, "n": 6}, context()) == b"\0\0\0\0\2\x0a\x0c"
    assert read(data, context()) == {"id": 5, "n": 7}


@pytest.mark.parametrize("kind", FORMATS)
def test_latest_with_metadata(registry: MemoryRegistry, kind: str) -> None:
    registry.add("orders-value", TEXTS[kind], kind.upper(), metadata={"properties": {"v": "1"}})
    registry.add("orders-value", TEXTS[kind], kind.upper(), metadata={"properties": {"v": "2"}})
    conf = {"auto.register.schemas": False, "use.latest.with.metadata": {"v": "1"}}
    data = serializer(kind, registry, **conf)(VALUES[kind], context())
    assert data[:5] == b"\0\0\0\0\1"
    read = deserializer(kind, registry, **{"use.latest.with.metadata": {"v": "2"}})
    assert read(data, context()) == VALUES[kind]
    with pytest.raises(SchemaRegistryError):
        serializer(kind, registry, **{**conf, "use.latest.with.metadata": {"v": "3"}})(
            VALUES[kind], context()
        )


@pytest.mark.parametrize("kind", FORMATS)
def test_schema_id_is_given(registry: MemoryRegistry, kind: str) -> None:
    registry.add("other", "{}", "JSON")
    number = registry.add("orders-value", TEXTS[kind], kind.upper())
    write = serializer(kind, registry, **{"use.schema.id": number})
    assert write(VALUES[kind], context())[:5] == b"\0\0\0\0\2"
    write(VALUES[kind], context())
    assert registry.calls["lookup"] == 1
    with pytest.raises(SchemaRegistryError):  # it is not of this subject
        write(VALUES[kind], context("others"))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("of", [list, dict])
def test_guid_is_in_a_header(registry: MemoryRegistry, kind: str, of: Any) -> None:
    headers = of()
    write = serializer(kind, registry, **{"schema.id.serializer": header_schema_id_serializer})
    ctx = context(headers=headers)

    data = write(VALUES[kind], ctx)

    assert list(dict(headers)) == ["__value_schema_id"]
    assert deserializer(kind, registry)(data, ctx) == VALUES[kind]
    assert deserializer(kind, registry)(data, ctx) == VALUES[kind]
    read = deserializer(
        kind, registry, **{"schema.id.deserializer": prefix_schema_id_deserializer}
    )
    with pytest.raises(SerializationError):
        read(data, ctx)
    with pytest.raises(SerializationError, match="expected bytes"):
        deserializer(kind, registry)(data, context(headers=[("__value_schema_id", "text")]))


@pytest.mark.parametrize("kind", FORMATS)
def test_own_functions_for_the_id(registry: MemoryRegistry, kind: str) -> None:
    def encode(payload: bytes, ctx: Any, schema_id: Any) -> bytes:
        return b"!" + prefix(payload, ctx, schema_id)

    def decode(payload: bytes, ctx: Any, schema_id: Any) -> Any:
        return prefix_schema_id_deserializer(payload[1:], ctx, schema_id)

    def prefix(payload: bytes, ctx: Any, schema_id: Any) -> bytes:
        return bytes(schema_id.id_to_bytes()) + payload

    data = serializer(kind, registry, **{"schema.id.serializer": encode})(VALUES[kind], context())
    assert data[:6] == b"!\0\0\0\0\1"
    read = deserializer(kind, registry, **{"schema.id.deserializer": decode})
    assert [read(data, context()) for _ in range(2)] == [VALUES[kind]] * 2


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "too few"),
        (b"\0\0\0", "too few"),
        (b"\1" + bytes(10), "too few"),
        (b"\5\0\0\0\1\0\0", "magic byte 5"),
        (b'{"id": 5}', "magic byte 123"),
    ],
)
def test_frame_is_wrong(registry: MemoryRegistry, kind: str, data: bytes, words: str) -> None:
    for ctx in (context(), None):
        with pytest.raises(SerializationError, match=words):
            deserializer(kind, registry)(data, ctx)


@pytest.mark.parametrize("kind", FORMATS)
def test_unknown_id_is_the_registrys_error(registry: MemoryRegistry, kind: str) -> None:
    read = deserializer(kind, registry)
    for _ in range(2):
        with pytest.raises(SchemaRegistryError, match="Schema 9 not found"):
            read(b"\0\0\0\0\x09\0\0\0", context())
    # The schema may come later.
    for number in range(9):
        registry.add(f"{number}", TEXTS[kind], kind.upper(), metadata={"n": number})
    data = serializer(kind, registry)(VALUES[kind], context("other"))
    assert read(data[:4] + b"\x09" + data[5:], context()) == VALUES[kind]


@pytest.mark.parametrize("kind", FORMATS)
def test_schema_that_does_not_parse(registry: MemoryRegistry, kind: str) -> None:
    for text in ("{", '{"type": "nothing"}', "[" * 100_000):
        number = registry.add("orders-value", text, kind.upper())
        data = b"\0" + number.to_bytes(4, "big") + b"\0\0"
        with pytest.raises(SerializationError, match="schema cannot be used") as caught:
            deserializer(kind, registry)(data, context())
        assert caught.value.__cause__ is not None


RULE = {"name": "encrypt", "type": "ENCRYPT", "kind": "TRANSFORM", "mode": "WRITEREAD"}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", ["domainRules", "encodingRules"])
def test_rules_are_named(registry: MemoryRegistry, kind: str, name: str) -> None:
    number = registry.add("orders-value", TEXTS[kind], kind.upper(), rule_set={name: [RULE]})
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    with pytest.raises(SerializationError, match=r"encrypt \(ENCRYPT\)"):
        serializer(kind, registry, **conf)(VALUES[kind], context())
    data = b"\0" + number.to_bytes(4, "big") + b"\0\0"
    with pytest.raises(SerializationError, match=r"encrypt \(ENCRYPT\)"):
        deserializer(kind, registry)(data, context())


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "rules",
    [
        {"domainRules": [{**RULE, "disabled": True}]},
        {"domainRules": [RULE], "enableAt": "SERVER"},
        {"migrationRules": [{**RULE, "mode": "UPGRADE"}]},
        {"domainRules": []},
        SimpleNamespace(to_dict=lambda: {"domainRules": []}),  # of confluent_kafka
    ],
)
def test_rules_without_effect(registry: MemoryRegistry, kind: str, rules: Any) -> None:
    registry.add("orders-value", TEXTS[kind], kind.upper(), rule_set=rules)
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    data = serializer(kind, registry, **conf)(VALUES[kind], context())
    assert deserializer(kind, registry)(data, context()) == VALUES[kind]


def test_migrations_are_named(registry: MemoryRegistry) -> None:
    data = AvroSerializer(registry, AVRO)({"id": 5}, context())
    rules = {"migrationRules": [{**RULE, "mode": "UPGRADE"}]}
    registry.add("orders-value", AVRO.replace('"long"', '"double"'), rule_set=rules)
    read = AvroDeserializer(registry, conf={"use.latest.version": True})
    with pytest.raises(SerializationError, match=r"encrypt \(ENCRYPT\)"):
        read(data, context())


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"auto.register.schemas": "yes"}, "auto.register.schemas must be a boolean value"),
        ({"normalize.schemas": 1}, "normalize.schemas must be a boolean value"),
        ({"use.latest.version": None}, "use.latest.version must be a boolean value"),
        ({"use.latest.version": True}, "cannot enable both"),
        ({"use.latest.with.metadata": "v"}, "use.latest.with.metadata must be a dict value"),
        ({"use.schema.id": "5"}, "use.schema.id must be an int value"),
        ({"subject.name.strategy": "TOPIC"}, "subject.name.strategy must be callable"),
        ({"subject.name.strategy.type": "NONE"}, "cannot be NONE"),
        ({"subject.name.strategy.type": "x"}, "expected one of NONE, TOPIC"),
        ({"schema.id.serializer": None}, "schema.id.serializer must be callable"),
        ({"validation.rules.execution": "BEFORE_DOMAIN_RULES"}, "does not apply the rules"),
        ({"url": "", "x": 1}, "Unrecognized properties: url, x"),
    ],
)
def test_serializers_option_is_wrong(kind: str, conf: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        serializer(kind, MemoryRegistry(), **conf)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"use.latest.version": 0}, "use.latest.version must be a boolean value"),
        ({"use.latest.with.metadata": []}, "use.latest.with.metadata must be a dict value"),
        ({"subject.name.strategy": 5}, "subject.name.strategy must be callable"),
        ({"schema.id.deserializer": 5}, "schema.id.deserializer must be callable"),
        ({"auto.register.schemas": True}, "Unrecognized properties: auto.register.schemas"),
    ],
)
def test_deserializers_option_is_wrong(kind: str, conf: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        deserializer(kind, MemoryRegistry(), **conf)


def test_objects_of_the_program(registry: MemoryRegistry) -> None:
    ctx = context()
    for write, read in (
        (
            AvroSerializer(registry, AVRO, lambda number, at: {"id": number}),
            AvroDeserializer(registry, None, lambda value, at: (value["id"], at)),
        ),
        (
            JSONSerializer(JSON, registry, lambda number, at: {"id": number}),
            JSONDeserializer(JSON, lambda value, at: (value["id"], at)),
        ),
    ):
        assert read(write(5, ctx), ctx) == (5, ctx)
    with pytest.raises(ValueError, match="to_dict must be callable"):
        AvroSerializer(registry, AVRO, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from_dict must be callable"):
        JSONDeserializer(JSON, 5)  # type: ignore[arg-type]


def test_schema_is_missing_or_wrong(registry: MemoryRegistry) -> None:
    with pytest.raises(SerializationError, match="the serializer has no schema: pass one, or set"):
        AvroSerializer(registry)({"id": 5}, context())
    with pytest.raises(ValueError, match="not an Avro schema"):
        AvroSerializer(registry, "{}")
    with pytest.raises(ValueError, match="not JSON"):
        JSONSerializer("{", registry)
    with pytest.raises(TypeError, match="expected a schema"):
        AvroSerializer(registry, 5)
    with pytest.raises(ValueError, match="schema_registry_client is needed"):
        JSONDeserializer(None)


def test_cluster_id_goes_to_the_strategy(registry: MemoryRegistry) -> None:
    write = serializer("avro", registry)
    write.set_cluster_id_resolver(lambda: "cluster")
    write(VALUES["avro"], context())
    assert registry.cluster == "cluster"
    serializer(
        "avro", registry, **{"subject.name.strategy.type": "TOPIC"}
    ).set_cluster_id_resolver(lambda: "cluster")


def test_client_is_closed_by_its_owner(registry: MemoryRegistry) -> None:
    write = serializer("avro", registry)
    write.close()
    assert not registry.calls
    write.own_schema_registry_client()
    write.close()
    write.close()
    assert registry.calls == {"close": 1}


def test_references_loop_and_chain(registry: MemoryRegistry) -> None:
    from cykafka.schemas.model.schema import SchemaReference

    loop = (SchemaReference("b", "b", 1),)
    registry.add("b", AVRO, references=loop)
    read = AvroDeserializer(registry)
    registry.add("orders-value", '"b"', references=loop)
    with pytest.raises(SerializationError, match="refer to each other in a circle: b"):
        read(b"\0\0\0\0\2\0", context())
    with pytest.raises(ValueError, match="needs a registry"):
        AvroDeserializer(None, Schema(AVRO, references=loop))


def test_threads_register_once(registry: MemoryRegistry) -> None:
    write, read = serializer("avro", registry), deserializer("avro", registry)
    barrier = threading.Barrier(8)

    def work(number: int) -> Any:
        barrier.wait()
        return read(write({"id": number}, context()), context())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [{"id": number} for number in range(8)]
    assert registry.calls == {"associations": 2, "register": 1, "get": 1}


def test_a_slow_request_stops_no_other_topic() -> None:
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        for topic in "ab":
            registry.add(f"{topic}-value", f'{{"type": "int", "doc": "{topic}"}}')
        read = AvroDeserializer(client, conf={"subject.name.strategy.type": "TOPIC"})
        client.get_schema(2, "b-value")
        registry.delay_next(1, 60)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(read, b"\0\0\0\0\1\2", context("a"))
            while not registry.requests["GET /schemas/ids/1"]:
                time.sleep(0.01)
            assert read(b"\0\0\0\0\2\2", context("b")) == 1
            client.close()
            registry.close()
            with pytest.raises((SchemaRegistryError, RuntimeError)):
                slow.result(60)


def test_a_fork_during_a_request_does_not_hang() -> None:
    conf = {"subject.name.strategy.type": "TOPIC"}
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        write = AvroSerializer(client, AVRO, conf=conf)
        registry.delay_next(1, 1)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(write, {"id": 5}, context())
            while not registry.requests:
                time.sleep(0.01)
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                os._exit(write({"id": 5}, context()) != b"\0\0\0\0\1\x0a")
            assert os.waitpid(child, 0)[1] == 0
            assert slow.result(60) == b"\0\0\0\0\1\x0a"


def test_references_are_in_the_subjects_context() -> None:
    conf = {"subject.name.strategy": lambda ctx, name: f":.shop:{ctx.topic}-value"}
    inner = '{"type":"record","name":"Inner","fields":[]}'
    outer = '{"type":"record","name":"Outer","fields":[{"name":"inner","type":"Inner"}]}'
    references = [{"name": "Inner", "subject": "inner", "version": 1}]
    with SchemaRegistry() as registry, SchemaRegistryClient({"url": registry.url}) as client:
        registry.add(":.shop:inner", inner)
        registry.add(":.shop:orders-value", outer, references=references)
        latest = {**conf, "use.latest.version": True, "auto.register.schemas": False}
        data = AvroSerializer(client, conf=latest)({"inner": {}}, context())
        assert data == b"\0\0\0\0\2"
        assert AvroDeserializer(client, conf=conf)(data, context()) == {"inner": {}}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_value_that_does_not_fit_is_also_a_value_error(
    registry: MemoryRegistry, kind: str
) -> None:
    with pytest.raises(SerializationError, match="does not fit") as caught:
        serializer(kind, registry)({"id": "x"}, context())
    assert isinstance(caught.value, ValueError)


def test_bytes_may_be_of_any_type(registry: MemoryRegistry) -> None:
    data = serializer("avro", registry)({"id": 5}, context())
    for kind in (bytearray, memoryview):
        assert deserializer("avro", registry)(kind(data), context()) == {"id": 5}
    with pytest.raises(TypeError):
        deserializer("avro", registry)("text", context())


def test_client_is_needed() -> None:
    with pytest.raises(SerializationError, match="needs a registry's client"):
        AvroSerializer(None, AVRO)({"id": 5}, context())
    with pytest.raises(SerializationError, match="needs a registry's client"):
        AvroDeserializer(None)(b"\0\0\0\0\1\0", context())


def test_many_topics_stay_bounded(
    registry: MemoryRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cykafka.schemas.serdes.serde._MOST_KNOWN", 10)
    schema = '{"type": "record", "name": "Many", "fields": []}'
    serializer = AvroSerializer(registry, schema, conf={"subject.name.strategy.type": "TOPIC"})

    for number in range(25):
        serializer({}, SerializationContext(f"many{number}", MessageField.VALUE))

    assert len(serializer._known) <= 10
    assert len(serializer._targets) <= 10


def test_many_unknown_ids_stay_bounded() -> None:
    read = ProtobufDeserializer(Order)
    for number in range(10_100):
        assert read(b"\0" + number.to_bytes(4, "big") + b"\0", context()) == Order()
    assert len(read._known) <= 10_000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("avro", '{"type": "fixed", "size": 1, "name": 5}'),
        ("avro", '{"type": "fixed", "size": 1, "name": 5, "namespace": "a"}'),
        ("avro", "{"),
        ("json", '{"title": 5}'),
    ],
)
def test_a_name_that_is_no_text_names_no_subject(
    registry: MemoryRegistry, kind: str, text: str
) -> None:
    read = deserializer(
        kind, registry, use_latest_version=True, subject_name_strategy_type="RECORD"
    )
    head = b"\0" + registry.add("orders-value", text, kind.upper()).to_bytes(4, "big")

    with pytest.raises(SerializationError, match="the schema cannot be used: "):
        read(head + b"1", context())


def test_a_title_that_is_no_text_names_no_subject(registry: MemoryRegistry) -> None:
    write = JSONSerializer('{"title": 5}', registry, conf={"subject.name.strategy.type": "RECORD"})

    with pytest.raises(SerializationError, match="expected a text as its subject, got int"):
        write({}, context())


UNFIT = {"avro": '{"type":"record","fields":[]}', "json": '{"type": 7}', "protobuf": "AAAA"}


@pytest.mark.parametrize("kind", FORMATS)
def test_unfit_schema_is_compiled_once(
    registry: MemoryRegistry, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"use_latest_version": True, "auto_register_schemas": False}
    write, read = serializer(kind, registry, **conf), deserializer(kind, registry)
    number = registry.add("orders-value", UNFIT[kind], kind.upper())
    data = b"\0" + number.to_bytes(4, "big") + b"\0"
    compiled = []
    for serde in (write, read):
        known = serde._compile
        monkeypatch.setattr(
            serde, "_compile", lambda *args, known=known: compiled.append(1) or known(*args)
        )

    words = set()
    for _ in range(3):
        for call in (lambda: read(data, context()), lambda: write(VALUES[kind], context())):
            with pytest.raises(SerializationError, match="the schema cannot be used: ") as caught:
                call()
            words.add(str(caught.value))

    assert len(compiled) == 2
    assert len(words) <= 2
    number = registry.add("orders-value", TEXTS[kind], kind.upper())
    assert read(write(VALUES[kind], context()), context()) == VALUES[kind]
    assert len(compiled) == 4
