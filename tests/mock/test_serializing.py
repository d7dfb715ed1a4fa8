"""SerializingProducer and DeserializingConsumer."""

from __future__ import annotations

import gc
import importlib
import threading
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from fixture_types import Fill, Unique
from machine import WAIT_S


@pytest.fixture
def serialization(kafka: ModuleType) -> ModuleType:
    return importlib.import_module(f"{kafka.__name__}.serialization")


@pytest.fixture
def errors(kafka: ModuleType) -> ModuleType:
    return importlib.import_module(f"{kafka.__name__}.error")


@pytest.fixture
def make(kafka: ModuleType, cluster: Any, unique: Unique) -> Iterator[Any]:
    """Make a SerializingProducer (of a config of serializers) or a DeserializingConsumer."""
    made = []

    def make(name: str, config: dict[str, Any]) -> Any:
        base: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
        if name == "DeserializingConsumer":
            base |= {"group.id": unique("group"), "auto.offset.reset": "earliest"}
        client = getattr(kafka, name)(base | config)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


class Recorder:
    """A serializer that records its calls."""

    def __init__(self, data: Any = b"made") -> None:
        self.calls: list[tuple[Any, str, str, Any]] = []
        self.data = data
        self.closed = 0
        self.resolver: Any = None

    def __call__(self, obj: Any, ctx: Any) -> Any:
        self.calls.append((obj, ctx.topic, str(ctx.field), ctx.headers))
        if isinstance(self.data, Exception):
            raise self.data
        return self.data

    def set_cluster_id_resolver(self, resolver: Any) -> None:
        self.resolver = resolver

    def close(self) -> None:
        self.closed += 1


class Builder:
    """Builds a serde and removes its own property from the configuration."""

    def __init__(self, serde: Any, takes: str = "") -> None:
        self.serde = serde
        self.takes = takes
        self.seen: tuple[dict[str, Any], bool] | None = None

    def build(self, conf: dict[str, Any], is_key: bool) -> Any:
        self.seen = dict(conf), is_key
        conf.pop(self.takes, None)
        return self.serde, conf


def test_objects_make_the_round_trip(make: Any, serialization: ModuleType, topic: str) -> None:
    producer = make(
        "SerializingProducer",
        {
            "key.serializer": serialization.IntegerSerializer(),
            "value.serializer": serialization.StringSerializer(),
        },
    )
    delivered = []
    producer.produce(topic, 7, "häßlich", 0, lambda error, message: delivered.append(message))
    producer.produce(topic, key=None, value=None, partition=0, headers={"h": "1"}, timestamp=5)
    producer.flush(WAIT_S)
    assert [message.value() for message in delivered] == ["häßlich".encode()]

    consumer = make(
        "DeserializingConsumer",
        {
            "key.deserializer": serialization.IntegerDeserializer(),
            "value.deserializer": serialization.StringDeserializer(),
        },
    )
    consumer.subscribe([topic])
    first, second = consumer.poll(WAIT_S), consumer.poll(WAIT_S)

    assert (first.key(), first.value()) == (7, "häßlich")
    assert (first.deserialized_key(), first.deserialized_value()) == (7, "häßlich")
    assert (second.key(), second.value(), second.headers()) == (None, None, [("h", b"1")])
    assert second.timestamp()[1] == 5
    assert consumer.poll(0) is None


def test_without_serializers_bytes_pass_through(make: Any, topic: str) -> None:
    producer = make("SerializingProducer", {})
    producer.produce(topic, key=b"key", value=b"value")
    producer.flush(WAIT_S)
    consumer = make("DeserializingConsumer", {})
    consumer.subscribe([topic])

    message = consumer.poll(WAIT_S)

    assert (message.key(), message.value()) == (b"key", b"value")


def test_serializers_run_key_first_and_get_the_same_headers_object(make: Any, topic: str) -> None:
    key, value = Recorder(b"k"), Recorder(b"v")
    producer = make("SerializingProducer", {"key.serializer": key, "value.serializer": value})
    headers = [("h", b"1")]

    producer.produce(topic, key="a", value="b", headers=headers)

    assert key.calls == [("a", topic, "key", headers)]
    assert value.calls == [("b", topic, "value", headers)]
    assert key.calls[0][3] is headers


@pytest.mark.parametrize("field", ["key", "value"])
def test_serializer_that_raises_is_a_serialization_error(
    make: Any, errors: ModuleType, topic: str, field: str
) -> None:
    cause = ValueError("bad")
    producer = make("SerializingProducer", {f"{field}.serializer": Recorder(cause)})

    with pytest.raises(getattr(errors, f"{field.title()}SerializationError")) as caught:
        producer.produce(topic, key="a", value="b")

    assert caught.value.exception is cause
    assert len(producer) == 0


