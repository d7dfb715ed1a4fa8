"""ShareConsumer: records of a share group, their acknowledgements, waits and close()."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from fixture_types import RunScript
from live import live_before
from machine import WAIT_S

from cykafka import (
    AcknowledgeType,
    ConcurrentModificationException,
    DeserializingShareConsumer,
    IllegalStateException,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from cykafka.error import ClosedError
from cykafka.serialization import StringDeserializer
from cykafka.stats import Statistics, parse
from cykafka.testing import MockCluster, live_handles

pytestmark = pytest.mark.ours

# The longest time in which a wait ends after Ctrl-C or close(), with room for a busy machine, s.
SOON_S = 2.0
MODE = "share.acknowledgement.mode"
MakeShare = Callable[..., ShareConsumer]


@pytest.fixture(scope="module")
def sharing() -> Iterator[MockCluster]:
    """A cluster whose share groups begin at the first record, with frequent heartbeats."""
    with MockCluster() as cluster:
        cluster.configure_share_groups(auto_offset_reset="earliest", heartbeat_interval_ms=100)
        yield cluster


@pytest.fixture
def place(sharing: MockCluster, topic: str) -> str:
    """A topic of one partition."""
    sharing.create_topic(topic, 1)
    return topic


@pytest.fixture
def send(sharing: MockCluster) -> Callable[..., None]:
    """Send values to partition 0 of a topic."""

    def send(topic: str, *values: bytes, **options: Any) -> None:
        with Producer({"bootstrap.servers": sharing.bootstrap_servers}) as producer:
            producer.publish(topic, list(values), partitions=0, **options).wait(WAIT_S)

    return send


@pytest.fixture
def make_share(sharing: MockCluster, topic: str) -> Iterator[MakeShare]:
    """Create members of a share group, one for each test, which are closed after the test."""
    made: list[ShareConsumer] = []

    def make(config: dict[str, Any] | None = None, cls: Any = ShareConsumer) -> ShareConsumer:
        settings = {
            "bootstrap.servers": sharing.bootstrap_servers,
            "group.id": f"group-{topic}",
            "log_level": 3,
            **(config or {}),
        }
        made.append(cls(settings))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(1)


@pytest.fixture
def member(make_share: MakeShare, place: str) -> ShareConsumer:
    """A subscribed member in implicit mode."""
    consumer = make_share()
    consumer.subscribe([place])
    return consumer


@pytest.fixture
def explicit(make_share: MakeShare, place: str) -> ShareConsumer:
    """A subscribed member in explicit mode."""
    consumer = make_share({"share.acknowledgement.mode": "explicit"})
    consumer.subscribe([place])
    return consumer


# -- records


def test_poll_returns_records_with_their_data(
    member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b", keys=["k", None], headers=[[("h", b"1")], None])

    messages = member.poll(WAIT_S)

    assert [message.value() for message in messages] == [b"a", b"b"]
    assert [message.offset() for message in messages] == [0, 1]
    first = messages[0]
    assert (first.topic(), first.partition(), first.key()) == (place, 0, b"k")
    assert first.headers() == [("h", b"1")]
    assert first.delivery_count() == 1


def test_batch_has_columns_and_delivery_counts(
    member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b", b"c")

    batch = member.consume_batch(WAIT_S)

    assert batch.values() == [b"a", b"b", b"c"]
    assert list(batch.offsets) == [0, 1, 2]
    assert list(batch.delivery_counts) == [1, 1, 1]
    assert batch[1].delivery_count() == 1
    assert batch.errors == []
    batch.detach()
    assert list(batch[::-1].delivery_counts) == [1, 1, 1]


def test_batches_of_a_consumer_group_have_no_delivery_counts(
    cluster: MockCluster, kafka: Any, make_consumer: Any, topic: str
) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.publish(topic, [b"x"], partitions=0).wait(WAIT_S)
    consumer = make_consumer()
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])

    batch = consumer.consume_batch(1, WAIT_S)

    assert list(batch.delivery_counts) == [-1]
    assert batch[0].delivery_count() is None


def test_batches_are_iterated_until_close(
    member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b")
    seen = []
    for batch in member.batches():
        seen += batch.values()
        member.commit_sync()
        if len(seen) == 2:
            send(place, b"c")
        if len(seen) == 3:
            member.close()
    assert seen == [b"a", b"b", b"c"]


def test_loop_ends_with_close(
    member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b")
    seen = []
    for message in member:
        seen.append(message.value())
        if len(seen) == 2:
            member.close()
    assert seen == [b"a", b"b"]


def test_records_that_a_loop_has_not_returned_are_not_accepted(
    member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b", b"c")
    assert next(member).value() == b"a"

    for call in (member.commit_sync, member.commit_async, member.consume_batch):
        with pytest.raises(IllegalStateException, match=r"2 record\(s\)"):
            call()

    assert [message.value() for message in member.poll(WAIT_S)] == [b"b", b"c"]
    assert member.commit_sync() == {TopicPartition(place, 0): None}


# -- acknowledgements


def test_next_poll_accepts_the_records_of_the_last(
    member: ShareConsumer, make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    assert len(member.poll(WAIT_S)) == 1
    assert len(member.poll(0.5)) == 0
    member.close()

    other = make_share()
    other.subscribe([place])
    send(place, b"b")
    assert [message.value() for message in other.poll(WAIT_S)] == [b"b"]


def test_records_without_an_acknowledgement_are_delivered_again(
    member: ShareConsumer, make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    assert len(member.poll(WAIT_S)) == 1
    member.close()

    other = make_share()
    other.subscribe([place])
    (message,) = other.poll(WAIT_S)
    assert (message.value(), message.delivery_count()) == (b"a", 2)


def test_released_records_return_and_rejected_ones_do_not(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"accepted", b"released", b"rejected")
    accepted, released, rejected = explicit.poll(WAIT_S)

    explicit.acknowledge(accepted)
    explicit.acknowledge(released, AcknowledgeType.RELEASE)
    explicit.acknowledge(rejected, AcknowledgeType.REJECT)
    assert explicit.commit_sync() == {TopicPartition(place, 0): None}

    (message,) = explicit.poll(WAIT_S)
    assert (message.value(), message.delivery_count()) == (b"released", 2)
    explicit.acknowledge(message)
    assert len(explicit.poll(1)) == 0


def test_batch_is_acknowledged_by_rows_and_slices(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, *[b"%d" % number for number in range(10)])
    batch = explicit.consume_batch(WAIT_S)
    assert len(batch) == 10

    explicit.acknowledge(batch[:4])
    explicit.acknowledge(batch, AcknowledgeType.RELEASE, rows=[5, 7])
    explicit.acknowledge(batch[::-1], AcknowledgeType.REJECT, rows=range(2))
    explicit.acknowledge(batch, rows=(4, 6))
    explicit.commit_sync()

    assert explicit.consume_batch(WAIT_S).values() == [b"5", b"7"]


def test_detached_batch_can_be_acknowledged(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b")
    batch = explicit.consume_batch(WAIT_S)
    batch.detach()

    explicit.acknowledge(batch)

    assert explicit.commit_sync() == {TopicPartition(place, 0): None}


def test_row_outside_the_batch_acknowledges_nothing(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b")
    batch = explicit.consume_batch(WAIT_S)

    with pytest.raises(IndexError, match="rows: 2 is outside the batch of 2"):
        explicit.acknowledge(batch, rows=[0, 1, 2])
    with pytest.raises(TypeError, match="rows: expected row numbers, got a bool; for a mask: "):
        explicit.acknowledge(batch, rows=[False, True])
    with pytest.raises(IllegalStateException, match=r"2 records .* have not been acknowledged"):
        explicit.poll(0)


def test_unacknowledged_records_forbid_the_next_poll(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b")
    first, second = explicit.poll(WAIT_S)
    explicit.acknowledge(first)

    with pytest.raises(IllegalStateException, match=r"1 records .* have not been acknowledged"):
        explicit.poll(0)

    explicit.acknowledge(second)
    assert len(explicit.poll(0)) == 0


def test_acknowledgement_of_an_unknown_record_names_it(
    explicit: ShareConsumer, make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    (message,) = explicit.poll(WAIT_S)
    explicit.acknowledge(message)
    explicit.commit_sync()

    with pytest.raises(IllegalStateException, match=rf"{place} \[0\] at offset 0: .*already sent"):
        explicit.acknowledge(message)
    with pytest.raises(IllegalStateException, match="offset 9: the consumer does not have it"):
        explicit.acknowledge_offset(place, 0, 9)
    with pytest.raises(IllegalStateException, match=r"share\.acknowledgement\.mode is implicit"):
        make_share().acknowledge(message)
    other = make_share({MODE: "explicit"})
    with pytest.raises(IllegalStateException, match="offset 0: the consumer does not have it"):
        other.acknowledge(message)
    other.close(WAIT_S)
    with pytest.raises(IllegalStateException, match="Share consumer closed"):
        other.acknowledge(message)


def test_row_that_librdkafka_refuses_is_named(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b")
    batch = explicit.consume_batch(WAIT_S)
    explicit.acknowledge(batch[:1])
    explicit.commit_sync()

    with pytest.raises(IllegalStateException, match=rf"row 0: {place} \[0\] at offset 0"):
        explicit.acknowledge(batch)
    explicit.acknowledge(batch[1:])


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("text",), TypeError, "message: expected a Message"),
        ((None, 9), TypeError, "message: expected a Message"),
    ],
)
def test_wrong_arguments_of_acknowledge_are_refused(
    explicit: ShareConsumer, arguments: tuple[Any, ...], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        explicit.acknowledge(*arguments)


def test_callback_gets_the_acknowledged_offsets(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    reports: list[Any] = []
    refused: list[str] = []

    def report(offsets: Any, exception: Any) -> None:
        reports.append((offsets, exception))
        try:
            explicit.commit_async()
        except IllegalStateException as error:
            refused.append(str(error))

    explicit.set_acknowledgement_commit_callback(report)
    send(place, b"a", b"b")
    for message in explicit.poll(WAIT_S):
        explicit.acknowledge(message)
    explicit.commit_async()
    deadline = time.monotonic() + WAIT_S
    while not reports and time.monotonic() < deadline:
        explicit.poll(0.1)

    assert reports == [({TopicPartition(place, 0): {0, 1}}, None)]
    assert "acknowledgement commit callback" in refused[0]
    explicit.set_acknowledgement_commit_callback(None)


def test_callback_exception_reaches_the_call_and_loses_no_record(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    class Stop(Exception): ...

    def report(*_: Any) -> None:
        raise Stop

    send(place, b"a")
    (message,) = explicit.poll(WAIT_S)
    explicit.acknowledge(message)
    explicit.set_acknowledgement_commit_callback(report)
    with pytest.raises(Stop):
        explicit.commit_sync()
    explicit.set_acknowledgement_commit_callback(None)
    send(place, b"b")
    (message,) = explicit.poll(WAIT_S)
    assert (message.value(), message.delivery_count()) == (b"b", 1)
    explicit.acknowledge(message)


# -- threads, waits, close


def test_call_in_a_second_thread_is_refused(
    member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    assert len(member.poll(WAIT_S)) == 1
    errors: list[BaseException] = []

    def poll() -> None:
        try:
            member.poll(WAIT_S)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            member.subscription()
        except ConcurrentModificationException:
            break
    else:
        pytest.fail("no call was refused")
    started = time.monotonic()
    member.close()
    thread.join(WAIT_S)

    assert time.monotonic() - started < SOON_S
    assert [type(error) for error in errors] == [ClosedError]


def test_interrupt_ends_poll_and_keeps_the_consumer(
    sharing: MockCluster, place: str, run_script: RunScript
) -> None:
    done = run_script(
        """
        import os, signal, sys, threading, time
        from cykafka import ShareConsumer
        servers, topic = sys.argv[1:]
        consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": "interrupted",
                                  "log_level": 3})
        consumer.subscribe([topic])
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        begun = time.monotonic()
        try:
            consumer.poll()
        except KeyboardInterrupt:
            print("interrupted", time.monotonic() - begun < 5)
        print(len(consumer.poll(0)))
        consumer.close()
        """,
        sharing.bootstrap_servers,
        place,
    )
    assert (done.returncode, done.stdout) == (0, "interrupted True\n0\n"), done.stderr


def test_forked_child_is_refused(member: ShareConsumer, run_script: RunScript) -> None:
    done = run_script(
        """
        import os
        from cykafka import ShareConsumer
        consumer = ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g",
                                  "log_level": 0})
        child = os.fork()
        if not child:
            try:
                consumer.poll(0)
            except RuntimeError as error:
                os._exit("before a fork" not in str(error))
            os._exit(2)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        consumer.close()
        """
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_everything_is_released(
    sharing: MockCluster, place: str, send: Callable[..., None]
) -> None:
    before = live_before()
    send(place, b"a" * 1000, b"b" * 1000)
    config = {"bootstrap.servers": sharing.bootstrap_servers, "group.id": f"g-{place}"}
    with ShareConsumer({**config, "log_level": 3}) as consumer:
        consumer.subscribe([place])
        batch = consumer.consume_batch(WAIT_S)
    assert batch.values() == [b"a" * 1000, b"b" * 1000]
    del batch, consumer
    consumer = ShareConsumer({**config, "log_level": 3})
    consumer.subscribe([place])
    assert len(consumer.poll(WAIT_S)) == 2
    with pytest.warns(ResourceWarning, match="never closed"):
        del consumer
    deadline = time.monotonic() + WAIT_S
    while live_handles() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert live_handles() == before


def test_close_drops_records_that_arrived_after_the_last_poll(
    make_share: MakeShare, member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    assert len(member.poll(WAIT_S)) == 1
    assert len(member.poll(0)) == 0  # requests records
    send(place, b"b")
    time.sleep(0.6)  # they arrive; nothing announces that

    assert member.close(timeout=WAIT_S) is True

    other = make_share()
    other.subscribe([place])
    (message,) = other.poll(WAIT_S)
    assert message.value() == b"b"


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_failed_acknowledgements_are_logged_without_a_callback(
    make_share: MakeShare, topic: str, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    with MockCluster() as cluster:
        cluster.configure_share_groups(auto_offset_reset="earliest", record_lock_duration_ms=100)
        cluster.create_topic(topic, 1)
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            producer.publish(topic, [b"a", b"b"], partitions=0).wait(WAIT_S)
        consumer = make_share({"bootstrap.servers": cluster.bootstrap_servers, MODE: mode})
        consumer.subscribe([topic])
        with caplog.at_level(logging.WARNING, "cykafka"):
            late = 0
            deadline = time.monotonic() + WAIT_S
            while "failed" not in caplog.text and time.monotonic() < deadline:
                for message in consumer.poll(0.1):
                    late = 1.5  # the mock looks for expired locks each second
                    if mode == "explicit":
                        consumer.acknowledge(message)
                time.sleep(late)
        consumer.close(WAIT_S)
    assert (
        f"the acknowledgements of 2 record(s) of {topic} [0] failed, so the group may deliver "
        "them again (perhaps their locks expired): Broker: "
    ) in caplog.text


def test_failure_that_commit_sync_returns_is_logged_too(
    member: ShareConsumer, sharing: MockCluster, place: str, send: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    send(place, b"a")
    assert len(member.poll(WAIT_S)) == 1
    sharing.push_request_errors("ShareAcknowledge", [KafkaError.INVALID_RECORD_STATE])
    with caplog.at_level(logging.WARNING, "cykafka"):
        (exception,) = member.commit_sync().values()

    assert exception is not None
    assert exception.args[0].name() == "INVALID_RECORD_STATE"
    assert "the acknowledgements of 1 record(s)" in caplog.text


def test_success_of_acknowledgements_is_not_logged(
    member: ShareConsumer, place: str, send: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    send(place, b"a")
    with caplog.at_level(logging.DEBUG, "cykafka"):
        assert len(member.poll(WAIT_S)) == 1
        assert member.commit_sync() == {TopicPartition(place, 0): None}
        assert member.close(WAIT_S) is True
    assert caplog.text == ""


def test_group_of_another_type_is_named(member: ShareConsumer, sharing: MockCluster) -> None:
    sharing.push_request_errors("ShareGroupHeartbeat", [KafkaError.GROUP_ID_NOT_FOUND])
    with pytest.raises(KafkaException, match=r"group\.id may belong to a group of another type"):
        member.poll(WAIT_S)


def test_callback_may_be_removed_while_a_commit_is_in_progress(
    explicit: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    (message,) = explicit.poll(WAIT_S)
    explicit.set_acknowledgement_commit_callback(print)
    explicit.acknowledge(message)
    explicit.commit_async()
    explicit.set_acknowledgement_commit_callback(None)
    time.sleep(0.3)  # the result arrives; nothing announces that

    assert len(explicit.poll(0.1)) == 0


def test_commit_without_a_time_limit_waits_for_its_results(
    member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    assert len(member.poll(WAIT_S)) == 1
    assert member.commit_sync(-1) == {TopicPartition(place, 0): None}


def test_close_in_another_thread_ends_commit_sync(
    sharing: MockCluster, member: ShareConsumer, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a")
    assert len(member.poll(WAIT_S)) == 1
    errors: list[BaseException] = []

    def commit() -> None:
        try:
            member.commit_sync()
        except BaseException as error:
            errors.append(error)

    sharing.set_rtt(3000)
    try:
        thread = threading.Thread(target=commit)
        thread.start()
        time.sleep(0.3)  # it waits for the brokers; nothing announces that
        member.close(timeout=0.5)
        thread.join(WAIT_S)
    finally:
        sharing.set_rtt(0)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [ClosedError]


def test_close_with_an_unreachable_broker_ends_at_its_timeout() -> None:
    consumer = ShareConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
    consumer.subscribe(["t"])
    started = time.monotonic()
    assert consumer.close(timeout=0.5) in (True, False)
    assert time.monotonic() - started < SOON_S
    with pytest.raises(IllegalStateException) as raised:
        consumer.poll(0)
    assert str(raised.value) == "Share consumer closed"


# -- configuration


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "group.id must be set"),
        ({"group.id": " "}, "group.id must be set"),
        ({"group.id": "g", "session.timeout.ms": 6000}, r"session\.timeout\.ms"),
        ({"group.id": "g", "enable.auto.commit": False}, r"enable\.auto\.commit"),
        ({"group.id": "g", "on_commit": print}, "on_commit is not supported: .*callback"),
        (
            {"group.id": "g", "auto.offset.reset": "earliest"},
            "set .* share.auto.offset.reset with",
        ),
        ({"group.id": "g", "share.isolation.level": "x"}, "set .* share.isolation.level with"),
        ({"group.id": "g", MODE: "Explicit"}, "expected implicit or explicit, got 'Explicit'"),
        ({"group.id": "g", "isolation.level": "x"}, "set .* share.isolation.level with"),
    ],
)
def test_unsuitable_configuration_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ShareConsumer({"bootstrap.servers": "127.0.0.1:1", **config})


def test_misspelled_property_has_a_suggestion() -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    with pytest.raises(KafkaException, match=f'did you mean "{MODE}"'):
        ShareConsumer({**config, "share.acknowledgment.mode": "explicit"})


def test_pattern_is_a_name_with_a_warning(
    member: ShareConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "cykafka"):
        member.subscribe(["^orders"])
    assert member.subscription() == ["^orders"]
    assert "share groups have no patterns" in caplog.text


def test_deserializing_consumer_marks_what_it_cannot_read(
    make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    consumer = make_share({"value.deserializer": StringDeserializer()}, DeserializingShareConsumer)
    consumer.subscribe([place])
    send(place, b"text", b"\xff")

    first, second = consumer.poll(WAIT_S)

    assert (first.value(), first.error()) == ("text", None)
    error = second.error()
    assert error is not None
    assert error.code() == KafkaError._VALUE_DESERIALIZATION
    assert second.value() == b"\xff"


@pytest.mark.parametrize("count", [1, 3])
def test_interrupted_iteration_over_objects_keeps_the_message(
    make_share: MakeShare, place: str, send: Callable[..., None], count: int
) -> None:
    """Ctrl-C while the first message is deserialized: no message is lost, none is accepted."""
    interrupts = [KeyboardInterrupt()]

    def deserialize(data: bytes, ctx: object) -> str:
        if interrupts:
            raise interrupts.pop()
        return data.decode()

    values = [b"%d" % number for number in range(count)]
    send(place, *values)
    consumer = make_share({"value.deserializer": deserialize}, DeserializingShareConsumer)
    consumer.subscribe([place])
    with pytest.raises(KeyboardInterrupt):
        next(consumer)
    with pytest.raises(IllegalStateException, match="has not returned"):
        consumer.commit_sync()
    assert [next(consumer).value() for _ in values] == [value.decode() for value in values]
    assert set(consumer.commit_sync().values()) == {None}


def test_interrupted_poll_of_objects_goes_on_in_an_iteration(
    make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    calls: list[bytes] = []

    def deserialize(data: bytes, ctx: object) -> bytes:
        calls.append(data)
        if data == b"1":
            raise ValueError("poison")
        if len(calls) == 3:
            raise KeyboardInterrupt
        return b"<" + data + b">"

    send(place, b"0", b"1", b"2", b"3")
    config = {"value.deserializer": deserialize, "share.acknowledgement.mode": "explicit"}
    consumer = make_share(config, DeserializingShareConsumer)
    consumer.subscribe([place])
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(WAIT_S)
    messages = [next(consumer) for _ in range(4)]

    assert [message.value() for message in messages] == [b"<0>", b"1", b"<2>", b"<3>"]
    assert messages[1].error() is not None
    assert calls == [b"0", b"1", b"2", b"2", b"3"]
    for message in messages:
        consumer.acknowledge(message)
    assert set(consumer.commit_sync().values()) == {None}


def test_messages_belong_to_their_call_while_they_are_deserialized(
    make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    inside, goes_on = threading.Event(), threading.Event()
    refused: list[str] = []

    def deserialize(data: bytes, ctx: object) -> bytes:
        inside.set()
        assert goes_on.wait(WAIT_S)
        for call in (consumer.commit_sync, consumer.close, lambda: consumer.poll(0)):
            with pytest.raises(IllegalStateException, match="from a deserializer"):
                call()
            refused.append("refused")
        return data

    send(place, b"x")
    consumer = make_share({"value.deserializer": deserialize}, DeserializingShareConsumer)
    consumer.subscribe([place])
    polled: list[Any] = []
    thread = threading.Thread(target=lambda: polled.extend(consumer.poll(WAIT_S)))
    thread.start()
    assert inside.wait(WAIT_S)
    try:
        with pytest.raises(ConcurrentModificationException):
            consumer.commit_sync()
    finally:
        goes_on.set()
        thread.join()
    assert (len(polled), polled[0].error(), len(refused)) == (1, None, 3)


def test_close_in_another_thread_during_a_deserializer(
    make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    inside, goes_on = threading.Event(), threading.Event()

    def deserialize(data: bytes, ctx: object) -> bytes:
        inside.set()
        assert goes_on.wait(WAIT_S)
        return data

    send(place, b"x", b"y")
    consumer = make_share({"value.deserializer": deserialize}, DeserializingShareConsumer)
    consumer.subscribe([place])
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            consumer.poll(WAIT_S)
        except IllegalStateException as error:
            raised.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    assert inside.wait(WAIT_S)
    consumer.close(WAIT_S)
    goes_on.set()
    thread.join()
    assert [type(error) for error in raised] == [ClosedError]


@pytest.mark.parametrize("method", ["poll", "consume_batch"])
def test_finalizer_that_closes_during_a_read(
    make_share: MakeShare, place: str, send: Callable[..., None], method: str
) -> None:
    """A garbage collection may run at each allocation of the call."""

    class Closing:
        def __init__(self, consumer: ShareConsumer) -> None:
            self.consumer = consumer
            self.me = self

        def __del__(self) -> None:
            self.consumer.close(0.2)

    send(place, b"x")
    thresholds = gc.get_threshold()
    try:
        for count in range(1, 12):
            consumer = make_share({"group.id": f"{place}-{method}-{count}"})
            consumer.subscribe([place])
            call = getattr(consumer, method)
            gc.disable()
            gc.collect()
            Closing(consumer)
            gc.set_threshold(count)
            gc.enable()
            with contextlib.suppress(ClosedError):
                found = call(WAIT_S)
                gc.set_threshold(*thresholds)
                assert len(found) <= 1
            gc.set_threshold(*thresholds)
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()


def test_callback_that_raises_does_not_hide_a_failed_commit(
    make_share: MakeShare, place: str, send: Callable[..., None], sharing: MockCluster
) -> None:
    send(place, b"x")
    consumer = make_share()

    def on_acknowledged(offsets: object, error: object) -> None:
        raise LookupError("callback")

    consumer.set_acknowledgement_commit_callback(on_acknowledged)
    consumer.subscribe([place])
    assert len(consumer.poll(WAIT_S)) == 1
    sharing.push_request_errors("ShareAcknowledge", [KafkaError.INVALID_RECORD_STATE])
    with pytest.raises(LookupError) as caught:
        consumer.commit_sync()
    assert "INVALID_RECORD_STATE" in repr(caught.value.__context__)


# -- columns, statistics


def test_delivery_counts_go_to_arrow(
    make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    send(place, b"a", b"b")
    consumer = make_share({"share.acknowledgement.mode": "explicit"})
    consumer.subscribe([place])
    batch = consumer.consume_batch(WAIT_S)
    consumer.acknowledge(batch, AcknowledgeType.RELEASE)
    again = consumer.consume_batch(WAIT_S)
    consumer.acknowledge(again)

    rows = pa.table(again.select("value", "deliveryCount")).to_pylist()
    assert rows == [
        {"value": value, "deliveryCount": count}
        for value, count in zip(again.values(), again.delivery_counts, strict=True)
    ]
    assert {row["deliveryCount"] for row in rows} == {2}
    assert "deliveryCount" not in pa.schema(again).names  # the columns are Spark's


def test_statistics_know_a_share_consumer(
    make_share: MakeShare, place: str, send: Callable[..., None]
) -> None:
    seen: list[Statistics] = []
    send(place, b"a", b"b")
    consumer = make_share(
        {"statistics.interval.ms": 50, "stats_cb": lambda json: seen.append(parse(json))}
    )
    consumer.subscribe([place])
    assert len(consumer.poll(WAIT_S)) == 2
    deadline = time.monotonic() + WAIT_S
    while not (seen and seen[-1].topics[place].partitions[0].records_received == 2):
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    group = seen[-1].group
    assert group is not None
    assert (group.state, group.assigned_partitions) == ("up", 1)
