"""Subscriptions: assignment by the group, and the rebalance callbacks."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, Read, RunScript, Unique, WaitUntil
from machine import WAIT_S

# The mock lets a member rejoin only near the end of its session, so a short session is fast.
CLASSIC = {"session.timeout.ms": 2000, "heartbeat.interval.ms": 100}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range,roundrobin", **CLASSIC},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC},
    "kip-848": {"group.protocol": "consumer"},
}
INCREMENTAL = ["cooperative", "kip-848"]
# If the protocol does not matter: this one joins at once.
QUICK = PROTOCOLS["kip-848"]


class Events(list[tuple[str, list[int]]]):
    """The rebalance callbacks of one consumer, and their calls."""

    def __init__(self) -> None:
        self.consumers: set[int] = set()

    def _hear(self, kind: str) -> Callable[[Any, Any], None]:
        def hear(consumer: Any, partitions: list[Any]) -> None:
            self.consumers.add(id(consumer))
            self.append((kind, sorted(p.partition for p in partitions)))

        return hear

    def callbacks(self) -> dict[str, Callable[[Any, Any], None]]:
        return {f"on_{kind}": self._hear(kind) for kind in ("assign", "revoke", "lost")}

    def of(self, kind: str) -> list[list[int]]:
        return [numbers for found, numbers in self if found == kind]


@pytest.mark.ours
def test_subscription_changes_while_a_member_joins_again(run_script: RunScript) -> None:
    """librdkafka 2.15 aborts, because the pattern needs metadata."""
    done = run_script(
        """
        from cykafka.testing import MockCluster

        with MockCluster() as cluster:
            cluster.create_topic("topic", 1)
            config = {
                "bootstrap.servers": cluster.bootstrap_servers, "group.id": "g",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": 3000, "heartbeat.interval.ms": 100,
            }
            with kafka.Consumer(config) as consumer:
                consumer.subscribe(["topic"])
                while not consumer.assignment():
                    consumer.poll(0.1)
                cluster.start_request_tracking()
                consumer.unsubscribe()
                while consumer.assignment() or not cluster.requests("LeaveGroup"):
                    consumer.poll(0.1)
                cluster.set_rtt(300)  # the next join takes longer than the two calls
                consumer.subscribe(["topic"])
                consumer.subscribe(["^top.*"])
                while not consumer.assignment():
                    consumer.poll(0.1)
                print(consumer.subscription())
        """
    )
    assert (done.returncode, done.stdout) == (0, "['^top.*']\n"), done.stderr


@pytest.mark.ours
@pytest.mark.parametrize("kept", [0, 1], ids=["of all", "of some"])
def test_unsubscribe_during_a_revocation(
    cluster: Any, make_consumer: MakeConsumer, unique: Unique, wait_until: WaitUntil, kept: int
) -> None:
    """librdkafka 2.15 fails with a fatal error, or never sends the last subscription."""
    topics = [unique("topic") for _ in range(3)]
    for topic in topics:
        cluster.create_topic(topic, 1)
    consumer = make_consumer(PROTOCOLS["kip-848"])
    revoked = []

    def unsubscribe(consumer: Any, partitions: list[Any]) -> None:
        if not revoked:
            consumer.unsubscribe()
        revoked.extend(partitions)

    def subscribe(expected: list[str], **callbacks: Any) -> None:
        consumer.subscribe(expected, **callbacks)
        wait_until(
            lambda: sorted(p.topic for p in consumer.assignment()) == sorted(expected),
            lambda: consumer.poll(0.05),
        )

    subscribe(topics[:2])
    consumer.subscribe(topics[:1] if kept else topics[2:], on_revoke=unsubscribe)
    wait_until(lambda: len(revoked) == 2, lambda: consumer.poll(0.05))
    subscribe(topics[:1])
    subscribe(topics[1:])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_subscription_assigns_reads_and_revokes(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, protocol: str
) -> None:
    fill(topic, 5)
    events = Events()
    consumer = make_consumer(PROTOCOLS[protocol])
    consumer.subscribe([topic], **events.callbacks())

    assert [m.value() for m in read(consumer, 5)] == [str(n).encode() for n in range(5)]
    assert events == [("assign", [0, 1, 2, 3])]
    assert events.consumers == {id(consumer)}
    assert sorted(p.partition for p in consumer.assignment()) == [0, 1, 2, 3]
    assert isinstance(consumer.memberid(), str)

    consumer.close()

    assert events[1:] == [("revoke", [0, 1, 2, 3])]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_second_member_takes_over_part_of_the_partitions(
    make_consumer: MakeConsumer, topic: str, unique: Unique, wait_until: WaitUntil, protocol: str
) -> None:
    config = {**PROTOCOLS[protocol], "group.id": unique("group")}
    events = Events()
    first, second = make_consumer(config), make_consumer(config)
    first.subscribe([topic], **events.callbacks())
    wait_until(lambda: len(first.assignment()) == 4, lambda: first.poll(0.1), WAIT_S)

    second.subscribe([topic])

    def serve() -> None:
        first.poll(0.05)
        second.poll(0.05)

    wait_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, serve, WAIT_S)
    shared = {p.partition for p in first.assignment() + second.assignment()}
    assert shared == {0, 1, 2, 3}
    assert events.of("lost") == []
    if protocol in INCREMENTAL:
        assert [len(numbers) for numbers in events.of("revoke")] == [2]
    else:
        # The first rebalance revokes all partitions. The mock may add a second rebalance.
        assert events.of("revoke")[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_on_assign_may_choose_the_offsets(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, protocol: str
) -> None:
    fill(topic, 10)

    def start_late(consumer: Any, partitions: list[Any]) -> None:
        for partition in partitions:
            if partition.partition == 0:
                partition.offset = 7
        if protocol in INCREMENTAL:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def leave(consumer: Any, partitions: list[Any]) -> None:
        if protocol in INCREMENTAL:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    consumer = make_consumer(PROTOCOLS[protocol])
    consumer.subscribe([topic], on_assign=start_late, on_revoke=leave)

    assert [m.offset() for m in read(consumer, 3)] == [7, 8, 9]
    consumer.close()


@pytest.mark.parametrize("name", ["GROUP_ID_NOT_FOUND", "INVALID_REQUEST", "INVALID_RECORD"])
def test_permanent_error_of_a_heartbeat_is_fatal(
    mock_cluster_factory: Callable[..., Any],
    make_consumer: MakeConsumer,
    kafka: ModuleType,
    wait_until: WaitUntil,
    name: str,
) -> None:
    """Since librdkafka 2.15, in the KIP-848 protocol. A new consumer is needed then."""
    cluster = mock_cluster_factory(group_consumer_heartbeat_interval_ms=100)
    cluster.create_topic("t", 1)
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    consumer = make_consumer({**servers, **QUICK})
    consumer.subscribe(["t"])
    wait_until(consumer.assignment, lambda: consumer.poll(0.1), WAIT_S)
    cluster.push_request_errors("ConsumerGroupHeartbeat", [getattr(kafka.KafkaError, name)])
    messages: list[Any] = []

    def serve() -> None:
        messages.extend(consumer.consume(1, 0.1))

    wait_until(lambda: messages, serve, WAIT_S)
    error = messages[0].error()
    assert error.code() == kafka.KafkaError._FATAL
    assert "ConsumerGroupHeartbeat fatal error" in error.str()
    wait_until(lambda: not consumer.assignment(), serve, WAIT_S)
    consumer.close()


def test_on_revoke_may_commit(
    make_consumer: MakeConsumer,
    kafka: ModuleType,
    topic: str,
    fill: Fill,
    read: Read,
    unique: Unique,
) -> None:
    fill(topic, 5)
    config = {**QUICK, "group.id": unique("group")}
    consumer = make_consumer(config)
    done: list[Any] = []
    consumer.subscribe([topic], on_revoke=lambda c, _: done.extend(c.commit(asynchronous=False)))
    read(consumer, 5)

    consumer.close()

    assert [p.offset for p in done if p.partition == 0] == [5]
    (found,) = make_consumer(config).committed([kafka.TopicPartition(topic, 0)], timeout=WAIT_S)
    assert found.offset == 5


def test_subscription_to_a_pattern_takes_the_topics_that_match(
    make_consumer: MakeConsumer, cluster: Any, unique: Unique, fill: Fill, read: Read
) -> None:
    prefix = unique("pattern")
    names = [f"{prefix}.a", f"{prefix}.b", f"other.{prefix}"]
    for name in names:
        cluster.create_topic(name, 1)
        fill(name, 1)
    # The newer protocol needs a broker that matches patterns. The mock does not.
    consumer = make_consumer(PROTOCOLS["eager"])
    consumer.subscribe([f"^{prefix}\\..*"])

    assert {m.topic() for m in read(consumer, 2)} == set(names[:2])


def test_subscription_replaces_the_previous_one(
    make_consumer: MakeConsumer, cluster: Any, topic: str, unique: Unique, fill: Fill, read: Read
) -> None:
    other = unique("topic")
    cluster.create_topic(other, 1)
    fill(topic, 1)
    fill(other, 1)
    consumer = make_consumer(QUICK)

    consumer.subscribe([topic])
    assert read(consumer, 1)[0].topic() == topic
    consumer.subscribe([other])

    assert read(consumer, 1)[0].topic() == other


def test_unsubscribe_revokes_the_partitions(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, wait_until: WaitUntil
) -> None:
    fill(topic, 1)
    events = Events()
    consumer = make_consumer(QUICK)
    consumer.subscribe([topic], **events.callbacks())
    read(consumer, 1)

    consumer.unsubscribe()
    wait_until(lambda: events.of("revoke"), lambda: consumer.poll(0.1))

    assert events.of("revoke") == [[0, 1, 2, 3]]
    assert consumer.assignment() == []


def test_poll_returns_the_error_of_a_missing_topic(
    make_consumer: MakeConsumer, kafka: ModuleType, wait_until: WaitUntil
) -> None:
    calls: list[Any] = []
    consumer = make_consumer(PROTOCOLS["eager"] | {"allow.auto.create.topics": False})
    consumer.subscribe(["no.such.topic"])

    wait_until(lambda: any(calls), lambda: calls.append(consumer.poll(0.5)))

    message = next(filter(None, calls))
    assert message.error() == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "no.such.topic" in message.error().str()
    assert message.topic() == "no.such.topic"


@pytest.mark.parametrize("topics", ["text", None, 3], ids=repr)
def test_subscribe_requires_a_list(consumer: Any, topics: Any) -> None:
    with pytest.raises(TypeError, match="list"):
        consumer.subscribe(topics)


def test_subscribe_to_an_empty_list_is_an_error(consumer: Any, kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        consumer.subscribe([])

    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
def test_subscribe_names_a_callback_that_is_not_callable(consumer: Any, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        consumer.subscribe(["any"], **{name: 3})


@pytest.mark.ours
def test_callback_that_raises_reaches_the_caller_and_nothing_is_lost(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, wait_until: WaitUntil
) -> None:
    fill(topic, 3)
    consumer = make_consumer(QUICK)

    def complain(consumer: Any, partitions: list[Any]) -> None:
        raise LookupError("from on_assign")

    consumer.subscribe([topic], on_assign=complain)

    with pytest.raises(LookupError, match="from on_assign"):
        wait_until(lambda: False, lambda: consumer.poll(0.5))
    # The partitions are still assigned, else a bug in a callback would silently end reading.
    assert len(consumer.assignment()) == 4
    assert [m.value() for m in read(consumer, 3)] == [b"0", b"1", b"2"]


def test_callback_that_raises_at_close_reaches_the_caller(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read
) -> None:
    fill(topic, 1)
    consumer = make_consumer(QUICK)

    def complain(consumer: Any, partitions: list[Any]) -> None:
        raise LookupError("from on_revoke")

    consumer.subscribe([topic], on_revoke=complain)
    read(consumer, 1)

    with pytest.raises(LookupError, match="from on_revoke"):
        consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_member_id_is_none_before_joining(make_consumer: MakeConsumer) -> None:
    assert not make_consumer(PROTOCOLS["eager"]).memberid()


def test_group_metadata_changes_with_membership(
    make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read
) -> None:
    fill(topic, 1)
    consumer = make_consumer(QUICK)
    before = consumer.consumer_group_metadata()
    assert before is not None

    consumer.subscribe([topic])
    read(consumer, 1)

    assert consumer.consumer_group_metadata() != before


def test_group_resumes_at_the_committed_offset(
    make_consumer: MakeConsumer, topic: str, unique: Unique, fill: Fill, read: Read
) -> None:
    fill(topic, 6)
    config = {**QUICK, "group.id": unique("group")}
    first = make_consumer(config)
    first.subscribe([topic])
    first.commit(message=read(first, 4)[-1], asynchronous=False)
    first.close()

    second = make_consumer(config)
    second.subscribe([topic])

    assert [m.value() for m in read(second, 2)] == [b"4", b"5"]


@pytest.mark.ours  # the peer's consumer is left without partitions
@pytest.mark.parametrize("call", ["assign", "incremental_assign", "incremental_unassign"])
def test_failed_assign_in_on_assign_keeps_the_default_assignment(
    kafka: Any, make_consumer: MakeConsumer, topic: str, fill: Fill, read: Read, call: str
) -> None:
    failures: list[Any] = []

    def assign_twice(consumer: Any, partitions: list[Any]) -> None:
        if failures:
            return
        try:
            getattr(consumer, call)(partitions * 2)
        except (kafka.KafkaException, ValueError) as error:
            failures.append(error)

    fill(topic, 3)
    consumer = make_consumer({"group.protocol": "classic"})
    consumer.subscribe([topic], on_assign=assign_twice)

    assert len(read(consumer, 3)) == 3
    assert failures
