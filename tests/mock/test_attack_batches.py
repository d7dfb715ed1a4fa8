"""Batches under attack: each case once crashed, hung or lost something, or could have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeProducer, RunScript

pytestmark = pytest.mark.ours

PREAMBLE = """
import gc, os, sys, threading, time
import cykafka
servers, topic = sys.argv[1:3]
config = {"bootstrap.servers": servers, "linger.ms": 0}
"""


@pytest.fixture
def run_attack(run_script: RunScript, cluster: Any, topic: str) -> Callable[..., list[str]]:
    """Run a script in its own process, which must succeed; return the lines of its output."""

    def run(source: str, timeout: float = 60) -> list[str]:
        result = run_script(PREAMBLE + source, cluster.bootstrap_servers, topic, timeout=timeout)
        assert result.returncode == 0, result.stderr
        lines: list[str] = result.stdout.splitlines()
        return lines

    return run


def test_garbage_collector_may_close_the_producer_during_publish(
    run_attack: Callable[..., Any],
) -> None:
    # The number of earlier objects decides where the collector runs. So try each threshold.
    lines = run_attack("""
class Closing:
    def __init__(self, producer):
        self.producer, self.itself = producer, self
    def __del__(self):
        self.producer.close()

for threshold in range(1, 25):
    producer = cykafka.Producer(config)
    producer.publish(topic, [b"first"]).wait(20)
    gc.collect()
    gc.disable()
    gc.set_threshold(threshold)
    Closing(producer)
    gc.enable()
    try:
        delivery = producer.publish(topic, [b"value" * 40], keys=[b"key"])
    except RuntimeError as error:
        delivery = getattr(error, "delivery", None)
    gc.set_threshold(700)
    gc.collect()
    assert delivery is None or delivery.done
""")
    assert lines == []


FORKED = """
import asyncio

children = {
    # The child shares the parent's epoll.
    "ends the parent's await": lambda coroutine, delivery: coroutine.close(),
    "awaits the parent's delivery": lambda coroutine, delivery: refused(delivery),
}

async def awaited(delivery):
    await delivery

def refused(delivery):
    try:
        asyncio.new_event_loop().run_until_complete(awaited(delivery))
    except RuntimeError as error:
        assert "fork" in str(error), error
        return
    raise AssertionError("not refused")

async def main():
    delivery = producer.publish(topic, [b"value"] * 100)
    coroutine = awaited(delivery)
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    pid = os.fork()
    if pid == 0:
        asyncio.events._set_running_loop(None)
        import signal
        signal.alarm(20)
        status = 1
        try:
            children[sys.argv[3]](coroutine, delivery)
            status = 0
        finally:
            os._exit(status)
    status = os.waitpid(pid, 0)[1]
    assert status == 0, status
    mock.broker_up()
    await asyncio.wait_for(task, 20)
    assert delivery.done and not delivery.failed

from cykafka.testing import MockCluster
with MockCluster() as mock:
    config["bootstrap.servers"] = mock.bootstrap_servers
    config["reconnect.backoff.ms"] = config["reconnect.backoff.max.ms"] = 50
    producer = cykafka.Producer(config)
    producer.publish(topic, [b"first"]).wait(20)
    mock.broker_down()
    asyncio.run(main())
    producer.close()
"""


@pytest.mark.parametrize("child", ["ends the parent's await", "awaits the parent's delivery"])
def test_forked_child_leaves_the_parents_await_running(
    run_attack: Callable[..., Any], child: str
) -> None:
    run_attack(FORKED.replace("sys.argv[3]", repr(child)))


def test_callback_that_closes_and_raises_loses_no_other(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"linger.ms": 0})
    calls = []

    def close(_: object) -> None:
        producer.close()
        raise ArithmeticError("first")

    def raise_again(_: object) -> None:
        calls.append("second")
        raise ArithmeticError("second")

    delivery, other = producer.publish(topic, [b"x"]), producer.publish(topic, [b"y"])
    for callback in (close, raise_again, lambda _: calls.append("third")):
        delivery.add_done_callback(callback)
    other.add_done_callback(lambda _: calls.append("other"))

    def wait() -> None:
        other.wait(20)
        delivery.wait(20)

    with pytest.raises(ArithmeticError, match="second") as raised:
        wait()
    assert "first" in str(raised.value.__context__)
    assert sorted(calls) == ["other", "second", "third"]


def test_commit_callback_that_closes_the_consumer_under_a_view(
    run_attack: Callable[..., Any],
) -> None:
    # Another thread makes the last step of that close, and the consumer no longer has the events.
    lines = run_attack("""
with cykafka.Producer(config) as producer:
    producer.publish(topic, [b"value"] * 10, partitions=0).wait(20)

told = []

def on_commit(error, partitions):
    told.append(error)
    consumer.close()

consumer = cykafka.Consumer({**config, "group.id": "g", "on_commit": on_commit,
                             "enable.auto.commit": False})
consumer.assign([cykafka.TopicPartition(topic, 0, 0)])
batch = consumer.consume_batch(10, 20)
views = batch.values(copy=False)
for _ in range(2):
    consumer.commit(asynchronous=True)
deadline = time.monotonic() + 20
while not told and time.monotonic() < deadline:
    try:
        consumer.poll(0.1)
    except RuntimeError as error:
        assert "closed" in str(error), error
print(told[0], bytes(views[9]))
""")
    # The second commit reports that it had nothing to commit, possibly before the close.
    assert lines == ["None b'value'"]