@pytest.mark.parametrize("field", ["key", "value"])
def test_deserializer_that_raises_leaves_the_message_unchanged(
    make: Any, errors: ModuleType, topic: str, fill: Fill, field: str
) -> None:
    fill(topic, 2)
    cause = ValueError("bad")
    recorder = Recorder(cause)
    consumer = make("DeserializingConsumer", {f"{field}.deserializer": recorder})
    consumer.subscribe([topic])

    with pytest.raises(getattr(errors, f"{field.title()}DeserializationError")) as caught:
        consumer.poll(WAIT_S)

    message = caught.value.kafka_message
    assert caught.value.exception is cause
    assert (message.key(), message.value(), message.error()) == (b"key-0", b"0", None)
    # The message counts as read: the next poll returns the one after it.
    recorder.data = "made"
    assert consumer.poll(WAIT_S).offset() == 1


def test_event_is_a_consume_error(
    make: Any, kafka: ModuleType, errors: ModuleType, topic: str, fill: Fill
) -> None:
    fill(topic, 1)
    consumer = make("DeserializingConsumer", {"enable.partition.eof": True})
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    assert consumer.poll(WAIT_S).value() == b"0"

    with pytest.raises(errors.ConsumeError) as caught:
        consumer.poll(WAIT_S)

    assert caught.value.code == kafka.KafkaError._PARTITION_EOF
    assert caught.value.kafka_message.topic() == topic


@pytest.mark.ours
def test_coroutine_function_is_refused(kafka: ModuleType, cluster: Any) -> None:
    async def text(value: bytes, ctx: Any) -> str:
        return value.decode()

    class Text:
        async def __call__(self, value: bytes, ctx: Any) -> str:
            return value.decode()

    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    for cls in (kafka.DeserializingConsumer, kafka.DeserializingShareConsumer):
        for serde in (text, Text()):
            with pytest.raises(TypeError, match=r"value\.deserializer: .* is a coroutine"):
                cls({**config, "value.deserializer": serde})


def test_consume_of_many_is_not_implemented(make: Any) -> None:
    with pytest.raises(NotImplementedError):
        make("DeserializingConsumer", {}).consume(1, 0)


def test_closed_producer_calls_no_serializer(make: Any, topic: str) -> None:
    recorder = Recorder()
    producer = make("SerializingProducer", {"value.serializer": recorder})
    assert producer.close() is True

    with pytest.raises(RuntimeError) as raised:
        producer.produce(topic, value="a")

    assert str(raised.value) == "Producer has been closed"
    assert recorder.calls == []


def test_invalid_topic_calls_no_serializer(make: Any) -> None:
    recorder = Recorder()
    producer = make("SerializingProducer", {"value.serializer": recorder})

    with pytest.raises(TypeError):
        producer.produce(None, value="a")

    assert recorder.calls == []


