"""Lifetimes of handles: each of these cases once crashed, hung or lost something."""

from __future__ import annotations

import gc
import threading
import warnings
from types import ModuleType
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, RunScript
from live import live_before
from machine import WAIT_S

pytestmark = pytest.mark.ours

PREAMBLE = """
import gc, os, signal, sys, threading, warnings
warnings.simplefilter("ignore")
import cykafka
servers, topic = sys.argv[1:3]
config = {"bootstrap.servers": servers}
group = {**config, "group.id": "g", "auto.offset.reset": "earliest"}
"""


@pytest.mark.parametrize("name", ["close", "poll", "flush"])
def test_method_refuses_another_type(kafka: ModuleType, name: str) -> None:
    with pytest.raises(TypeError):
        getattr(kafka.Producer, name)(object())
    with pytest.raises(TypeError):
        kafka.Message.value(None)


def test_argument_that_closes_the_producer(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()

    class Closing:
        def __index__(self) -> int:
            producer.close()
            return 0

    with pytest.raises(RuntimeError, match="closed"):
        producer.produce(topic, b"x", partition=Closing())


def test_headers_that_close_the_producer(make_producer: MakeProducer, topic: str) -> None:
    producer = make_producer()

    class Closing(dict[str, bytes]):
        def items(self) -> Any:
            producer.close()
            return super().items()

    with pytest.raises(RuntimeError, match="closed"):
        producer.produce(topic, b"x", headers=Closing(a=b"1"), on_delivery=lambda *_: None)


CHILDREN = {
    "consumer dropped while a report is in flight": """
        producer = cykafka.Producer({**config, "linger.ms": 60000})
        filler = cykafka.Producer(config)
        for _ in range(100):
            filler.produce(topic, b"x")
        filler.close()
        producer.produce(topic, b"x", on_delivery=lambda *_: None)
        consumer = cykafka.Consumer(group)
        consumer.subscribe([topic])
        assert consumer.poll(10) is not None
        del consumer
        gc.collect()
    """,
    "signal handler closes during a commit": """
        from cykafka.testing import MockCluster
        with MockCluster() as cluster:
            consumer = cykafka.Consumer({**group, "bootstrap.servers": cluster.bootstrap_servers,
                                         "enable.auto.commit": False})
            cluster.create_topic("t", 1)
            offset = cykafka.TopicPartition("t", 0, 1)
            consumer.commit(offsets=[offset], asynchronous=False)
            cluster.set_rtt(3000)
            signal.signal(signal.SIGALRM, lambda *_: consumer.close())
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                consumer.commit(offsets=[offset], asynchronous=False)
            except RuntimeError as error:
                assert "closed" in str(error)
            else:
                raise AssertionError("the commit did not hear of it")
            cluster.set_rtt(0)
    """,
    "fork in a callback of close": """
        producer = cykafka.Producer(config)
        children = []
        def fork(*_):
            pid = os.fork()
            if pid:
                children.append(pid)
        for _ in range(3):
            producer.produce(topic, b"x", on_delivery=fork)
        try:
            producer.close()
        except RuntimeError as error:
            assert "fork" in str(error)
            os._exit(0)
        assert len(children) == 3
        for pid in children:
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    """,
    "len while closing": """
        producer = cykafka.Producer(config)
        for _ in range(20000):
            producer.produce(topic, b"x", timeout=10)
        stop = threading.Event()
        def look():
            while not stop.is_set():
                len(producer)
        threads = [threading.Thread(target=look) for _ in range(2)]
        for thread in threads:
            thread.start()
        producer.close()
        stop.set()
        for thread in threads:
            thread.join()
    """,
    "headers asked for while they are read": """
        headers = [(f"name {i}", b"value") for i in range(50)]
        with cykafka.Producer(config) as producer:
            for _ in range(3):
                producer.produce(topic, b"x", partition=0, headers=headers)
            producer.flush(20)
        again = []
        def look_again(phase, _):
            again.append((phase, message.headers()))
        with cykafka.Consumer({**group}) as consumer:
            consumer.assign([cykafka.TopicPartition(topic, 0, 0)])
            polled = [consumer.poll(20)]
            copied = consumer.consume(2, 20)
            for message in polled + copied:
                gc.callbacks.append(look_again)
                gc.set_threshold(1)
                read = message.headers()
                gc.callbacks.clear()
                assert read == message.headers() == headers
        assert len(again) >= 2 * 3, len(again)
        assert all(found == headers for _, found in again)
    """,
    "event kinds that are internal": """
        for kinds in (0x20, 0x7fffffff):
            try:
                cykafka.Consumer({**group, "enabled_events": kinds})
            except cykafka.KafkaException as error:
                assert "enabled_events" in str(error)
            else:
                raise AssertionError("accepted")
    """,
}


@pytest.mark.parametrize("child", CHILDREN)
def test_process_survives(run_script: RunScript, cluster: Any, topic: str, child: str) -> None:
    import textwrap

    done = run_script(
        PREAMBLE + textwrap.dedent(CHILDREN[child]), cluster.bootstrap_servers, topic, timeout=60
    )

    assert done.returncode == 0, done.stderr


def test_topic_of_an_impossible_length_is_refused(
    kafka: ModuleType, make_consumer: MakeConsumer
) -> None:
    with pytest.raises(ValueError, match="249"):
        make_consumer().assign([kafka.TopicPartition("x" * 600, 0)])


def test_cycle_through_a_bound_method_is_released(
    kafka: ModuleType, cluster: Any, topic: str
) -> None:
    from cykafka.testing import live_handles

    class Owning(kafka.Producer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(
                {"bootstrap.servers": cluster.bootstrap_servers}, error_cb=self.on_error
            )

        def on_error(self, error: Any) -> None: ...

    before = live_before()
    producer = Owning()
    producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0
    del producer
    with pytest.warns(ResourceWarning, match="never closed"):
        gc.collect()

    assert live_handles() == before


def test_client_closed_by_another_thread_during_its_warning_is_freed_once(
    kafka: ModuleType,
) -> None:
    from cykafka.testing import live_handles

    before = live_before()
    closers = []

    def close_it(message: Any, *_: Any, **__: Any) -> None:
        closers.append(threading.Thread(target=message.source.close))
        closers[-1].start()
        closers[-1].join(0.5)  # it ends by then, unless it waits for the warning thread

    clients = [kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # showwarning() gets no `source`.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(warnings, "_showwarnmsg", close_it)
            clients.clear()
    (closer,) = closers
    closer.join(WAIT_S)

    assert not closer.is_alive()
    assert live_handles() == before


def test_flush_keeps_its_timeout_while_another_thread_runs_a_callback(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer()
    running, done = threading.Event(), threading.Event()

    def slow(*_: Any) -> None:
        running.set()
        done.wait(WAIT_S)

    producer.produce(topic, b"x", on_delivery=slow)
    poller = threading.Thread(target=producer.poll, args=(WAIT_S,))
    poller.start()
    assert running.wait(WAIT_S)
    producer.produce(topic, b"y", on_delivery=lambda *_: None)
    flusher = threading.Thread(target=producer.flush, args=(0.05,))
    flusher.start()
    flusher.join(WAIT_S / 2)
    late = flusher.is_alive()
    done.set()
    poller.join(WAIT_S)
    flusher.join(WAIT_S)

    assert not late
    assert producer.flush(WAIT_S) == 0


def test_close_from_a_callback_while_another_thread_closes(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer()
    running, go_on = threading.Event(), threading.Event()

    def closing(*_: Any) -> None:
        running.set()
        go_on.wait(WAIT_S)
        producer.close()

    producer.produce(topic, b"x", on_delivery=closing)
    poller = threading.Thread(target=producer.poll, args=(WAIT_S,))
    poller.start()
    assert running.wait(WAIT_S)
    closer = threading.Thread(target=producer.close)
    closer.start()
    go_on.set()
    for thread in (poller, closer):
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_poll_in_a_delivery_callback_does_not_recurse(
    make_producer: MakeProducer, topic: str
) -> None:
    producer = make_producer()
    calls: list[Any] = []

    def report(error: Any, message: Any) -> None:
        calls.append(error)
        producer.poll(0)

    for _ in range(3000):
        producer.produce(topic, b"x", on_delivery=report)

    assert producer.flush(WAIT_S) == 0
    assert calls == [None] * 3000


def test_close_does_not_depend_on_methods_of_a_subclass(
    kafka: ModuleType, cluster: Any, topic: str
) -> None:
    class Stubborn(kafka.Producer):  # type: ignore[misc, name-defined]
        def flush(self, timeout: Any = None) -> int:
            raise RuntimeError("no")

    producer = Stubborn({"bootstrap.servers": cluster.bootstrap_servers})
    calls: list[Any] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: calls.append(error))
    producer.close()

    assert calls == [None]


def test_rebalance_callback_runs_during_consume(make_consumer: MakeConsumer, topic: str) -> None:
    consumer = make_consumer()

    def refuse(*_: Any) -> None:
        raise ValueError("not mine")

    consumer.subscribe([topic], on_assign=refuse)
    raised: list[BaseException] = []

    def consume() -> None:
        try:
            consumer.consume(10, timeout=60)
        except ValueError as error:
            raised.append(error)

    thread = threading.Thread(target=consume)
    thread.start()
    thread.join(WAIT_S)

    assert not thread.is_alive()
    assert str(raised[0]) == "not mine"


@pytest.mark.parametrize("argument", ["value", "key"])
def test_non_contiguous_buffer_is_a_type_error_and_not_a_full_queue(
    make_producer: MakeProducer, topic: str, argument: str
) -> None:
    with pytest.raises(TypeError, match=argument):
        make_producer().produce(topic, **{argument: memoryview(b"abcdef")[::2]})


def test_close_without_undelivered_messages_logs_no_loss(
    kafka: ModuleType, cluster: Any, topic: str
) -> None:
    called = threading.Event()
    producer = kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "statistics.interval.ms": 20,
            "stats_cb": lambda _: called.set(),
        }
    )
    producer.produce(topic, b"x")
    assert producer.flush(WAIT_S) == 0
    while not called.is_set():
        producer.poll(WAIT_S)
    clients = [producer]
    del producer
    with pytest.warns(ResourceWarning, match="never closed"):
        clients.clear()


def test_messages_that_are_lost_are_counted(kafka: ModuleType) -> None:
    producer = kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    for _ in range(3):
        producer.produce("nowhere", b"x")
    clients = [producer]
    del producer
    with pytest.warns(RuntimeWarning, match="3 message"):
        clients.clear()


def test_methods_have_a_signature(kafka: ModuleType) -> None:
    import inspect

    parameters = inspect.signature(kafka.Producer.produce).parameters

    assert list(parameters)[1:4] == ["topic", "value", "key"]
    assert parameters["timeout"].default == 0


def test_unknown_property_is_refused_without_a_value_too(kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException, match=r"linger_ms.*did you mean"):
        kafka.Producer({"linger_ms": None})
    with pytest.raises(kafka.KafkaException, match="groupid"):
        kafka.Consumer({"groupid": "x"})


def test_representation_names_the_client_and_its_state(make_producer: MakeProducer) -> None:
    producer = make_producer({"client.id": "named"})
    assert "named" in repr(producer)
    assert "open" in repr(producer)
    producer.close()
    assert "closed" in repr(producer)


def test_warning_of_an_unclosed_handle_points_to_the_line_that_dropped_it(
    kafka: ModuleType,
) -> None:
    clients = [kafka.Producer({"client.id": "mine", "bootstrap.servers": "127.0.0.1:1"})]
    with pytest.warns(ResourceWarning, match=r"Producer mine#producer-\d+ was never") as caught:
        clients.clear()

    assert caught[0].filename == __file__
    assert caught[0].source is not None  # tracemalloc uses it to find where the client was made
