"""Sessions: rebalances, and the calls that a queue makes."""

from __future__ import annotations

import queue
import statistics
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from machine import WAIT_S, wake_up_s
from pip_services4_commons.errors import (
    ApplicationException,
    ConnectionException,
    InvalidStateException,
)
from pip_services_rig import (
    COMES_BACK,
    BatchListener,
    Committed,
    Listener,
    MakeConnection,
    Recorder,
    eventually,
)

from cykafka import KafkaError, TopicPartition
from cykafka.testing import MockCluster
from pip_services4_kafka._log import Log
from pip_services4_kafka.connect import KafkaConnection, KafkaSubscription, _session
from pip_services4_kafka.connect._outage import Outage
from pip_services4_kafka.connect._session import Session

pytestmark = pytest.mark.ours


@pytest.mark.alone
def test_message_is_delivered_in_under_a_millisecond(topic: str) -> None:
    # A consumer that gets its message at once, so that the test measures only the session.
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
    listener = BatchListener()
    listener.batch = lambda batch: took.put(time.perf_counter() - batch[0])
    subscription = KafkaSubscription(topic, "g", {}, None, listener)
    log = Log()
    session = Session(subscription, listener, lambda _: Prompt(), (), log, Outage(log))
    session.start()
    delays = []
    for _ in range(100):
        there.put(time.perf_counter())
        delays.append(took.get(timeout=WAIT_S))

    assert session.stop(WAIT_S)
    assert statistics.median(delays) < 1e-3 + 4 * wake_up_s()


# -- rebalances


