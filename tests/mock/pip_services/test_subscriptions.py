"""Subscriptions: what reaches a listener, and that nothing silences it."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from pip_services4_commons.errors import ApplicationException, InvalidStateException

from cykafka import KafkaError
from pip_services4_kafka.connect import IKafkaMessageListener, KafkaSubscription, _reader
from pip_services4_kafka.connect._logs import RareLog
from pip_services4_kafka.connect._reader import Reader

pytestmark = pytest.mark.ours

WAIT_S = 30.0

# The mock lets a member of a classic group back in only after its session's timeout.
COMES_BACK = {"group.protocol": "consumer"}


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def make_batch_listener() -> Callable[..., Any]:
    """Make listeners that take batches and hear of rebalances, and store what they got."""

    class Batches(IKafkaMessageListener):
        def __init__(self) -> None:
            self.events: list[tuple[str, Any]] = []
            self.values: list[bytes | None] = []
            self.threads: set[str] = set()

        def on_message(self, topic: str, partition: int, message: Any) -> None:
            raise AssertionError("batches only")

        def _on_batch(self, subscription: Any, batch: Any) -> None:
            self.threads.add(threading.current_thread().name)
            self.values += batch.values()
            self.events.append(("batch", len(batch)))
            last = {
                number: offset + 1
                for number, offset in zip(batch.partitions, batch.offsets, strict=True)
            }
            subscription._reader.store(last)

        def _on_assigned(self, subscription: Any, partitions: list[int]) -> None:
            self.threads.add(threading.current_thread().name)
            self.events.append(("assigned", partitions))

        def _on_revoked(self, subscription: Any, partitions: list[int]) -> None:
            self.threads.add(threading.current_thread().name)
            self.events.append(("revoked", partitions))

        def _on_lost(self, subscription: Any, partitions: list[int]) -> None:
            self.events.append(("lost", partitions))

        def _on_error(self, subscription: Any, error: Any) -> None:
            self.events.append(("error", error.code()))

        def of(self, kind: str) -> list[Any]:
            return [what for name, what in list(self.events) if name == kind]

    return Batches


# -- what reaches a listener


def test_null_keys_values_headers_and_bytes_reach_the_listener(
    connection: Any, topic: str, group: str, make_listener: Callable[..., Any]
) -> None:
    listener = make_listener()
    connection.subscribe(topic, group, {}, listener)
    connection.publish(
        topic,
        [
            {"value": None, "key": None, "headers": {"trace_id": None}, "partition": 0},
            {"value": b"\xff\xfe", "key": b"\xff", "partition": 0},
            {"value": "x", "partition": 0},
        ],
    )

    assert listener.wait(3) == [None, b"\xff\xfe", b"x"]


def test_subscribe_leaves_the_options_as_they_are(
    connection: Any, topic: str, group: str, make_listener: Callable[..., Any]
) -> None:
    options = {"from_beginning": "beginning", "enable.auto.commit": False}
    listener = make_listener()
    connection.subscribe(topic, group, options, listener)
    [subscription] = connection._subscriptions

    assert options == {"from_beginning": "beginning", "enable.auto.commit": False}
    assert (subscription.topic, subscription.group_id) == (topic, group)
    assert subscription.listener is listener
    assert subscription.options["enable.auto.commit"] is False
    assert subscription.handler.configuration()["enable.auto.commit"] == "false"


def test_group_of_none_is_default(
    connection: Any, topic: str, make_listener: Callable[..., Any]
) -> None:
    listener = make_listener()
    connection.subscribe(topic, None, None, listener)
    [subscription] = connection._subscriptions

    assert subscription.group_id is None
    assert subscription.handler.configuration()["group.id"] == "default"
    connection.unsubscribe(topic, "default", listener)
    assert connection._subscriptions == []


def test_many_subscriptions_share_a_connection_without_cross_talk(
    connection: Any,
    cluster: Any,
    unique: Callable[[str], str],
    make_listener: Callable[..., Any],
) -> None:
    topics = [unique("shared") for _ in range(6)]
    listeners = []
    for name in topics:
        cluster.create_topic(name, 1)
        listeners.append(make_listener())
        connection.subscribe(name, unique("group"), {}, listeners[-1])
    for name in topics:
        connection.publish(name, [{"value": f"{name}-{number}"} for number in range(20)])

    for name, listener in zip(topics, listeners, strict=True):
        assert listener.wait(20) == [f"{name}-{number}".encode() for number in range(20)]


def test_subscription_that_ended_gets_nothing_while_the_others_go_on(
    connection: Any, topic: str, unique: Callable[[str], str], make_listener: Callable[..., Any]
) -> None:
    ended, other = make_listener(), make_listener()
    connection.subscribe(topic, unique("group"), {}, other)
    name = unique("group")
    connection.subscribe(topic, name, {}, ended)
    connection.publish(topic, [{"value": "1"}])
    ended.wait(1)
    connection.unsubscribe(topic, name, ended)
    connection.unsubscribe(topic, name, ended)
    connection.publish(topic, [{"value": "2"}])

    other.wait(2)
    assert ended.values() == [b"1"]
    assert len(connection._subscriptions) == 1


def test_other_partitions_are_neither_read_nor_committed(
    make_connection: Callable[..., Any],
    topic: str,
    group: str,
    make_listener: Callable[..., Any],
    committed: Callable[..., dict[int, int]],
) -> None:
    connection = make_connection(options__readable_partitions="1,3")
    listener = make_listener()
    connection.subscribe(topic, group, {}, listener)
    connection.publish(
        topic, [{"value": f"{number % 4}", "partition": number % 4} for number in range(40)]
    )
    assert sorted(listener.wait(20)) == [b"1"] * 10 + [b"3"] * 10
    connection.close(None)

    assert committed(topic, group) == {1: 10, 3: 10}
    connection.open(None)
    again = make_listener()
    connection.subscribe(topic, group, {}, again)
    connection.publish(topic, [{"value": "new", "partition": 3}])
    assert again.wait(1) == [b"new"]


def test_message_is_handed_over_in_under_a_millisecond(
    topic: str, make_batch_listener: Callable[..., Any], logger: Any
) -> None:
    # A consumer that has its message when it is put there: what is measured is the reader.
    there: queue.SimpleQueue[Any] = queue.SimpleQueue()

    class Batch(list[float]):
        errors = ()

    class Prompt:
        def subscribe(self, *_: Any, **__: Any) -> None: ...

        def close(self) -> None: ...

        def consume_batch(self, most: int, timeout: float) -> Batch:
            try:
                return Batch([there.get(timeout > 0, timeout or None)])
            except queue.Empty:
                return Batch()

    took: queue.SimpleQueue[float] = queue.SimpleQueue()
    listener = make_batch_listener()
    listener._on_batch = lambda _, batch: took.put(time.perf_counter() - batch[0])
    subscription = KafkaSubscription(topic, "g", {}, None, listener)
    reader = Reader(subscription, lambda _: Prompt(), (), RareLog(logger))
    reader.start()
    delays = []
    for _ in range(100):
        there.put(time.perf_counter())
        delays.append(took.get(timeout=WAIT_S))

    assert reader.stop(WAIT_S)
    assert statistics.median(delays) < 1e-3


# -- what does not silence it


def test_listener_that_raises_hears_the_next_message(
    connection: Any, topic: str, group: str, make_listener: Callable[..., Any], logger: Any
) -> None:
    def fail(message: Any) -> None:
        raise LookupError(f"no {message.value().decode()}")

    listener = make_listener(fail)
    connection.subscribe(topic, group, {}, listener)
    connection.publish(topic, [{"value": str(number), "partition": 0} for number in range(3)])

    assert listener.wait(3) == [b"0", b"1", b"2"]
    connection.close(None)
    told = [error for _, text, error in logger.lines if "listener failed" in text]
    assert len(told) == 1  # once in a while
    assert isinstance(told[0], LookupError)


def test_message_whose_listener_raised_comes_again_after_a_restart(
    connection: Any, topic: str, group: str, make_listener: Callable[..., Any]
) -> None:
    def fail(message: Any) -> None:
        raise LookupError

    first, second = make_listener(fail), make_listener()
    connection.subscribe(topic, group, COMES_BACK, first)
    connection.publish(topic, [{"value": "x"}])
    first.wait(1)
    connection.unsubscribe(topic, group, first)
    connection.subscribe(topic, group, COMES_BACK, second)

    assert second.wait(1) == [b"x"]


def test_consumer_error_is_logged_and_reading_goes_on(
    make_connection: Callable[..., Any],
    mock_cluster: Any,
    make_batch_listener: Callable[..., Any],
    eventually: Callable[..., None],
    logger: Any,
) -> None:
    mock_cluster.create_topic("t", 1)
    connection = make_connection(connection__uri=mock_cluster.bootstrap_servers)
    listener = make_batch_listener()
    connection.subscribe("t", "g", {}, listener)
    connection.publish("t", [{"value": "1"}])
    eventually(lambda: listener.values == [b"1"])
    mock_cluster.push_request_errors("Fetch", [KafkaError.TOPIC_AUTHORIZATION_FAILED])
    eventually(lambda: KafkaError.TOPIC_AUTHORIZATION_FAILED in listener.of("error"))
    connection.publish("t", [{"value": "2"}])

    eventually(lambda: listener.values == [b"1", b"2"])
    assert "goes on" in logger.all()


def test_brokers_that_went_and_came_back_are_read_on(
    make_connection: Callable[..., Any], mock_cluster: Any, make_listener: Callable[..., Any]
) -> None:
    mock_cluster.create_topic("t", 1)
    connection = make_connection(connection__uri=mock_cluster.bootstrap_servers)
    listener = make_listener()
    connection.subscribe("t", "g", {}, listener)
    connection.publish("t", [{"value": "1"}])
    listener.wait(1)
    mock_cluster.broker_down()
    mock_cluster.broker_up()
    connection.publish("t", [{"value": "2"}])

    assert listener.wait(2, 30) == [b"1", b"2"]


def test_fatal_error_is_answered_with_a_new_consumer(
    make_connection: Callable[..., Any],
    mock_cluster: Any,
    make_batch_listener: Callable[..., Any],
    eventually: Callable[..., None],
) -> None:
    mock_cluster.create_topic("t", 2)
    connection = make_connection(connection__uri=mock_cluster.bootstrap_servers)
    listener = make_batch_listener()
    options = {"group.instance.id": "one", "heartbeat.interval.ms": 100, "session.timeout.ms": 1500}
    connection.subscribe("t", "g", options, listener)
    [subscription] = connection._subscriptions
    eventually(lambda: listener.of("assigned"))
    first = subscription.handler
    mock_cluster.push_request_errors("Heartbeat", [KafkaError.FENCED_INSTANCE_ID])
    eventually(lambda: len(listener.of("assigned")) > 1)
    connection.publish("t", [{"value": "x"}])

    eventually(lambda: listener.values == [b"x"])
    assert subscription.handler is not first
    assert sorted(chain.from_iterable(listener.of("lost") + listener.of("revoked"))) == [0, 1]


def test_handler_closed_by_its_user_is_replaced(
    connection: Any, topic: str, group: str, make_listener: Callable[..., Any]
) -> None:
    listener = make_listener()
    connection.subscribe(topic, group, COMES_BACK, listener)
    connection.publish(topic, [{"value": "1"}])
    listener.wait(1)
    connection._subscriptions[0].handler.close()
    connection.publish(topic, [{"value": "2"}])

    assert listener.wait(2)[-1] == b"2"


# -- rebalances


def test_rebalances_are_told_in_the_reader_s_thread_and_in_order(
    connection: Any,
    make_connection: Callable[..., Any],
    topic: str,
    group: str,
    make_batch_listener: Callable[..., Any],
    eventually: Callable[..., None],
    committed: Callable[..., dict[int, int]],
) -> None:
    one, two = make_batch_listener(), make_batch_listener()
    options = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    connection.subscribe(topic, group, options, one)
    eventually(lambda: one.of("assigned") == [[0, 1, 2, 3]])
    connection.publish(topic, [{"value": "x", "partition": number} for number in range(4)])
    eventually(lambda: len(one.values) == 4)
    connection.subscribe(topic, group, options, two)
    eventually(lambda: len(one.of("assigned")) > 1 and two.of("assigned"), timeout=20)
    connection.unsubscribe(topic, group, two)
    connection.close(None)

    assert one.threads == {f"kafka-reader-{topic}"}
    assert sorted(one.of("revoked")[0]) == [0, 1, 2, 3]
    taken = sum(len(each) for each in one.of("assigned"))
    assert taken == sum(len(each) for each in one.of("revoked") + one.of("lost"))
    assert one.events[0][0] == "assigned"
    assert one.events[-1][0] in ("revoked", "lost")
    assert committed(topic, group) == dict.fromkeys(range(4), 1)


def test_revoked_partitions_may_be_committed_in_the_call(
    connection: Any,
    topic: str,
    group: str,
    make_batch_listener: Callable[..., Any],
    eventually: Callable[..., None],
    committed: Callable[..., dict[int, int]],
) -> None:
    listener = make_batch_listener()
    failures: list[Exception] = []

    def revoked(subscription: Any, partitions: list[int]) -> None:
        try:
            subscription._reader.commit({0: 7})
        except ApplicationException as error:
            failures.append(error)

    listener._on_revoked = revoked
    connection.subscribe(topic, group, {"enable.auto.commit": False}, listener)
    eventually(lambda: listener.of("assigned"))
    connection.unsubscribe(topic, group, listener)

    assert failures == []
    assert committed(topic, group) == {0: 7}


def test_slow_listener_keeps_its_partitions(
    connection: Any,
    topic: str,
    group: str,
    make_listener: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Twenty messages come as one batch, and take longer than the group would wait.
    monkeypatch.setattr(_reader, "SERVE_S", 0.01)
    rest = threading.Event()
    listener = make_listener(lambda _: rest.wait(0.1))
    connection.publish(topic, [{"value": str(number), "partition": 0} for number in range(40)])
    options = {"max.poll.interval.ms": 1500, "session.timeout.ms": 1400}
    connection.subscribe(topic, group, options, listener)

    assert listener.wait(40) == [str(number).encode() for number in range(40)]
    assert connection._subscriptions[0]._reader.assigned() == [0, 1, 2, 3]


def test_slow_listener_gets_nothing_more_of_partitions_that_went(
    connection: Any,
    topic: str,
    group: str,
    make_listener: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    monkeypatch.setattr(_reader, "SERVE_S", 0.01)
    rest = threading.Event()
    slow, quick = make_listener(lambda _: rest.wait(0.02)), make_listener()
    numbers = range(400)
    connection.publish(topic, [{"value": str(n), "partition": n % 4} for n in numbers])
    connection.subscribe(topic, group, COMES_BACK, slow)
    slow.wait(1)
    connection.subscribe(topic, group, COMES_BACK, quick)
    quick.wait(1)
    rest.set()

    def seen() -> set[Any]:
        return {*slow.values(), *quick.values()}

    eventually(lambda: seen() == {str(number).encode() for number in numbers})
    # What went over was not handled by the first any more.
    first_of_quick = {}
    for message in quick.messages:
        first_of_quick.setdefault(message.partition(), message.offset())
    for number, offset in first_of_quick.items():
        handled = [m.offset() for m in slow.messages if m.partition() == number]
        assert len(handled) < 100, offset


# -- what a queue asks of a reader


def test_reader_pauses_resumes_seeks_stores_and_commits(
    connection: Any,
    topic: str,
    group: str,
    make_batch_listener: Callable[..., Any],
    eventually: Callable[..., None],
    committed: Callable[..., dict[int, int]],
) -> None:
    listener = make_batch_listener()
    reader = connection._subscribe(topic, group, {"enable.auto.commit": False}, listener)
    eventually(lambda: reader.assigned() == [0, 1, 2, 3])
    reader.pause([1])
    connection.publish(topic, [{"value": f"{n}", "partition": n} for n in (0, 1)])
    eventually(lambda: listener.values == [b"0"])
    reader.resume([1])
    eventually(lambda: listener.values == [b"0", b"1"])
    reader.seek(0, 0)
    eventually(lambda: listener.values == [b"0", b"1", b"0"])
    reader.commit({0: 1, 1: 1})
    reader.commit({})
    reader.store({0: 0})
    reader.store({99: 5})

    assert reader.watermarks(WAIT_S) == {0: (0, 1), 1: (0, 1), 2: (0, 0), 3: (0, 0)}
    assert reader.committed(WAIT_S) == {0: 1, 1: 1} == committed(topic, group)
    assert isinstance(reader.consumer_group_metadata(), bytes)
    connection.close(None)
    with pytest.raises(InvalidStateException):
        reader.commit({0: 1})
    assert reader.assigned() == []


def test_commit_and_seek_of_a_subscription(
    connection: Any,
    topic: str,
    group: str,
    make_listener: Callable[..., Any],
    committed: Callable[..., dict[int, int]],
) -> None:
    listener = make_listener()
    connection.subscribe(topic, group, {"enable.auto.commit": False}, listener)
    connection.publish(topic, [{"value": str(number), "partition": 0} for number in range(3)])
    listener.wait(3)
    connection.commit(topic, group, 0, 2, listener)
    connection.seek(topic, group, 0, 1, listener)

    assert listener.wait(5) == [b"0", b"1", b"2", b"1", b"2"]
    assert committed(topic, group) == {0: 2}
    with pytest.raises(ApplicationException):
        connection.seek(topic, group, 99, 0, listener)
    connection.commit(topic, "another", 0, 0, listener)
    connection.seek(topic, "another", 0, 0, listener)


def test_listener_that_seeks_gets_no_message_of_before(
    connection: Any, topic: str, group: str, make_listener: Callable[..., Any]
) -> None:
    sought: list[int] = []

    def seek(message: Any) -> None:
        if message.offset() == 2 and not sought:
            sought.append(1)
            connection.seek(topic, group, 0, 0, listener)

    listener = make_listener(seek)
    connection.publish(topic, [{"value": str(number), "partition": 0} for number in range(5)])
    connection.subscribe(topic, group, {}, listener)

    listener.wait(8)
    assert listener.values()[:8] == [b"0", b"1", b"2", b"0", b"1", b"2", b"3", b"4"]


def test_batch_listener_hears_of_a_seek_polls_and_the_end(
    connection: Any,
    topic: str,
    group: str,
    make_batch_listener: Callable[..., Any],
    eventually: Callable[..., None],
) -> None:
    listener = make_batch_listener()
    listener._on_seek = lambda _, *where: listener.events.append(("seek", where))
    listener._on_poll = lambda _: listener.events.append(("poll", None))
    listener._on_closed = lambda _: listener.events.append(("closed", None))
    connection.subscribe(topic, group, {}, listener)
    connection.publish(topic, [{"value": "x", "partition": 0}] * 3)
    eventually(lambda: len(listener.values) == 3)
    connection.seek(topic, group, 0, 1, listener)
    eventually(lambda: len(listener.values) == 5)
    connection.unsubscribe(topic, group, listener)

    assert listener.of("seek") == [(0, 1)]
    assert listener.of("poll")
    assert listener.events[-1] == ("closed", None)
