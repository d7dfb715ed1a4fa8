"""Streams written in transactions: a micro-batch that is tried again is not written twice.

Each task of a micro-batch is one transaction. With the records it commits, in a group of its own,
a mark: the number of the batch, and how much it wrote. Spark tries a batch again when it does not
know that all of its tasks have ended. The task's mark, which is there if and only if its records
are, then tells that there is nothing left to write.

The transactional id of a task is the same in every run of the query. So registering it fences what
is left of an earlier attempt, before the mark is read, and no mark can appear behind our back.

Not atomic across tasks: readers see a task's records as soon as it has ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow.compute as pc
from pyarrow import RecordBatch

from cykafka import Consumer, KafkaError, KafkaException, TopicPartition
from cykafka.spark.producers import Borrowed, keeping, take
from cykafka.spark.sink import KafkaWriteError, Written, write_batches
from cykafka.spark.write_options import WriteOptions

__all__ = ["Mark", "Place", "write_in_transaction"]

# How long registering may take, and reading a mark, s.
_WAIT_S = 60.0
_PAUSE_S = 0.1
_NOT_YET = (
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TRANSPORT,
)
_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)
# What every client is configured with.
_SHARED = ("bootstrap.", "broker.", "client.", "enable.ssl", "log", "debug", "metadata.",
           "plugin.", "reconnect.", "sasl.", "security.", "socket.", "ssl.")  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """What a task has written, as its group remembers it."""

    batch: int
    records: int
    bytes: int
    topic: str  # whose partition 0 the mark is an offset of


@dataclass(frozen=True)
class Place:
    """Which task of which batch of which query this is."""

    query: str
    batch: int
    task: int

    @classmethod
    def here(cls) -> Place:
        """As Spark's context of the task tells."""
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if context is None or batch is None or query is None:
            raise KafkaWriteError(
                "option transactional: Spark does not tell the number of the micro-batch here; "
                "leave the option out"
            )
        return cls(query, int(batch), context.partitionId())

    def name(self, prefix: str) -> str:
        """The transactional id and the group of the task."""
        return f"{prefix}-{self.query}-{self.task}"


def write_in_transaction(options: WriteOptions, batches: Iterable[RecordBatch]) -> Written:
    """Write a task's records and its mark in one transaction, or nothing if the mark is there.

    Raises
    ------
    KafkaWriteError
        Records failed, or another producer has taken over, or the batch is not the one that the
        mark tells of.
    """
    if options.transaction is None:
        raise ValueError("option transactional is not set")
    place = Place.here()
    name = place.name(options.transaction.prefix)
    config = {**options.config, "transactional.id": name}
    counted = _Counted(options, batches)
    rows = counted.started()
    if rows is None:
        return Written(place.task, 0)
    borrowed, mark = _begun(config, name, place, options.topic)
    with keeping(config, borrowed):
        if mark is not None:
            _check_order(place, mark)
            for _ in rows:
                pass
            _check_replay(place, mark, counted.records, counted.bytes)
            return Written(place.task, counted.records, skipped=True)
        write_batches(borrowed, options, rows)
        mark = Mark(place.batch, counted.records, counted.bytes, counted.topic)
        try:
            _send(borrowed, name, mark)
            borrowed.producer.commit_transaction()
        except KafkaException as error:
            raise _failed(name, error) from error
        borrowed.notes = mark
    return Written(place.task, counted.records)


def _begun(
    config: Mapping[str, str], name: str, place: Place, topic: str | None
) -> tuple[Borrowed, Mark | None]:
    """A producer in a transaction; or in none, and the mark of a batch that is written already."""
    borrowed = take(config)
    try:
        if isinstance(borrowed.notes, Mark):
            try:
                return borrowed, _continued(borrowed, name, borrowed.notes, place)
            except KafkaException:
                # Most likely another worker has had the task meanwhile, which fenced this one.
                borrowed.discard()
                borrowed = take(config)
        borrowed.producer.init_transactions(_WAIT_S)
        mark = _read_mark(config, name, topic)
        borrowed.notes = mark
        if mark is None or mark.batch < place.batch:
            borrowed.producer.begin_transaction()
            mark = None
        return borrowed, mark
    except KafkaException as error:
        borrowed.discard()
        raise _failed(name, error) from error
    except BaseException:
        borrowed.discard()
        raise


