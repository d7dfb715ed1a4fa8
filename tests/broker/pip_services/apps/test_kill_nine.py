"""Processes killed with -9 while they handle messages: none is skipped.

The three scenarios have fifty kills in total under `make soak`. A sender runs all the time. The
test kills a worker at a random moment after the worker has handled its first messages. Another
worker takes its place in the group. At each kill the test compares the group's committed offsets
with the messages handled until then. So it finds a skipped message at the kill that skipped it.

Random numbers decide which process is killed and when. A failed test prints the seed;
CYKAFKA_TEST_SEED=... repeats it. The timing of the processes still varies.
CYKAFKA_TEST_KILLS: the number of kills of each scenario.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S
from pip_services_queues import MakeQueue, bodies
from pip_services_rig import Committed
from pip_services_workers import Handled, Nursery, new_seed
from repeated import kills

from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = [pytest.mark.ours, pytest.mark.soak, pytest.mark.timeout(600)]

HANDLING_S = 0.0005
PARTITIONS = 4

# The group removes a dead member after a second, the shortest timeout the test broker allows.
LEFT_TO_TIME_OUT = {
    "options.kafka.session.timeout.ms": 1000,
    "options.kafka.heartbeat.interval.ms": 200,
}


class Sender(threading.Thread):
    """Sends numbered messages, a few at a time, until `end()` is called."""

    def __init__(self, queue: KafkaMessageQueue) -> None:
        super().__init__(daemon=True)
        self._queue = queue
        self._end = threading.Event()
        self.sent = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._end.wait(0.02):
                self._queue.send_batch(None, bodies(10, self.sent))
                self.sent += 10
        except Exception as error:
            self.error = error

    def end(self) -> set[str]:
        """Stop, and return the bodies of all sent messages."""
        self._end.set()
        self.join()
        if self.error is not None:
            raise self.error
        return {str(n) for n in range(self.sent)}


@pytest.mark.parametrize(
    ("mode", "names", "count"),
    [
        # A named worker is a static member: its successor of the same name takes over at once.
        pytest.param("autocommit", ["a", "b"], kills(4, 17), id="listening-with-autocommit"),
        pytest.param("complete", [None, None], kills(4, 17), id="listening-without-autocommit"),
        pytest.param("receive", ["a"], kills(4, 16), id="receiving-without-autocommit"),
    ],
)
def test_killed_processes_skip_no_message(
    nursery: Nursery,
    cluster: Any,
    topic: str,
    group: str,
    make_queue: MakeQueue,
    committed: Committed,
    tmp_path: Path,
    mode: str,
    names: list[str | None],
    count: int,
) -> None:
    seed = new_seed()
    dice = random.Random(seed)
    handled = Handled(tmp_path / "handled")
    config = {
        "connection.uri": f"tcp://{cluster.bootstrap_servers}",
        "topic": topic,
        "group_id": group,
        "from_beginning": True,
        "autocommit": mode == "autocommit",
        "read_partitions": 2,
        "options.connect_timeout": 30000,
        "options.kafka.auto.commit.interval.ms": 50,
    }

    def start(name: str | None) -> int:
        own = {"options.kafka.group.instance.id": name} if name else LEFT_TO_TIME_OUT
        return nursery.start({**config, **own}, mode, handled.path, HANDLING_S)

    def until(wanted: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not wanted():
            assert time.monotonic() < deadline, (
                f"{what}; CYKAFKA_TEST_SEED={seed}; the workers said: {nursery.output()}"
            )
            time.sleep(0.005)

    sender = Sender(make_queue())
    sender.start()
    pids = {place: start(name) for place, name in enumerate(names)}
    busy = 0
    try:
        for kill in range(1, count + 1):
            before, wanted = handled.look(), dice.randint(1, 50)
            until(lambda least=before + wanted: handled.look() >= least, f"kill {kill}: no work")
            time.sleep(dice.random() * 0.1)
            victim = dice.randrange(len(names))
            nursery.kill(pids.pop(victim))
            busy += sender.sent > len(handled.bodies)
            positions = committed(topic, group)
            handled.look()
            skipped = handled.skipped(positions)
            assert not skipped, f"kill {kill}: {skipped} are skipped; CYKAFKA_TEST_SEED={seed}"
            pids[victim] = start(names[victim])
        sent = sender.end()
        assert busy > count / 2, "the workers had no messages left when they were killed"

        def rest() -> set[str]:
            handled.look()
            return sent - set(handled.bodies)

        until(lambda: not rest(), f"of {len(sent)} some were not handled")
        if mode != "autocommit":
            until(
                lambda: sum(committed(topic, group).values()) == len(sent),
                f"of {len(sent)} some are not committed",
            )
    finally:
        for pid in pids.values():
            nursery.kill(pid)
    if mode == "receive":
        # A worker holds one message at a time, so a kill redelivers at most one.
        assert handled.look() <= len(sent) + count
