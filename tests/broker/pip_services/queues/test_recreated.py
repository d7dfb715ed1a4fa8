"""A topic that is deleted and made anew under a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.ours


def test_a_topic_made_anew_under_a_listener_is_read_from_its_beginning(
    make_queue: Callable[..., Any],
    make_receiver: Callable[..., Any],
    bodies: Callable[..., Any],
    eventually: Callable[..., Any],
    unique: Callable[[str], str],
) -> None:
    topic = unique("again")
    queue = make_queue(topic=topic, autocommit=False, options__num_partitions=1)
    queue.send_batch(None, bodies(50))
    receiver = make_receiver(lambda envelope, queue: queue.complete(None, envelope))
    queue.begin_listen(None, receiver)
    receiver.wait(50)

    connection = queue._connection
    connection.delete_queue(topic)
    eventually(lambda: topic not in connection.read_queue_names())
    connection.create_queue(topic)
    # Fewer than before: else librdkafka reads on where it was.
    queue.send_batch(None, bodies(30, 100))
    assert receiver.wait(80)[50:] == [str(n) for n in range(100, 130)]
