"""A topic that is deleted and created again under a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Unique
from pip_services_queues import MakeQueue, Receiver, bodies, received
from pip_services_rig import eventually

pytestmark = pytest.mark.ours


@pytest.fixture
def recreate() -> Callable[..., None]:
    """Delete a queue's topic and create it again."""

    def make(queue: Any, topic: str) -> None:
        connection = queue._connection
        connection.delete_queue(topic)
        eventually(lambda: topic not in connection.read_queue_names())
        connection.create_queue(topic)

    return make


def send_in_order(queue: Any, envelopes: list[Any]) -> None:
    """Send the first message alone.

    Metadata names the leader of a new partition shortly before that broker accepts records. The
    client resends refused requests, and those would follow requests accepted meanwhile.
    """
    queue.send_batch(None, envelopes[:1])
    queue.send_batch(None, envelopes[1:])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_topic_recreated_under_a_listener_is_read_from_its_beginning(
    make_queue: MakeQueue, recreate: Callable[..., None], unique: Unique, protocol: str
) -> None:
    topic = unique("again")
    queue = make_queue(
        topic=topic,
        autocommit=False,
        options__num_partitions=1,
        **{"options__kafka__group.protocol": protocol},
    )
    queue.send_batch(None, bodies(50))
    receiver = Receiver(lambda envelope, queue: queue.complete(None, envelope))
    queue.begin_listen(None, receiver)
    receiver.wait(50)
    recreate(queue, topic)
    # Fewer messages than before, else librdkafka continues at its old offset.
    send_in_order(queue, bodies(30, 100))
    assert receiver.wait(80)[50:] == [str(n) for n in range(100, 130)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("from_beginning", [False, True])
def test_topic_recreated_between_two_opens_is_read_from_its_beginning(
    make_queue: MakeQueue,
    recreate: Callable[..., None],
    unique: Unique,
    protocol: str,
    from_beginning: bool,
) -> None:
    """The documented advice works with any number of messages."""
    topic = unique("again")
    sender = make_queue(topic=topic, group_id="sender", options__num_partitions=1)
    queue = make_queue(
        topic=topic,
        from_beginning=from_beginning,
        **{"options__kafka__group.protocol": protocol},
    )
    sender.send_batch(None, bodies(5))
    assert received(queue, 5) == [str(n) for n in range(5)]
    queue.close(None)
    recreate(sender, topic)
    if from_beginning:
        send_in_order(sender, bodies(20, 100))
        queue.open(None)
    else:
        queue.open(None)
        send_in_order(sender, bodies(20, 100))
    assert received(queue, 20) == [str(n) for n in range(100, 120)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_completing_old_messages_finishes_none_of_a_recreated_topic(
    make_queue: MakeQueue, recreate: Callable[..., None], unique: Unique, protocol: str
) -> None:
    topic = unique("again")
    sender = make_queue(topic=topic, group_id="sender", options__num_partitions=1)
    sender.send_batch(None, bodies(10))
    sender.close(None)  # else its producer would create the topic again
    queue = make_queue(
        topic=topic,
        autocommit=False,
        **{
            "options__kafka__group.protocol": protocol,
            "options__kafka__topic.metadata.refresh.interval.ms": 500,
        },
    )
    old = [queue.receive(None, 30_000) for _ in range(10)]
    queue.complete(old[0])
    session = queue._connection._subscriptions[0]._session
    queue._connection.delete_queue(topic)
    eventually(lambda: not session.assigned())
    queue.complete(old[1])
    queue._connection.create_queue(topic)
    eventually(session.assigned)
    queue.complete(old[3])
    sender.open(None)
    send_in_order(sender, bodies(5, 100))
    eventually(lambda: queue.peek(None) is not None)
    queue.complete(old[4])
    assert received(queue, 5) == [str(n) for n in range(100, 105)]
