"""Requests that brokers do not answer: Ctrl-C and close() end the wait at once."""

from __future__ import annotations

import gc
import signal
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from fixture_types import MakeConsumer, RunScript, Unique, WaitUntil
from live import live_before
from machine import WAIT_S, wake_up_s

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

# The documented bound, and the limit for one call on a busy machine.
PROMISED_S = 0.2
BOUND_S = 2.0
# The round-trip time of a slow broker. A call without interrupt lasts this long.
SLOW_S = 5.0
# The timeout of a request. librdkafka may continue a request this long after its consumer left the
# group.
TIMEOUT_S = 8.0

QUESTIONS: dict[str, Callable[[ModuleType, Any, str], Any]] = {
    "list_topics": lambda kafka, client, topic: client.list_topics(timeout=TIMEOUT_S),
    "list_topics of one": lambda kafka, client, topic: client.list_topics(topic, TIMEOUT_S),
    "committed": lambda kafka, client, topic: client.committed(
        [kafka.TopicPartition(topic, 0)], TIMEOUT_S
    ),
    "offsets_for_times": lambda kafka, client, topic: client.offsets_for_times(
        [kafka.TopicPartition(topic, 0, -1)], TIMEOUT_S
    ),
    "get_watermark_offsets": lambda kafka, client, topic: client.get_watermark_offsets(
        kafka.TopicPartition(topic, 0), TIMEOUT_S
    ),
}
# After the first answer, the client returns this from memory.
EARLY = {"cluster_id": lambda kafka, client, topic: client.cluster_id(TIMEOUT_S), **QUESTIONS}


def await_questions(before: dict[str, int]) -> None:
    """Wait for abandoned requests, which continue until the brokers answer and are then freed."""
    from cykafka.testing import live_handles

    deadline = time.monotonic() + TIMEOUT_S + SLOW_S + WAIT_S
    while live_handles() != before:
        assert time.monotonic() < deadline, (live_handles(), before)
        gc.collect()  # frees the threads of the requests, and their exceptions
        time.sleep(0.05)


@pytest.fixture
def slow() -> Iterator[MockCluster]:

    with MockCluster() as cluster:
        before = live_before()
        yield cluster
        await_questions(before)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a broker that accepts connections and never answers."""

    before = live_before()
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"
        await_questions(before)


def new_consumer(kafka: ModuleType, servers: str) -> Any:
    return kafka.Consumer({"bootstrap.servers": servers, "group.id": "giving", "log_level": 0})


def known(kafka: ModuleType, cluster: MockCluster, unique: Unique) -> tuple[Any, str]:
    """A consumer that knows the cluster, its coordinator and a topic's leaders."""
    topic = unique("topic")
    cluster.create_topic(topic, 1)
    consumer = new_consumer(kafka, cluster.bootstrap_servers)
    for ask in QUESTIONS.values():
        ask(kafka, consumer, topic)
    return consumer, topic


