"""SimpleProducer and KeyedProducer, sync and async."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import RunScript

from cykafka.compat.kafka_python import (
    KeyedProducer,
    Murmur2Partitioner,
    RoundRobinPartitioner,
    SimpleProducer,
)
from cykafka.compat.kafka_python.common import (
    AsyncProducerQueueFull,
    FailedPayloadsError,
    KafkaError,
    NotLeaderForPartitionError,
    ProduceResponse,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)
from cykafka.compat.kafka_python.producer.base import Producer
from cykafka.compat.kafka_python.protocol import CODEC_GZIP, CODEC_SNAPPY

Read = Callable[[int], list[Any]]


class FakeClient:
    """A client that records requests and returns what a test gave it. Not a KafkaClient."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.sent: list[list[bytes]] = []
        self.arrived = threading.Event()
        self.refreshed = 0
        self.closed = False

    def copy(self) -> FakeClient:
        return self

    def reinit(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def load_metadata_for_topics(self) -> None:
        self.refreshed += 1

    def send_produce_request(
        self, payloads: Any, acks: int, timeout: int, fail_on_error: bool
    ) -> Any:
        responses = []
        for payload in payloads:
            self.sent.append([message.value for message in payload.messages])
            outcome = self.outcomes.pop(0) if self.outcomes else 0
            if isinstance(outcome, type):
                outcome = outcome(payload)
            if isinstance(outcome, Exception) and not isinstance(outcome, FailedPayloadsError):
                raise outcome
            if isinstance(outcome, int):
                outcome = ProduceResponse(payload.topic, payload.partition, outcome, 0)
            responses.append(outcome)
        self.arrived.set()
        return responses


# -- sync


def test_simple_producer_takes_the_partitions_in_turn(
    client: Any, topic: str, read_records: Read
) -> None:
    producer = SimpleProducer(client, random_start=False)
    responses = [producer.send_messages(topic, b"%d" % n, b"%d again" % n) for n in range(5)]
    assert responses == [
        [ProduceResponse(topic.encode(), number, 0, 0)] for number in range(4)
    ] + [[ProduceResponse(topic.encode(), 0, 0, 2)]]
    found = Counter(record.partition() for record in read_records(10))
    assert found == {0: 4, 1: 2, 2: 2, 3: 2}


def test_simple_producer_begins_anywhere(client: Any, topic: str) -> None:
    first = {
        SimpleProducer(client).send_messages(topic.encode(), b"x")[0].partition for _ in range(60)
    }
    assert len(first) > 1


def test_keyed_producer_keeps_keys_together(client: Any, topic: str, read_records: Read) -> None:
    producer = KeyedProducer(client, partitioner=Murmur2Partitioner)
    for number in range(40):
        producer.send_messages(topic, b"key%d" % (number % 8), b"%d" % number)
    producer.send_messages(topic, b"key0", None)
    places: dict[bytes, set[int]] = {}
    for record in read_records(41):
        places.setdefault(record.key(), set()).add(record.partition())
    assert len(places) == 8
    assert all(len(numbers) == 1 for numbers in places.values())
    assert len(set().union(*places.values())) > 1


def test_keyed_producer_with_other_partitioners(
    client: Any, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = KeyedProducer(client, partitioner=RoundRobinPartitioner)
    found = [producer.send_messages(topic, b"k", b"x")[0].partition for _ in range(4)]
    assert found == [0, 1, 2, 3]
    assert caplog.text == ""
    default = KeyedProducer(client)
    with pytest.deprecated_call():
        assert default.send(topic, b"k", b"x")[0].error == 0
    assert "Murmur2Partitioner" in caplog.text


@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_SNAPPY])
def test_codec_reaches_the_broker(
    client: Any, topic: str, codec: int, read_records: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cykafka.compat.kafka_python._handles import Handles

    wanted = []
    make = Handles.producer

    def producer_for(self: Handles, *key: Any) -> Any:
        wanted.append(key)
        return make(self, *key)

    monkeypatch.setattr(Handles, "producer", producer_for)
    producer = SimpleProducer(client, codec=codec, codec_compresslevel=3, random_start=False)
    producer.send_messages(topic, b"x" * 10_000, b"y" * 10_000)
    assert [record.value()[:1] for record in read_records(2)] == [b"x", b"y"]
    assert wanted == [(1, 1000, codec, 3)]


def test_error_is_raised_or_returned(client: Any, topic: str) -> None:
    producer = SimpleProducer(client)
    with pytest.raises(KafkaError) as caught:
        producer.send_messages(topic, b"x" * 3_000_000)
    assert caught.value.errno == 10  # type: ignore[attr-defined]
    producer = SimpleProducer(client, sync_fail_on_error=False)
    (response,) = producer.send_messages(topic, b"x" * 3_000_000)
    assert response.error == 10


def test_unknown_topic_is_an_error_also_without_fail_on_error(client: Any) -> None:
    producer = Producer(client, sync_fail_on_error=False)
    with pytest.raises(KafkaError):
        producer.send_messages(b"not/a/topic", 0, b"x")


@pytest.mark.parametrize(
    "arguments", [("t", 0, "text"), ("t", 0, None), ("t", 0, 5), (5, 0, b"x")]
)
def test_wrong_message_is_a_type_error(arguments: tuple[Any, ...]) -> None:
    client = FakeClient()
    with pytest.raises(TypeError):
        Producer(client).send_messages(*arguments)
    assert client.sent == []


def test_wrong_arguments_are_refused() -> None:
    client = FakeClient()
    with pytest.raises(UnsupportedCodecError):
        Producer(client, codec=7)
    for wrong in (
        {"batch_send_every_n": 0},
        {"batch_send_every_t": 0},
        {"async_queue_maxsize": -1},
    ):
        with pytest.raises(AssertionError):
            Producer(client, async_=True, **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="asink"):
        Producer(client, asink=True)


@pytest.mark.parametrize("name", ["async", "async_", "is_async", "async_send", "batch_send"])
def test_async_has_several_names(name: str) -> None:
    client = FakeClient()
    producer = Producer(client, **{name: True})
    assert getattr(producer, "async") is True
    producer.send_messages("t", 0, b"x")
    producer.stop()
    assert client.sent == [[b"x"]]
    assert client.closed


# -- async


def test_async_producer_sends_after_n_messages() -> None:
    client = FakeClient()
    producer = Producer(client, async_=True, batch_send_every_n=3, batch_send_every_t=60)
    assert producer.send_messages("t", 0, b"1", b"2", b"3", b"4") == []
    assert client.arrived.wait(30)
    assert client.sent == [[b"1", b"2", b"3"]]
    producer.stop()
    assert client.sent == [[b"1", b"2", b"3"], [b"4"]]


def test_async_producer_sends_after_t_seconds() -> None:
    client = FakeClient()
    producer = Producer(client, async_=True, batch_send_every_n=100, batch_send_every_t=0.3)
    begun = time.monotonic()
    producer.send_messages("t", 0, b"1", b"2")
    assert client.arrived.wait(30)
    assert time.monotonic() - begun >= 0.2
    assert client.sent == [[b"1", b"2"]]
    producer.stop()


def test_async_producer_delivers_everything_when_it_stops(
    client: Any, topic: str, read_records: Read
) -> None:
    producer = SimpleProducer(client, async_=True, batch_send_every_t=60)
    sent = [b"%d" % number for number in range(500)]
    for value in sent:
        producer.send_messages(topic, value)
    producer.stop()
    assert sorted(record.value() for record in read_records(500)) == sorted(sent)


def test_async_keyed_producer_keeps_the_order(client: Any, topic: str, read_records: Read) -> None:
    producer = KeyedProducer(
        client, partitioner=Murmur2Partitioner, codec=CODEC_GZIP, **{"async": True}
    )
    for number in range(200):
        producer.send_messages(topic, b"key%d" % (number % 5), b"%d" % number)
    producer.stop()
    by_key: dict[bytes, list[int]] = {}
    for record in read_records(200):
        by_key.setdefault(record.key(), []).append(int(record.value()))
    assert {key: sorted(numbers) for key, numbers in by_key.items()} == by_key
    assert sum(map(len, by_key.values())) == 200


@pytest.mark.parametrize("outcome", [6, 3, 5, 7, FailedPayloadsError])
def test_async_producer_sends_again(outcome: Any) -> None:
    client = FakeClient(outcome, outcome)
    producer = Producer(client, async_=True, async_retry_backoff_ms=1)
    producer.send_messages("t", 0, b"1", b"2")
    producer.stop()
    assert client.sent == [[b"1", b"2"]] * 3
    assert client.refreshed == (2 if outcome in (6, 3, 5) else 0)


@pytest.mark.parametrize("options", [{}, {"async_retry_limit": 2}])
def test_async_producer_gives_up_where_it_should(
    options: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    outcome = 10 if not options else NotLeaderForPartitionError.errno
    client = FakeClient(*[outcome] * 5)
    producer = Producer(client, async_=True, async_retry_backoff_ms=1, **options)  # type: ignore[arg-type]
    producer.send_messages("t", 0, b"1")
    producer.stop()
    assert client.sent == [[b"1"]] * (3 if options else 1)
    assert "sending ProduceRequest" in caplog.text


def test_async_producer_does_not_retry_timeouts_if_told_so() -> None:
    client = FakeClient(RequestTimedOutError.errno)
    producer = Producer(client, async_=True, async_retry_on_timeouts=False)
    producer.send_messages("t", 0, b"1")
    producer.stop()
    assert client.sent == [[b"1"]]


def test_async_producer_survives_what_the_client_raises(caplog: pytest.LogCaptureFixture) -> None:
    client = FakeClient(KafkaError("first"), 0, UnknownTopicOrPartitionError("no topic"))
    producer = Producer(client, async_=True, batch_send_every_n=2, async_retry_limit=0)
    producer.send_messages("t", 0, b"1", b"2")
    producer.send_messages("u", 0, b"3")
    producer.send_messages("v", 0, b"4")
    producer.stop()
    assert b"4" in client.sent[-1]
    assert "KafkaError sending ProduceRequest" in caplog.text


def test_async_producer_hides_messages_if_told_so(caplog: pytest.LogCaptureFixture) -> None:
    for shown in (True, False):
        caplog.clear()
        client = FakeClient(10)
        producer = Producer(client, async_=True, async_log_messages_on_error=shown)
        producer.send_messages("t", 0, b"a secret")
        producer.stop()
        assert ("a secret" in caplog.text) is shown


def test_full_queue_is_an_error_with_the_messages_left_over() -> None:
    client = FakeClient()
    gate = threading.Event()

    def hang(*_: Any, **__: Any) -> list[Any]:
        gate.wait(30)
        return []

    client.send_produce_request = hang  # type: ignore[method-assign]
    for wait in (0, 0.2):
        gate.clear()
        producer = Producer(
            client,
            async_=True,
            batch_send_every_n=1,
            async_queue_maxsize=5,
            async_queue_put_timeout=wait,
        )
        messages = [b"%d" % number for number in range(20)]
        begun = time.monotonic()
        with pytest.raises(AsyncProducerQueueFull) as caught:
            producer.send_messages("t", 0, *messages)
        assert wait <= time.monotonic() - begun < 10
        assert list(caught.value.failed_msgs) == messages[-len(caught.value.failed_msgs) :]
        assert len(caught.value.failed_msgs) in (14, 15)
        gate.set()
        producer.stop()


def test_stop_ends_after_its_timeout_and_tells_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = FakeClient(*[FailedPayloadsError] * 1000)
    producer = Producer(
        client,
        async_=True,
        async_retry_backoff_ms=20,
        async_stop_timeout=0.5,
        batch_send_every_n=2,
    )
    producer.send_messages("t", 0, b"1", b"2", b"3")
    begun = time.monotonic()
    producer.stop()
    assert 0.3 <= time.monotonic() - begun < 10
    assert "Stopped producer with 3 unsent messages" in caplog.text


def test_stopped_producer_refuses_messages(caplog: pytest.LogCaptureFixture) -> None:
    producer = Producer(FakeClient(), async_=True)
    producer.stop()
    with pytest.raises(KafkaError, match="stopped"):
        producer.send_messages("t", 0, b"1")
    producer.stop()
    assert "already stopped" in caplog.text
    sync = Producer(FakeClient())
    sync.stop(timeout=1)
    assert "not async" in caplog.text


def test_forgotten_producer_sends_what_it_has() -> None:
    client = FakeClient()
    producer = Producer(client, async_=True)
    producer.send_messages("t", 0, b"1")
    del producer
    gc.collect()
    assert client.sent == [[b"1"]]


@pytest.mark.parametrize("first", ["", "import weakref; weakref.finalize(type, print)"])
def test_producer_sends_what_it_has_when_the_interpreter_ends(
    run_script: RunScript, cluster: Any, topic: str, read_records: Read, first: str
) -> None:
    # All finalizers of a process run when the first one was to run: that may be late.
    done = run_script(
        f"""
{first}
from cykafka.compat import kafka_python
kafka_python.install()
from kafka import KafkaClient, SimpleProducer
producer = SimpleProducer(KafkaClient({cluster.bootstrap_servers!r}), async_=True)
producer.send_messages({topic!r}, b"1", b"2")
"""
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(record.value() for record in read_records(2)) == [b"1", b"2"]


def test_loggers_have_the_names_of_the_release() -> None:
    from cykafka.compat.kafka_python.producer import base

    assert base.log is logging.getLogger("kafka.producer")


def test_stop_does_not_wait_for_a_batch_to_fill() -> None:
    client = FakeClient()
    producer = Producer(
        client,
        async_=True,
        async_queue_maxsize=2,
        async_queue_put_timeout=30,
        batch_send_every_t=600,
        batch_send_every_n=100,
    )
    producer.send_messages("t", 0, *[b"x"] * 50)
    begun = time.monotonic()
    producer.stop()
    assert time.monotonic() - begun < 20
    assert sum(map(len, client.sent)) == 50


def test_stop_in_a_signal_handler_does_not_deadlock(run_script: RunScript) -> None:
    done = run_script(
        """
import os, signal, threading, time
from cykafka.compat.kafka_python.producer.base import Producer
from cykafka.compat.kafka_python.common import KafkaError
class Client:
    def copy(self): return self
    def reinit(self): pass
    def close(self): pass
    def send_produce_request(self, payloads, **_):
        time.sleep(0.5)
        return []
producer = Producer(Client(), async_=True, async_queue_maxsize=1, async_queue_put_timeout=60,
                    batch_send_every_n=1)
signal.signal(signal.SIGTERM, lambda *_: producer.stop())
threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    producer.send_messages("t", 0, *[b"x"] * 4)
except KafkaError as error:
    print(error)
print("done")
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


def test_unknown_topic_does_not_hold_back_the_others(
    client: Any, topic: str, caplog: pytest.LogCaptureFixture, read_records: Read
) -> None:
    producer = Producer(client, async_=True, batch_send_every_n=1)
    producer.send_messages(topic, 77, b"nowhere")
    producer.send_messages(topic, 0, b"somewhere")
    producer.stop()
    assert [record.value() for record in read_records(1)] == [b"somewhere"]
    assert "UnknownTopicOrPartitionError sending ProduceRequest" in caplog.text


def test_async_producer_uses_a_subclass_of_the_client(client: Any, topic: str) -> None:
    from cykafka.compat.kafka_python import KafkaClient

    class Client(KafkaClient):
        def send_produce_request(self, payloads: Any = (), *args: Any, **options: Any) -> Any:
            self.seen.append(payloads)  # type: ignore[attr-defined]
            return super().send_produce_request(payloads, *args, **options)

    own = Client([f"{host}:{port}" for host, port in client.hosts])
    own.seen = []  # type: ignore[attr-defined]
    producer = Producer(own, async_=True)
    producer.send_messages(topic, 0, b"x")
    producer.stop()
    assert len(own.seen) == 1  # type: ignore[attr-defined]
    own.close()


class SlowClient(FakeClient):
    """A client whose requests take a while and fail."""

    stopping: threading.Event

    def send_produce_request(self, payloads: Any, **_: Any) -> Any:
        self.sent.append([])
        self.arrived.set()
        self.stopping.wait(20)
        time.sleep(0.3)
        return [FailedPayloadsError(payload) for payload in payloads]


def test_stop_time_begins_with_the_call() -> None:
    client = SlowClient()
    producer = Producer(client, async_=True, batch_send_every_n=1, async_stop_timeout=0.1)
    client.stopping = producer.thread_stop_event
    producer.send_messages("t", 0, b"x")
    client.arrived.wait(20)
    producer.stop()  # in the middle of a request
    assert len(client.sent) == 1


def test_stop_in_a_signal_handler(run_script: RunScript) -> None:
    done = run_script(
        """
        import signal
        from cykafka.compat.kafka_python.common import KafkaError
        from cykafka.compat.kafka_python.producer.base import Producer

        class Client:
            def copy(self): return self
            def reinit(self): pass
            def close(self): pass
            def send_produce_request(self, payloads, **options): return []

        def stop(*_):
            producer.stop()

        signal.signal(signal.SIGALRM, stop)
        for number in range(100):
            producer = Producer(Client(), async_=True, async_queue_maxsize=1000 * (number % 2),
                                async_queue_put_timeout=5)
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            try:
                while True:
                    producer.send_messages("t", 0, b"x")
            except KafkaError:
                pass
        """,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_can_be_sent_again_is_sent_again() -> None:
    """One message is refused for good, and the leader of another has moved."""
    client = FakeClient(NotLeaderForPartitionError.errno, 0)
    producer = Producer(client, async_=True, async_retry_backoff_ms=1)
    producer.send_messages("t", 0, b"x")
    producer.stop()
    assert client.sent == [[b"x"]] * 2


def test_interpreter_s_end_stops_all_producers(run_script: RunScript) -> None:
    done = run_script(
        """
        import time
        from cykafka.compat.kafka_python.common import FailedPayloadsError
        from cykafka.compat.kafka_python.producer.base import Producer

        class Client:
            def copy(self): return self
            def reinit(self): pass
            def close(self): pass
            def load_metadata_for_topics(self): pass
            def send_produce_request(self, payloads, **options):
                time.sleep(0.2)
                return [FailedPayloadsError(payload) for payload in payloads]

        producers = [Producer(Client(), async_=True, async_stop_timeout=2) for _ in range(10)]
        for producer in producers:
            producer.send_messages("t", 0, b"x")
        """,
        timeout=15,
    )
    assert done.returncode == 0
    assert done.stderr.count("Stopped producer with 1 unsent messages") == 10
