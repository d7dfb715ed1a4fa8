"""Waiting for room and for outcomes: in several threads, with interrupts and close()."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, RunScript, Unique, WaitUntil
from live import live_before
from machine import WAIT_S, wake_up_s

from cykafka import Delivery, DeliveryError, KafkaError

pytestmark = pytest.mark.ours


class Thread(threading.Thread):
    """A thread whose `end()` waits for it and returns its result."""

    def __init__(self, target: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = target
        self.result: Any = None
        self.error: BaseException | None = None
        self.started_work = threading.Event()
        self.start()

    def run(self) -> None:
        self.started_work.set()
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error

    def end(self, timeout: float = WAIT_S) -> Any:
        self.join(timeout)
        assert not self.is_alive(), "the thread hangs"
        if self.error is not None:
            raise self.error
        return self.result


@pytest.fixture
def tiny(make_producer: MakeProducer) -> Any:
    """A producer with room for ten records."""
    return make_producer({"queue.buffering.max.messages": 10})


@pytest.fixture
def stuck(make_producer: MakeProducer) -> Any:
    """A producer with room for ten records, and without a broker to send them to."""
    return make_producer(
        {"queue.buffering.max.messages": 10, "bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    )


def test_publish_waits_for_room_in_a_full_queue(tiny: Any, topic: str) -> None:
    delivery = tiny.publish(topic, [str(number) for number in range(1000)], partitions=0)

    delivery.wait(WAIT_S)
    assert list(delivery.offsets) == list(range(1000))


@pytest.mark.parametrize("headers", [None, {"h": "x"}])
def test_full_queue_fails_the_rest_after_the_timeout(stuck: Any, topic: str, headers: Any) -> None:
    started = time.monotonic()

    delivery = stuck.publish(topic, ["a"] * 25, headers=headers, timeout=0.2)

    assert 0.15 < time.monotonic() - started < 5
    assert not delivery.done
    assert {index: error.code() for index, error in delivery.errors.items()} == dict.fromkeys(
        range(10, 25), KafkaError._QUEUE_FULL
    )
    stuck.purge()
    with pytest.raises(DeliveryError, match=r"25 of 25 record\(s\)"):
        delivery.wait(WAIT_S)


def test_zero_timeout_does_not_wait(stuck: Any, topic: str) -> None:
    stuck.publish(topic, ["a"] * 10, timeout=0)

    delivery = stuck.publish(topic, ["b"] * 3, timeout=0)

    assert delivery.done
    assert delivery.failed == 3


def test_value_larger_than_the_queue_fails_at_once(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer({"queue.buffering.max.kbytes": 2})
    for headers in (None, {"h": "x"}):
        delivery = producer.publish(
            topic, ["a", b"x" * 5000, "c", b"y" * 1500, b"z" * 1500], headers=headers, partitions=0
        )

        with pytest.raises(DeliveryError):
            delivery.wait(WAIT_S)
        assert {index: error.code() for index, error in delivery.errors.items()} == {
            1: KafkaError._QUEUE_FULL
        }


def test_callbacks_run_while_publish_waits_for_room(tiny: Any, topic: str) -> None:
    calls: list[Delivery] = []
    tiny.publish(topic, ["a"] * 10).add_done_callback(calls.append)

    tiny.publish(topic, ["b"] * 100)

    assert len(calls) == 1


def test_callback_that_raises_leaves_the_delivery_on_its_exception(tiny: Any, topic: str) -> None:
    def fail(_: Delivery) -> None:
        raise ArithmeticError("mine")

    tiny.publish(topic, ["a"] * 10).add_done_callback(fail)

    with pytest.raises(ArithmeticError) as raised:
        tiny.publish(topic, ["b"] * 100)

    delivery = raised.value.delivery  # type: ignore[attr-defined]
    tiny.flush(WAIT_S)
    assert delivery.done
    assert 0 < delivery.failed <= 100
    codes = {error.code() for error in delivery.errors.values()}
    assert codes == {KafkaError._QUEUE_FULL}
    assert min(delivery.errors) == 100 - delivery.failed


def test_close_by_another_thread_fails_the_records_not_yet_queued(
    make_producer: MakeProducer, topic: str
) -> None:
    stuck = make_producer(
        {
            "queue.buffering.max.messages": 10,
            "bootstrap.servers": "127.0.0.1:1",
            "message.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    thread = Thread(lambda: stuck.publish(topic, ["a"] * 100))
    while len(stuck) < 10:
        thread.join(0.01)

    stuck.close()

    with pytest.raises(RuntimeError, match="clos") as raised:
        thread.end()
    delivery = raised.value.delivery  # type: ignore[attr-defined]
    assert delivery.done
    assert [error.code() for error in delivery.errors.values()] == (
        [KafkaError._MSG_TIMED_OUT] * 10 + [KafkaError._DESTROY] * 90
    )


@pytest.mark.alone
def test_wait_with_a_polling_thread_ends_at_once(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            producer.poll(1)

    poller = Thread(poll)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        producer.publish(topic, ["a"]).wait(WAIT_S)
        times.append(time.perf_counter() - started)
    over.set()
    poller.end()

    assert sorted(times)[25] < 0.05 + 4 * wake_up_s()  # less than a wait slice of 100 ms


@pytest.mark.alone
def test_wait_with_a_flushing_thread_ends_at_once(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 5})
    producer.publish(topic, ["warm up"]).wait(WAIT_S)
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            producer.flush(1)

    flusher = Thread(flush)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        producer.publish(topic, ["a"]).wait(WAIT_S)
        times.append(time.perf_counter() - started)
    over.set()
    flusher.end()

    assert sorted(times)[25] < 0.05 + 4 * wake_up_s()


def test_wait_keeps_the_order_of_reports(
    kafka: Any,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    wait_until: WaitUntil,
) -> None:
    # The wait ends at a report in the middle of a batch, while those of other batches wait.
    producer = make_producer({"linger.ms": 20, "batch.num.messages": 1000})
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None
        offsets.append(message.offset())

    delivery = producer.publish(topic, ["a"] * 10, partitions=0)
    for _ in range(5000):
        producer.produce(topic, b"b", partition=0, on_delivery=delivered)
    consumer, partition = make_consumer(), kafka.TopicPartition(topic, 0)
    wait_until(lambda: consumer.get_watermark_offsets(partition)[1] == 5010)
    delivery.wait(WAIT_S)
    assert producer.flush(WAIT_S) == 0

    assert offsets == list(range(10, 5010))


def test_flush_takes_over_from_a_polling_thread(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 60_000})
    delivery = producer.publish(topic, ["a"])
    poller = Thread(lambda: producer.poll(60))
    poller.started_work.wait()
    time.sleep(0.05)  # until it waits; no event signals that, and a shorter sleep does no harm
    started = time.monotonic()

    producer.flush()

    assert time.monotonic() - started < 10
    assert delivery.done
    producer.publish(topic, ["b"])
    producer.flush()
    producer.close()
    with contextlib.suppress(RuntimeError):  # it still waited
        poller.end()


@pytest.mark.parametrize("call", ["publish", "produce"])
def test_room_freed_by_another_thread_is_used(tiny: Any, topic: str, call: str) -> None:
    """The other thread may have served the last report, so no later report ends the wait."""
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            tiny.poll(1)

    def publish() -> None:
        for _ in range(40):
            if call == "publish":
                tiny.publish(topic, ["a"] * 30)
            else:
                for _ in range(30):
                    tiny.produce(topic, "a", timeout=None)

    poller = Thread(poll)
    publisher = Thread(publish)
    try:
        publisher.end(30)
    finally:
        over.set()
    poller.end()
    assert tiny.flush(WAIT_S) == 0


def test_many_threads_publish_and_wait(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"queue.buffering.max.messages": 100})

    def work() -> int:
        done = 0
        for number in range(40):
            delivery = producer.publish(topic, ["x" * (number * 10)] * 7)
            delivery.wait(WAIT_S)
            done += len(delivery) - delivery.failed
        return done

    threads = [Thread(work) for _ in range(8)]

    assert [thread.end(30) for thread in threads] == [280] * 8


def test_waiting_threads_outlive_a_close(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"linger.ms": 300})
    deliveries = [producer.publish(topic, ["a"] * 10) for _ in range(4)]
    threads = [Thread(delivery.wait) for delivery in deliveries]
    for thread in threads:
        thread.started_work.wait()

    producer.close()

    for thread in threads:
        thread.end()
    assert [delivery.failed for delivery in deliveries] == [0] * 4


def test_missing_outcome_is_an_error_after_close(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    delivery = producer.publish(topic, ["a"] * 10)
    waiter = Thread(delivery.wait)
    waiter.started_work.wait()

    producer.purge()
    producer.close()

    with pytest.raises(DeliveryError, match=r"10 of 10"):
        waiter.end()


def test_dropped_producer_releases_everything(kafka: Any, cluster: Any, topic: str) -> None:
    from cykafka.testing import live_handles

    before = live_before()
    producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    calls: list[Any] = []
    producer.publish(topic, [b"x" * 1000] * 10)
    producer.publish(topic, ["a"] * 10)
    producer.publish(topic, ["a"] * 10).add_done_callback(calls.append)

    with pytest.warns(RuntimeWarning, match=r"30 message\(s\)"):
        del producer

    assert live_handles() == before
    assert calls == []


def test_delivery_keeps_its_producer(kafka: Any, cluster: Any, topic: str) -> None:
    producer = kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    delivery = producer.publish(topic, ["a"])
    del producer

    delivery.wait(WAIT_S)

    assert delivery.failed == 0
    with pytest.warns(ResourceWarning):
        del delivery


def test_every_record_has_one_outcome_when_the_broker_goes_down(
    make_producer: MakeProducer, unique: Unique
) -> None:
    from cykafka.testing import MockCluster

    with MockCluster() as cluster:
        topic = unique("topic")
        cluster.create_topic(topic, 4)
        producer = make_producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "message.timeout.ms": 4000,
                # librdkafka 2.15 may notice timed-out messages only at its next attempt.
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        before = producer.publish(topic, ["a"] * 1000)
        before.wait(WAIT_S)
        deliveries = [producer.publish(topic, ["b"] * 1000) for _ in range(5)]
        cluster.broker_down(1)
        deliveries += [producer.publish(topic, ["c"] * 1000) for _ in range(5)]
        for delivery in deliveries:
            with contextlib.suppress(DeliveryError):
                delivery.wait(WAIT_S)
        for delivery in deliveries:
            assert delivery.done
            assert delivery.failed == len(delivery.errors)
            good = [offset for offset in delivery.offsets if offset >= 0]
            assert len(good) + delivery.failed == 1000
        assert deliveries[-1].failed == 1000
        producer.close()


INTERRUPTED = """
    import os, signal, sys, threading, time

    producer = kafka.Producer({
        "bootstrap.servers": "127.0.0.1:1", "log_level": 0, "queue.buffering.max.messages": 10,
    })

    def interrupt():
        time.sleep(0.5)  # until it waits; no event signals that
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    started = time.monotonic()
    try:
        if sys.argv[1] == "wait":
            producer.publish("t", ["a"] * 5).wait()
        else:
            producer.publish("t", ["a"] * 100)
    except KeyboardInterrupt as error:
        took = time.monotonic() - started
        delivery = getattr(error, "delivery", None)
    assert took < 10, took
    if sys.argv[1] != "wait":
        assert delivery.failed == 90 and not delivery.done, delivery
        codes = {error.code() for error in delivery.errors.values()}
        assert codes == {kafka.KafkaError._QUEUE_FULL}, codes
    producer.purge()
    producer.close()
    print("fine")
