"""`close()`: the end of the client's threads, and exceptions while it waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, WaitUntil
from live import live_before
from machine import WAIT_S

from cykafka.testing import MockCluster

pytestmark = pytest.mark.ours

# The documented bound is the timeout plus 0.2 s. The rest is for a busy machine.
BOUND_S = 5.0

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 200,
    },
    "kip-848": {"group.protocol": "consumer"},
}


@pytest.fixture
def none_left(kafka: Any, cluster: Any, wait_until: WaitUntil) -> Iterator[Callable[[], None]]:
    """Wait until the test's clients are destroyed and their threads have ended."""
    from cykafka.testing import live_handles

    def left() -> tuple[int, int]:
        return live_handles()["handles"], len(os.listdir("/proc/self/task"))

    handles, threads = left()

    def wait() -> None:
        wait_until(
            lambda: left()[0] <= handles and left()[1] <= threads,
            timeout=WAIT_S,
        )

    yield wait
    wait()


@pytest.fixture
def assigned(make_consumer: MakeConsumer, topic: str, wait_until: WaitUntil) -> Callable[..., Any]:
    """Make a consumer that has the topic assigned."""

    def make(config: dict[str, Any] | None = None, **callbacks: Any) -> Any:
        consumer = make_consumer(config)
        consumer.subscribe([topic], **callbacks)
        wait_until(consumer.assignment, lambda: consumer.poll(0.05))
        return consumer

    return make


@pytest.fixture
def stranded(
    kafka: Any, mock_cluster: MockCluster, make_consumer: MakeConsumer
) -> Callable[..., Any]:
    """Make a consumer with a pending commit and dead brokers, so that closing takes 45 s."""

    def make(**callbacks: Any) -> Any:
        mock_cluster.create_topic("t", 1)
        servers = {"bootstrap.servers": mock_cluster.bootstrap_servers, "log_level": 0}
        with kafka.Producer(servers) as producer:
            producer.produce("t", b"x", partition=0)
        consumer = make_consumer({**servers, "enable.auto.commit": True})
        consumer.subscribe(["t"], **callbacks)
        assert consumer.poll(WAIT_S).value() == b"x"
        mock_cluster.broker_down()
        consumer.commit(asynchronous=True)
        return consumer

    yield make
    mock_cluster.broker_up()


SUBSCRIBE_AT_THE_END = """
import json, sys
from cykafka import Consumer, KafkaException

config, topic, when = json.loads(sys.argv[1]), *sys.argv[2:]
is_closing = False


def on_revoke(consumer, partitions):
    if is_closing and when != "before":
        if when == "after unsubscribe":
            consumer.unsubscribe()
        try:
            consumer.subscribe([topic], on_revoke=on_revoke)
        except KafkaException as error:
            print(error.args[0].name(), flush=True)


consumer = Consumer(config)
consumer.subscribe([topic], on_revoke=on_revoke)
while not consumer.assignment():
    consumer.poll(0.1)
if when == "before":
    consumer.unsubscribe()
    consumer.subscribe([topic])
is_closing = True
assert consumer.close() is not False
print("closed", flush=True)
"""


