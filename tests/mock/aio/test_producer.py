"""AsyncProducer: records, their outcomes and its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from live import live_before
from machine import WAIT_S
from outcomes import code_of, open_files

from cykafka import DeliveryError, KafkaError, KafkaException
from cykafka.aio import AIOProducer, AsyncProducer
from cykafka.testing import live_handles

pytestmark = pytest.mark.ours

Run = Callable[..., Any]


# -- produce()


def test_produce_gives_the_delivered_message(run: Run, quick: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(quick) as producer:
            message = await producer.produce(topic, b"v", b"k", partition=1, headers=[("h", b"x")])
            assert (message.value(), message.key(), message.partition()) == (b"v", b"k", 1)
            assert message.offset() == 0
            assert message.headers() == [("h", b"x")]
            assert message.error() is None

    run(main())


def test_produce_keeps_the_order_when_the_queue_is_full(
    run: Run, quick: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(quick, **{"queue.buffering.max.messages": 3}) as producer:
            futures = [producer.produce(topic, str(number), partition=0) for number in range(200)]
            messages = await asyncio.gather(*futures)
        assert [message.offset() for message in messages] == list(range(200))
        assert [message.value() for message in messages] == [
            str(number).encode() for number in range(200)
        ]

    run(main())


def test_record_that_waits_for_room_is_a_copy(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(settings, **{"queue.buffering.max.messages": 1}) as producer:
            buffer, headers = bytearray(b"first"), [("name", b"first")]
            futures = [producer.produce(topic, "a", partition=0)]
            futures.append(producer.produce(topic, buffer, partition=0, headers=headers))
            buffer[:] = b"later"
            headers[:] = [("name", b"later")]
            message = (await asyncio.gather(*futures))[1]
            assert (message.value(), message.headers()) == (b"first", [("name", b"first")])

    run(main())


def test_record_that_waits_for_room_is_checked_at_once(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(settings, **{"queue.buffering.max.messages": 1}) as producer:
            futures = [producer.produce(topic, value) for value in ("a", "b")]
            for wrong in (
                {"value": 5},
                {"key": [1, 2]},
                {"headers": {"name": 3}},
                {"headers": "name"},
                {"partition": "0"},
                {"timestamp": 0.5},
            ):
                with pytest.raises(TypeError):
                    producer.produce(topic, **wrong)
            with pytest.raises(ValueError, match="timestamp"):
                producer.produce(topic, timestamp=-2)
            with pytest.raises(TypeError):
                producer.produce(None)  # type: ignore[arg-type]
            assert len(producer._futures.waiting) == 1
            await asyncio.gather(*futures)

    run(main())


def test_produce_waits_for_the_room_that_a_batch_occupies(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    """The reports of a batch have no callback of a record that could queue the waiting record."""

    async def main() -> None:
        config = {**settings, "linger.ms": 200, "queue.buffering.max.messages": 5}
        async with AsyncProducer(config) as producer:
            batch = asyncio.create_task(producer.publish(topic, ["a"] * 5, partitions=0))
            await asyncio.sleep(0)
            waiting = producer.produce(topic, "b", partition=0)
            assert len(producer) == 6
            assert (await waiting).offset() == 5
            assert (await batch).failed == 0

    run(main())


def test_produce_refuses_a_record_that_never_has_room(
    run: Run, quick: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(quick, **{"queue.buffering.max.kbytes": 1}) as producer:
            with pytest.raises(KafkaException) as raised:
                await producer.produce(topic, b"x" * 2000)
            assert code_of(raised.value) == KafkaError._QUEUE_FULL
            # Behind a record that is in flight it waits for its turn.
            first = producer.produce(topic, b"x" * 1000)
            second = producer.produce(topic, b"x" * 2000)
            third = producer.produce(topic, b"x" * 500)
            assert (await first).error() is None
            with pytest.raises(KafkaException) as raised:
                await second
            assert code_of(raised.value) == KafkaError._QUEUE_FULL
            assert (await third).error() is None

    run(main())


def test_produce_raises_for_a_record_that_is_refused(
    run: Run, quick: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(quick) as producer:
            with pytest.raises(KafkaException) as raised:
                producer.produce(topic, b"x" * 2_000_000)
            assert code_of(raised.value) == KafkaError.MSG_SIZE_TOO_LARGE
            with pytest.raises(TypeError):
                producer.produce(topic, object())
            assert len(producer) == 0

    run(main())


def test_failed_record_raises_in_its_future(run: Run, slow: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(slow) as producer:
            future = producer.produce(topic, "a")
            producer.purge()
            with pytest.raises(KafkaException) as raised:
                await future
            assert code_of(raised.value) == KafkaError._PURGE_QUEUE

    run(main())


def test_purge_fails_the_records_that_wait_for_room(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(slow, **{"queue.buffering.max.messages": 2}) as producer:
            futures = [producer.produce(topic, str(number)) for number in range(5)]
            producer.purge()
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
            assert [code_of(item) for item in outcomes] == [KafkaError._PURGE_QUEUE] * 5
            assert len(producer) == 0

    run(main())


def test_cancelled_future_does_not_take_the_record_back(
    run: Run, settings: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(settings, **{"linger.ms": 100}) as producer:
            future = producer.produce(topic, "a", partition=0)
            future.cancel()
            assert (await producer.produce(topic, "b", partition=0)).offset() == 1

    run(main())


def test_failure_of_a_cancelled_future_is_logged(
    run: Run, slow: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncProducer(slow) as producer:
            producer.produce(topic, "a").cancel()
            producer.purge()
            assert await producer.flush(WAIT_S) == 0

    with caplog.at_level(logging.WARNING, "cykafka"):
        run(main())
    assert [record.args[0] for record in caplog.records if "failed:" in record.msg] == [topic]


def test_ten_thousand_awaits_cost_one_pipe(run: Run, slow: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(slow, **{"batch.num.messages": 100_000}) as producer:
            await producer.list_topics(timeout=WAIT_S)  # connects
            producer.produce(topic, "a")
            files = open_files()
            singles = [producer.produce(topic, "a") for _ in range(5000)]
            batches = [asyncio.create_task(producer.publish(topic, ["a"])) for _ in range(5000)]
            await asyncio.sleep(0.01)
            assert len(producer) == 10_001
            assert open_files() <= files + 2  # a connection may have come
            producer.purge()
            ends = await asyncio.gather(*singles, *batches, return_exceptions=True)
            assert all(isinstance(end, KafkaException | DeliveryError) for end in ends)

    run(main(), [])  # the future of the first record is lost


# -- publish()


def test_publish_gives_the_delivery(run: Run, quick: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(quick) as producer:
            delivery = await producer.publish(topic, ["a", "b", "c"], partitions=2)
        assert list(delivery.offsets) == [0, 1, 2]

    run(main())


def test_publish_waits_for_room_and_lets_others_run(
    run: Run, quick: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with AsyncProducer(quick, **{"queue.buffering.max.messages": 50}) as producer:
            other = asyncio.create_task(count())
            deliveries = await asyncio.gather(
                *[producer.publish(topic, ["a"] * 500, partitions=0) for _ in range(4)]
            )
            other.cancel()
        assert sorted(offset for item in deliveries for offset in item.offsets) == list(
            range(2000)
        )
        assert turns > 20

    run(main())


def test_cancelled_publish_fails_the_records_that_are_not_queued(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(slow, **{"queue.buffering.max.messages": 10}) as producer:
            task = asyncio.create_task(producer.publish(topic, ["a"] * 25))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            delivery = raised.value.delivery  # type: ignore[attr-defined]
            producer.purge()
            await producer.flush(WAIT_S)
            codes = [error.code() for error in delivery.errors.values()]
            assert codes.count(KafkaError._QUEUE_FULL) == 15
            assert codes.count(KafkaError._PURGE_QUEUE) == 10

    run(main())


def test_cancelled_publish_names_the_delivery_of_queued_records(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(slow) as producer:
            task = asyncio.create_task(producer.publish(topic, ["a"] * 25))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await task
            assert len(raised.value.delivery) == 25  # type: ignore[attr-defined]
            producer.purge()

    run(main())


# -- serving


def test_serve_returns_when_it_has_served(run: Run, quick: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        async with AsyncProducer(quick) as producer:
            assert await producer.serve(0) == 0
            future = producer.produce(topic, "a")
            assert await producer.serve() > 0
            await future

    run(main())


@pytest.mark.parametrize("timeout", [0.0104, 0.0, 0.05, 0.1234567])
def test_serve_without_events_ends_with_its_timeout(
    run: Run, settings: dict[str, Any], timeout: float
) -> None:
    async def main() -> None:
        async with AsyncProducer(settings) as producer:
            begun = time.perf_counter()
            assert await producer.serve(timeout) == 0
            assert time.perf_counter() - begun >= timeout - 0.002

    run(main())


def test_flush_returns_the_number_of_records_at_its_timeout(
    run: Run, unreachable: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(unreachable) as producer:
            future = producer.produce(topic, "a")
            assert await producer.flush(0) >= 1  # events count, too
            assert await producer.flush(0.0104) >= 1
            producer.purge()
            assert await producer.flush() == 0
            assert future.done()
            assert future.exception() is not None

    run(main())


def test_exception_of_a_callback_reaches_the_handler_of_the_loop(
    run: Run, settings: dict[str, Any], wait_for: Callable[..., Any]
) -> None:
    reports: list[dict[str, Any]] = []

    def fail(_: str) -> None:
        raise ArithmeticError("mine")

    async def main() -> None:
        config = {**settings, "statistics.interval.ms": 20, "stats_cb": fail}
        async with AsyncProducer(config) as producer:
            waiting = asyncio.create_task(producer.serve())
            await wait_for(lambda: len(reports) > 1)
            waiting.cancel()

    run(main(), reports)
    assert {type(report["exception"]) for report in reports} == {ArithmeticError}


def test_coroutine_callbacks_run_in_the_loop_and_lose_no_exception(
    run: Run, settings: dict[str, Any], wait_for: Callable[..., Any]
) -> None:
    reports: list[dict[str, Any]] = []
    seen: list[asyncio.AbstractEventLoop] = []

    class Callback:
        async def __call__(self, _: str) -> None:
            await asyncio.sleep(0)
            seen.append(asyncio.get_running_loop())
            if len(seen) == 1:
                raise ArithmeticError("mine")

    async def main() -> None:
        config = {**settings, "statistics.interval.ms": 20, "stats_cb": Callback()}
        async with AsyncProducer(config) as producer:
            waiting = asyncio.create_task(producer.serve(WAIT_S))
            await wait_for(lambda: len(seen) > 1)
            waiting.cancel()
            assert set(seen) == {asyncio.get_running_loop()}

    run(main(), reports)
    assert [type(report["exception"]) for report in reports] == [ArithmeticError]


# -- loops and threads


def test_dropped_producer_is_freed_with_records_in_flight(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    handles = live_before()["handles"]

    async def main() -> None:
        AsyncProducer(slow).produce(topic, "a")
        await asyncio.sleep(0)

    with pytest.warns(RuntimeWarning, match=r"was never closed: 1 message"):
        run(main(), [])
    deadline = time.monotonic() + WAIT_S
    while live_handles()["handles"] > handles and time.monotonic() < deadline:
        time.sleep(0.01)
    # Clients of earlier tests may have been freed meanwhile.
    assert live_handles()["handles"] <= handles


def test_futures_of_a_dropped_producer_have_an_outcome(
    run: Run, slow: dict[str, Any], topic: str
) -> None:
    async def main() -> None:
        producer = AsyncProducer(slow, **{"queue.buffering.max.messages": 1})
        queued, waiting = producer.produce(topic, "a"), producer.produce(topic, "b")
        del producer
        for future in (queued, waiting):
            with pytest.raises(KafkaException, match="Purged in queue"):
                await future

    with pytest.warns(RuntimeWarning, match=r"was never closed: 1 message"):
        run(main())
    before = open_files()
    for _ in range(5):
        with pytest.warns(RuntimeWarning):
            run(main())
    deadline = time.monotonic() + WAIT_S
    while open_files() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_files() <= before


# -- AIOProducer


def test_aio_producer_sends_and_closes(run: Run, quick: dict[str, Any], topic: str) -> None:
    async def main() -> None:
        producer = AIOProducer(quick)
        future = await producer.produce(topic, value="a", partition=0)
        assert (await future).offset() == 0
        assert await producer.flush() == 0
        assert (await producer.list_topics(timeout=WAIT_S)).topics[topic]
        await producer.close()
        await producer.close()

    run(main())