class Asking(threading.Thread):
    """Makes a request, and records its outcome and its time."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.ask = ask
        self.outcome: Any = None
        self.ended = 0.0

    def run(self) -> None:
        try:
            self.outcome = self.ask()
        except BaseException as exception:
            self.outcome = exception
        self.ended = time.monotonic()


def closed_while_asking(
    kafka: ModuleType, client: Any, ask: Callable[..., Any], topic: str
) -> tuple[float, float]:
    """Return the time that close() took, and the time from it to the end of the request."""
    asking = Asking(lambda: ask(kafka, client, topic))
    asking.start()
    asking.join(0.2)
    assert asking.is_alive(), asking.outcome
    start = time.monotonic()
    client.close()
    took = time.monotonic() - start
    asking.join(WAIT_S)
    assert isinstance(asking.outcome, RuntimeError), asking.outcome
    assert "clos" in str(asking.outcome)
    return took, asking.ended - start


@pytest.mark.parametrize("question", EARLY)
def test_close_does_not_wait_for_a_request_to_a_silent_broker(
    kafka: ModuleType, silent: str, unique: Unique, question: str
) -> None:
    measured = [
        closed_while_asking(kafka, new_consumer(kafka, silent), EARLY[question], unique("topic"))
        for _ in range(3)
    ]

    assert max(max(pair) for pair in measured) < BOUND_S
    assert statistics.median(max(pair) for pair in measured) < PROMISED_S + 0.1 + 4 * wake_up_s()


@pytest.mark.filterwarnings("ignore:list_groups:DeprecationWarning")
def test_close_does_not_wait_for_the_list_of_groups(kafka: ModuleType, silent: str) -> None:
    from cykafka.admin import AdminClient

    measured = [
        closed_while_asking(
            kafka,
            AdminClient({"bootstrap.servers": silent, "log_level": 0}),
            lambda kafka, client, topic: client.list_groups(timeout=TIMEOUT_S),
            "",
        )
        for _ in range(3)
    ]

    assert max(max(pair) for pair in measured) < BOUND_S


@pytest.mark.parametrize("question", QUESTIONS)
def test_close_does_not_wait_for_a_request_to_a_slow_broker(
    kafka: ModuleType, slow: MockCluster, unique: Unique, question: str
) -> None:
    consumer, topic = known(kafka, slow, unique)
    slow.set_rtt(int(SLOW_S * 1000))

    took, ended = closed_while_asking(kafka, consumer, QUESTIONS[question], topic)

    assert max(took, ended) < BOUND_S


@pytest.mark.parametrize("question", QUESTIONS)
def test_close_does_not_wait_for_a_request_to_a_broker_that_is_down(
    kafka: ModuleType, slow: MockCluster, unique: Unique, question: str
) -> None:
    consumer, topic = known(kafka, slow, unique)
    slow.broker_down()

    def ask(kafka: ModuleType, client: Any, topic: str) -> Any:
        # The timeout equals the delay of this test's brokers, so abandoned requests end by then.
        if question == "get_watermark_offsets":
            return client.get_watermark_offsets(kafka.TopicPartition(topic + "x", 0), SLOW_S)
        if question == "offsets_for_times":
            return client.offsets_for_times([kafka.TopicPartition(topic + "x", 0, 1)], SLOW_S)
        if question == "committed":
            return client.committed([kafka.TopicPartition(topic, 0)], SLOW_S)
        return client.list_topics(timeout=SLOW_S)

    took, ended = closed_while_asking(kafka, consumer, ask, topic)

    assert max(took, ended) < BOUND_S


@pytest.mark.parametrize("question", QUESTIONS)
def test_slow_answer_within_the_timeout_is_returned(
    kafka: ModuleType, slow: MockCluster, unique: Unique, question: str
) -> None:
    consumer, topic = known(kafka, slow, unique)
    quick = QUESTIONS[question](kafka, consumer, topic)
    slow.set_rtt(1200)
    start = time.monotonic()

    answer = QUESTIONS[question](kafka, consumer, topic)

    assert time.monotonic() - start >= 1.2
    if "list_topics" in question:
        assert list(answer.topics) == list(quick.topics)
        assert (answer.cluster_id, answer.controller_id) == (quick.cluster_id, quick.controller_id)
    else:
        assert answer == quick
    slow.set_rtt(0)
    consumer.close()


@pytest.mark.parametrize("question", EARLY)
def test_request_lasts_as_long_as_its_timeout(
    kafka: ModuleType, silent: str, question: str
) -> None:
    consumer = new_consumer(kafka, silent)
    codes = {
        "cluster_id": [kafka.KafkaError._TIMED_OUT],
        "list_topics": [kafka.KafkaError._TRANSPORT],
        "committed": [kafka.KafkaError._TIMED_OUT],
        "offsets_for_times": [
            kafka.KafkaError._ALL_BROKERS_DOWN,
            kafka.KafkaError._TIMED_OUT,
        ],
    }
    asks: dict[str, Callable[[float], Any]] = {
        "cluster_id": consumer.cluster_id,
        "list_topics": lambda timeout: consumer.list_topics(timeout=timeout),
        "list_topics of one": lambda timeout: consumer.list_topics("t", timeout),
        "committed": lambda timeout: consumer.committed([kafka.TopicPartition("t", 0)], timeout),
        "offsets_for_times": lambda timeout: consumer.offsets_for_times(
            [kafka.TopicPartition("t", 0, 1)], timeout
        ),
        "get_watermark_offsets": lambda timeout: consumer.get_watermark_offsets(
            kafka.TopicPartition("t", 0), timeout
        ),
    }
    for timeout in (0, 0.35):
        start = time.monotonic()
        with pytest.raises(kafka.KafkaException) as caught:
            asks[question](timeout)
        took = time.monotonic() - start
        assert timeout - 0.01 <= took < timeout + BOUND_S
        name = {"list_topics of one": "list_topics", "get_watermark_offsets": "offsets_for_times"}
        assert caught.value.args[0].code() in codes[name.get(question, question)]
    consumer.close()


def test_signal_handler_that_closes_ends_the_request(kafka: ModuleType, silent: str) -> None:
    consumer = new_consumer(kafka, silent)

    def handle(*_: Any) -> None:
        consumer.close()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="closed"):
            consumer.list_topics(timeout=TIMEOUT_S)
        assert time.monotonic() - start < 0.3 + BOUND_S
    finally:
        signal.signal(signal.SIGALRM, before)


def test_signal_handler_that_closes_ends_the_request_to_a_slow_broker(
    kafka: ModuleType, slow: MockCluster, unique: Unique
) -> None:
    consumer, topic = known(kafka, slow, unique)
    slow.set_rtt(int(SLOW_S * 1000))

    def handle(*_: Any) -> None:
        consumer.close()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="closed"):
            consumer.committed([kafka.TopicPartition(topic, 0)], TIMEOUT_S)
        assert time.monotonic() - start < 0.3 + BOUND_S
    finally:
        signal.signal(signal.SIGALRM, before)


def test_requests_work_in_rebalance_callbacks(
    kafka: ModuleType, make_consumer: MakeConsumer, topic: str, wait_until: WaitUntil
) -> None:
    answers: dict[str, Any] = {}

    def asked(consumer: Any, _: list[Any]) -> None:
        for name, ask in EARLY.items():
            answers[name] = ask(kafka, consumer, topic)

    consumer = make_consumer()
    consumer.subscribe([topic], on_assign=asked, on_revoke=asked)
    wait_until(lambda: answers, lambda: consumer.poll(0.1))
    assert answers["committed"][0].offset == kafka.OFFSET_INVALID
    answers.clear()
    consumer.unsubscribe()
    wait_until(lambda: answers, lambda: consumer.poll(0.1))

    assert set(answers) == set(EARLY)


SCRIPT = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
from cykafka.testing import MockCluster
cluster = MockCluster()
cluster.create_topic("topic", 1)
tps = [kafka.TopicPartition("topic", 0, 1)]
consumer = kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g",
                           "log_level": 0})
asks = {
    "list_topics": lambda: consumer.list_topics(timeout=30),
    "committed": lambda: consumer.committed(tps, 30),
    "offsets_for_times": lambda: consumer.offsets_for_times(
        [kafka.TopicPartition("topic", 0, -1)], 30),
    "get_watermark_offsets": lambda: consumer.get_watermark_offsets(tps[0], 30),
}
for ask in asks.values():
    ask()
cluster.set_rtt(int(1000 * %r))
for _ in range(3):
    print("waiting", flush=True)
    try:
        asks[sys.argv[1]]()
        print("returned", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
cluster.set_rtt(0)
%s
print("over", flush=True)
"""


