"""The life of batches: consumers that close, threads, views, garbage, memory."""

from __future__ import annotations

import gc
import operator
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, WaitUntil
from live import live_before
from machine import WAIT_S

pytestmark = pytest.mark.ours

COUNT = 200


def fetched() -> int:
    from cykafka.testing import live_handles

    count: int = live_handles()["fetched"]
    return count


@pytest.fixture
def filled(make_producer: MakeProducer, topic: str) -> str:
    producer = make_producer()
    for number in range(COUNT):
        producer.produce(topic, f"value-{number}", f"key-{number}", number % 4,
                         headers=[("number", str(number)), ("none", None)])  # fmt: skip
    assert producer.flush(WAIT_S) == 0
    return topic


@pytest.fixture
def source(kafka: Any, make_consumer: MakeConsumer, filled: str) -> Any:
    consumer = make_consumer()
    consumer.assign([kafka.TopicPartition(filled, number, 0) for number in range(4)])
    return consumer


def everything(batch: Any) -> tuple[Any, ...]:
    return (
        batch.values(), batch.keys(), batch.headers(), batch.header("number"), batch.topics,
        batch.offsets.tolist(), batch.partitions.tolist(), batch.timestamps.tolist(),
        batch.timestamp_types.tolist(), batch.leader_epochs.tolist(), list(batch),
    )  # fmt: skip


# -- release


def test_messages_are_freed_with_the_batch_and_its_slices(source: Any) -> None:
    before = live_before()["fetched"]
    batch = source.consume_batch(COUNT, WAIT_S)
    assert fetched() == before + COUNT
    part = batch[10:20]
    del batch
    assert fetched() == before + COUNT
    assert len(part.values()) == 10
    del part
    assert fetched() == before


def test_release_frees_at_once_and_for_all_slices(source: Any) -> None:
    before = live_before()["fetched"]
    with source.consume_batch(COUNT, WAIT_S) as batch:
        part = batch[1:]
        rows = iter(batch)
        next(rows)
    assert fetched() == before
    batch.release()  # a second time
    for use in (
        len, bool, list, next, lambda b: b[0], lambda b: b[:], lambda b: b.values(),
        lambda b: b.keys(copy=False), lambda b: b.header("a"), lambda b: b.headers(),
        lambda b: b.offsets, lambda b: b.topics,
        lambda b: b.detach(), lambda b: b.__enter__(), lambda b: source.commit(b),
    ):  # fmt: skip
        for released in (batch, part):
            with pytest.raises(ValueError, match="released"):
                use(rows if use is next else released)
    assert batch.errors == []


def test_loop_holds_one_batch_at_a_time(source: Any) -> None:
    before = live_before()["fetched"]
    read = 0
    for batch in source.batches(10, 0.5):
        assert fetched() <= before + 20  # the previous one lives until the name is rebound
        read += len(batch)
        if read == COUNT:
            break
    del batch
    assert fetched() == before


# -- detach, close


def test_detach_releases_the_messages_and_keeps_the_data(source: Any) -> None:
    before = live_before()["fetched"]
    batch = source.consume_batch(COUNT, WAIT_S)
    part = batch[::-3]
    whole, some = everything(batch), everything(part)

    batch.detach()

    assert fetched() == before
    assert everything(batch) == whole
    assert everything(part) == some
    part.detach()  # a second time
    assert everything(batch) == whole


