"""An interrupted `seek()` while librdkafka's main thread is stalled: it takes effect later."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fixture_types import RunScript

pytestmark = pytest.mark.ours

# stats_cb raises until all records are fetched, so that consume() keeps them for the next call.
SCRIPT = """
    import os, pathlib, signal, threading, time
    from cykafka.testing import MockCluster

    stalls = pathlib.Path(os.environ["STALLS"])
    stalled = pathlib.Path(os.environ["STALLED"])
    raising = True

    def stats(_):
        if raising:
            raise ZeroDivisionError

    cluster = MockCluster(1)
    cluster.create_topic("t", partitions=1)
    with kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.publish("t", [b"%d" % number for number in range(10)]).wait(30)
    consumer = kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0,
         "statistics.interval.ms": 20, "stats_cb": stats})
    partition = kafka.TopicPartition("t", 0, 0)
    consumer.assign([partition])
    # The position is 0 once messages are gathered. The others arrive soon after the first.
    rounds = 0
    while rounds < 5:
        try:
            consumer.consume(100, 30)
        except ZeroDivisionError:
            rounds += consumer.position([partition])[0].offset == 0
    raising = False
    stalls.touch()
    while not stalled.exists():
        time.sleep(0.01)
    safety = threading.Timer(20, stalls.unlink)
    safety.start()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    started = time.monotonic()
    try:
        consumer.seek(kafka.TopicPartition("t", 0, 4))
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - started < 3)
    safety.cancel()
    stalls.unlink()
    messages = []
    while len(messages) < 6:
        messages += consumer.consume(6 - len(messages), 30)
    print([message.offset() for message in messages])
    consumer.close()
    cluster.close()
"""


def test_interrupted_seek_returns_no_message_from_before_it(
    stall: Callable[[str], None], run_script: RunScript
) -> None:
    stall("rdk:main")

    done = run_script(SCRIPT)

    assert done.stderr == ""
    assert done.stdout == "interrupted True\n[4, 5, 6, 7, 8, 9]\n"
