"""Clients that write their history: ``python tests/faults/clients.py KIND JSON``.

A client runs until its standard input ends, and then ends by itself. It may be killed at any time.
Each start has a sender's number of its own, so no record is sent twice on purpose.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from history import History, identity, value

from cykafka import (
    Consumer,
    DeliveryError,
    KafkaError,
    KafkaException,
    Message,
    MessageBatch,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from cykafka.aio import AsyncProducer

# How long a call may wait, in seconds.
WAIT_S = 120.0
# Errors of records that were never sent.
_NOT_SENT = {KafkaError._QUEUE_FULL, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._PURGE_QUEUE}


class Run:
    """What a client is asked to do.

    Attributes
    ----------
    history : History
    sender : int
        The number of the sender, or of the member.
    name : str
        The transactional id, or the group.
    topic : str
    config : dict
        The client's configuration.
    count : int
        The records of a batch.
    most : int or None
        How many batches the client sends before it ends; None: until it shall end.
    pause : float
        Seconds between batches.
    ending : threading.Event
        Set when the client shall end.
    """

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.history = History(Path(given["folder"]))
        self.sender: int = given["sender"]
        self.name: str = given.get("name", "")
        self.topic: str = given["topic"]
        self.config: dict[str, Any] = {**given["config"], **given.get("more", {})}
        self.count: int = given.get("count", 1000)
        self.most: int | None = given.get("most")
        self.pause: float = given.get("pause", 0.0)
        self.ending = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.read()
        self.ending.set()

    def batches(self, transactional: bool = False) -> Iterator[tuple[range, list[bytes]]]:
        """Yield the numbers and the values of batches, and write that they are sent."""
        for batch in range(self.most) if self.most else itertools.count():
            if self.ending.wait(self.pause):
                return
            numbers = range(batch * self.count, (batch + 1) * self.count)
            transaction = batch + 1 if transactional else 0
            self.history.sent(self.sender, numbers.start, self.count, transaction)
            yield numbers, [value(self.sender, number) for number in numbers]

    def settle(self, numbers: range, delivery: Any) -> None:
        """Wait for a batch and write its outcomes."""
        with suppress(DeliveryError):
            delivery.wait()
        errors = delivery.errors
        for row, error in errors.items():
            self.failed(numbers[row], error)
        places = zip(numbers, delivery.partitions, delivery.offsets, strict=True)
        stored = (place for row, place in enumerate(places) if row not in errors)
        self.history.stored(self.sender, stored)

    def failed(self, number: int, error: KafkaError) -> None:
        """Write a record's error."""
        code = error.code()
        self.history.failed(self.sender, [number], code, may_be_stored=code not in _NOT_SENT)


def keys_of(values: list[bytes]) -> list[bytes]:
    """Keys that repeat the names of the records."""
    return [b" ".join(data.split(b" ")[:2]) for data in values]


def publish(run: Run) -> None:
    """Batches, two in flight."""
    with Producer(run.config) as producer:
        before = None
        for numbers, values in run.batches():
            delivery = producer.publish(run.topic, values, keys=keys_of(values))
            if before is not None:
                run.settle(*before)
            before = numbers, delivery
        if before is not None:
            run.settle(*before)
    run.history.ended(run.sender)


def produce(run: Run) -> None:
    """Single records with a callback."""

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        number = int((message.key() or b"").split()[1])
        if error is None:
            run.history.stored(run.sender, [(number, message.partition(), message.offset())])
        else:
            run.failed(number, error)

    with Producer(run.config) as producer:
        for _, values in run.batches():
            for data, key in zip(values, keys_of(values), strict=True):
                producer.produce(run.topic, data, key, on_delivery=on_delivery, timeout=WAIT_S)
            producer.poll(0)
    run.history.ended(run.sender)


