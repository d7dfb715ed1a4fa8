"""Queues send, listen and receive while brokers restart, die and stall."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, Unique
from pip_services4_commons.errors import ApplicationException
from pip_services_queues import MakeQueue, Receiver, bodies, envelope, received
from pip_services_rig import Recorder, eventually

from cykafka import TopicPartition
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = [pytest.mark.ours, pytest.mark.timeout(600)]

WAIT_S = 90.0
PARTITIONS = 4


@pytest.fixture
def cluster(three: Any) -> Any:
    return three


def restart_one_by_one(nodes: list[Any]) -> None:
    for node in nodes:
        node.restart()


def kill_all(nodes: list[Any]) -> None:
    for node in nodes:
        node.kill()
    for node in nodes:
        node.start(wait=False)
    for node in nodes:
        node.wait_ready()


def pause_one_by_one(nodes: list[Any]) -> None:
    for node in nodes[:2]:
        node.pause()
        time.sleep(3)  # longer than its session with the controller
        node.resume()


class Sender(threading.Thread):
    """Sends numbered messages one by one until `end()` is called, despite failures."""

    def __init__(self, queue: KafkaMessageQueue) -> None:
        super().__init__(daemon=True)
        self._queue = queue
        self._end = threading.Event()
        self.sent: list[str] = []  # in calls that returned
        self.failures: list[ApplicationException] = []
        self.longest = 0.0
        self.error: Exception | None = None

    def run(self) -> None:
        number = 0
        try:
            while not self._end.wait(0.004):
                number += 1
                begun = time.monotonic()
                try:
                    self._queue.send(None, envelope(str(number)))
                except ApplicationException as error:
                    self.failures.append(error)
                else:
                    self.sent.append(str(number))
                self.longest = max(self.longest, time.monotonic() - begun)
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self._end.set()
        self.join()
        assert self.error is None, self.error


@pytest.mark.parametrize("happens", [restart_one_by_one, kill_all, pause_one_by_one])
def test_queues_recover_without_losing_messages(
    happens: Callable[[list[Any]], None],
    cluster: Any,
    make_queue: MakeQueue,
    make_consumer: MakeConsumer,
    unique: Unique,
) -> None:
    name = unique("restarted")
    cluster.create_topic(name, PARTITIONS, replication_factor=3)
    common = {
        "topic": name,
        "options__connect_timeout": 30000,
        "options__retry_timeout": 500,
        "options__request_timeout": 5000,
        "options__kafka__fetch.wait.max.ms": 500,
    }
    sending = make_queue(group_id="sender", **common)
    listening = make_queue(group_id=unique("listening"), read_partitions=2, **common)
    completing = make_queue(group_id=unique("completing"), autocommit=False, **common)
    receiving = make_queue(group_id=unique("receiving"), autocommit=False, **common)
    queues = [listening, completing, receiving]

    receiver = Receiver()
    listening.begin_listen(None, receiver)
    completer = Receiver(lambda message, queue: queue.complete(message))
    completing.begin_listen(None, completer)
    received: Counter[str] = Counter()
    end = threading.Event()
    errors: list[Exception] = []

    def receive() -> None:
        try:
            while not end.is_set():
                message = receiving.receive(None, 200)
                if message is None:
                    continue
                received[message.get_message_as_string()] += 1
                try:
                    receiving.complete(message)
                except ApplicationException:
                    receiving.abandon(message)  # so it is redelivered
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    sender = Sender(sending)
    sender.start()

    def handled() -> list[Counter[str]]:
        return [Counter(receiver.bodies()), Counter(completer.bodies()), received]

    try:
        eventually(lambda: all(len(bodies) > 50 for bodies in handled()), WAIT_S)
        happens(list(cluster.nodes))
        before = len(sender.sent)
        eventually(lambda: len(sender.sent) > before + 50, WAIT_S)
        sender.end()
        sent = set(sender.sent)
        eventually(lambda: all(sent <= set(bodies) for bodies in handled()), WAIT_S)
        assert errors == []
        assert all(queue.is_open() for queue in [sending, *queues])
        assert sender.longest < 10, "longer than request_timeout with a margin"

        consumer = make_consumer()
        consumer.subscribe([name])
        there: set[str] = set()
        deadline = time.monotonic() + WAIT_S
        while not sent <= there and time.monotonic() < deadline:
            there.update(
                message.value().decode() for message in consumer.consume(1000, 0.5)
                if message.error() is None
            )  # fmt: skip
        assert sent <= there
        # Only messages of failed calls may be there too: the broker may have stored them.
        assert len(there - sent) <= len(sender.failures)
        eventually(lambda: all(queue.read_message_count() == 0 for queue in queues), WAIT_S)
    finally:
        end.set()
        thread.join()
        if sender.is_alive():
            sender.end()
    assert all(there <= set(bodies) for bodies in handled())
    places = [TopicPartition(name, number) for number in range(PARTITIONS)]
    ends = [marks.high for marks in consumer.watermarks(places, WAIT_S).values()]
    for queue in queues:
        queue.close(None)
        known = make_consumer({"group.id": queue._group_id}).committed(places, WAIT_S)
        assert [place.offset for place in known] == ends


@pytest.mark.parametrize("autocommit", [False, True])
def test_close_with_dead_brokers_ends_in_time_without_loss(
    cluster: Any, make_queue: MakeQueue, unique: Unique, logger: Recorder, autocommit: bool
) -> None:
    name = unique("dead")
    cluster.create_topic(name, 1, replication_factor=3)
    values = {
        "topic": name,
        "autocommit": autocommit,
        "options__connect_timeout": 30000,
        "options__retry_timeout": 500,
        "options__request_timeout": 3000,
        "options__kafka__group.protocol": None,
        "options__kafka__session.timeout.ms": 6000,
    }
    queue = make_queue(**values)
    queue.send_batch(None, bodies(3))
    message = queue.receive(None, WAIT_S * 1000)
    assert message is not None
    for node in cluster.nodes:
        node.kill()
    begin = time.monotonic()
    if not autocommit:
        with pytest.raises(ApplicationException):
            queue.complete(message)
        assert time.monotonic() - begin < 3 + 2
        begin = time.monotonic()
    queue.close(None)
    assert time.monotonic() - begin < 3 + 2, "longer than one request_timeout with a margin"
    # The session's thread, which close() left behind, ends too.
    session = f"kafka-session-{name}"
    eventually(lambda: all(t.name != session for t in threading.enumerate()), WAIT_S)
    assert "the group may redeliver their messages" in logger.all()
    for node in cluster.nodes:
        node.start(wait=False)
    for node in cluster.nodes:
        node.wait_ready()
    again = make_queue(**values)
    assert received(again, 2, WAIT_S) in (["0", "1"], ["1", "2"])
