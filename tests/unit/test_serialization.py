"""Serializers, their context and their errors, without a cluster."""

from __future__ import annotations

import importlib
import struct
from types import ModuleType
from typing import Any

import pytest

NAMES = """
    Deserializer DeserializerBuilder DoubleDeserializer DoubleSerializer IntegerDeserializer
    IntegerSerializer MessageField SerializationContext SerializationError Serializer
    SerializerBuilder StringDeserializer StringSerializer
"""


@pytest.fixture
def serialization(kafka: ModuleType) -> ModuleType:
    return importlib.import_module(f"{kafka.__name__}.serialization")


def test_module_has_every_name(serialization: ModuleType) -> None:
    assert sorted(serialization.__all__) == sorted(NAMES.split())


@pytest.mark.parametrize(
    ("kind", "obj", "data"),
    [
        ("Double", 1.5, struct.pack(">d", 1.5)),
        ("Double", 3, struct.pack(">d", 3.0)),
        ("Integer", -2, b"\xff\xff\xff\xfe"),
        ("Integer", 2**31 - 1, b"\x7f\xff\xff\xff"),
        ("String", "häßlich", "häßlich".encode()),
        ("String", "", b""),
    ],
)
def test_objects_round_trip(serialization: ModuleType, kind: str, obj: Any, data: bytes) -> None:
    assert getattr(serialization, f"{kind}Serializer")()(obj) == data
    assert getattr(serialization, f"{kind}Deserializer")()(data) == obj


@pytest.mark.parametrize("kind", ["Double", "Integer", "String"])
def test_none_is_serialized_as_null(serialization: ModuleType, kind: str) -> None:
    ctx = serialization.SerializationContext("topic", serialization.MessageField.VALUE)

    assert getattr(serialization, f"{kind}Serializer")()(None, ctx) is None
    assert getattr(serialization, f"{kind}Deserializer")()(None, ctx) is None


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("DoubleSerializer", "1.5"),
        ("DoubleDeserializer", b"1"),
        ("IntegerSerializer", 2**31),
        ("IntegerSerializer", 1.5),
        ("IntegerDeserializer", b"12345"),
        ("StringDeserializer", b"\xff"),
    ],
)
def test_unsuitable_value_is_a_serialization_error(
    serialization: ModuleType, kafka: ModuleType, name: str, bad: Any
) -> None:
    with pytest.raises(serialization.SerializationError) as caught:
        getattr(serialization, name)()(bad)

    assert isinstance(caught.value, kafka.KafkaException)
    assert isinstance(caught.value.args[0], str)


def test_string_codec_can_be_chosen(serialization: ModuleType) -> None:
    assert serialization.StringSerializer("utf_16_le")("a") == b"a\x00"
    assert serialization.StringDeserializer("utf_16_le")(b"a\x00") == "a"
    with pytest.raises(serialization.SerializationError):
        serialization.StringSerializer("ascii")("ä")


def test_base_classes_are_not_implemented(serialization: ModuleType) -> None:
    serializer, deserializer = serialization.Serializer(), serialization.Deserializer()

    for serde in (serializer, deserializer):
        with pytest.raises(NotImplementedError):
            serde(b"", None)
        assert serde.set_cluster_id_resolver(lambda: "id") is None
        assert serde.close() is None
    for builder in (serialization.SerializerBuilder(), serialization.DeserializerBuilder()):
        with pytest.raises(NotImplementedError):
            builder.build({}, True)


def test_fields_compare_and_print_like_their_names(serialization: ModuleType) -> None:
    field = serialization.MessageField

    assert [str(item) for item in field] == ["none", "key", "value"]
    assert field.KEY == "key"


def test_context_keeps_its_arguments(serialization: ModuleType) -> None:
    headers = [("name", b"value")]
    ctx = serialization.SerializationContext("topic", serialization.MessageField.KEY, headers)

    assert (ctx.topic, ctx.field) == ("topic", "key")
    assert ctx.headers is headers
    assert serialization.SerializationContext("topic", "key").headers is None


@pytest.mark.parametrize("name", ["SerializingProducer", "DeserializingConsumer"])
def test_clients_are_in_the_modules_of_confluent_kafka(kafka: ModuleType, name: str) -> None:
    module = {
        "SerializingProducer": "serializing_producer",
        "DeserializingConsumer": "deserializing_consumer",
    }[name]
    there = importlib.import_module(f"{kafka.__name__}.{module}")

    assert getattr(there, name) is getattr(kafka, name)
    assert getattr(kafka, name)[str, int] is not None


@pytest.mark.parametrize(
    ("name", "bases", "code"),
    [
        ("KeySerializationError", ["ProduceError"], "_KEY_SERIALIZATION"),
        ("ValueSerializationError", ["ProduceError"], "_VALUE_SERIALIZATION"),
        ("KeyDeserializationError", ["ConsumeError"], "_KEY_DESERIALIZATION"),
        ("ValueDeserializationError", ["ConsumeError"], "_VALUE_DESERIALIZATION"),
    ],
)
def test_serialization_errors_have_the_cause(
    kafka: ModuleType, serialization: ModuleType, name: str, bases: list[str], code: str
) -> None:
    errors = importlib.import_module(f"{kafka.__name__}.error")
    cause = ValueError("bad")
    error = getattr(errors, name)(cause)

    assert isinstance(error, serialization.SerializationError)
    assert all(isinstance(error, getattr(errors, base)) for base in bases)
    assert error.exception is cause
    assert error.kafka_message is None
    assert error.code == getattr(kafka.KafkaError, code)
    assert error.name == code
    assert error.args[0].str() == "bad"
