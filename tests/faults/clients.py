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
from collections.abc import Callable, Iterator
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

SIZE = 100
# How long a client that is asked to end may take, in seconds.
END_S = 120.0


class Run:
    """What a client is asked to do.

    Attributes
    ----------
    history : History
    sender : int
    name : str
        The transactional id, or the group.
    topic, output : str
    config : dict
        The clients' configuration.
    count : int
        The records of a batch.
    most : int or None
        How many batches the client sends before it ends; None: until it shall end.
    ending : threading.Event
        Set when the client shall end.
    """

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.history = History(Path(given["folder"]))
        self.sender: int = given["sender"]
        self.name: str = given.get("name", "")
        self.topic: str = given["topic"]
        self.output: str = given.get("output", "")
        self.config: dict[str, Any] = {**given["config"], **given.get("more", {})}
        self.count: int = given.get("count", 1000)
        self.most: int | None = given.get("most")
        self.ending = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.read()
        self.ending.set()

    def batches(self, transactional: bool = False) -> Iterator[tuple[range, list[bytes]]]:
        """Yield the numbers and the values of batches, and write that they are sent."""
        for batch in range(self.most) if self.most else itertools.count():
            if self.ending.is_set():
                return
            numbers = range(batch * self.count, (batch + 1) * self.count)
            transaction = batch + 1 if transactional else 0
            self.history.sent(self.sender, numbers.start, self.count, transaction)
            yield numbers, [value(self.sender, number, SIZE) for number in numbers]

    def settle(self, numbers: range, delivery: Any) -> None:
        """Wait for a batch and write its outcomes."""
        try:
            delivery.wait()
        except DeliveryError as error:
            self.history.failed(
                self.sender, (numbers[row] for row in error.failures), may_be_stored=True
            )
        self.write(numbers, delivery)

    def write(self, numbers: range, delivery: Any) -> None:
        """Write the outcomes of the records that were stored."""
        rows = zip(numbers, delivery.partitions, delivery.offsets, strict=True)
        self.history.stored(self.sender, (row for row in rows if row[2] >= 0))


def publish(run: Run) -> None:
    """Batches, two in flight."""
    with Producer(run.config) as producer:
        before = None
        for numbers, values in run.batches():
            delivery = producer.publish(run.topic, values)
            if before is not None:
                run.settle(*before)
            before = numbers, delivery
        if before is not None:
            run.settle(*before)
    run.history.ended(run.sender)


def produce(run: Run) -> None:
    """Single records with a callback."""
    stored: list[tuple[int, int, int]] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        number = identity(message.value() or b"")[1]
        if error is None:
            stored.append((number, message.partition() or 0, message.offset() or 0))
        else:
            run.history.failed(run.sender, [number], may_be_stored=True)

    with Producer(run.config) as producer:
        for _, values in run.batches():
            for data in values:
                producer.produce(run.topic, data, on_delivery=on_delivery, timeout=END_S)
            run.history.stored(run.sender, stored)
            stored.clear()
    run.history.stored(run.sender, stored)
    run.history.ended(run.sender)


def transactions(run: Run) -> None:
    """Batches in transactions, every fifth of which is aborted."""
    config = {**run.config, "transactional.id": run.name}
    with Producer(config) as producer:
        producer.init_transactions(END_S)
        for number, (numbers, values) in enumerate(run.batches(transactional=True), 1):
            outcome = "aborted"
            producer.begin_transaction()
            try:
                delivery = producer.publish(run.topic, values)
                run.settle(numbers, delivery)
                if number % 5 and not delivery.failed:
                    outcome = "unknown"
                    producer.commit_transaction(END_S)
                    outcome = "committed"
                else:
                    producer.abort_transaction(END_S)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(END_S)
                outcome = "aborted"
            run.history.transaction(run.sender, number, outcome)
    run.history.ended(run.sender)


def awaited(run: Run) -> None:
    """Single records, awaited."""

    async def main() -> None:
        async with AsyncProducer(run.config) as producer:
            for numbers, values in run.batches():
                futures = [producer.produce(run.topic, data) for data in values]
                found = await asyncio.gather(*futures, return_exceptions=True)
                for number, message in zip(numbers, found, strict=True):
                    if isinstance(message, BaseException):
                        run.history.failed(run.sender, [number], may_be_stored=True)
                    else:
                        place = message.partition(), message.offset()
                        run.history.stored(run.sender, [(number, *place)])
        run.history.ended(run.sender)

    asyncio.run(main())


def rows_of(batch: MessageBatch) -> list[tuple[int, int, int, int]]:
    """The partition, the offset and the identity of each record."""
    places = zip(batch.partitions, batch.offsets, batch.values(), strict=True)
    return [(part, place, *identity(data or b"")) for part, place, data in places]


def group(run: Run) -> None:
    """A member of a group, which commits after each batch."""
    config = {**run.config, "group.id": run.name, "enable.auto.commit": False,
              "auto.offset.reset": "earliest", "isolation.level": "read_committed"}  # fmt: skip
    with Consumer(config) as consumer:
        consumer.subscribe([run.topic])
        while not run.ending.is_set():
            with consumer.consume_batch(run.count, 0.5) as batch:
                run.history.read(run.name, rows_of(batch))
                ends = [(end.partition, end.offset) for end in batch.positions()]
            if not ends:
                continue
            run.history.committing(run.name, ends)
            offsets = [TopicPartition(run.topic, *end) for end in ends]
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as error:  # a rebalance, or no coordinator: read again
                if error.args[0].fatal():
                    raise


def share(run: Run) -> None:
    """A member of a share group. A record that it accepts counts as read."""
    config = {**run.config, "group.id": run.name, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(config) as consumer:
        consumer.subscribe([run.topic])
        while not run.ending.is_set():
            with consumer.consume_batch(run.count, 0.5) as batch:
                rows = rows_of(batch)
                consumer.acknowledge(batch)
                results = consumer.commit_sync(END_S)
            accepted = {part.partition for part, error in results.items() if error is None}
            run.history.read(run.name, (row for row in rows if row[0] in accepted))


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