@pytest.mark.parametrize("end", ["consumer.close()", ""])
@pytest.mark.parametrize(
    "question", ["list_topics", "committed", "offsets_for_times", "get_watermark_offsets"]
)
def test_interrupt_ends_a_request_to_a_slow_broker(
    script_command: Callable[..., list[str]], question: str, end: str
) -> None:
    command = script_command(SCRIPT % (SLOW_S, end), question)
    took = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            for _ in range(3):
                assert process.stdout.readline() == "waiting\n"
                # The script prints before the call, so wait until it is inside.
                time.sleep(0.3)
                start = time.monotonic()
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
                took.append(time.monotonic() - start)
            assert process.stdout.readline() == "over\n"
            _, errors = process.communicate(timeout=WAIT_S + SLOW_S)
            assert (process.returncode, errors) == (0, "")
        finally:
            process.kill()
    assert max(took) < BOUND_S
    assert statistics.median(took) < PROMISED_S + 0.1 + 4 * wake_up_s()


TRANSACTION = """
import os, signal, sys, threading, time
servers, topic = sys.argv[1:]
from cykafka.testing import MockCluster
cluster = MockCluster()
cluster.create_topic("topic", 1)
offsets = [kafka.TopicPartition("topic", 0, 7)]
producer = kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers,
                           "transactional.id": "t"})
producer.init_transactions(10)
consumer = kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g",
                           "enable.auto.commit": False})

def begin_and_interrupt(times=1):
    producer.begin_transaction()
    producer.produce("topic", b"x", partition=0)
    assert producer.flush(10) == 0
    cluster.set_rtt(1500)
    for _ in range(times):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        try:
            producer.send_offsets_to_transaction(offsets, "g", 30)
            raise SystemExit("not interrupted")
        except KeyboardInterrupt:
            assert time.monotonic() - start < 1.2, time.monotonic() - start
    cluster.set_rtt(0)
"""