def test_delivery_callbacks_may_produce_while_it_closes(make: Any, topic: str) -> None:
    delivered = []
    producer = make("SerializingProducer", {"value.serializer": Recorder(b"v")})

    def again(error: Any, message: Any) -> None:
        delivered.append(message)
        if len(delivered) == 1:
            producer.produce(topic, value="again", on_delivery=again)

    producer.produce(topic, value="first", on_delivery=again)
    producer.close()

    assert len(delivered) == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [("SerializingProducer", "serializer"), ("DeserializingConsumer", "deserializer")],
)
class TestBuilders:
    def test_builders_get_the_whole_configuration_and_the_client_the_rest(
        self, make: Any, name: str, kind: str
    ) -> None:
        key = Builder(Recorder(), takes="of.the.key")
        value = Builder(Recorder(), takes="of.the.value")

        make(
            name,
            {
                f"key.{kind}.builder": key,
                f"value.{kind}.builder": value,
                "of.the.key": 1,
                "of.the.value": 2,
            },
        )

        for builder, is_key in ((key, True), (value, False)):
            assert builder.seen is not None
            conf, said = builder.seen
            assert said is is_key
            assert (conf["of.the.key"], conf["of.the.value"]) == (1, 2)
            assert "bootstrap.servers" in conf
            assert not any(kind in property for property in conf)

    def test_client_closes_only_the_serdes_that_it_built(
        self, make: Any, name: str, kind: str
    ) -> None:
        built, given = Recorder(), Recorder()
        with make(name, {f"key.{kind}.builder": Builder(built), f"value.{kind}": given}) as client:
            assert built.closed == 0
        client.close()

        assert (built.closed, given.closed) == (1, 0)

    def test_serde_and_its_builder_exclude_each_other(
        self, make: Any, name: str, kind: str
    ) -> None:
        config = {f"key.{kind}": Recorder(), f"key.{kind}.builder": Builder(Recorder())}

        with pytest.raises(ValueError, match=f"key.{kind}.builder"):
            make(name, config)

    @pytest.mark.parametrize("result", [None, (Recorder(),), (Recorder(), None)])
    def test_builder_that_returns_no_pair_is_named(
        self, make: Any, name: str, kind: str, result: Any
    ) -> None:
        builder = Builder(None)
        builder.build = lambda conf, is_key: result  # type: ignore[method-assign]

        with pytest.raises(ValueError, match=f"value.{kind}.builder"):
            make(name, {f"value.{kind}.builder": builder})

    def test_client_that_cannot_be_created_closes_the_built_serdes(
        self, make: Any, kafka: ModuleType, name: str, kind: str
    ) -> None:
        built = Recorder()

        with pytest.raises(kafka.KafkaException):
            make(name, {f"key.{kind}.builder": Builder(built), "no.such.property": 1})

        assert built.closed == 1

    def test_builder_that_raises_closes_the_built_serdes(
        self, make: Any, name: str, kind: str
    ) -> None:
        built, failing = Recorder(), Builder(None)

        def fail(conf: Any, is_key: bool) -> Any:
            raise LookupError("no schema")

        failing.build = fail  # type: ignore[method-assign]
        with pytest.raises(LookupError):
            make(name, {f"key.{kind}.builder": Builder(built), f"value.{kind}.builder": failing})

        assert built.closed == 1

    def test_serdes_can_request_the_cluster_id(self, make: Any, name: str, kind: str) -> None:
        key, value = Recorder(), Recorder()
        client = make(name, {f"key.{kind}": key, f"value.{kind}": value})

        assert key.resolver() == value.resolver() == client.cluster_id(WAIT_S)

    def test_configuration_is_not_changed(self, make: Any, name: str, kind: str) -> None:
        config = {f"key.{kind}": Recorder()}

        make(name, config)

        assert list(config) == [f"key.{kind}"]


@pytest.mark.ours
@pytest.mark.ours
@pytest.mark.parametrize(
    ("name", "kind"),
    [("SerializingProducer", "serializer"), ("DeserializingConsumer", "deserializer")],
)
class TestBeginning:
    def test_refused_second_init_leaves_the_first_ones_serdes(
        self, make: Any, name: str, kind: str
    ) -> None:
        first, second = Recorder(), Recorder()

        builder = f"value.{kind}.builder"
        client = make(name, {builder: Builder(first)})
        with pytest.raises(RuntimeError, match="twice"):
            client.__init__({"group.id": "g", builder: Builder(second)})
        assert (first.closed, second.closed) == (0, 1)

        client.close()
        assert (first.closed, second.closed) == (1, 1)

    @pytest.mark.filterwarnings("error::ResourceWarning")
    def test_serde_that_refuses_the_client_closes_it(
        self, make: Any, name: str, kind: str
    ) -> None:
        class Refusing(Recorder):
            def set_cluster_id_resolver(self, resolver: Any) -> None:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            make(name, {f"key.{kind}": Refusing()})
        gc.collect()


def test_serdes_do_not_keep_the_client_alive(kafka: ModuleType, cluster: Any) -> None:
    recorder = Recorder()
    producer = kafka.SerializingProducer(
        {"bootstrap.servers": cluster.bootstrap_servers, "value.serializer": recorder}
    )
    producer.close()
    gone = weakref.ref(producer)

    del producer
    gc.collect()

    assert gone() is None
    with pytest.raises(RuntimeError, match="the client no longer exists"):
        recorder.resolver()


@pytest.mark.ours
def test_iteration_deserializes_and_skips_partition_eof(make: Any, topic: str, fill: Fill) -> None:
    from cykafka import TopicPartition
    from cykafka.serialization import StringDeserializer

    fill(topic, 1)
    consumer = make(
        "DeserializingConsumer",
        {"value.deserializer": StringDeserializer(), "enable.partition.eof": True},
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    # The consumer reaches the end long before more messages arrive.
    later = threading.Timer(0.5, fill, (topic, 2))
    later.start()
    values = []

    for message in consumer:
        values.append(message.value())
        if len(values) == 3:
            consumer.close()

    assert values == ["0", "0", "1"]
    later.join(WAIT_S)