def test_rebalance_callbacks_run_in_the_thread_of_the_session_in_order(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    one, two = BatchListener(), BatchListener()
    options = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    connection.subscribe(topic, group, options, one)
    eventually(lambda: one.of("assigned") == [[0, 1, 2, 3]])
    connection.publish(topic, [{"value": "x", "partition": number} for number in range(4)])
    eventually(lambda: len(one.values) == 4)
    connection.subscribe(topic, group, options, two)
    eventually(lambda: len(one.of("assigned")) > 1 and two.of("assigned"), timeout=20)
    connection.unsubscribe(topic, group, two)
    connection.close(None)

    assert one.threads == {f"kafka-session-{topic}"}
    assert sorted(one.of("revoked")[0]) == [0, 1, 2, 3]
    taken = sum(len(numbers) for numbers in one.of("assigned"))
    assert taken == sum(len(numbers) for numbers in one.of("revoked") + one.of("lost"))
    assert one.events[0][0] == "assigned"
    rebalances = [kind for kind, _ in one.events if kind in ("assigned", "revoked", "lost")]
    assert rebalances[-1] in ("revoked", "lost")


def test_revoked_partitions_may_be_committed_in_the_callback(
    connection: KafkaConnection, topic: str, group: str, committed: Committed
) -> None:
    listener = BatchListener()
    failures: list[Exception] = []

    def revoked(partitions: list[int]) -> None:
        try:
            listener.session.commit([TopicPartition(topic, 0, 7)])
        except ApplicationException as error:
            failures.append(error)

    listener.revoked = revoked
    connection.subscribe(topic, group, {"enable.auto.commit": False}, listener)
    eventually(lambda: listener.of("assigned"))
    connection.unsubscribe(topic, group, listener)

    assert failures == []
    assert committed(topic, group) == {0: 7}


def test_slow_listener_keeps_its_partitions(
    connection: KafkaConnection, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The messages arrive as one batch. Its handling takes longer than the group waits.
    monkeypatch.setattr(_session, "SERVE_S", 0.01)
    rest = threading.Event()
    listener = Listener(lambda _: rest.wait(0.1))
    connection.publish(topic, [{"value": str(number), "partition": 0} for number in range(40)])
    options = {
        "max.poll.interval.ms": 1500,
        "session.timeout.ms": 1400,
        "heartbeat.interval.ms": 200,
    }
    connection.subscribe(topic, group, options, listener)

    assert listener.wait(40) == [str(number).encode() for number in range(40)]
    assert connection._subscriptions[0]._session.assigned() == {0, 1, 2, 3}


def test_slow_listener_gets_no_more_messages_of_revoked_partitions(
    connection: KafkaConnection, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "SERVE_S", 0.01)
    rest = threading.Event()
    slow, quick = Listener(lambda _: rest.wait(0.02)), Listener()
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
    # The first listener handled no more messages of the partitions it lost.
    first_of_quick = {}
    for message in quick.messages:
        first_of_quick.setdefault(message.partition(), message.offset())
    for number, offset in first_of_quick.items():
        handled = [m.offset() for m in slow.messages if m.partition() == number]
        assert len(handled) < 100, offset


def test_handler_that_raises_gets_its_batch_again(
    connection: KafkaConnection, topic: str, group: str, logger: Recorder
) -> None:
    listener = BatchListener()
    take = listener.batch

    failed: list[int] = []

    def fail_once(batch: Any) -> None:
        if not failed:
            failed.append(len(batch))
            raise LookupError("told")
        take(batch)

    listener.batch = fail_once
    connection.subscribe(topic, group, COMES_BACK, listener)
    for number in range(2):
        connection.publish(topic, [{"value": str(number)}])
        eventually(lambda number=number: len(listener.values) > number)

    assert failed == [1]
    assert listener.values == [b"0", b"1"]
    assert len(listener.of("assigned")) == 2  # the failed consumer was replaced
    assert "told" in logger.all()


def test_errors_without_messages_are_not_delivered_as_a_batch(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    listener = BatchListener()
    sizes: list[int] = []
    polls: list[int] = []
    listener.batch = lambda batch: sizes.append(len(batch))
    listener.polled = lambda: polls.append(len(sizes))
    connection.subscribe(topic, group, {"enable.partition.eof": True}, listener)
    connection.publish(topic, [{"value": "x", "partition": 0}])
    eventually(lambda: sizes)
    before = len(polls)
    eventually(lambda: len(polls) > before + 5)  # the ends of all partitions were among the events

    assert sizes == [1]


def test_pause_after_errors_grows_until_a_message_arrives(topic: str) -> None:
    # A consumer that returns only errors, then a message, then errors again.
    class Batch(list[Any]):
        errors: tuple[Any, ...] = ()

    class Failing:
        def __init__(self) -> None:
            self.kinds = iter("eeeemee")
            self.asked = threading.Event()

        def subscribe(self, *_: Any, **__: Any) -> None: ...

        def close(self) -> None: ...

        def consume_batch(self, most: int, timeout: float) -> Batch:
            kind = next(self.kinds, "")
            if not kind:
                self.asked.set()
                return Batch()
            batch = Batch("m" if kind == "m" else ())
            if kind == "e":
                batch.errors = (SimpleNamespace(error=lambda: KafkaError(KafkaError._TRANSPORT)),)
            return batch

        # A session checks whether a batch is truthy: errors count.
        Batch.__bool__ = lambda self: bool(len(self) or self.errors)  # type: ignore[attr-defined]

    listener, consumer = BatchListener(), Failing()
    taken: list[int] = []
    listener.batch = lambda batch: taken.append(len(batch))
    subscription = KafkaSubscription(topic, "g", {}, None, listener)
    log = Log()
    make: Any = lambda _: consumer  # noqa: E731
    session = Session(subscription, listener, make, (), log, Outage(log))
    pauses: list[float] = []
    session._wanted.wait = pauses.append  # type: ignore[assignment, method-assign]
    session.start()
    assert consumer.asked.wait(WAIT_S)
    del session._wanted.wait
    assert session.stop(WAIT_S)

    assert pauses == [0.1, 0.2, 0.4, 0.8, 0.1, 0.2]
    assert taken == [1]
    assert listener.of("error") == [KafkaError._TRANSPORT] * 6


# -- calls from a queue


def test_session_pauses_resumes_seeks_and_commits(
    connection: KafkaConnection, topic: str, group: str, committed: Committed
) -> None:
    listener = BatchListener()
    connection.subscribe(topic, group, {"enable.auto.commit": False}, listener)
    session = listener.session
    eventually(lambda: session.assigned() == {0, 1, 2, 3})
    # A pause has no effect while the consumer is still taking its assignment.
    eventually(lambda: len(session.consumer.assignment()) == 4)
    session.pause([1])
    connection.publish(topic, [{"value": f"{n}", "partition": n} for n in (0, 1)])
    eventually(lambda: listener.values == [b"0"])
    session.resume([1])
    eventually(lambda: listener.values == [b"0", b"1"])
    session.seek(0, 0)
    eventually(lambda: listener.values == [b"0", b"1", b"0"])
    session.commit([TopicPartition(topic, number, 1) for number in (0, 1)])
    assert committed(topic, group) == {0: 1, 1: 1}
    session.begin_commit([TopicPartition(topic, 0, 2, metadata="told")])
    eventually(lambda: listener.of("committed"))
    ((error, (place,)),) = listener.of("committed")
    assert (error, place.offset, place.metadata) == (None, 2, "told")
    assert committed(topic, group) == {0: 2, 1: 1}
    connection.close(None)
    with pytest.raises(InvalidStateException):
        session.commit([TopicPartition(topic, 0, 1)])
    assert session.assigned() == set()


def test_handler_chooses_where_partitions_begin(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    connection.publish(topic, [{"value": f"{n}", "partition": 0} for n in range(5)])
    listener = BatchListener()
    listener.assigned = lambda _: {0: 3}
    connection.subscribe(topic, group, {}, listener)
    eventually(lambda: len(listener.values) == 2)
    assert listener.values == [b"3", b"4"]


def test_commit_and_seek_of_a_subscription(
    connection: KafkaConnection, topic: str, group: str, committed: Committed
) -> None:
    listener = Listener()
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


def test_listener_that_seeks_gets_no_message_from_before_the_seek(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    sought: list[int] = []

    def seek(message: Any) -> None:
        if message.offset() == 2 and not sought:
            sought.append(1)
            connection.seek(topic, group, 0, 0, listener)

    listener = Listener(seek)
    connection.publish(topic, [{"value": str(number), "partition": 0} for number in range(5)])
    connection.subscribe(topic, group, {}, listener)

    listener.wait(8)
    assert listener.values()[:8] == [b"0", b"1", b"2", b"0", b"1", b"2", b"3", b"4"]


def test_batch_listener_is_notified_of_seeks_polls_and_the_end(
    connection: KafkaConnection, topic: str, group: str
) -> None:
    listener = BatchListener()
    listener.sought = lambda partition: listener.events.append(("seek", partition))
    listener.polled = lambda: listener.events.append(("poll", None))
    listener.closed = lambda: listener.events.append(("closed", None))
    connection.subscribe(topic, group, {}, listener)
    connection.publish(topic, [{"value": "x", "partition": 0}] * 3)
    eventually(lambda: len(listener.values) == 3)
    connection.seek(topic, group, 0, 1, listener)
    eventually(lambda: len(listener.values) == 5)
    connection.unsubscribe(topic, group, listener)

    assert listener.of("seek") == [0]
    assert listener.of("poll")
    assert listener.events[-1] == ("closed", None)


def test_commit_to_dead_brokers_raises_in_time_and_works_again_later(
    make_connection: MakeConnection, mock_cluster: MockCluster
) -> None:
    mock_cluster.create_topic("t", 1)
    connection = make_connection(
        connection__uri=mock_cluster.bootstrap_servers,
        options__request_timeout=400,
        options__retry_timeout=200,
    )
    listener = BatchListener()
    connection.subscribe("t", "g", {"enable.auto.commit": False}, listener)
    session, places = listener.session, [TopicPartition("t", 0, 0)]
    eventually(lambda: listener.of("assigned"))
    mock_cluster.broker_down()
    began = time.monotonic()
    with pytest.raises(ConnectionException):
        session.commit(places)
    took = time.monotonic() - began
    mock_cluster.broker_up()

    def committed() -> bool:
        try:
            session.commit(places)
        except ApplicationException:
            return False
        return True

    assert took < 2
    eventually(committed)
    # librdkafka may need longer than a session to leave the group; close() does not wait for it.
    connection.close(None)
