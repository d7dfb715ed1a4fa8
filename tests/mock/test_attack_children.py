"""Messages in a forked child: messages lent by poll() belong to the parent, but keep headers."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

pytestmark = pytest.mark.ours

Run = Callable[..., CompletedProcess[str]]

HEAD = """
import gc, os, pickle, signal, sys
servers, topic = sys.argv[1:]
HEADERS = [("name", b"value"), ("none", None)]
producer = kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0})
for number in range(4):
    producer.produce(topic, str(number), partition=0, headers=HEADERS)
assert producer.flush(10) == 0

def new_consumer():
    made = kafka.Consumer({"bootstrap.servers": servers, "group.id": "children",
                           "fetch.wait.max.ms": 20})
    made.assign([kafka.TopicPartition(topic, 0, 0)])
    return made

def read(consumer):
    while True:
        message = consumer.poll(10)
        if message is not None and message.error() is None:
            return message

consumer = new_consumer()
# The last two messages are lent; older ones were returned.
messages = [read(consumer) for _ in range(4)]

# At the fork, a thread of librdkafka may hold a lock of AddressSanitizer's allocator (gcc 12). The
# child then waits forever, and the parent tries again. Without the sanitizer it tries only once.
TRIES = 10 if "libasan" in os.environ.get("LD_PRELOAD", "") else 1

def in_child(run):
    for _ in range(TRIES):
        child = os.fork()
        if child == 0:
            signal.alarm(5 if TRIES > 1 else 20)
            try:
                run()
            except BaseException as exception:
                print(repr(exception), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGALRM:
            break
    assert status == 0, status

def churn():
    # Reuse freed memory, so that a late write would damage these objects.
    return [bytes(size) for size in range(16, 2048, 16) for _ in range(50)]
"""

TAIL = """
# The parent's messages have not changed.
assert [message.headers() for message in messages] == [HEADERS] * 4
del messages
consumer.close()
producer.close()
"""

CHILDREN = {
    "the consumer goes first": """
def run():
    global consumer
    del consumer
    gc.collect()
    kept = churn()
    assert [message.headers() for message in messages] == [HEADERS] * 4
    messages.clear()
    kept += churn()
    gc.collect()
""",
    "the messages go first": """
def run():
    global consumer
    messages.clear()
    gc.collect()
    kept = churn()
    del consumer
    gc.collect()
    kept += churn()
""",
    "the consumer goes while messages stay": """
def run():
    global consumer
    del consumer
    gc.collect()
    kept = churn()
    messages.clear()
    gc.collect()
    kept += churn()
    assert all(not any(each) for each in kept)
""",
    "a cycle is collected": """
def run():
    global consumer
    consumer_and_messages = [consumer, messages[:]]
    consumer_and_messages.append(consumer_and_messages)
    messages.clear()
    del consumer, consumer_and_messages
    gc.collect()
    churn()
""",
    "the consumer is closed": """
def run():
    try:
        consumer.close()
    except RuntimeError:
        pass
    churn()
    assert [message.headers() for message in messages] == [HEADERS] * 4
""",
    "messages are pickled": """
def run():
    global consumer
    copies = pickle.loads(pickle.dumps(messages))
    del consumer
    assert copies == messages == pickle.loads(pickle.dumps(messages))
    assert [copy.headers() for copy in copies] == [HEADERS] * 4
""",
    "a grandchild reads": """
def run():
    global consumer
    def again():
        assert [message.headers() for message in messages] == [HEADERS] * 4
        messages.clear()
    in_child(again)
    del consumer
    in_child(again)
    assert [message.headers() for message in messages] == [HEADERS] * 4
""",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_child_may_use_messages_that_librdkafka_lent(
    run_script: Run, cluster: Any, topic: str, child: str
) -> None:
    source = HEAD + CHILDREN[child] + "in_child(run)\n" + TAIL

    done = run_script(source, cluster.bootstrap_servers, topic, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_child_and_parent_read_the_same_messages(
    run_script: Run, cluster: Any, topic: str
) -> None:
    source = (
        HEAD
        + """
import multiprocessing
context = multiprocessing.get_context("fork")

def answer(connection):
    connection.send([messages[-1], messages[-1].headers()])
    connection.close()

ours, theirs = context.Pipe()
worker = context.Process(target=answer, args=(theirs,))
worker.start()
theirs.close()
# Meanwhile the parent frees its own message and continues to read.
kept = messages.pop()
del kept
for _ in range(3):
    producer.produce(topic, b"more", partition=0)
    producer.flush(10)
    read(consumer)
message, headers = ours.recv()
worker.join(20)
assert worker.exitcode == 0
assert headers == message.headers() == HEADERS, headers
messages.append(message)
"""
        + TAIL
    )

    done = run_script(source, cluster.bootstrap_servers, topic, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("call", ["commit(asynchronous=False)", "watermarks([place])"])
def test_child_forked_in_a_signal_handler_leaves_the_blocked_call(
    run_script: Run, call: str
) -> None:
    done = run_script(
        f"""
import os, signal
from cykafka.error import ForkedError
from cykafka.testing import MockCluster
cluster = MockCluster()
cluster.create_topic("in", 1)
place = kafka.TopicPartition("in", 0, 0)
consumer = kafka.Consumer({{"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g",
                            "enable.auto.offset.store": False}})
consumer.assign([place])
consumer.committed([place], 20)
consumer.store_offsets(offsets=[kafka.TopicPartition("in", 0, 1)])
children = []

def fork(*_):
    child = os.fork()
    if child:
        children.append(child)
    else:
        signal.alarm(20)

signal.signal(signal.SIGALRM, fork)
cluster.set_rtt(1500)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    consumer.{call}
except ForkedError:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]), len(children))
cluster.set_rtt(0)
consumer.close()
cluster.close()
"""
    )
    assert (done.returncode, done.stdout) == (0, "0 1\n"), done.stderr
