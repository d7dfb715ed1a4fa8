"""The names of the module: constants, functions, enumerations and small classes."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pickle
import pydoc
import subprocess
import sys
import traceback
from types import ModuleType

import pytest

import cykafka
import cykafka.admin

NAMES = """
    AcknowledgeType ConcurrentModificationException Consumer ConsumerGroupState
    ConsumerGroupTopicPartitions ConsumerGroupType ElectionType IllegalStateException
    IsolationLevel KafkaError KafkaException Message Messages Node OFFSET_BEGINNING OFFSET_END
    OFFSET_INVALID OFFSET_STORED Producer ShareConsumer TIMESTAMP_CREATE_TIME
    TIMESTAMP_LOG_APPEND_TIME TIMESTAMP_NOT_AVAILABLE ThrottleEvent TopicCollection
    TopicPartition TopicPartitionInfo Uuid consistent fnv1a libversion murmur2 version
"""


def test_module_has_every_name(kafka: ModuleType) -> None:
    assert [name for name in NAMES.split() if not hasattr(kafka, name)] == []


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("OFFSET_BEGINNING", -2),
        ("OFFSET_END", -1),
        ("OFFSET_STORED", -1000),
        ("OFFSET_INVALID", -1001),
        ("TIMESTAMP_NOT_AVAILABLE", 0),
        ("TIMESTAMP_CREATE_TIME", 1),
        ("TIMESTAMP_LOG_APPEND_TIME", 2),
    ],
)
def test_module_constants(kafka: ModuleType, name: str, number: int) -> None:
    assert getattr(kafka, name) == number


def test_version_is_that_of_the_package(kafka: ModuleType) -> None:
    assert isinstance(kafka.version(), str)
    assert kafka.version() == kafka.__version__
    assert kafka.version() == importlib.metadata.version(kafka.__name__.replace("_", "-"))


def test_libversion_is_text_and_number_of_librdkafka(kafka: ModuleType) -> None:
    text, number = kafka.libversion()

    assert number >= 0x020E02FF
    major, minor, patch = number >> 24, number >> 16 & 0xFF, number >> 8 & 0xFF
    assert text.startswith(f"{major}.{minor}.{patch}")


# The numbers must agree with other clients' partitioners, so they are part of the contract.
@pytest.mark.parametrize(
    ("key", "murmur2", "consistent", "fnv1a"),
    [
        (b"", 681, 0, 35),
        (b"a", 524, 907, 76),
        (b"kafka", 580, 399, 545),
        (b"\xff\x00" * 5, 183, 371, 538),
        (b"key-123", 164, 349, 987),
    ],
)
def test_partitioners_of_a_thousand_partitions(
    kafka: ModuleType, key: bytes, murmur2: int, consistent: int, fnv1a: int
) -> None:
    assert kafka.murmur2(key, 1000) == murmur2
    assert kafka.consistent(key, 1000) == consistent
    assert kafka.fnv1a(key, 1000) == fnv1a


@pytest.mark.parametrize("name", ["murmur2", "consistent", "fnv1a"])
def test_partitioners_reject_bad_arguments(kafka: ModuleType, name: str) -> None:
    partitioner = getattr(kafka, name)

    assert partitioner(b"any", 1) == 0
    with pytest.raises(TypeError):
        partitioner(b"any")
    with pytest.raises(TypeError):
        partitioner(3, 5)
    for count in (0, -1):
        with pytest.raises(ValueError, match="partition"):
            partitioner(b"any", count)


def test_uuid_has_two_halves(kafka: ModuleType) -> None:
    uuid = kafka.Uuid(1, 2)

    assert (uuid.get_most_significant_bits(), uuid.get_least_significant_bits()) == (1, 2)
    assert str(uuid) == repr(uuid) == "AAAAAAAAAAEAAAAAAAAAAg"


@pytest.mark.ours
def test_uuid_equality_is_by_value(kafka: ModuleType) -> None:
    assert kafka.Uuid(1, 2) == kafka.Uuid(1, 2)
    assert hash(kafka.Uuid(1, 2)) == hash(kafka.Uuid(1, 2))
    assert kafka.Uuid(1, 2) != kafka.Uuid(1, 3)


def test_node_keeps_its_fields(kafka: ModuleType) -> None:
    node = kafka.Node(1, "host", 9092, rack="r1")

    assert (node.id, node.id_string, node.host, node.port, node.rack) == (
        1,
        "1",
        "host",
        9092,
        "r1",
    )
    assert "host:9092" in str(node)
    assert "r1" in str(node)
    assert kafka.Node(1, "host", 9092).rack is None


def test_small_classes_keep_their_arguments(kafka: ModuleType) -> None:
    partition = kafka.TopicPartition("orders", 1)
    node = kafka.Node(1, "host", 9092)

    assert kafka.TopicCollection(["a", "b"]).topic_names == ["a", "b"]
    assert kafka.TopicCollection(topic_names=["a"]).topic_names == ["a"]
    group = kafka.ConsumerGroupTopicPartitions("group", [partition])
    assert (group.group_id, group.topic_partitions) == ("group", [partition])
    assert kafka.ConsumerGroupTopicPartitions("group").topic_partitions is None
    info = kafka.TopicPartitionInfo(0, node, [node], [])
    assert (info.id, info.leader, info.replicas, info.isr) == (0, node, [node], [])


def test_throttle_event_text_is_in_milliseconds(kafka: ModuleType) -> None:
    event = kafka.ThrottleEvent("broker", 1, 0.25)

    assert (event.broker_name, event.broker_id, event.throttle_time) == ("broker", 1, 0.25)
    assert str(event) == "broker/1 throttled for 250 ms"


@pytest.mark.parametrize(
    ("name", "members"),
    [
        (
            "ConsumerGroupState",
            "UNKNOWN PREPARING_REBALANCING COMPLETING_REBALANCING STABLE DEAD EMPTY",
        ),
        ("ConsumerGroupType", "UNKNOWN CONSUMER CLASSIC"),
        ("IsolationLevel", "READ_UNCOMMITTED READ_COMMITTED"),
        ("ElectionType", "PREFERRED UNCLEAN"),
        ("AcknowledgeType", "ACCEPT RELEASE REJECT"),
    ],
)
def test_enumerations_have_their_members(kafka: ModuleType, name: str, members: str) -> None:
    assert {member.name for member in getattr(kafka, name)} == set(members.split())


def test_enumerations_are_ordered(kafka: ModuleType) -> None:
    assert kafka.IsolationLevel.READ_UNCOMMITTED < kafka.IsolationLevel.READ_COMMITTED
    assert kafka.ElectionType.PREFERRED < kafka.ElectionType.UNCLEAN


def test_submodules_exist(kafka: ModuleType) -> None:
    error = importlib.import_module(f"{kafka.__name__}.error")

    assert error.KafkaError is kafka.KafkaError
    assert error.KafkaException is kafka.KafkaException


def fresh(source: str) -> str:
    """The output of a new interpreter."""
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.ours
def test_rarely_used_modules_are_imported_lazily() -> None:
    loaded = fresh("import cykafka, sys; print(*sys.modules)").split()
    assert "cykafka._core.consume.consumer" in loaded
    assert {"cykafka.admin", "cykafka._core.model", "cykafka.serialization"}.isdisjoint(loaded)
    assert {"asyncio", "inspect", "ssl"}.isdisjoint(loaded)


@pytest.mark.ours
def test_every_lazy_name_is_available() -> None:
    source = """