@pytest.mark.parametrize(
    "rest",
    [
        # The program repeats the call, then commits as usual.
        """
begin_and_interrupt()
offsets[0].offset = 8
producer.send_offsets_to_transaction(offsets, "g", 20)
producer.commit_transaction(20)
""",
        # The program commits: the interrupted call has still succeeded.
        """
begin_and_interrupt()
producer.commit_transaction(20)
""",
        # The program aborts.
        """
begin_and_interrupt()
producer.abort_transaction(20)
producer.begin_transaction()
producer.send_offsets_to_transaction(offsets, "g", 20)
producer.commit_transaction(20)
""",
        """
begin_and_interrupt()
""",
        # The second call is interrupted too, while it waits for the end of the first one.
        """
begin_and_interrupt(2)
producer.commit_transaction(20)
""",
    ],
    ids=["repeated", "committed", "aborted", "closed", "interrupted-again"],
)
def test_interrupted_offsets_of_a_transaction(
    run_script: RunScript, cluster: Any, topic: str, rest: str
) -> None:
    end = """
producer.close()
consumer.close()
cluster.close()
from cykafka.testing import live_handles
deadline = time.monotonic() + 10
del producer
while any(live_handles().values()):
    assert time.monotonic() < deadline, live_handles()
"""

    done = run_script(TRANSACTION + rest + end, cluster.bootstrap_servers, topic, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")


def test_close_ends_send_offsets_to_transaction(kafka: ModuleType, slow: MockCluster) -> None:
    slow.create_topic("topic", 1)
    producer = kafka.Producer(
        {"bootstrap.servers": slow.bootstrap_servers, "transactional.id": "t"}
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("topic", b"x")
    assert producer.flush(WAIT_S) == 0
    slow.set_rtt(1500)
    asking = Asking(
        lambda: producer.send_offsets_to_transaction(
            [kafka.TopicPartition("topic", 0, 7)], "g", 30
        )
    )
    asking.start()
    asking.join(0.2)
    assert asking.is_alive()
    start = time.monotonic()
    closing = threading.Thread(target=producer.close)
    closing.start()
    asking.join(WAIT_S)

    assert isinstance(asking.outcome, RuntimeError)
    assert asking.ended - start < 1.2
    slow.set_rtt(0)
    closing.join(WAIT_S + SLOW_S)
    assert not closing.is_alive()
