"""SimpleConsumer: seeks, resets, commits, sizes and waits."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import RunScript

from cykafka.compat.kafka_python import SimpleConsumer, create_message
from cykafka.compat.kafka_python.common import (
    ConsumerFetchSizeTooSmall,
    OffsetAndMessage,
    OffsetFetchRequest,
    OffsetOutOfRangeError,
    ProduceRequest,
    UnknownTopicOrPartitionError,
)
from cykafka.compat.kafka_python.consumer.base import MAX_FETCH_BUFFER_SIZE_BYTES
from cykafka.compat.kafka_python.context import OffsetCommitContext

Send = Callable[..., list[bytes]]
Make = Callable[..., Any]
Values = Callable[[Any], list[bytes]]


def committed(client: Any, group: str, topic: str, partition: int = 0) -> int:
    request = OffsetFetchRequest(topic, partition)
    (response,) = client.send_offset_fetch_request(group, [request])
    offset: int = response.offset
    return offset


def test_reads_every_message_of_all_partitions(
    send: Send, make_consumer: Make, values: Values
) -> None:
    sent = send(0, range(100)) + send(1, range(100, 200)) + send(3, range(200, 230))
    consumer = make_consumer(iter_timeout=1)
    messages = list(consumer)
    assert sorted(values(messages)) == sorted(sent)
    assert isinstance(messages[0], OffsetAndMessage)
    assert consumer.pending() == 0


def test_reads_the_chosen_partitions_only(send: Send, make_consumer: Make, values: Values) -> None:
    send(0, range(5))
    sent = send(1, range(5, 8))
    consumer = make_consumer(partitions=[1, 2], iter_timeout=1)
    assert consumer.pending([1]) == 3
    assert values(consumer) == sent


def test_partition_info_comes_with_messages(send: Send, make_consumer: Make) -> None:
    send(2, range(2))
    consumer = make_consumer()
    assert consumer.get_message(timeout=30, get_partition_info=True)[0] == 2
    consumer.provide_partition_info()
    partition, message = consumer.get_message(timeout=30)
    assert (partition, message.offset) == (2, 1)
    consumer.seek(0, 0)
    assert [partition for partition, _ in consumer.get_messages(2, timeout=30)] == [2, 2]
    assert consumer.get_message(block=False) is None


@pytest.mark.parametrize(
    ("offset", "whence", "expected"),
    [
        (3, None, list(range(3, 10))),
        (0, 0, list(range(10))),
        (4, 0, list(range(4, 10))),
        (-2, 1, list(range(3, 10))),
        (2, 1, list(range(7, 10))),
        (-3, 2, [7, 8, 9]),
        (0, 2, []),
    ],
)
def test_seek_from_each_place(
    send: Send,
    make_consumer: Make,
    values: Values,
    offset: int,
    whence: int | None,
    expected: list[int],
) -> None:
    send(0, range(10))
    consumer = make_consumer(partitions=[0], iter_timeout=0.5)
    assert len(consumer.get_messages(5, timeout=30)) == 5
    consumer.seek(offset, whence, partition=0)
    assert values(consumer) == [b"%d" % number for number in expected]


def test_seek_divides_the_offset_among_the_partitions(send: Send, make_consumer: Make) -> None:
    for number in (0, 1):
        send(number, range(10))
    consumer = make_consumer(partitions=[0, 1], iter_timeout=0.5)
    consumer.seek(-5, 2)
    assert sorted(consumer.offsets.values()) == [7, 8]
    assert len(list(consumer)) == 5
    consumer.seek(2)
    assert consumer.offsets == {0: 2, 1: 2}
    with pytest.raises(ValueError, match="whence"):
        consumer.seek(0, 3)


@pytest.mark.parametrize(("policy", "found"), [("smallest", 10), ("largest", 0)])
def test_offset_that_does_not_exist_is_reset(
    send: Send, make_consumer: Make, policy: str, found: int
) -> None:
    send(0, range(5))
    send(1, range(5))
    consumer = make_consumer(partitions=[0, 1], auto_offset_reset=policy, iter_timeout=0.5)
    consumer.seek(300, 2)
    assert len(list(consumer)) == found
    send(0, range(3))
    assert len(list(consumer)) == 3


def test_offset_that_does_not_exist_is_an_error_without_a_policy(
    send: Send, make_consumer: Make
) -> None:
    send(0, range(5))
    consumer = make_consumer(partitions=[0], auto_offset_reset=None)
    consumer.seek(100)
    with pytest.raises(OffsetOutOfRangeError, match="error=1"):
        consumer.get_message(timeout=30)
    with pytest.raises(OffsetOutOfRangeError, match="auto_offset_reset"):
        consumer.reset_partition_offset(0)


def test_group_goes_on_at_its_commit(
    send: Send, make_consumer: Make, client: Any, group: str, topic: str, values: Values
) -> None:
    sent = send(0, range(30))
    first = make_consumer(group=group, auto_commit=False, partitions=[0])
    assert first.commit() is None
    assert values(first.get_messages(12, timeout=30)) == sent[:12]
    assert first.commit() is True
    assert first.commit() is None
    assert committed(client, group, topic) == 12
    second = make_consumer(group=group, iter_timeout=0.5, partitions=[0])
    assert values(second) == sent[12:]
    first.fetch_last_known_offsets()
    first.seek(0, 1)
    assert first.offsets[0] in (12, 30)


def test_group_commits_every_n_messages(
    send: Send, make_consumer: Make, client: Any, group: str, topic: str
) -> None:
    send(0, range(30))
    consumer = make_consumer(
        group=group, partitions=[0], auto_commit_every_n=10, auto_commit_every_t=None
    )
    for _ in range(9):
        assert consumer.get_message(timeout=30) is not None
    assert committed(client, group, topic) == -1
    consumer.get_message(timeout=30)
    assert committed(client, group, topic) == 10
    consumer.get_messages(5, timeout=30)
    consumer.stop()  # commits only with a timer
    assert committed(client, group, topic) == 10


def test_group_commits_every_so_often_and_when_it_stops(
    send: Send,
    make_consumer: Make,
    client: Any,
    group: str,
    topic: str,
    wait_until: Callable[..., None],
) -> None:
    send(0, range(30))
    consumer = make_consumer(
        group=group, partitions=[0], auto_commit_every_n=None, auto_commit_every_t=200
    )
    consumer.get_messages(7, timeout=30)
    wait_until(lambda: committed(client, group, topic) == 7)
    consumer.auto_commit_every_t = None
    consumer.get_messages(2, timeout=30)
    consumer.stop()
    assert committed(client, group, topic) == 9


def test_commit_that_fails_is_reported_and_tried_again(
    send: Send,
    make_consumer: Make,
    client: Any,
    group: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from cykafka.compat.kafka_python.common import KafkaUnavailableError

    def fail(*_: Any) -> None:
        raise KafkaUnavailableError("gone")

    send(0, range(3))
    consumer = make_consumer(group=group, partitions=[0], auto_commit=False)
    consumer.get_messages(3, timeout=30)
    with monkeypatch.context() as patch:
        patch.setattr(client, "send_offset_commit_request", fail)
        assert consumer.commit() is False
    assert "KafkaUnavailableError saving offsets: gone" in caplog.text
    assert consumer.commit() is True
    assert committed(client, group, topic) == 3


def test_waits_as_long_as_asked(send: Send, make_consumer: Make, values: Values) -> None:
    consumer = make_consumer(partitions=[0])
    for block, timeout in ((True, 0.6), (2, 0.6)):
        begun = time.monotonic()
        assert consumer.get_messages(5, block=block, timeout=timeout) == []
        assert 0.6 <= time.monotonic() - begun < 5
    begun = time.monotonic()
    assert consumer.get_messages(5, block=False) == []
    assert time.monotonic() - begun < 0.5
    sent = send(0, range(3))
    assert values(consumer.get_messages(10, block=2, timeout=30)) == sent
    sent = send(0, range(3))
    assert values(consumer.get_messages(3, timeout=None)) == sent


def test_large_message_makes_the_buffer_grow(
    client: Any, topic: str, make_consumer: Make, values: Values
) -> None:
    sizes = [10, 5000, 20_000, MAX_FETCH_BUFFER_SIZE_BYTES - 26]
    messages = [create_message(b"x" * size) for size in sizes]
    client.send_produce_request([ProduceRequest(topic, 0, messages)])
    consumer = make_consumer(partitions=[0], iter_timeout=1)
    assert [len(value) for value in values(consumer)] == sizes


def test_message_larger_than_the_largest_buffer_is_an_error(
    client: Any, topic: str, make_consumer: Make, values: Values
) -> None:
    huge = b"x" * (MAX_FETCH_BUFFER_SIZE_BYTES + 10)
    client.send_produce_request([ProduceRequest(topic, 0, [create_message(huge)])])
    consumer = make_consumer(partitions=[0])
    for _ in range(2):
        with pytest.raises(ConsumerFetchSizeTooSmall):
            consumer.get_message(timeout=30)
    unlimited = make_consumer(partitions=[0], max_buffer_size=None)
    assert values(unlimited.get_messages(1, timeout=30)) == [huge]


def test_messages_before_an_error_come_first(
    client: Any, topic: str, make_consumer: Make, values: Values
) -> None:
    sent = [b"1", b"2", b"x" * (MAX_FETCH_BUFFER_SIZE_BYTES + 10)]
    messages = [create_message(value) for value in sent]
    client.send_produce_request([ProduceRequest(topic, 0, messages)])
    consumer = make_consumer(partitions=[0])
    assert values(consumer.get_messages(3, timeout=30)) == sent[:2]
    with pytest.raises(ConsumerFetchSizeTooSmall):
        consumer.get_messages(3, timeout=30)


def test_forgotten_consumer_commits_when_the_interpreter_ends(
    run_script: RunScript, cluster: Any, client: Any, topic: str, group: str, send: Send
) -> None:
    send(0, range(7))
    done = run_script(
        f"""