"""


@pytest.mark.parametrize("where", ["wait", "publish"])
def test_interrupt_ends_the_wait(run_script: RunScript, where: str) -> None:
    process = run_script(INTERRUPTED, where)

    assert process.stdout == "fine\n", process.stderr


FORKED = """
    import asyncio, os, sys
    from cykafka.testing import MockCluster

    with MockCluster() as cluster, kafka.Producer({
        "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 300,
    }) as producer:
        delivery = producer.publish("t", ["a" * 1000] * 5)
        told = []
        delivery.add_done_callback(told.append)
        pid = os.fork()
        if pid == 0:
            try:
                assert not delivery.done
                assert list(delivery.offsets) == [-1001] * 5
                for call in (
                    delivery.wait,
                    lambda: producer.publish("t", ["a"]),
                    lambda: asyncio.run(asyncio.wait_for(delivery, 5)),
                ):
                    try:
                        call()
                    except RuntimeError as error:
                        assert "fork" in str(error), error
                    else:
                        raise AssertionError("no error")
                del delivery
                os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        delivery.wait(10)
        assert told == [delivery]
    print("fine")
"""


def test_forked_child_is_refused(run_script: RunScript) -> None:
    process = run_script(FORKED)

    assert process.stdout == "fine\n", process.stderr


FORKING_CALLBACK = """
    import os
    from cykafka.testing import MockCluster

    with MockCluster() as cluster, kafka.Producer({
        "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0,
    }) as producer:
        parent = os.getpid()
        told = []
        children = []
        def fork(_):
            told.append("fork")
            pid = os.fork()
            if pid:
                children.append(pid)
        delivery = producer.publish("t", ["a"])
        delivery.add_done_callback(fork)
        delivery.add_done_callback(lambda _: told.append("second"))
        try:
            producer.flush(10)
        except RuntimeError as error:
            os._exit(7 if "fork" in str(error) and told == ["fork"] else 1)
        if os.getpid() != parent:
            os._exit(2)
        _, status = os.waitpid(children[0], 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        assert told == ["fork", "second"], told
    print("fine")
"""


def test_callbacks_after_one_that_forks_run_only_in_the_parent(run_script: RunScript) -> None:
    process = run_script(FORKING_CALLBACK)

    assert process.stdout == "fine\n", process.stderr


GROWTH = """
    import resource
    from cykafka.testing import MockCluster

    with MockCluster() as cluster, kafka.Producer({
        "bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0,
    }) as producer:
        def rounds(count):
            for number in range(count):
                producer.publish("t", [b"x" * 200] * 100, keys=["k"] * 100,
                                 headers={"h": ["v"] * 100}).add_done_callback(repr)
                producer.publish("t", [b"x"] * 100)
                producer.publish("t", [bytearray(1000)] * 100).wait(10)
            producer.flush()

        rounds(300)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rounds(900)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8_000, grown
    print("fine")
"""


@pytest.mark.process_memory
def test_publishing_does_not_grow_the_process(run_script: RunScript) -> None:
    process = run_script(GROWTH, timeout=60)

    assert process.stdout == "fine\n", process.stderr