def _continued(borrowed: Borrowed, name: str, last: Mark, place: Place) -> Mark | None:
    """As _begun, with a producer that knows its last mark."""
    if last.batch >= place.batch:
        return last
    borrowed.producer.begin_transaction()
    # The brokers see only now whether it was fenced; and it must be known before the first record
    # is asked for, for records come once. The mark of this batch replaces this one.
    _send(borrowed, name, last)
    return None


# -- marks


def _send(borrowed: Borrowed, group: str, mark: Mark) -> None:
    text = json.dumps({"batch": mark.batch, "records": mark.records, "bytes": mark.bytes})
    place = TopicPartition(mark.topic, 0, mark.batch, metadata=text)
    borrowed.producer.send_offsets_to_transaction([place], group, _WAIT_S)


def _read_mark(config: Mapping[str, str], group: str, topic: str | None) -> Mark | None:
    """The mark of the last batch that was committed; None: there is none."""
    shared = {key: value for key, value in config.items() if key.startswith(_SHARED)}
    # A consumer, though it consumes nothing: librdkafka 2.14.2 crashes when an admin client asks
    # and the group's coordinator is another broker by now. One that reads what is committed waits
    # for offsets that are still being committed.
    asked = {**shared, "group.id": group, "isolation.level": "read_committed"}
    deadline = time.monotonic() + _WAIT_S
    with Consumer(asked) as consumer:
        while True:
            try:
                marks = _marks(consumer, group, topic)
                return max(marks, key=lambda mark: mark.batch, default=None)
            except KafkaException as exception:
                error = exception.args[0]
                if error.code() not in _NOT_YET or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)  # there is no event to wait for


def _marks(consumer: Consumer, group: str, topic: str | None) -> list[Mark]:
    # With topics by the column, the mark is with the topic of the batch's first record.
    topics = [topic] if topic is not None else list(consumer.list_topics(timeout=_WAIT_S).topics)
    found = consumer.committed([TopicPartition(name, 0) for name in topics], _WAIT_S)
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return [_mark(group, place) for place in found if place.offset >= 0]


def _mark(group: str, place: TopicPartition) -> Mark:
    try:
        told = json.loads(place.metadata or "")
        return Mark(place.offset, int(told["records"]), int(told["bytes"]), place.topic)
    except (ValueError, KeyError, TypeError):
        raise KafkaWriteError(
            f'the group "{group}" has offsets that this sink has not written: use another '
            "transactionalIdPrefix"
        ) from None


def _check_replay(place: Place, mark: Mark, records: int, size: int) -> None:
    """Refuse to skip what is not what was written."""
    if (mark.records, mark.bytes) != (records, size):
        raise KafkaWriteError(
            f"batch {place.batch} was written before, when task {place.task} had {mark.records} "
            f"record(s) of {mark.bytes} bytes; now it has {records} of {size}. It "
            "must be tried again with the same partitioning, from the same offsets"
        )


def _check_order(place: Place, mark: Mark | None) -> None:
    if mark is not None and mark.batch > place.batch:
        raise KafkaWriteError(
            f"batch {place.batch} is to be written, and task {place.task} has written batch "
            f"{mark.batch} already: the checkpoint is an old one; use another "
            "transactionalIdPrefix to write its batches again"
        )


class _Counted:
    """The batches of a task as they go by: how many records and bytes, the first one's topic."""

    def __init__(self, options: WriteOptions, batches: Iterable[RecordBatch]) -> None:
        self._columns = [name for name in (options.key, "value") if name is not None]
        self._batches = (batch for batch in batches if batch.num_rows)
        self._topic = options.topic
        self.records = 0
        self.bytes = 0
        self.topic = ""

    def started(self) -> Iterator[RecordBatch] | None:
        """The batches, the first of which was waited for; None: there are none."""
        first = next(self._batches, None)
        if first is None:
            return None
        self.topic = self._topic or first.column("topic")[0].as_py() or ""
        return self._count(chain([first], self._batches))

    def _count(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            self.records += batch.num_rows
            for name in self._columns:
                lengths = pc.sum(pc.binary_length(batch.column(name)))
                self.bytes += lengths.as_py() or 0
            yield batch


def _failed(name: str, exception: KafkaException) -> KafkaWriteError:
    error = exception.args[0]
    words = f"{error.str()} ({error.name()})"
    if error.code() in _FENCED:
        words += (
            ": another attempt of this task, or another query with the same transactionalIdPrefix "
            "and a copy of its checkpoint, has taken over"
        )
    return KafkaWriteError(f'transaction "{name}": {words}')
