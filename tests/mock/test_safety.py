"""Clients never crash, hang or leak, whatever a program does with them.

These tests run inside the test process. `test_safety_process.py` has the tests that need their own
process.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, WaitUntil
from live import live_before
from machine import WAIT_S

pytestmark = pytest.mark.ours

NO_BROKER = "127.0.0.1:1"
QUICK = {"group.protocol": "consumer"}


def closed_while(client: Any, call: Callable[[], Any]) -> list[BaseException | None]:
    """Close a client while a thread is inside a call, and return how that call ended."""
    started = threading.Event()
    ended: list[BaseException | None] = []

    def run() -> None:
        started.set()
        try:
            call()
            ended.append(None)
        except BaseException as exception:
            ended.append(exception)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(WAIT_S)
    # Long enough to be inside the call in nearly every run. An earlier close must work too.
    thread.join(0.1)
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(WAIT_S)
    assert not closing.is_alive(), "close hangs"
    thread.join(WAIT_S)
    assert not thread.is_alive(), "the call hangs after close"
    return ended


@contextlib.contextmanager
def may_be_closed() -> Iterator[None]:
    """Allow calls to fail because the client was closed, and for no other reason."""
    try:
        yield
    except RuntimeError as error:
        if "clos" not in str(error):
            raise


def is_end(exception: BaseException | None) -> bool:
    return exception is None or (
        isinstance(exception, RuntimeError) and "closed" in str(exception)
    )


@pytest.mark.parametrize("method", ["poll", "flush"])
def test_producer_closed_while_another_thread_waits(
    make_producer: MakeProducer, topic: str, method: str
) -> None:
    producer = make_producer()
    producer.produce(topic, b"x")

    (end,) = closed_while(producer, lambda: getattr(producer, method)(WAIT_S))

    assert is_end(end), repr(end)


def test_producer_closed_while_another_waits_for_room(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"linger.ms": 20_000, "queue.buffering.max.messages": 1})
    producer.produce(topic, b"x")

    (end,) = closed_while(producer, lambda: producer.produce(topic, b"y", timeout=WAIT_S))

    assert is_end(end), repr(end)


@pytest.mark.parametrize("arguments", [("poll", WAIT_S), ("consume", 100, WAIT_S)], ids=str)
@pytest.mark.parametrize("how", ["assigned", "subscribed"])
def test_consumer_closed_while_another_thread_waits(
    make_consumer: MakeConsumer,
    kafka: ModuleType,
    topic: str,
    arguments: tuple[Any, ...],
    how: str,
) -> None:
    consumer = make_consumer(QUICK)
    if how == "assigned":
        consumer.assign([kafka.TopicPartition(topic, 0)])
    else:
        consumer.subscribe([topic])
    method, *rest = arguments

    (end,) = closed_while(consumer, lambda: getattr(consumer, method)(*rest))

    assert is_end(end), repr(end)


def test_consumer_closed_from_many_threads_closes_once(make_consumer: MakeConsumer) -> None:
    consumer = make_consumer()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: consumer.close(), range(8), timeout=WAIT_S))

    assert results == [None] * 8


def test_producer_used_from_many_threads_delivers_every_message_once(
    make_producer: MakeProducer, topic: str
) -> None:
    threads, each = 8, 500
    seen: list[bytes] = []
    producer = make_producer({"on_delivery": lambda error, message: seen.append(message.value())})
    stop = threading.Event()

    def produce(number: int) -> None:
        for count in range(each):
            producer.produce(topic, f"{number}-{count}", timeout=WAIT_S)

    def serve() -> None:
        while not stop.is_set():
            producer.poll(0.01)
            len(producer)

    with ThreadPoolExecutor(threads + 2) as pool:
        serving = [pool.submit(serve) for _ in range(2)]
        for done in [pool.submit(produce, number) for number in range(threads)]:
            done.result(WAIT_S)
        assert producer.flush(WAIT_S) == 0
        stop.set()
        for done in serving:
            done.result(WAIT_S)
    producer.close()

    assert len(seen) == threads * each
    assert set(seen) == {f"{n}-{c}".encode() for n in range(threads) for c in range(each)}


def test_consumer_used_from_many_threads_reads_every_message_once(
    make_consumer: MakeConsumer, kafka: ModuleType, topic: str, fill: Fill
) -> None:
    fill(topic, 2000)
    consumer = make_consumer()
    consumer.assign([kafka.TopicPartition(topic, 0)])
    seen: list[int] = []

    def read(number: int) -> None:
        while len(seen) < 2000:
            if number % 2:
                messages = consumer.consume(50, timeout=0.1)
            else:
                messages = [m for m in [consumer.poll(0.1)] if m is not None]
            seen.extend(m.offset() for m in messages)
            consumer.position([kafka.TopicPartition(topic, 0)])
            consumer.assignment()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(read, number) for number in range(4)]:
            done.result(WAIT_S)

    assert sorted(seen) == list(range(2000))


def test_calls_race_with_close(make_producer: MakeProducer, topic: str) -> None:
    for _ in range(20):
        producer = make_producer()
        barrier = threading.Barrier(4)

        def use(producer: Any = producer, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(WAIT_S)
            with may_be_closed():
                for _ in range(100):
                    producer.produce(topic, b"x")
                    producer.poll(0)
                    len(producer)

        with ThreadPoolExecutor(3) as pool:
            using = [pool.submit(use) for _ in range(3)]
            barrier.wait(WAIT_S)
            producer.close()
            for done in using:
                done.result(WAIT_S)


def test_on_delivery_may_close_the_producer(
    make_producer: MakeProducer, topic: str, wait_until: WaitUntil
) -> None:
    producer = make_producer()
    seen: list[int] = []

    def close(error: Any, message: Any) -> None:
        seen.append(message.offset())
        producer.close()

    for _ in range(3):
        producer.produce(topic, b"x", partition=0, on_delivery=close)

    def serve() -> None:
        with may_be_closed():
            producer.flush(WAIT_S)

    wait_until(lambda: seen, serve)
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.poll(0)
    # Each message had one outcome, including those that close() waited for.
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("name", ["stats_cb", "error_cb"])
@pytest.mark.parametrize("kind", ["make_producer", "make_consumer"])
def test_client_callbacks_may_close_it(
    request: pytest.FixtureRequest, wait_until: WaitUntil, name: str, kind: str
) -> None:
    calls: list[Any] = []
    clients: list[Any] = []

    def close(argument: Any) -> None:
        calls.append(argument)
        clients[0].close()

    make = request.getfixturevalue(kind)
    clients.append(
        make({"bootstrap.servers": NO_BROKER, "statistics.interval.ms": 20, name: close})
    )

    def serve() -> None:
        with may_be_closed():
            clients[0].poll(0.1)

    wait_until(lambda: calls, serve)
    clients[0].close()
    with pytest.raises(RuntimeError, match="closed"):
        clients[0].poll(0)


@pytest.mark.parametrize("moment", ["on_assign", "on_revoke"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalance_callbacks_may_close_the_consumer(
    make_consumer: MakeConsumer, topic: str, wait_until: WaitUntil, moment: str, protocol: str
) -> None:
    calls: list[Any] = []
    consumer = make_consumer({"group.protocol": protocol})

    def close(consumer: Any, partitions: list[Any]) -> None:
        calls.append(partitions)
        consumer.close()

    consumer.subscribe([topic], **{moment: close})

    def serve() -> None:
        with may_be_closed():
            consumer.poll(0.1)
            if consumer.assignment():
                consumer.unsubscribe()

    wait_until(lambda: calls, serve)
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_rebalance_callback_may_use_the_consumer(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Callable[..., list[Any]]
) -> None:
    fill(topic, 3)
    consumer = make_consumer(QUICK)

    def begin(consumer: Any, partitions: list[Any]) -> None:
        consumer.committed(partitions, timeout=WAIT_S)
        ask(consumer, partitions)

    def end(consumer: Any, partitions: list[Any]) -> None:
        # Not `committed`: librdkafka does not answer it during close.
        consumer.commit(asynchronous=False)
        ask(consumer, partitions)

    def ask(consumer: Any, partitions: list[Any]) -> None:
        consumer.position(partitions)
        consumer.assignment()
        consumer.memberid()
        consumer.consumer_group_metadata()

    consumer.subscribe([topic], on_assign=begin, on_revoke=end)

    assert len(read(consumer, 3)) == 3


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_cycles_are_collected_in_any_order(
    make_producer: MakeProducer, kafka: ModuleType, cluster: Any, order: tuple[int, ...]
) -> None:
    class Owner:
        """Owns a client whose callback owns it."""

        client: Any

        def report(self, *_: Any) -> None: ...

    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "cycle"}
    owners = [Owner(), Owner(), Owner()]
    owners[0].client = kafka.Producer({**config, "on_delivery": owners[0].report})
    owners[1].client = kafka.Consumer({**config, "on_commit": owners[1].report})
    owners[2].client = kafka.Producer({**config, "stats_cb": owners[2].report})
    gone = [weakref.ref(owner) for owner in owners]

    for place in order:
        owners[place].client.close()
        owners[place] = Owner()
        gc.collect()
        assert gone[place]() is None


def test_cycle_never_closed_is_collected_with_a_warning(kafka: ModuleType, cluster: Any) -> None:
    class Owner:
        client: Any

        def report(self, *_: Any) -> None: ...

    owner = Owner()
    owner.client = kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "on_delivery": owner.report}
    )
    gone = weakref.ref(owner)

    del owner
    with pytest.warns(ResourceWarning, match="Producer"):
        gc.collect()
    assert gone() is None


def test_handles_are_counted(kafka: ModuleType, make_producer: MakeProducer) -> None:
    from cykafka.testing import live_handles

    before = sum(live_before().values())
    producer = make_producer()
    assert sum(live_handles().values()) == before + 1

    producer.close()

    assert sum(live_handles().values()) == before


@pytest.mark.parametrize("failing", ["no.such.key", "linger.ms"])
def test_failed_constructor_leaks_nothing(kafka: ModuleType, failing: str) -> None:
    from cykafka.testing import live_handles

    before = live_before()
    for _ in range(50):
        with pytest.raises(kafka.KafkaException):
            kafka.Producer({"stats_cb": print, failing: "wrong"})

    assert live_handles() == before
