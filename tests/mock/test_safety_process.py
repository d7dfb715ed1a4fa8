"""Safety tests in their own processes: memory, fork, interpreter exit."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

pytestmark = pytest.mark.ours

Run = Callable[..., CompletedProcess[str]]


def assert_clean(done: CompletedProcess[str]) -> None:
    """Check exit status and standard error, where sanitizers and faulthandler write."""
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.process_memory
def test_thousand_open_and_close_cycles_do_not_grow_the_process(
    run_script: Run, cluster: Any
) -> None:
    done = run_script(
        """
        import gc, os, sys, time
        from cykafka.testing import live_handles

        config = {
            "bootstrap.servers": sys.argv[1], "group.id": "cycles", "log_level": 0,
            "stats_cb": print, "error_cb": print,
        }

        def cycle():
            producer = kafka.Producer(config | {"on_delivery": print})
            consumer = kafka.Consumer(config | {"on_commit": print})
            consumer.assign([kafka.TopicPartition("cycles", 0)])
            producer.close()
            consumer.close()

        def resident_kb():
            gc.collect()
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

        # Pools and arenas fill up first. After that a leak shows as steady growth.
        for _ in range(200):
            cycle()
        before = resident_kb()
        threads = len(os.listdir("/proc/self/task"))
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(1000):
            cycle()
        grown = resident_kb() - before
        assert not any(live_handles().values()), live_handles()
        # The thread that destroyed the last client may still be ending.
        deadline = time.monotonic() + 30
        while len(os.listdir("/proc/self/task")) > threads:
            assert time.monotonic() < deadline, os.listdir("/proc/self/task")
            time.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        # 1 kB a cycle would be 1,000 kB.
        assert grown < 1500, f"{grown} kB in 1,000 cycles"
        """,
        cluster.bootstrap_servers,
        timeout=180,
    )

    assert_clean(done)


@pytest.mark.process_memory
def test_messages_produced_and_read_do_not_grow_the_process(
    run_script: Run, cluster: Any, topic: str
) -> None:
    done = run_script(
        """
        import gc, os, sys
        servers, topic = sys.argv[1:]
        seen = []
        producer = kafka.Producer(
            {"bootstrap.servers": servers, "queue.buffering.max.messages": 1000}
        )
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "growth",
                                   "fetch.wait.max.ms": 20,
                                   "auto.offset.reset": "earliest"})
        consumer.assign([kafka.TopicPartition(topic, 0)])

        def round_trip(count):
            for number in range(count):
                producer.produce(topic, b"v" * 100, b"key", partition=0, timeout=10,
                                 headers=[("name", b"value")],
                                 on_delivery=lambda error, message: message.headers())
            producer.flush(10)
            left = count
            while left:
                messages = consumer.consume(min(left, 100), timeout=5)
                assert messages, "lost"
                left -= len(messages)
                for message in messages:
                    message.value(), message.key(), message.headers(), message.timestamp()

        def resident_kb():
            gc.collect()
            with open("/proc/self/statm") as statm:
                return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

        for _ in range(10):
            round_trip(1000)
        before = resident_kb()
        for _ in range(20):
            round_trip(1000)
        grown = resident_kb() - before
        producer.close()
        consumer.close()
        # A leak of one value of 100 bytes a message would be 2,000 kB.
        assert grown < 1500, f"{grown} kB in 20,000 messages"
        """,
        cluster.bootstrap_servers,
        topic,
        timeout=120,
    )

    assert_clean(done)


FORK = """
import os, signal, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
servers, topic = sys.argv[1:]
producer = kafka.Producer({"bootstrap.servers": servers})
consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "fork"})
consumer.assign([kafka.TopicPartition(topic, 0)])
# Connect first: a thread inside getaddrinfo or OpenSSL at the fork leaves their locks held in
# the child, and our code cannot free them.
producer.produce(topic, b"first")
producer.flush(10)
consumer.committed([kafka.TopicPartition(topic, 0)], timeout=10)
producer.produce(topic, b"before")
child = os.fork()
if child == 0:
    signal.alarm(15)
    %s
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
producer.produce(topic, b"after")
assert producer.flush(10) == 0
consumer.poll(0)
producer.close()
consumer.close()
"""

FORK_CHILDREN = {
    "calls are refused": """
    calls = [
        lambda: producer.produce(topic, b"x"), lambda: producer.poll(0),
        lambda: producer.flush(0), lambda: consumer.poll(0),
        lambda: consumer.consume(1, timeout=0), lambda: consumer.commit(),
        lambda: consumer.assignment(), lambda: producer.list_topics(timeout=1),
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except RuntimeError as error:
            if "fork" in str(error):
                continue
        os._exit(number + 1)
    os._exit(0)
""",
    "exits cleanly": """
    sys.exit(0)
""",
    "deletes and closes": """
    import contextlib
    for client in (producer, consumer):
        with contextlib.suppress(RuntimeError):
            client.close()
    del producer, consumer, client
    sys.exit(0)
""",
}


@pytest.mark.parametrize("child", FORK_CHILDREN)
def test_forked_child(run_script: Run, cluster: Any, topic: str, child: str) -> None:
    done = run_script(
        FORK % FORK_CHILDREN[child].strip(), cluster.bootstrap_servers, topic, timeout=60
    )

    assert_clean(done)


def test_child_forked_before_the_first_client_makes_its_own(
    run_script: Run, cluster: Any, topic: str
) -> None:
    # A later fork may hang in OpenSSL or the resolver, whose locks librdkafka's threads may hold.
    done = run_script(
        """
        import os, signal, sys
        servers, topic = sys.argv[1:]

        def deliver():
            own = kafka.Producer({"bootstrap.servers": servers})
            own.produce(topic, b"x")
            left = own.flush(10)
            own.close()
            return left

        child = os.fork()
        if child == 0:
            signal.alarm(15)
            os._exit(deliver())
        assert deliver() == 0
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        """,
        cluster.bootstrap_servers,
        topic,
        timeout=60,
    )

    assert_clean(done)


# Some of these leave handles open on purpose; their warnings do not matter here.
ENDINGS = {
    "open handles": "",
    "open handles in a cycle": """
        class Owner:
            def report(self, *_): pass
        owner = Owner()
        owner.clients = producer, consumer
        owner.third = kafka.Producer(
            {"bootstrap.servers": servers, "on_delivery": owner.report}
        )
    """,
    "messages alive": """
        fixed = []
        producer.produce(topic, b"x", partition=0)
        producer.flush(10)
        while not fixed:
            fixed = consumer.consume(1, timeout=5)
    """,
    "messages queued": """
        for _ in range(100):
            producer.produce(topic, b"x", on_delivery=lambda *report: None)
    """,
    "daemon threads polling": """
        import threading, time
        def forever(call):
            while True:
                call()
        calls = [lambda: producer.poll(0.05), lambda: consumer.poll(0.05),
                 lambda: consumer.consume(10, 0.05), lambda: producer.flush(0.05)]
        for call in calls:
            threading.Thread(target=forever, args=(call,), daemon=True).start()
        time.sleep(0.2)  # until they wait; no event signals that
    """,
    "daemon thread in an endless poll": """
        import threading, time
        threading.Thread(target=consumer.poll, daemon=True).start()
        threading.Thread(target=producer.poll, args=(1000,), daemon=True).start()
        time.sleep(0.2)  # until they wait; no event signals that
    """,
    "callbacks due": """
        third = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "error_cb": print,
                                "statistics.interval.ms": 1, "stats_cb": print})
        import time
        time.sleep(0.1)  # until statistics are due; no call serves them
    """,
    "close at exit": """
        import atexit
        atexit.register(producer.close)
        atexit.register(consumer.close)
    """,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_interpreter_ends_cleanly_with(
    run_script: Run, cluster: Any, topic: str, ending: str
) -> None:
    head = """
        import sys, warnings
        warnings.simplefilter("ignore", ResourceWarning)
        servers, topic = sys.argv[1:]
        producer = kafka.Producer({"bootstrap.servers": servers})
        consumer = kafka.Consumer({"bootstrap.servers": servers, "group.id": "ending",
                                   "auto.offset.reset": "earliest"})
        consumer.assign([kafka.TopicPartition(topic, 0)])
    """
    source = textwrap.dedent(head) + textwrap.dedent(ENDINGS[ending])

    done = run_script(source, cluster.bootstrap_servers, topic, timeout=30)

    assert done.returncode == 0, done.stderr
    assert "Fatal Python error" not in done.stderr
    assert "Traceback" not in done.stderr


SUBINTERPRETER = """
import {interpreters} as interpreters
first, code = {first!r}, {code!r}
if first == "main":
    import cykafka._core.mock