@pytest.fixture
def close_after_subscribe(cluster: Any, topic: str) -> Callable[[str, str], str]:
    """Close a consumer whose last call or last callback subscribes; return what it prints."""

    def close(protocol: str, when: str) -> str:
        config = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "log_level": 0,
        }
        config |= PROTOCOLS[protocol]
        done = subprocess.run(
            [sys.executable, "-c", SUBSCRIBE_AT_THE_END, json.dumps(config), topic, when],
            capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return close


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_ends_with_a_subscription_that_waits(
    close_after_subscribe: Callable[[str, str], str], protocol: str
) -> None:
    """The subscription waits for the partitions of the former one to be revoked."""
    assert close_after_subscribe(protocol, "before") == "closed\n"


@pytest.mark.parametrize("when", ["after unsubscribe", "alone"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_callback_of_close_cannot_subscribe(
    close_after_subscribe: Callable[[str, str], str], protocol: str, when: str
) -> None:
    assert close_after_subscribe(protocol, when) == "_DESTROY\nclosed\n"


@pytest.mark.parametrize(
    ("protocol", "change"),
    [("cooperative-sticky", "removed"), ("cooperative-sticky", "added"), ("range", "assigned")],
)
def test_close_ends_if_the_application_has_changed_the_assignment(
    kafka: Any, assigned: Callable[..., Any], topic: str, wait_until: WaitUntil,
    protocol: str, change: str,
) -> None:  # fmt: skip
    """librdkafka's group waits forever for an unassign() that succeeds."""
    revoked: list[Any] = []

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        revoked.extend(partitions)
        if change == "assigned":
            consumer.assign([kafka.TopicPartition(topic, 0)])

    consumer = assigned({"partition.assignment.strategy": protocol}, on_revoke=on_revoke)
    if change == "removed":
        consumer.incremental_unassign(consumer.assignment()[:1])
    elif change == "added":
        consumer.incremental_assign([kafka.TopicPartition(topic + "-2", 0)])
    consumer.unsubscribe()
    wait_until(lambda: revoked, lambda: consumer.poll(0.05))

    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < WAIT_S / 2


def test_callback_of_close_cannot_commit_after_the_group_has_ended(
    kafka: Any, assigned: Callable[..., Any], topic: str
) -> None:
    """The group would never answer."""
    outcomes: list[str] = []
    is_closing = threading.Event()

    def on_stats(_: str) -> None:
        if is_closing.is_set():
            try:
                consumer.commit(offsets=[kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
                outcomes.append("committed")
            except (RuntimeError, kafka.KafkaException) as error:
                outcomes.append(" ".join([str(error), *getattr(error, "__notes__", ())]))

    deadline = time.monotonic() + WAIT_S
    while not any("its group has ended" in text for text in outcomes):
        assert time.monotonic() < deadline, outcomes
        is_closing.clear()
        consumer = assigned({"statistics.interval.ms": 1, "stats_cb": on_stats})
        is_closing.set()
        began = time.monotonic()
        consumer.close()
        assert time.monotonic() - began < WAIT_S / 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_closed_without_time_to_leave_is_destroyed_later(
    none_left: Callable[[], None], assigned: Callable[..., Any], protocol: str
) -> None:
    consumer = assigned(PROTOCOLS[protocol])

    assert consumer.close(timeout=0) is False
    none_left()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_closed_before_it_polled_for_its_assignment_is_destroyed(
    mock_cluster: MockCluster,
    none_left: Callable[[], None],
    make_consumer: MakeConsumer,
    wait_until: WaitUntil,
    protocol: str,
) -> None:
    mock_cluster.create_topic("t", 1)
    mock_cluster.start_request_tracking()
    servers = {"bootstrap.servers": mock_cluster.bootstrap_servers}
    consumer = make_consumer({**servers, **PROTOCOLS[protocol]})
    consumer.subscribe(["t"])
    # This request follows the one whose answer has the assignment.
    last, count = ("ConsumerGroupHeartbeat", 2) if protocol == "kip-848" else ("Heartbeat", 1)
    wait_until(lambda: len(mock_cluster.requests(last)) >= count)

    consumer.close(timeout=0)  # it may or may not leave its group at once

    none_left()


def test_consumer_closed_without_time_to_leave_leaves_its_group_later(
    mock_cluster: MockCluster,
    none_left: Callable[[], None],
    make_consumer: MakeConsumer,
    wait_until: WaitUntil,
) -> None:
    mock_cluster.create_topic("t", 1)
    consumer = make_consumer({"bootstrap.servers": mock_cluster.bootstrap_servers})
    consumer.subscribe(["t"])
    wait_until(consumer.assignment, lambda: consumer.poll(0.05))
    mock_cluster.start_request_tracking()

    assert consumer.close(timeout=0) is False
    wait_until(lambda: mock_cluster.requests("LeaveGroup"))


def test_commit_answered_after_close_does_not_keep_the_consumer_alive(
    kafka: Any, none_left: Callable[[], None], assigned: Callable[..., Any], topic: str
) -> None:
    config = {"enable.auto.commit": True, "enable.auto.offset.store": False}
    consumer = assigned({**config, "on_commit": lambda error, partitions: None})
    consumer.store_offsets(offsets=[kafka.TopicPartition(topic, 0, 1)])

    assert consumer.close(timeout=0) is False
    none_left()


@pytest.mark.parametrize("begun", ["before the close", "in the close"])
def test_close_ends_although_no_coordinator_accepts_the_commit(
    kafka: Any,
    mock_cluster: MockCluster,
    make_consumer: MakeConsumer,
    wait_until: WaitUntil,
    begun: str,
) -> None:
    def commit(*_: Any) -> None:
        consumer.commit(offsets=[kafka.TopicPartition("t", 0, 1)])
        mock_cluster.wait_for_requests("OffsetCommit", 1)
        mock_cluster.broker_down()

    mock_cluster.create_topic("t", 1)
    config = {
        "bootstrap.servers": mock_cluster.bootstrap_servers,
        "session.timeout.ms": 3000,
        "heartbeat.interval.ms": 500,
        "socket.timeout.ms": 2000,
        "log_level": 0,
    }
    consumer = make_consumer(config)
    consumer.subscribe(["t"], **({"on_revoke": commit} if begun == "in the close" else {}))
    wait_until(consumer.assignment, lambda: consumer.poll(0.05))
    mock_cluster.set_rtt(60_000)
    mock_cluster.start_request_tracking()
    if begun == "before the close":
        commit()

    # The bound is the session timeout, and that of a request that waits for a coordinator.
    assert consumer.close(timeout=5 + BOUND_S) is True


@pytest.fixture
def tracked(cluster: Any) -> Iterator[Any]:
    """The mock cluster, recording its requests."""
    cluster.start_request_tracking()
    yield cluster
    cluster.stop_request_tracking()


@pytest.mark.parametrize("member", ["static", "dynamic"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_does_not_repeat_the_commit_of_a_member_that_has_left(
    kafka: Any,
    tracked: MockCluster,
    assigned: Callable[..., Any],
    topic: str,
    protocol: str,
    member: str,
) -> None:
    """The coordinator of KIP-848 keeps a static member, and refuses its epoch."""
    tracked.create_topic(topic + "-2", 1)
    config = PROTOCOLS[protocol] | {"enable.auto.commit": True, "enable.auto.offset.store": False}
    if member == "static":
        config["group.instance.id"] = "instance"
    consumer = assigned(config, on_revoke=lambda *_: None)
    consumer.store_offsets(offsets=[kafka.TopicPartition(topic, 0, 1)])
    consumer.subscribe([topic + "-2"], on_revoke=lambda *_: None)
    if protocol == "kip-848":
        tracked.clear_requests()
        tracked.wait_for_requests("ConsumerGroupHeartbeat", 5)  # the revocation waits for poll()
    consumer.unsubscribe()

    assert consumer.close(timeout=BOUND_S) is True
    assert len(tracked.requests("OffsetCommit")) <= 2


@pytest.fixture
def refused(
    kafka: Any, tracked: MockCluster, assigned: Callable[..., Any], topic: str
) -> Iterator[Callable[[int], Any]]:
    """Make a KIP-848 member whose commit the coordinator refuses so many times."""

    def make(count: int) -> Any:
        config = {"enable.auto.commit": True, "enable.auto.offset.store": False}
        config |= PROTOCOLS["kip-848"] | {"auto.commit.interval.ms": 60_000}
        consumer = assigned(config)
        tracked.clear_requests()
        tracked.push_request_errors("OffsetCommit", [kafka.KafkaError.STALE_MEMBER_EPOCH] * count)
        consumer.store_offsets(offsets=[kafka.TopicPartition(topic, 0, 1)])
        consumer.incremental_unassign(consumer.assignment())  # commits the stored offset
        return consumer

    yield make
    tracked.clear_request_errors("OffsetCommit")
    tracked.set_rtt(0)


def test_commit_with_a_stale_epoch_waits_for_a_heartbeat(
    kafka: Any, tracked: MockCluster, topic: str, refused: Callable[[int], Any]
) -> None:
    tracked.set_rtt(20)  # without the wait, several commits fit into a heartbeat's round trip
    consumer = refused(4)
    tracked.wait_for_requests("OffsetCommit", 5)

    kinds = "".join(
        {"OffsetCommit": "C", "ConsumerGroupHeartbeat": "H"}.get(request.api, "")
        for request in tracked.requests()
    )
    assert kinds.count("C") == 5
    assert "CC" not in kinds
    assert consumer.committed([kafka.TopicPartition(topic, 0)], WAIT_S)[0].offset == 1


def test_close_ends_while_a_commit_with_a_stale_epoch_waits(
    tracked: MockCluster, refused: Callable[[int], Any]
) -> None:
    consumer = refused(10_000)
    tracked.wait_for_requests("OffsetCommit", 2)

    assert consumer.close(timeout=BOUND_S) is True
    assert len(tracked.requests("OffsetCommit")) < 50


def test_callback_that_raises_does_not_delay_close(
    mock_cluster: MockCluster, none_left: Callable[[], None], stranded: Callable[..., Any]
) -> None:
    def on_revoke(consumer: Any, partitions: Any) -> None:
        raise LookupError("from on_revoke")

    consumer = stranded(on_revoke=on_revoke)
    started = time.monotonic()

    with pytest.raises(LookupError, match="from on_revoke"):
        consumer.close(timeout=0.3)

    assert time.monotonic() - started < BOUND_S
    assert consumer.close(timeout=0) is False
    mock_cluster.broker_up()


def test_interrupt_ends_the_close_of_a_consumer(
    mock_cluster: MockCluster, none_left: Callable[[], None], stranded: Callable[..., Any]
) -> None:
    revoked: list[float] = []
    done = threading.Event()

    def on_revoke(consumer: Any, partitions: Any) -> None:
        revoked.append(time.monotonic())
        threading.Timer(0.2, lambda: done.is_set() or os.kill(os.getpid(), signal.SIGINT)).start()

    consumer = stranded(on_revoke=on_revoke)
    try:
        with pytest.raises(KeyboardInterrupt):
            consumer.close()
    finally:
        done.set()

    assert time.monotonic() - revoked[0] < BOUND_S
    assert "closed" in repr(consumer)
    mock_cluster.broker_up()


class Stuck:
    """An oauth_cb that blocks in its second call, so that librdkafka cannot end."""

    def __init__(self) -> None:
        self.calls = 0
        self.inside, self.leave = threading.Event(), threading.Event()

    def __call__(self, config: str) -> tuple[str, float]:
        self.calls += 1
        if self.calls > 1:
            self.inside.set()
            assert self.leave.wait(2 * WAIT_S)
        return "token", time.time() + 2


@pytest.fixture
def stuck(kafka: Any) -> Iterator[Callable[[str], Any]]:
    """Make a client whose threads do not end before the test does."""
    from cykafka.admin import AdminClient

    callbacks = []

    def make(kind: str) -> Any:
        callback = Stuck()
        callbacks.append(callback)
        config = {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": callback,
            "log_level": 0,
        }
        if kind == "Consumer":
            config["group.id"] = "g"
        client = (AdminClient if kind == "AdminClient" else getattr(kafka, kind))(config)
        assert callback.inside.wait(WAIT_S)
        # This ends the wait in a build whose close() has no bound.
        threading.Timer(2 * BOUND_S, callback.leave.set).start()
        return client

    yield make
    for callback in callbacks:
        callback.leave.set()


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "AdminClient"])
def test_close_waits_for_librdkafka_only_until_its_timeout(
    none_left: Callable[[], None], stuck: Callable[[str], Any], kind: str
) -> None:
    from cykafka.testing import live_handles

    client = stuck(kind)
    alive = live_before()["handles"]
    started = time.monotonic()

    # Nothing can be lost: it has left its group, and has no records or requests.
    assert client.close(timeout=0.3) is True

    assert time.monotonic() - started < BOUND_S
    assert live_handles()["handles"] == alive
    with pytest.raises(RuntimeError):
        client.list_topics(timeout=1)
    assert client.close(timeout=0) is True


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "AdminClient"])
def test_dropped_client_does_not_wait_long_for_librdkafka(
    none_left: Callable[[], None], stuck: Callable[[str], Any], kind: str
) -> None:
    from cykafka.testing import live_handles

    client = stuck(kind)
    alive = live_before()["handles"]
    started = time.monotonic()

    with pytest.warns(ResourceWarning, match="was never closed"):
        del client

    assert time.monotonic() - started < BOUND_S
    assert live_handles()["handles"] == alive


@pytest.mark.parametrize("kind", ["Producer", "Consumer", "AdminClient"])
def test_interrupt_ends_the_wait_for_librdkafka(
    none_left: Callable[[], None], stuck: Callable[[str], Any], kind: str
) -> None:
    client = stuck(kind)
    started = time.monotonic()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()

    with pytest.raises(KeyboardInterrupt):
        client.close()

    assert time.monotonic() - started < BOUND_S
    assert "closed" in repr(client)


def test_admin_close_returns_whether_all_requests_were_answered(
    kafka: Any, mock_cluster: MockCluster
) -> None:
    from cykafka.admin import AdminClient

    mock_cluster.set_rtt(5000)
    client = AdminClient({"bootstrap.servers": mock_cluster.bootstrap_servers})
    future = client.describe_cluster()
    assert client.close(timeout=1) is False
    with pytest.raises(kafka.KafkaException) as caught:
        future.result(WAIT_S)
    assert caught.value.args[0] == kafka.KafkaError._DESTROY
    assert client.close(timeout=0) is False  # the result of the first close()
    assert AdminClient({"bootstrap.servers": "127.0.0.1:1"}).close() is True


@pytest.mark.parametrize("fatal", [True, False], ids=["fatal", "other"])
def test_kafka_exception_of_a_callback_is_raised(
    kafka: Any, assigned: Callable[..., Any], fatal: bool
) -> None:
    error = kafka.KafkaError(kafka.KafkaError._FATAL, "mine", fatal=True)
    own = kafka.KafkaException(error) if fatal else kafka.KafkaException("my words")

    def on_revoke(consumer: Any, partitions: Any) -> None:
        raise own

    consumer = assigned(on_revoke=on_revoke)
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.close()
    assert caught.value is own


def test_exceptions_of_all_callbacks_are_kept(
    kafka: Any, assigned: Callable[..., Any], fill: Fill, topic: str
) -> None:
    def on_revoke(consumer: Any, partitions: Any) -> None:
        raise LookupError("from on_revoke")

    def on_commit(error: Any, partitions: Any) -> None:
        raise ValueError("from on_commit")

    fill(topic, 1)
    config = {
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "on_commit": on_commit,
        "auto.commit.interval.ms": 60_000,
    }
    consumer = assigned(config, on_revoke=on_revoke)
    consumer.store_offsets(offsets=[kafka.TopicPartition(topic, 0, 1)])

    with pytest.raises(ValueError, match="from on_commit") as caught:
        consumer.close()
    assert str(caught.value.__context__) == "from on_revoke"


def test_system_exit_in_a_callback_does_not_end_the_leave(
    kafka: Any, mock_cluster: MockCluster, make_consumer: MakeConsumer, wait_until: WaitUntil
) -> None:
    def on_revoke(consumer: Any, partitions: Any) -> None:
        raise SystemExit("from on_revoke")

    committed: list[Any] = []
    mock_cluster.create_topic("t", 1)
    config = {
        "bootstrap.servers": mock_cluster.bootstrap_servers,
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
        "on_commit": lambda error, partitions: committed.append(error),
        "auto.commit.interval.ms": 60_000,
    }
    consumer = make_consumer(config)
    consumer.subscribe(["t"], on_revoke=on_revoke)
    wait_until(consumer.assignment, lambda: consumer.poll(0.05))
    consumer.store_offsets(offsets=[kafka.TopicPartition("t", 0, 1)])
    mock_cluster.set_rtt(300)
    mock_cluster.start_request_tracking()

    with pytest.raises(SystemExit, match="from on_revoke"):
        consumer.close()
    assert committed == [None]
    assert len(mock_cluster.requests("LeaveGroup")) == 1


@pytest.mark.parametrize("loop", ["records", "batches"])
def test_loop_in_another_thread_ends_even_if_close_times_out(
    kafka: Any, in_poll: tuple[Any, threading.Event], loop: str
) -> None:
    consumer, leave = in_poll
    ended = threading.Event()
    raised: list[BaseException] = []

    def iterate() -> None:
        try:
            for _ in consumer if loop == "records" else consumer.batches():
                pass
            ended.set()
        except BaseException as exception:
            raised.append(exception)

    thread = threading.Thread(target=iterate)
    thread.start()
    while not ended.is_set() and not raised:
        with pytest.raises(kafka.KafkaException, match="a call in another thread"):
            consumer.close(timeout=0)
    leave.set()
    assert not raised
    assert consumer.assignment() is not None
    assert consumer.close(timeout=WAIT_S) is True
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_interpreter_waits_for_clients_that_are_being_destroyed() -> None:
    source = """
import atexit, contextlib, os, threading, time

@atexit.register
def show():  # runs after the package's exit handlers
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.append(open(f"/proc/self/task/{task}/comm").read())
    print([name for name in found if name.startswith("rdk:")])

import cykafka
calls, inside, leave = [], threading.Event(), threading.Event()

def token(config):
    calls.append(config)
    if len(calls) > 1:
        inside.set()
        leave.wait()
    return "token", time.time() + 2

producer = cykafka.Producer({
    "bootstrap.servers": "127.0.0.1:1", "security.protocol": "sasl_plaintext",
    "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token, "log_level": 0,
})
inside.wait()
producer.close(timeout=0)

@atexit.register
def end():  # runs before the package's exit handlers
    timer = threading.Timer(0.05, leave.set)
    timer.daemon = True
    timer.start()
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