import cykafka
listed = set(dir(cykafka))
for name in cykafka.__all__:
    assert name in listed, name
    assert getattr(cykafka, name) is getattr(cykafka, name), name
names = {}
exec("from cykafka import *", names)
print(*names.keys() & set(cykafka.__all__))
"""
    assert sorted(fresh(source).split()) == sorted(cykafka.__all__)


@pytest.mark.ours
def test_missing_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'cykafka' has no attribute 'Producers'"):
        cykafka.Producers  # noqa: B018


@pytest.mark.parametrize("partitioner", ["murmur2", "consistent", "fnv1a"])
@pytest.mark.parametrize("count", [0, -1, -(2**31)])
def test_partitioner_without_partitions_raises_confluents_error(
    kafka: ModuleType, partitioner: str, count: int
) -> None:
    with pytest.raises(ValueError, match=f"^partition_count must be > 0, got {count}$"):
        getattr(kafka, partitioner)(b"key", count)


@pytest.mark.ours
@pytest.mark.parametrize(
    "module", ["cykafka", "cykafka.admin", "cykafka.serialization", "cykafka.testing"]
)
def test_public_classes_name_a_module_that_has_them(module: str) -> None:
    """In tracebacks, reprs, pickles and docs."""
    public = importlib.import_module(module)
    classes = [each for name in public.__all__ if isinstance(each := getattr(public, name), type)]
    assert classes
    for each in classes:
        assert "._" not in each.__module__, each
        assert getattr(importlib.import_module(each.__module__), each.__name__) is each


@pytest.mark.ours
@pytest.mark.parametrize(
    "module",
    ["cykafka", "cykafka.admin", "cykafka.aio", "cykafka.error", "cykafka.serialization"],
)
def test_public_classes_and_their_methods_have_a_signature(module: str) -> None:
    public = importlib.import_module(module)
    made = {cykafka.Delivery, cykafka.MessageBatch}  # by cykafka only
    classes = {each for name in public.__all__ if isinstance(each := getattr(public, name), type)}
    assert classes
    for each in classes - made:
        # Python's own exceptions have none either.
        if not issubclass(each, BaseException):
            assert isinstance(hash(inspect.signature(each)), int), each  # caches hash it
    for each in {base for public_class in classes for base in public_class.__mro__}:
        for name, method in vars(each).items():
            if "cykafka" in each.__module__ and callable(method) and not name.startswith("_"):
                assert inspect.signature(method) is not None, (each, name)


@pytest.mark.ours
@pytest.mark.parametrize(
    "compiled",
    [
        cykafka.Consumer,
        cykafka.Message,
        cykafka.Producer,
        cykafka.TopicPartition,
        cykafka.Uuid,
        cykafka.admin.AdminClient,
    ],
)
def test_help_describes_the_constructor(compiled: type) -> None:
    shown = pydoc.plain(pydoc.render_doc(compiled.__init__))

    assert "the class describes" in shown.lower()
    for parameter in inspect.signature(compiled).parameters:
        assert parameter in shown
    assert "--" not in (compiled.__doc__ or "").split("\n\n")[0]


@pytest.mark.ours
def test_exception_is_shown_and_pickled_by_its_public_name() -> None:
    error = cykafka.KafkaException(cykafka.KafkaError(cykafka.KafkaError._TRANSPORT))
    assert traceback.format_exception_only(error)[0].startswith("cykafka.KafkaException: ")
    assert b"_core" not in pickle.dumps(error)