from cykafka.compat.kafka_python import KafkaClient, SimpleConsumer
def main():
    consumer = SimpleConsumer(KafkaClient({cluster.bootstrap_servers!r}), {group!r}, {topic!r})
    assert len(consumer.get_messages(7, timeout=30)) == 7
main()
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert committed(client, group, topic) == 7


def test_buffer_larger_than_the_largest_is_refused(make_consumer: Make) -> None:
    with pytest.raises(ValueError, match="buffer_size"):
        make_consumer(buffer_size=10, max_buffer_size=9)


def test_unknown_topic_is_an_error(client: Any) -> None:
    from cykafka.compat.kafka_python import SimpleConsumer

    with pytest.raises(UnknownTopicOrPartitionError):
        SimpleConsumer(client, None, "topic", partitions=[77]).get_message(timeout=10)


def test_two_consumers_of_one_client_do_not_disturb_each_other(
    send: Send, make_consumer: Make, values: Values
) -> None:
    sent = send(0, range(200))
    one, two = make_consumer(partitions=[0]), make_consumer(partitions=[0])
    found: dict[int, list[bytes]] = {1: [], 2: []}
    for _ in range(5):
        found[1] += values(one.get_messages(40, timeout=30))
        found[2] += values(two.get_messages(40, timeout=30))
    assert found == {1: sent, 2: sent}