one = interpreters.create()
interpreters.run_string(one, code)
interpreters.destroy(one)
if first == "sub":
    try:
        import cykafka
    except ImportError as error:
        print("refused", error)
"""
IN_SUBINTERPRETER = """
import importlib, importlib.util, pathlib
package = pathlib.Path(importlib.util.find_spec("cykafka").submodule_search_locations[0])
for path in sorted(package.rglob("*.cpython-*.so")):
    name = ".".join(path.relative_to(package.parent).parts).split(".cpython-")[0]
    try:
        importlib.import_module(name)
        print("imported", name)
    except ImportError as error:
        print("refused", name, error)
"""


@pytest.mark.parametrize("first", ["main", "sub"])
def test_second_interpreter_of_a_process_is_refused_the_import(first: str) -> None:
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    script = SUBINTERPRETER.format(interpreters=name, first=first, code=IN_SUBINTERPRETER)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )

    assert_clean(done)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("refused")], done.stdout
    if first == "main":
        assert not [line for line in lines if line.startswith("imported")], done.stdout


FORKS = """
import os, random, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads
servers, topic = sys.argv[1:]
reports, over = [], threading.Event()
producer = kafka.Producer({
    "bootstrap.servers": servers, "linger.ms": 1, "statistics.interval.ms": 20,
    "stats_cb": lambda json: None, "on_delivery": lambda error, message: reports.append(error),
})
consumer = kafka.Consumer({
    "bootstrap.servers": servers, "group.id": "forks", "fetch.wait.max.ms": 20,
    "enable.auto.commit": False,
})
partition = kafka.TopicPartition(topic, 0, 0)
consumer.assign([partition])
# Connect first, as above.
producer.produce(topic, b"first", partition=0)
producer.flush(10)
consumer.committed([partition], timeout=10)
queued = 1