def test_batches_outlive_their_consumer(source: Any) -> None:
    before = live_before()["fetched"]
    batches = [source.consume_batch(COUNT // 4, WAIT_S) for _ in range(4)]
    part = batches[0][::2]
    before_close = [everything(batch) for batch in [*batches, part]]
    untouched = batches.pop()  # its headers have not been read yet

    source.close()

    assert fetched() == before
    assert [everything(batch) for batch in [*batches, untouched, part]] == before_close
    with pytest.raises(RuntimeError, match=r"^Consumer closed"):
        source.commit(batches[0])


def test_batch_outlives_an_unclosed_consumer(kafka: Any, cluster: Any, filled: str) -> None:
    before = live_before()["fetched"]
    consumer = kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"})
    consumer.assign([kafka.TopicPartition(filled, 0, 0)])
    batch = consumer.consume_batch(10, WAIT_S)
    seen = everything(batch)
    kept = [consumer]
    del consumer
    with pytest.warns(ResourceWarning, match="never closed"):
        kept.clear()
    assert fetched() == before
    assert everything(batch) == seen


def test_close_does_not_wait_for_views(source: Any, wait_until: WaitUntil) -> None:
    before = live_before()["fetched"]
    batch = source.consume_batch(COUNT, WAIT_S)
    seen = everything(batch)
    views = batch.values(copy=False)

    source.close()

    assert fetched() == before + COUNT
    assert [bytes(view) for view in views] == batch.values()
    batch.release()
    assert [bytes(view) for view in views] == seen[0]
    kept = views[-1]
    del views
    assert fetched() == before + COUNT
    assert bytes(kept) == seen[0][-1]
    del kept
    assert fetched() == before


def test_views_of_a_detached_batch_are_of_its_copy(source: Any) -> None:
    batch = source.consume_batch(COUNT, WAIT_S)
    batch.detach()
    values, views = batch.values(), batch.values(copy=False)
    batch.release()
    source.close()
    assert [bytes(view) for view in views] == values


# -- threads


def test_threads_read_while_another_detaches_and_closes(
    kafka: Any, make_consumer: MakeConsumer, filled: str
) -> None:
    before = live_before()["fetched"]
    for how in ("detach", "close", "release"):
        consumer = make_consumer()
        consumer.assign([kafka.TopicPartition(filled, number, 0) for number in range(4)])
        batch = consumer.consume_batch(COUNT, WAIT_S)
        parts = [batch[number:] for number in range(12)]
        wanted = everything(batch)
        failures: list[BaseException] = []
        started = threading.Barrier(5)

        def read(
            parts: list[Any] = parts, started: Any = started, failures: Any = failures,
            wanted: Any = wanted, how: str = how,
        ) -> None:  # fmt: skip
            started.wait()
            try:
                for number, part in enumerate(parts):
                    assert everything(part[:]) == tuple(column[number:] for column in wanted)
                    views = part.values(copy=False)
                    assert bytes(views[-1]) == wanted[0][-1]
            except ValueError:
                if how != "release":
                    failures.append(AssertionError("released"))
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        if how == "close":
            consumer.close()
        else:
            getattr(batch, how)()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        assert failures == []
        del batch, parts, threads, read
        consumer.close()
        assert fetched() == before


def test_close_from_another_thread_ends_the_wait_and_the_iteration(
    kafka: Any, make_consumer: MakeConsumer, topic: str
) -> None:
    for wait in (lambda c: c.consume_batch(10), lambda c: list(c.batches(10, None))):
        consumer = make_consumer()
        consumer.assign([kafka.TopicPartition(topic, 0, 0)])
        outcome: list[Any] = []
        waiting = threading.Event()

        def run(
            consumer: Any = consumer, wait: Any = wait, outcome: Any = outcome,
            waiting: Any = waiting,
        ) -> None:  # fmt: skip
            waiting.set()
            try:
                outcome.append(wait(consumer))
            except RuntimeError as error:
                outcome.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        waiting.wait(WAIT_S)
        consumer.close()
        thread.join(WAIT_S)
        assert outcome == [[]] or "close" in outcome[0]


def test_error_ends_the_wait_of_any_thread(
    kafka: Any, make_consumer: MakeConsumer, topic: str
) -> None:
    """This includes a thread that signals cannot interrupt and that waits for a full batch."""
    consumer = make_consumer({"auto.offset.reset": "error"})
    consumer.assign([kafka.TopicPartition(topic, 0, 99)])
    outcome: list[int] = []

    def run() -> None:
        try:
            next(consumer.batches(10, None))
        except kafka.KafkaException as error:
            outcome.append(error.args[0].code())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert outcome == [kafka.KafkaError._AUTO_OFFSET_RESET]


# -- garbage


def test_cycle_through_a_batch_is_collected(source: Any) -> None:
    before = live_before()["fetched"]

    class Holder:
        pass

    holder = Holder()
    holder.batch = source.consume_batch(COUNT, WAIT_S)  # type: ignore[attr-defined]
    holder.rows = iter(holder.batch)  # type: ignore[attr-defined]
    holder.itself = holder  # type: ignore[attr-defined]
    reference = weakref.ref(holder.batch)  # type: ignore[attr-defined]
    del holder
    gc.collect()
    assert reference() is None
    assert fetched() == before


def test_batch_resurrected_by_a_finalizer_works(source: Any) -> None:
    saved: list[Any] = []

    class Rescuer:
        def __init__(self, batch: Any) -> None:
            self.batch, self.itself = batch, self

        def __del__(self) -> None:
            saved.append(self.batch)

    batch = source.consume_batch(COUNT, WAIT_S)
    wanted = everything(batch)
    rescuer = Rescuer(batch)
    del batch, rescuer
    gc.collect()
    assert everything(saved[0]) == wanted


@pytest.mark.parametrize(
    "what", ["values", "keys", "headers", "header", "views", "topics", "offsets", "row", "slice"]
)
def test_garbage_collection_may_close_the_consumer_during_a_call(
    source: Any, what: str, wait_until: WaitUntil
) -> None:
    """A collection may run in any allocation. Its close() must not wait for its own thread."""
    before = live_before()["fetched"]
    batch = source.consume_batch(COUNT, WAIT_S)
    values, keys = batch.values(), batch.keys()
    rows = iter(batch)
    calls: dict[str, Callable[[], Any]] = {
        "values": batch.values,
        "keys": batch.keys,
        "headers": batch.headers,
        "header": partial(batch.header, "number"),
        "views": partial(batch.values, copy=False),
        "topics": partial(getattr, batch, "topics"),
        "offsets": partial(getattr, batch, "offsets"),
        "row": partial(next, rows),
        "slice": partial(operator.getitem, batch, slice(None, None, 2)),
    }
    call = calls[what]

    class Closer:
        def __init__(self, consumer: Any) -> None:
            self.consumer, self.itself = consumer, self

        def __del__(self) -> None:
            self.consumer.close()

    gc.collect()
    thresholds = gc.get_threshold()
    gc.disable()
    try:
        Closer(source)
        gc.set_threshold(1, 1, 1)
        gc.enable()  # the next counted allocation is made by the call
        result = call()
    finally:
        gc.enable()
        gc.set_threshold(*thresholds)
    gc.collect()
    # The collector may have run in another thread.
    wait_until(lambda: repr(source).endswith("closed>"))

    if what in ("values", "keys"):
        assert result == {"values": values, "keys": keys}[what]
    elif what == "views":
        assert [bytes(view) for view in result] == values
    elif what == "row":
        assert (result.value(), result.key()) == (values[0], keys[0])
        assert result.headers()[0][0] == "number"
    elif what == "slice":
        assert result.values() == values[::2]
    else:
        assert len(result) == COUNT
    assert (batch.values(), batch.keys()) == (values, keys)
    del batch, rows, result, calls, call
    assert fetched() == before
