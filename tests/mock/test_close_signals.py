"""Signal handlers during close(): they use the client, fork, exit, or raise.

librdkafka's threads end late here, because `oauth_cb` runs in one of them until `leave` is set.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from fixture_types import RunScript

pytestmark = pytest.mark.ours

SLOW = """
import logging, os, signal, sys, threading, time

calls, inside, leave = [], threading.Event(), threading.Event()

def token(config):
    calls.append(config)
    if len(calls) > 1:
        inside.set()
        assert leave.wait(20)
    return "token", time.time() + 2

config = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext",
          "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token, "log_level": 0}

def alarm(handler, seconds):
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
"""


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("Producer", "client.produce('t', b'x')"),
        ("Producer", "client.flush(0)"),
        ("Producer", "client.begin_transaction()"),
        ("Consumer", "client.poll(0)"),
        ("Consumer", "client.seek(kafka.TopicPartition('t', 0, 0))"),
        ("Consumer", "client.configuration()"),
        ("Consumer", "client.list_topics(timeout=1)"),
    ],
)
def test_signal_handler_may_use_a_client_whose_threads_end(
    run_script: RunScript, kind: str, call: str
) -> None:
    done = run_script(
        SLOW
        + f"""
def use(*_):
    try:
        {call}
    except RuntimeError as error:
        print(error)
    leave.set()

client = kafka.{kind}({{**config, "group.id": "g"}} if "{kind}" == "Consumer" else config)
inside.wait()
alarm(use, 0.5)
client.close()
print("closed")
"""
    )

    found, closed = lines(done)
    assert "closed" in found.split(":")[0]
    assert closed == "closed"


FORK = """
def fork(*_):
    global child
    child = os.fork()

child = None
"""


@pytest.mark.parametrize(
    "wait",
    [
        # The end of librdkafka's threads.
        """
client = kafka.Producer(config)
inside.wait()
call = client.close
""",
        # The end of a call in another thread.
        """
callback = threading.Event()
from cykafka.testing import MockCluster
cluster = MockCluster()
cluster.create_topic("t", 1)
client = kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
client.subscribe(["t"], on_assign=lambda *_: (callback.set(), leave.wait(20)))
def poll():
    try:
        client.poll(20)
    except RuntimeError:
        pass
threading.Thread(target=poll, daemon=True).start()
callback.wait()
call = client.close
""",
        # The end of a callback in another thread.
        """
client = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 100,
                         "log_level": 0})
callback = threading.Event()
client.produce("t", b"x", on_delivery=lambda *_: (callback.set(), leave.wait(20)))
def poll():
    while not callback.is_set():
        client.poll(1)
threading.Thread(target=poll, daemon=True).start()
callback.wait()
client.produce("t", b"x")
call = client.flush
""",
    ],
    ids=["threads", "call", "callback"],
)
def test_signal_handler_may_fork_while_the_client_waits(run_script: RunScript, wait: str) -> None:
    done = run_script(
        SLOW
        + FORK
        + wait
        + """
alarm(fork, 0.5)
threading.Timer(1.5, leave.set).start()
try:
    call()
except RuntimeError as error:
    assert child == 0 and "fork" in str(error), error
if child == 0:
    os._exit(7)
deadline = time.monotonic() + 10
ended, status = 0, 0
while not ended and time.monotonic() < deadline:
    ended, status = os.waitpid(child, os.WNOHANG)
    time.sleep(0.05)
if not ended:
    os.kill(child, signal.SIGKILL)
print(ended == child and os.waitstatus_to_exitcode(status))
"""
    )

    assert lines(done) == ["7"]


def test_interrupt_after_the_last_record_loses_no_exception(run_script: RunScript) -> None:
    done = run_script(
        SLOW
        + """
def refuse(error, message):
    alarm(signal.default_int_handler, 1)
    raise LookupError("of a callback")

producer = kafka.Producer(config)
inside.wait()
producer.produce("t", b"x", on_delivery=refuse)
producer.purge()
try:
    producer.close()
except KeyboardInterrupt as interrupt:
    print(repr(interrupt.__context__), "closed" in repr(producer))
leave.set()
"""
    )

    assert lines(done) == ["LookupError('of a callback') True"]


def test_signal_handler_that_exits_ends_the_close_of_a_producer(run_script: RunScript) -> None:
    done = run_script(
        """
import signal, sys, time
signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))
producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0,
                           "message.timeout.ms": 20_000})
producer.produce("t", b"x")
signal.setitimer(signal.ITIMER_REAL, 0.5)
begun = time.monotonic()
try:
    producer.close()
except SystemExit:
    print(time.monotonic() - begun < 5, "open" in repr(producer))
    producer.purge()
    producer.close()
"""
    )

    assert lines(done) == ["True True"]


@pytest.mark.parametrize("what", ["ValueError", "KeyboardInterrupt"])
def test_logger_that_raises_does_not_leave_a_producer_closing(
    run_script: RunScript, what: str
) -> None:
    done = run_script(
        f"""
import logging, threading, time

def refuse(record):
    closing.set()
    time.sleep(0.2)  # the other thread waits
    raise {what}

closing = threading.Event()
logging.getLogger("cykafka").addFilter(refuse)
producer = kafka.Producer({{"bootstrap.servers": "127.0.0.1:1", "log_level": 0,
                           "message.timeout.ms": 200}})
producer.produce("t", b"x")
another = threading.Thread(target=lambda: (closing.wait(), producer.close()), daemon=True)
another.start()
try:
    producer.close()
except {what}:
    print(producer)
another.join(5)
print(another.is_alive())
"""
    )

    found, waits = lines(done)
    assert found.endswith("closed>")
    assert waits == "False"


def test_signal_handler_may_close_during_configuration(run_script: RunScript) -> None:
    done = run_script(
        """
import signal

def close(number, frame):
    if frame.f_code.co_filename.endswith("re/__init__.py"):  # configuration() uses it
        signal.setitimer(signal.ITIMER_REAL, 0)
        producer.close()

producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
signal.signal(signal.SIGALRM, close)
signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)
try:
    while True:
        producer.configuration()
except RuntimeError as error:
    print(error)
"""
    )

    (found,) = lines(done)
    assert found.startswith("Producer has been closed")


def test_main_thread_gets_no_system_exit_from_a_client_closed_at_exit() -> None:
    source = """
import atexit, threading

@atexit.register
def last():  # runs after the package's exit handlers
    try:
        producer.flush(1)
    except RuntimeError as error:
        print(error)

import cykafka
producer = cykafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
closer = threading.Thread(target=producer.close)
closer.start()
closer.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )

    (found,) = lines(done)
    assert found.startswith("Producer has been closed")
