"""Invalid arguments and handles that were never opened raise; they never crash."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, RunScript
from live import live_before
from machine import WAIT_S

from cykafka import KafkaException

pytestmark = pytest.mark.ours


class Raises:
    """Raises from every special method."""

    def fail(self, *_: Any) -> Any:
        raise ZeroDivisionError

    __len__ = __index__ = __float__ = __bool__ = __str__ = __repr__ = __iter__ = fail
    __buffer__ = fail


def odd_values() -> list[Any]:
    released = memoryview(b"abc")
    released.release()
    return [
        0, -1, 2**31, 2**63, -(2**63) - 1, 1e308, float("nan"), float("inf"), b"a\0b", "\ud800",
        "", [], [()], [(1,)], [("a", 5)], [("a\0", b"b")], [(b"\xff", b"b")], {}, {None: 1},
        (), ("a",), object(), memoryview(b"abcdef")[::2], released, iter([]), (x for x in "ab"),
        print, True, 3 + 4j, Raises(), [Raises()], [("a", Raises())], {"a": Raises()},
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_uninitialized_handle_refuses_every_call(kafka: ModuleType, name: str) -> None:
    cls = getattr(kafka, name)
    arguments: dict[str, tuple[Any, ...]] = {
        "assign": ([],),
        "committed": ([],),
        "get_watermark_offsets": (kafka.TopicPartition("t", 0),),
        "incremental_assign": ([],),
        "incremental_unassign": ([],),
        "offsets_for_times": ([],),
        "pause": ([],),
        "position": ([],),
        "produce": ("t", b"value"),
        "produce_batch": ("t", [{"value": b"value"}]),
        "publish": ("t", [b"value"]),
        "publish_arrow": ("t", b"value"),
        "resume": ([],),
        "seek": (kafka.TopicPartition("t", 0, 0),),
        "send_offsets_to_transaction": ([], b""),
        "set_sasl_credentials": ("user", "password"),
        "store_offsets": (None, []),
        "subscribe": (["t"],),
    }
    handle = cls.__new__(cls)
    handle.close()  # without effect
    for method in dir(cls):
        if method.startswith("_") or method == "close":
            continue
        with pytest.raises(RuntimeError, match="__init__ was not called"):
            getattr(handle, method)(*arguments.get(method, ()))


def test_handle_cannot_be_copied_or_pickled(make_producer: MakeProducer) -> None:
    producer = make_producer()
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            attempt(producer)
    assert weakref.ref(producer)() is producer


def test_init_that_failed_can_be_repeated(kafka: ModuleType, cluster: Any, topic: str) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = kafka.Producer.__new__(kafka.Producer)
    for bad in ({"acks": "none of these"}, {"no.such.key": 1}, {"stats_cb": 5}):
        with pytest.raises((kafka.KafkaException, TypeError)):
            producer.__init__({**servers, **bad})  # type: ignore[misc]
    producer.__init__(servers)  # type: ignore[misc]
    producer.produce(topic, b"value")
    with pytest.raises(RuntimeError, match="called twice"):
        producer.__init__(servers)  # type: ignore[misc]
    assert producer.flush(WAIT_S) == 0
    producer.close()


def test_init_of_an_admin_client_that_failed_can_be_repeated(cluster: Any) -> None:
    from cykafka.admin import AdminClient

    admin = AdminClient.__new__(AdminClient)
    with pytest.raises(KafkaException):
        admin.__init__({"no.such.key": 1})  # type: ignore[misc]
    admin.__init__({"bootstrap.servers": cluster.bootstrap_servers})  # type: ignore[misc]
    assert admin.list_topics(timeout=WAIT_S).brokers
    admin.close()


def test_private_functions_refuse_none(kafka: ModuleType, cluster: Any) -> None:
    from cykafka._core.admin import in_flight
    from cykafka._core.produce import delivery as _delivery
    from cykafka._core.produce import transaction as _transaction
    from cykafka.admin import AdminClient

    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for call in (
            lambda: _transaction.Transaction(None, None, None, 1.0),
            lambda: admin._send(None, None),
            lambda: in_flight._serve_results(None, None),
            lambda: _delivery._awaited(None).send(None),
        ):
            with pytest.raises(TypeError):
                call()


@pytest.mark.parametrize("argument", ["value", "key", "partition", "timestamp", "headers"])
def test_produce_with_odd_arguments_queues_or_raises(
    make_producer: MakeProducer, topic: str, argument: str
) -> None:
    from cykafka.testing import live_handles

    reports: list[Any] = []
    before = live_before()["reports"]
    producer = make_producer()
    queued = 0
    for odd in odd_values():
        try:
            producer.produce(
                topic, **{argument: odd}, on_delivery=lambda error, _: reports.append(error)
            )
        except Exception:
            continue
        queued += 1
    assert producer.flush(WAIT_S) == 0
    # Each queued message has one outcome, possibly a failure. Refused messages have none.
    assert len(reports) == queued
    assert live_handles()["reports"] == before


def test_consumer_methods_with_odd_arguments_raise_or_return(
    make_producer: MakeProducer, make_consumer: MakeConsumer, topic: str
) -> None:
    producer = make_producer()
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = make_consumer({"enable.auto.offset.store": False})
    for method in (
        "assign", "incremental_assign", "incremental_unassign", "pause", "position", "resume",
        "seek", "store_offsets", "subscribe", "get_watermark_offsets", "committed",
        "offsets_for_times",
    ):  # fmt: skip
        for odd in odd_values():
            if odd in ([], (), ("a",)):
                continue  # valid arguments
            with pytest.raises((TypeError, ValueError, RuntimeError)):
                getattr(consumer, method)(odd)
    for odd in odd_values():
        if isinstance(odd, int | float) and odd < 2**31 and not odd < 0:
            continue  # a valid number, or a long wait
        with pytest.raises((TypeError, ValueError, OverflowError, ZeroDivisionError)):
            consumer.consume(odd, 0)


def test_messages_outlive_their_consumer(
    make_producer: MakeProducer, make_consumer: MakeConsumer, topic: str
) -> None:
    producer = make_producer()
    for number in range(100):
        producer.produce(topic, str(number), partition=0, headers=[("n", str(number))])
    assert producer.flush(WAIT_S) == 0
    consumer = make_consumer()
    consumer.subscribe([topic])
    messages = consumer.consume(100, WAIT_S)
    consumer.close()
    del consumer
    gc.collect()
    for number, message in enumerate(messages):
        wanted = str(number).encode()
        assert (message.value(), message.headers()) == (wanted, [("n", wanted)])


@pytest.mark.parametrize("method", ["assign", "subscribe", "produce"])
@pytest.mark.parametrize("length", [1, 2**31 - 1])
def test_list_that_changes_between_iterations_does_not_crash(
    run_script: RunScript, cluster: Any, method: str, length: int
) -> None:
    done = run_script(
        """
        import sys
        servers, method, length = sys.argv[1:]

        class Changing(list):
            asked = 0
            def __init__(self, item):
                self.item = item
            def __iter__(self):
                self.asked += 1
                return iter([self.item] if self.asked == 1 else [None])
            def __len__(self):
                return int(length)

        config = {"bootstrap.servers": servers, "group.id": "changing", "log_level": 0}
        with kafka.Producer(config) as producer, kafka.Consumer(config) as consumer:
            if method == "assign":
                consumer.assign(Changing(kafka.TopicPartition("t", 0)))
                assert len(consumer.assignment()) == 1
            elif method == "subscribe":
                consumer.subscribe(Changing("t"))
            else:
                producer.produce("t", headers=Changing(("name", b"value")))
        """,
        cluster.bootstrap_servers, method, str(length),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


class Name(str):
    """A str that runs code when Python compares or hashes it."""

    touched: Callable[[], None] = staticmethod(lambda: None)

    def __hash__(self) -> int:
        self.touched()
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        self.touched()
        return super().__eq__(other)

    def __contains__(self, other: Any) -> bool:
        self.touched()
        return False


def test_subclass_of_str_keeps_its_text(
    kafka: ModuleType, make_producer: MakeProducer, make_consumer: MakeConsumer, topic: str
) -> None:
    from cykafka.testing import live_handles

    producer = make_producer({Name("client.id"): Name("name")})
    topics_before = live_before()["topics"]
    closing = Name(topic)
    closing.touched = producer.close  # type: ignore[method-assign]
    producer.produce(closing, b"value", partition=0)
    producer.produce(topic, b"value", partition=0)
    assert live_handles()["topics"] == topics_before + 1
    assert producer.flush(WAIT_S) == 0
    partition = kafka.TopicPartition(closing, 0, kafka.OFFSET_BEGINNING, Name("metadata"))
    assert (type(partition.topic), partition.topic) == (str, topic)
    consumer = make_consumer()
    consumer.assign([partition])
    assert len(consumer.consume(2, WAIT_S)) == 2
    consumer.subscribe([closing])
    assert topic in producer.list_topics(closing, WAIT_S).topics
    with pytest.raises(ValueError, match="NUL"):
        producer.produce(Name("a\0b"))


def test_client_id_cut_within_a_utf8_character_is_decoded(make_producer: MakeProducer) -> None:
    # librdkafka cuts names after 127 bytes: one of these cuts is inside a two-byte character.
    for start in ("", "a"):
        producer = make_producer({"client.id": start + "ü" * 100})
        assert f"{start}üüü" in repr(producer)


def test_init_within_init_is_refused(kafka: ModuleType, cluster: Any) -> None:
    from cykafka.testing import live_handles

    before = live_before()
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    for config in (servers, {**servers, "group.id": "twice"}):
        cls = kafka.Consumer if "group.id" in config else kafka.Producer
        client = cls.__new__(cls)

        class Again(os.PathLike[str]):
            def __fspath__(self, client: Any = client, config: Any = config) -> str:
                client.__init__(config)
                return ""

        with pytest.raises(RuntimeError, match="called twice"):
            client.__init__({**config, "client.id": Again()})
        assert live_handles() == before
        client.__init__(config)
        client.close()


def test_partition_reinitialized_during_its_watermarks_request(
    kafka: ModuleType, make_consumer: MakeConsumer, topic: str
) -> None:
    consumer = make_consumer()
    partition = kafka.TopicPartition("".join(topic), 0)
    over = threading.Event()

    def rename() -> None:
        while not over.is_set():
            partition.__init__("".join(list(topic)), 0)

    thread = threading.Thread(target=rename)
    thread.start()
    try:
        for _ in range(50):
            assert consumer.get_watermark_offsets(partition, WAIT_S) == (0, 0)
    finally:
        over.set()
        thread.join(WAIT_S)


def test_pickle_of_a_partition_refuses_another_class() -> None:
    from cykafka._core.common import partition as _partition

    with pytest.raises(TypeError):
        _partition._rebuild(lambda *_: None, "t", 0, 0, None, None, None)
