"""Every message has one outcome: attempts, dead letters, rebalances and slow subclasses."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest
from fixture_types import MakeConsumer, Read
from pip_services4_commons.errors import ConfigException
from pip_services4_messaging.queues import MessageEnvelope
from pip_services_queues import ONE, MakeQueue, Receiver, bodies, fail_at, received
from pip_services_rig import Committed, Gate, Recorder, eventually

from pip_services4_kafka.connect import _session
from pip_services4_kafka.queues import KafkaMessageQueue
from pip_services4_kafka.queues._listener import Listener
from pip_services4_kafka.queues._receiver import DeadLetters

pytestmark = pytest.mark.ours

FAST = {"options__retry_backoff": 1, "options__retry_backoff_max": 20}


def refuse(message: Any, queue: Any) -> None:
    raise ValueError("x" * 2_000_000)


def test_reason_longer_than_a_message_is_cut_in_the_dead_letter(
    make_queue: MakeQueue, make_consumer: MakeConsumer, read: Read, cluster: Any, topic: str
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)
    queue = make_queue(options__max_attempts=2, **FAST, **ONE)
    queue.send_batch(None, bodies(1))
    receiver = Receiver(refuse)
    queue.begin_listen(None, receiver)
    consumer = make_consumer()
    consumer.subscribe([f"{topic}.dlq"])
    (record,) = read(consumer, 1)
    headers = dict(record.headers())
    assert headers["dlq_error"] == b"ValueError: " + b"x" * 988
    assert receiver.bodies() == ["0", "0"]


def test_receiver_does_not_run_again_while_the_dead_letter_cannot_be_sent(
    make_queue: MakeQueue, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Counter[str]()

    def send(self: DeadLetters, message: Any, error: str, attempts: int) -> None:
        sent[message.value().decode()] += 1
        if sent.total() < 4:
            raise RuntimeError("no such topic")

    monkeypatch.setattr(DeadLetters, "send", send)
    fast = {**FAST, **ONE, "options__kafka__auto.commit.interval.ms": 50}
    queue = make_queue(options__max_attempts=2, **fast)
    queue.send_batch(None, bodies(2))

    receiver = Receiver(fail_at("0", ValueError("told")))
    queue.begin_listen(None, receiver)
    eventually(lambda: committed() == {1: 2})
    assert Counter(receiver.bodies()) == {"0": 2, "1": 1}
    assert sent == {"0": 4}


def test_abandoned_message_waits_for_its_dead_letter_despite_autocommit(
    make_queue: MakeQueue, committed: Committed, monkeypatch: pytest.MonkeyPatch, logger: Recorder
) -> None:
    may_send = threading.Event()

    def send(self: DeadLetters, message: Any, error: str, attempts: int) -> None:
        if not may_send.is_set():
            raise RuntimeError("no such topic")

    monkeypatch.setattr(DeadLetters, "send", send)
    queue = make_queue(
        options__max_attempts=1, **FAST, **ONE, **{"options__kafka__auto.commit.interval.ms": 50}
    )
    queue.send_batch(None, bodies(1))
    queue.abandon(queue.receive(None, 30_000))
    assert "cannot send the dead letter" in logger.all()
    eventually(lambda: logger.all().count("cannot send") > 1)  # several intervals of autocommit
    assert committed() == {1: 0}
    may_send.set()
    eventually(lambda: committed() == {1: 1})
    assert queue.receive(None, 0) is None


def test_envelope_with_a_reference_of_the_subclass_can_be_completed(
    make_queue: MakeQueue, committed: Committed
) -> None:
    class Queue(KafkaMessageQueue):
        def _to_message(self, msg: Any) -> MessageEnvelope | None:
            envelope = super()._to_message(msg)
            assert envelope is not None
            envelope.set_reference("my own")
            return envelope

    queue = make_queue(Queue, autocommit=False, **ONE)
    queue.send_batch(None, bodies(1))
    queue.complete(queue.receive(None, 30_000))
    assert committed() == {1: 1}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_message_in_hand_is_completed_although_the_group_has_rebalanced(
    make_queue: MakeQueue, committed: Committed, protocol: str
) -> None:
    fast = {"options__kafka__auto.commit.interval.ms": 100}
    given = {"options__kafka__group.protocol": protocol, **fast}
    queue = make_queue(autocommit=False, **given)
    queue.send_batch(None, bodies(40))
    in_hand = [queue.receive(None, 30_000) for _ in range(40)]
    session = queue._connection._subscriptions[0]._session
    everything = session.assigned()
    member = make_queue(autocommit=False, **given)
    member.peek(None)
    other = member._connection._subscriptions[0]._session
    eventually(lambda: other.assigned() and session.assigned() | other.assigned() == everything)
    moved = [m for m in in_hand if m.get_reference().partition() in other.assigned()]
    assert 0 < len(moved) < 40
    for message in moved[::2]:
        queue.complete(message)
    member.close(None)
    eventually(lambda: session.assigned() == everything)
    for message in in_hand:
        queue.complete(message)
    eventually(lambda: sum(committed().values()) == 40)
    assert queue.receive(None, 300) is None


def test_slow_on_message_commits_and_polls_in_between(
    make_queue: MakeQueue, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_session, "SERVE_S", 0.05)
    gate = Gate()
    handled = []

    class Queue(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any = None, **_: Any) -> None:
            handled.append(message.offset())
            time.sleep(0.1)
            if message.offset() == 10:
                gate.hold()

    fast = {"options__kafka__auto.commit.interval.ms": 50}
    sender = make_queue(**ONE)
    sender.send_batch(None, bodies(20))
    queue = make_queue(Queue, **fast, **ONE)
    queue.peek(None)
    gate.wait()  # all messages came in one batch
    eventually(lambda: committed().get(1, 0) >= 5)
    gate.open()
    eventually(lambda: len(handled) == 20)
    assert handled == list(range(20))


def test_first_use_by_several_threads_subscribes_a_subclass_once(make_queue: MakeQueue) -> None:
    class Queue(KafkaMessageQueue):
        def _subscribe(self, context: Any = None, **_: Any) -> None:
            time.sleep(0.05)
            super()._subscribe(context)

    queue = make_queue(Queue)
    queue.send_batch(None, bodies(40))
    found: list[str] = []

    def receive() -> None:
        while (envelope := queue.receive(None, 3000)) is not None:
            found.append(envelope.get_message_as_string())

    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found, key=int) == [str(number) for number in range(40)]
    assert len(queue._connection._subscriptions) == 1


class _Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), _Silent()])
@pytest.mark.parametrize("hook", ["_to_message", "on_message"])
def test_hook_that_raises_anything_ends_its_message_alone(
    make_queue: MakeQueue, logger: Recorder, hook: str, error: BaseException
) -> None:
    def raise_once(self: Any, *arguments: Any, **_: Any) -> Any:
        message = arguments[-1]
        if message.value() == b"0":
            raise error
        return getattr(KafkaMessageQueue, hook)(self, *arguments)

    kind = type("Queue", (KafkaMessageQueue,), {hook: raise_once})
    queue = make_queue(kind, options__max_attempts=0, **ONE)
    queue.send_batch(None, bodies(3))
    assert received(queue, 2) == ["1", "2"]
    assert type(error).__name__ in "".join(text for _, text, _ in logger.lines)


def test_exception_without_a_text_counts_as_an_attempt(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        DeadLetters, "send", lambda self, message, error, attempts: sent.append(error)
    )

    def fail(message: Any, queue: Any) -> None:
        raise _Silent

    queue = make_queue(options__max_attempts=2, **FAST, **ONE)
    queue.send_batch(None, bodies(1))
    receiver = Receiver(fail)
    queue.begin_listen(None, receiver)
    eventually(lambda: sent)
    assert (receiver.bodies(), sent) == (["0", "0"], ["_Silent"])


def test_interrupted_listen_can_be_ended(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Any, workers: int) -> None:
        raise KeyboardInterrupt

    queue = make_queue(options__request_timeout=30_000)
    monkeypatch.setattr(Listener, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.listen(None, Receiver())
    begun = time.monotonic()
    queue.end_listen()
    queue.close()
    assert time.monotonic() - begun < 20


def test_dead_letters_need_another_topic(make_queue: MakeQueue, topic: str) -> None:
    with pytest.raises(ConfigException, match=r"options\.dead_letter_topic"):
        make_queue(options__dead_letter_topic=topic)