def repeated(call: Callable[[float], Any]) -> None:
    """Make a call of a transaction again while its error is retriable."""
    while True:
        try:
            call(WAIT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def transactions(run: Run) -> None:
    """Batches in transactions, every fifth of which is aborted."""
    config = {**run.config, "transactional.id": run.name}
    with Producer(config) as producer:
        repeated(producer.init_transactions)
        for number, (numbers, values) in enumerate(run.batches(transactional=True), 1):
            outcome = "aborted"
            try:
                producer.begin_transaction()
                delivery = producer.publish(run.topic, values, keys=keys_of(values))
                run.settle(numbers, delivery)
                if number % 5 and not delivery.failed:
                    outcome = "unknown"
                    repeated(producer.commit_transaction)
                    outcome = "committed"
                else:
                    repeated(producer.abort_transaction)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                repeated(producer.abort_transaction)
                outcome = "aborted"
            finally:
                run.history.transaction(run.sender, number, outcome)
    run.history.ended(run.sender)


def awaited(run: Run) -> None:
    """Single records, awaited."""

    async def main() -> None:
        async with AsyncProducer(run.config) as producer:
            for numbers, values in run.batches():
                futures = []
                for number, data, key in zip(numbers, values, keys_of(values), strict=True):
                    future = producer.produce(run.topic, data, key)
                    future.add_done_callback(lambda done, number=number: settled(number, done))
                    futures.append(future)
                await asyncio.wait(futures)

    def settled(number: int, done: asyncio.Future[Message]) -> None:
        error = done.exception()
        if error is None:
            message = done.result()
            run.history.stored(run.sender, [(number, message.partition(), message.offset())])
        elif isinstance(error, KafkaException):
            run.failed(number, error.args[0])
        else:
            raise error

    asyncio.run(main())
    run.history.ended(run.sender)


def rows_of(batch: MessageBatch) -> list[tuple[int, int, int, int]]:
    """The partition, the offset and the identity of each record."""
    values = batch.values()
    named = [
        identity(data if key == name else None)
        for data, key, name in zip(values, batch.keys(), keys_of(values), strict=True)
    ]
    places = zip(batch.partitions, batch.offsets, named, strict=True)
    return [(part, place, *name) for part, place, name in places]


def group(run: Run) -> None:
    """A member of a group, which commits after each batch."""
    config = {**run.config, "group.id": run.name, "enable.auto.commit": False,
              "auto.offset.reset": "earliest", "isolation.level": "read_committed"}  # fmt: skip
    session = 0

    def on_assign(*_: object) -> None:
        nonlocal session
        session = time.monotonic_ns()

    with Consumer(config) as consumer:
        consumer.subscribe([run.topic], on_assign=on_assign)
        while not run.ending.is_set():
            with consumer.consume_batch(run.count, 0.5) as batch:
                for message in batch.errors:
                    error = message.error()
                    if error is not None and (error.fatal() or not error.retriable()):
                        print(f"{run.name}: {error!r}", file=sys.stderr)
                run.history.read(run.name, rows_of(batch), run.sender, session)
                ends = [(end.partition, end.offset) for end in batch.positions()]
            if not ends:
                continue
            run.history.commit(run.name, ends, "sent")
            offsets = [TopicPartition(run.topic, *end) for end in ends]
            try:
                found = consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:  # a rebalance, or no coordinator: go on
                if error.args[0].fatal():
                    raise
                continue
            done = [(part.partition, part.offset) for part in found if part.error is None]
            run.history.commit(run.name, done, "stored")


def share(run: Run) -> None:
    """A member of a share group, which accepts all records."""
    config = {**run.config, "group.id": run.name, "share.acknowledgement.mode": "explicit"}
    config.pop("enable.idempotence", None)
    with ShareConsumer(config) as consumer:
        consumer.subscribe([run.topic])
        while not run.ending.is_set():
            with consumer.consume_batch(0.5) as batch:
                rows = rows_of(batch)
                if not rows:
                    continue
                run.history.read(run.name, rows, run.sender)
                places = [row[:2] for row in rows]
                run.history.accept(run.name, places, "sent")
                consumer.acknowledge(batch)
                try:
                    results = consumer.commit_sync(WAIT_S)
                except KafkaException as error:
                    if error.args[0].fatal():
                        raise
                    results = {}
            good = {part.partition for part, error in results.items() if error is None}
            run.history.accept(run.name, (at for at in places if at[0] in good), "accepted")
            unknown = (at for at in places if at[0] not in good)
            run.history.accept(run.name, unknown, "unknown")


KINDS: dict[str, Callable[[Run], None]] = {
    "publish": publish,
    "produce": produce,
    "transactions": transactions,
    "awaited": awaited,
    "group": group,
    "share": share,
}


if __name__ == "__main__":
    kind, text = sys.argv[1:]
    KINDS[kind](Run(text))
