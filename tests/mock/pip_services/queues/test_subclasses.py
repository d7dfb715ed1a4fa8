"""Subclasses that override hooks, including those written for the published package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Unique
from pip_services4_messaging.queues import MessageEnvelope
from pip_services_queues import ONE, MakeQueue, bodies, envelope, received
from pip_services_rig import Committed, eventually

from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours


def test_to_message_of_a_subclass_is_used(make_queue: MakeQueue) -> None:
    class Whispering(KafkaMessageQueue):
        def _to_message(self, msg: Any) -> Any:
            if msg.value() == b"1":
                raise ValueError("not this one")
            if msg.value() == b"2":
                return None
            envelope = super()._to_message(msg)
            assert envelope is not None
            envelope.message = b"~" + (envelope.message or b"")
            return envelope

    queue = make_queue(Whispering, autocommit=False, options__max_attempts=0, **ONE)
    queue.send_batch(None, bodies(4))
    assert received(queue, 2) == ["~0", "~3"]


def test_on_message_of_a_subclass_is_called(
    make_queue: MakeQueue, committed: Committed, topic: str
) -> None:
    calls = []

    class Hearing(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            calls.append((topic, partition, message.value()))
            if message.value() == b"1":
                raise ValueError("hard of hearing")
            if message.value() != b"2":
                super().on_message(topic, partition, message)

    queue = make_queue(Hearing, options__max_attempts=0, **ONE)
    queue.send_batch(None, bodies(4))
    assert received(queue, 2) == ["0", "3"]
    assert calls == [(topic, 1, str(n).encode()) for n in range(4)]
    queue.close(None)
    assert committed() == {1: 4}


def test_subclass_for_the_published_package_fills_the_local_queue(make_queue: MakeQueue) -> None:
    class Old(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            envelope = self._to_message(message)
            if message.value() == b"1":
                self._messages += [envelope]
            else:
                self._messages.append(envelope)

    queue = make_queue(Old, **ONE)
    queue.send_batch(None, bodies(3))
    assert received(queue, 3) == ["0", "1", "2"]
    for refused in (
        lambda: queue._messages.pop(0),
        lambda: queue._messages.clear(),
        lambda: queue._messages.append(MessageEnvelope(None, "t", "x")),
    ):
        with pytest.raises(AttributeError, match="_messages"):
            refused()


def test_without_autocommit_on_message_completes_no_message(
    make_queue: MakeQueue, committed: Committed, topic: str
) -> None:
    kept: list[Any] = []

    class Keeping(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            if message.value() == b"2":
                super().on_message(topic, partition, message)
            else:
                kept.append(self._to_message(message))

    queue = make_queue(Keeping, autocommit=False, **ONE)
    queue.send_batch(None, bodies(3))
    envelope = queue.receive(None, 30_000)
    queue.complete(envelope)
    assert committed() == {1: 0}
    queue.complete(kept[0])
    assert committed() == {1: 1}
    queue.complete(kept[1])
    assert committed() == {1: 3}


@pytest.mark.parametrize("autocommit", [True, False])
def test_message_whose_on_message_raises_becomes_a_dead_letter(
    make_queue: MakeQueue,
    records: Callable[[str, int], list[Any]],
    committed: Committed,
    topic: str,
    cluster: Any,
    autocommit: bool,
) -> None:
    class Deaf(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            raise ValueError("hard of hearing")

    cluster.create_topic(f"{topic}.dlq", 1)
    queue = make_queue(Deaf, autocommit=autocommit, options__max_attempts=2, **ONE)
    queue.send_batch(None, bodies(1))
    queue.peek()  # which subscribes
    (letter,) = records(f"{topic}.dlq", 1)
    assert letter.value() == b"0"
    assert b"hard of hearing" in dict(letter.headers())["dlq_error"]
    if not autocommit:
        eventually(lambda: committed() == {1: 1})


def test_topic_that_a_subclass_chooses_is_used(
    make_queue: MakeQueue, unique: Unique, cluster: Any
) -> None:
    elsewhere = unique("elsewhere")
    cluster.create_topic(elsewhere, 4)
    subscribed = []

    class Elsewhere(KafkaMessageQueue):
        def _get_topic(self) -> str:
            return elsewhere

        def _subscribe(self, context: Any = None) -> None:
            subscribed.append(context)
            super()._subscribe(context)

    queue = make_queue(Elsewhere)
    assert elsewhere in queue._connection.read_queue_names()
    queue.send(None, envelope("x"))
    assert received(queue, 1) == ["x"]
    assert subscribed


def test_on_message_that_raises_skips_its_message_without_dead_letters(
    make_queue: MakeQueue, committed: Committed
) -> None:
    class Deaf(KafkaMessageQueue):
        def on_message(self, topic: str, partition: int, message: Any) -> None:
            raise ValueError("hard of hearing")

    queue = make_queue(Deaf, autocommit=False, options__max_attempts=0, **ONE)
    queue.send_batch(None, bodies(3))
    queue.peek()  # which subscribes
    eventually(lambda: committed() == {1: 3})
    assert queue.receive(None, 50) is None
