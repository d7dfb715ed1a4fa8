"""Ctrl-C interrupts every call that waits."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import RunScript

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

# The documented bound is 200 ms. The rest is for a busy machine.
BOUND_S = 2.0

HEAD = """
import sys
servers, topic = sys.argv[1:]
producer = kafka.Producer({"bootstrap.servers": servers, "linger.ms": 20_000,
                           "queue.buffering.max.messages": 1})
nowhere = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "signals"})
lost = kafka.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
consumer.assign([kafka.TopicPartition(topic, 0)])
"""

CALLS = {
    "producer.poll(60)": "",
    "producer.poll()": "",
    "nowhere.flush(60)": "nowhere.produce(topic, b'x')",
    "nowhere.flush()": "nowhere.produce(topic, b'x')",
    "producer.produce(topic, b'y', timeout=60)": "producer.produce(topic, b'x')",
    "consumer.poll(60)": "",
    "consumer.poll()": "",
    "consumer.consume(10, 60)": "",
    "consumer.consume(10)": "",
    "consumer.consume_batch(10, 60)": "",
    "consumer.consume_batch(10)": "",
    "next(consumer.batches())": "",
    "next(consumer)": "",
    "lost.watermarks([kafka.TopicPartition(topic, 0)], 60)": "",
    "lost.watermarks([kafka.TopicPartition(topic, 0)])": "",
    "lost.lag([kafka.TopicPartition(topic, 0)])": "",
    "lost.commit(offsets=[kafka.TopicPartition(topic, 0, 1)], asynchronous=False)": "",
    "lost.list_topics(timeout=60)": "",
    "lost.list_topics()": "",
    "nowhere.list_topics(topic)": "",
    "nowhere.cluster_id(60)": "",
    "nowhere.cluster_id()": "",
    "lost.committed([kafka.TopicPartition(topic, 0)], 60)": "",
    "lost.committed([kafka.TopicPartition(topic, 0)])": "",
    "lost.offsets_for_times([kafka.TopicPartition(topic, 0, 1)], 60)": "",
    "lost.offsets_for_times([kafka.TopicPartition(topic, 0, 1)])": "",
    "lost.get_watermark_offsets(kafka.TopicPartition(topic, 0), 60)": "",
    "lost.get_watermark_offsets(kafka.TopicPartition(topic, 0))": "",
    "transactional.init_transactions(60)": """
transactional = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "t",
                                "log_level": 0})
""",
    "transactional.init_transactions()": """
transactional = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "t",
                                "log_level": 0})
""",
}

TAIL = """
import os, time
print("waiting", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
print("returned", flush=True)
os._exit(1)
"""


def interrupt(
    command: list[str], ready: Callable[[], None] = lambda: None
) -> tuple[str, float, str]:
    """Start a script, interrupt it once it waits, and return its answer and the time it took."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if line != "waiting\n":
                process.kill()
                raise AssertionError((line, process.communicate(timeout=10)))
            ready()
            # The script prints before the call, so wait until it is inside.
            time.sleep(0.3)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            answer = process.stdout.readline()
            took = time.monotonic() - start
            _, errors = process.communicate(timeout=10)
            return answer, took, errors
        finally:
            process.kill()


@pytest.mark.parametrize("call", CALLS)
def test_interrupt_ends(
    script_command: Callable[..., list[str]], cluster: Any, topic: str, call: str
) -> None:
    source = HEAD + CALLS[call] + TAIL.format(call=call)

    answer, took, errors = interrupt(script_command(source, cluster.bootstrap_servers, topic))

    assert answer == "interrupted\n", errors
    assert took < BOUND_S


@pytest.mark.parametrize("call", ["commit_transaction", "abort_transaction"])
def test_interrupt_ends_a_transaction_whose_broker_is_gone(
    script_command: Callable[..., list[str]], mock_cluster: MockCluster, call: str
) -> None:
    source = """
import sys
transactional = kafka.Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "t",
                                "log_level": 0})
transactional.init_transactions(10)
transactional.begin_transaction()
transactional.produce("any", b"x")
transactional.flush(10)
print("ready", flush=True)
sys.stdin.readline()
""" + TAIL.format(call=f"transactional.{call}(60)")
    command = script_command(source, mock_cluster.bootstrap_servers)

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "ready\n"
            mock_cluster.broker_down()
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "waiting\n"
            time.sleep(0.3)  # until the call waits, as above
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            assert time.monotonic() - start < BOUND_S
        finally:
            process.kill()


def test_interrupt_loses_no_delivery_report(
    run_script: RunScript, cluster: Any, topic: str
) -> None:
    done = run_script(
        """
        import functools, io, os, signal, sys, threading
        servers, topic = sys.argv[1:]
        # A Python callback could be interrupted itself; one in C cannot.
        seen = io.StringIO()
        producer = kafka.Producer({"bootstrap.servers": servers})
        for number in range(100):
            producer.produce(topic, b"x", partition=0,
                             on_delivery=functools.partial(print, number, file=seen))
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                producer.poll(1)
        except KeyboardInterrupt:
            pass
        assert producer.flush(10) == 0
        producer.close()
        numbers = [int(line.split()[0]) for line in seen.getvalue().splitlines()]
        assert numbers == list(range(100)), numbers
        """,
        cluster.bootstrap_servers,
        topic,
    )

    assert (done.returncode, done.stderr) == (0, "")