# -- the context


def test_context_commits_what_was_marked_and_returns_to_it(
    send: Send, make_consumer: Make, client: Any, group: str, topic: str, values: Values
) -> None:
    sent = send(0, range(10))
    consumer = make_consumer(group=group, auto_commit=False, partitions=[0])
    consumer.provide_partition_info()
    consumer.fetch_last_known_offsets()
    with OffsetCommitContext(consumer) as context:
        assert not context
        for partition, message in consumer.get_messages(10, timeout=30):
            if message.offset == 6:
                break
            context.mark(partition, message.offset)
        assert context
    assert committed(client, group, topic) == 6
    again = [message for _, message in consumer.get_messages(4, timeout=30)]
    assert values(again) == sent[6:]


def test_context_returns_to_its_beginning_after_an_error(
    send: Send, make_consumer: Make, client: Any, group: str, topic: str, values: Values
) -> None:
    sent = send(0, range(10))
    consumer = make_consumer(group=group, auto_commit=False, partitions=[0])

    def fail() -> None:
        with OffsetCommitContext(consumer) as context:
            consumer.get_messages(5, timeout=30)
            context.mark(0, 3)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert committed(client, group, topic) == -1
    assert values(consumer.get_messages(10, timeout=30)) == sent
    with OffsetCommitContext(consumer):
        raise OffsetOutOfRangeError
    assert values(consumer.get_messages(10, timeout=30)) == sent


def test_stop_within_a_commit(
    client: Any, topic: str, send: Any, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(0, range(10))
    consumer = SimpleConsumer(client, group, topic)
    assert len(consumer.get_messages(10, timeout=20)) == 10
    commit = client.send_offset_commit_request
    nested = []

    def interrupted(*args: Any) -> Any:
        if not nested:
            nested.append(True)
            consumer.stop()  # as a signal handler may do
        return commit(*args)

    monkeypatch.setattr(client, "send_offset_commit_request", interrupted)
    assert consumer.commit() is True
    assert consumer.count_since_commit == 0


def test_consumer_without_automatic_commits_is_freed(client: Any, topic: str) -> None:
    consumer = SimpleConsumer(client, "g", topic, auto_commit=False)
    alive = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert alive() is None


def test_interpreter_s_end_stops_the_other_consumers_if_one_fails(run_script: RunScript) -> None:
    done = run_script(
        """
        from cykafka.compat.kafka_python.consumer.base import Consumer

        class Client:
            def load_metadata_for_topics(self, topic): pass

        class Loud(Consumer):
            def stop(self):
                print("stopped")
                raise KeyboardInterrupt

        consumers = [Loud(Client(), None, "t", partitions=[0]) for _ in range(3)]
        """
    )
    assert (done.returncode, done.stdout) == (0, "stopped\n" * 3), done.stderr
