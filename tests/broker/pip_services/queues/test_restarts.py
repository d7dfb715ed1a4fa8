"""Brokers are restarted under a queue: it recovers by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pip_services4_commons.errors import ApplicationException

pytestmark = pytest.mark.ours

WAIT_S = 60.0


@pytest.fixture
def three(kafka_cluster_3: Any) -> Iterator[Any]:
    """Three nodes, which are up again after the test."""
    yield kafka_cluster_3
    for node in kafka_cluster_3.nodes:
        node.start(wait=False)
    for node in kafka_cluster_3.nodes:
        node.wait_ready()


@pytest.mark.parametrize("autocommit", [True, False])
def test_every_message_is_handled_although_brokers_restart(
    make_queue: Callable[..., Any],
    make_receiver: Callable[..., Any],
    envelope: Callable[..., Any],
    eventually: Callable[..., Any],
    unique: Callable[[str], str],
    three: Any,
    autocommit: bool,
) -> None:
    def then(message: Any, queue: Any) -> None:
        if not autocommit:
            queue.complete(message)

    queue = make_queue(
        topic=unique("restarted"),
        autocommit=autocommit,
        connection__uri=f"tcp://{three.bootstrap_servers}",
        options__replication_factor=3,
        options__num_partitions=4,
        options__retry_timeout=500,
        options__request_timeout=15000,
        **{"options__kafka__fetch.wait.max.ms": 500},
    )
    receiver = make_receiver(then)
    queue.begin_listen(None, receiver)
    sent: list[str] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            body = str(len(sent))
            try:
                queue.send(None, envelope(body))
            except ApplicationException:
                continue  # it may be stored or not: the next attempt has the same body
            sent.append(body)
            time.sleep(0.01)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        receiver.wait(20, WAIT_S)
        for node in three.nodes:
            node.stop()
            node.start()
            before = len(sent)
            eventually(lambda before=before: len(sent) > before + 20, WAIT_S)
    finally:
        stop.set()
        sender.join(WAIT_S)
    eventually(lambda: set(receiver.bodies()) >= set(sent), WAIT_S)
    assert queue.is_open()