def produce():
    global queued
    producer.produce(topic, b"value", partition=0)
    queued += 1
    over.wait(0.001)

def loop(step):
    while not over.is_set():
        step()

threads = [threading.Thread(target=loop, args=(step,)) for step in (
    produce, lambda: producer.poll(0.01), lambda: producer.flush(0.01),
    lambda: consumer.poll(0.01), lambda: consumer.consume(10, 0.01),
    lambda: producer.list_topics(timeout=10),
)]
calls = [
    lambda: producer.produce(topic), lambda: producer.poll(1), lambda: producer.flush(1),
    lambda: producer.list_topics(timeout=1), lambda: consumer.poll(1),
    lambda: consumer.consume(1, 1), lambda: consumer.commit(asynchronous=False),
    lambda: consumer.commit(), lambda: consumer.seek(partition), lambda: consumer.assignment(),
    lambda: consumer.committed([partition], 1),
]

def in_child():
    signal.alarm(15)
    for call in calls:
        try:
            call()
        except RuntimeError as error:
            assert "fork" in str(error), error
        else:
            os._exit(1)
    producer.close()
    consumer.close()

for thread in threads:
    thread.start()
for number in range(20):
    time.sleep(random.random() * 0.02)
    child = os.fork()
    if child == 0:
        in_child()
        sys.exit(0) if number % 2 else os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        break
over.set()
for thread in threads:
    thread.join(10)
assert status == 0, os.waitstatus_to_exitcode(status)
assert producer.flush(10) == 0
assert reports == [None] * queued
producer.close()
consumer.close()
"""


def test_fork_at_any_moment_while_threads_are_in_calls(
    run_script: Run, cluster: Any, topic: str
) -> None:
    assert_clean(run_script(FORKS, cluster.bootstrap_servers, topic, timeout=120))
