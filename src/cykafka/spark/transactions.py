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

from pyarrow import RecordBatch

from cykafka import Consumer, KafkaError, KafkaException, TopicPartition
from cykafka.internal import checksum
from cykafka.spark.client import ClientConfig
from cykafka.spark.producers import Borrowed, keeping, take
from cykafka.spark.write_options import WriteOptions
from cykafka.spark.writing import KafkaWriteError, Written, write_batches

__all__ = ["Mark", "Place", "write_in_transaction"]

# How long registering may take, and reading a mark, s.
_WAIT_S = 60.0
_PAUSE_S = 0.1
# How long a request for a mark waits before it is seen whether there are any news, s.
_ASK_S = 5.0
_NOT_YET = (
    KafkaError._TIMED_OUT,
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
_SHARED = ("bootstrap.", "broker.", "client.", "debug", "enable.sasl", "enable.ssl", "https.",
           "log", "metadata.", "plugin.", "reconnect.", "retry.", "sasl.", "security.", "socket.",
           "ssl.", "topic.metadata.")  # fmt: skip
# What the user lacks who is refused.
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user needs Read on the topics as well as Write, "
    "for the mark of a task is an offset of one of them",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user needs Read on the groups whose names begin "
    "with transactionalIdPrefix, which have the marks of the tasks",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs Write and Describe on the "
    "transactional ids that begin with transactionalIdPrefix",
}
_SUM = 1 << 64


@dataclass(frozen=True)
class Mark:
    """What a task has written, as its group remembers it."""

    batch: int
    records: int
    bytes: int
    sum: int | None  # of the records' hashes; None: it was written before there were any
    topic: str  # whose partition 0 the mark is an offset of


@dataclass(frozen=True)
class Place:
    """Which task of which batch of which query this is.

    `run` is what Spark calls the query from its start to its end; None: Spark does not tell.
    """

    query: str
    batch: int
    task: int
    run: str | None = None
    attempt: int = 0

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
        run = context.getLocalProperty("spark.jobGroup.id")
        return cls(query, int(batch), context.partitionId(), run, context.attemptNumber())

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
    config = options.config | {"transactional.id": name}
    counted = _Counted(options, batches)
    rows = counted.started()
    if rows is None:
        _check_nothing(config, name, place, options.topic)
        return Written(place.task, 0)
    borrowed, mark = _begun(config, name, place, options.topic)
    begun = time.monotonic()
    with keeping(config, borrowed):
        if mark is not None:
            _check_order(place, mark)
            for _ in rows:
                pass
            _check_replay(place, mark, counted.mark(place))
            return Written(place.task, counted.records, skipped=True)
        try:
            write_batches(borrowed, options, rows)
            mark = counted.mark(place)
            _send(borrowed, name, mark)
            borrowed.producer.commit_transaction()
        except KafkaException as error:
            raise _failed(name, error, _late(config, begun)) from error
        except KafkaWriteError as error:
            late = _late(config, begun)
            if not late:
                raise
            raise KafkaWriteError(f"{error}; {late}") from error
        borrowed.notes = mark
    return Written(place.task, counted.records)


# In which run of a query a task of this process had no rows last, by the task's name.
_had_nothing: dict[str, str] = {}


def _check_nothing(config: ClientConfig, name: str, place: Place, topic: str | None) -> None:
    """A task without rows: had it any when its batch was written before?

    Only the first batch of a run can be one that was begun before, so that is seen to once.
    """
    if place.run is not None and place.attempt == 0 and _had_nothing.get(name) == place.run:
        return
    borrowed, mark = _begun(config, name, place, topic)
    with keeping(config, borrowed):
        if mark is None:
            try:
                borrowed.producer.abort_transaction(_WAIT_S)
            except KafkaException as error:
                raise _failed(name, error) from error
        else:
            _check_order(place, mark)
            _check_replay(place, mark, Mark(place.batch, 0, 0, 0, ""))
        if borrowed.notes is None:
            borrowed.spent = True
    if place.run is not None:
        _had_nothing[name] = place.run


def _begun(
    config: ClientConfig, name: str, place: Place, topic: str | None
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
    told = {"batch": mark.batch, "records": mark.records, "bytes": mark.bytes}
    if mark.sum is not None:
        told["sum"] = mark.sum
    text = json.dumps(told)
    place = TopicPartition(mark.topic, 0, mark.batch, metadata=text)
    borrowed.producer.send_offsets_to_transaction([place], group, _WAIT_S)


def _shared(config: Mapping[str, str]) -> ClientConfig:
    """What another client needs in order to reach the same brokers as the same user."""
    return ClientConfig({key: config[key] for key in config if key.startswith(_SHARED)})


def _read_mark(config: Mapping[str, str], group: str, topic: str | None) -> Mark | None:
    """The mark of the last batch that was committed; None: there is none."""
    # A consumer, though it consumes nothing: librdkafka 2.14.2 crashes when an admin client asks
    # and the group's coordinator is another broker by now. One that reads what is committed waits
    # for offsets that are still being committed.
    asked = _shared(config) | {"group.id": group, "isolation.level": "read_committed"}
    deadline = time.monotonic() + _WAIT_S
    with Consumer(asked) as consumer:
        while True:
            try:
                marks = _marks(consumer, group, topic)
                return max(marks, key=lambda mark: mark.batch, default=None)
            except KafkaException as exception:
                error = exception.args[0]
                # Who may not see the group waits for its coordinator; polling alone tells why.
                said = consumer.poll(0)
                reason = None if said is None else said.error()
                if reason is not None and reason.code() in _RIGHTS:
                    raise KafkaException(reason) from exception
                if error.code() not in _NOT_YET or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)  # there is no event to wait for


def _marks(consumer: Consumer, group: str, topic: str | None) -> list[Mark]:
    # With topics by the column, the mark is with the topic of the batch's first record.
    topics = [topic] if topic is not None else list(consumer.list_topics(timeout=_WAIT_S).topics)
    found = consumer.committed([TopicPartition(name, 0) for name in topics], _ASK_S)
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return [_mark(group, place) for place in found if place.offset >= 0]


def _mark(group: str, place: TopicPartition) -> Mark:
    try:
        told = json.loads(place.metadata or "")
        total = told.get("sum")
        return Mark(
            place.offset,
            int(told["records"]),
            int(told["bytes"]),
            None if total is None else int(total),
            place.topic,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KafkaWriteError(
            f'the group "{group}" has offsets that this sink has not written: use another '
            "transactionalIdPrefix"
        ) from None


def _check_replay(place: Place, mark: Mark, now: Mark) -> None:
    """Refuse to skip what is not what was written."""
    if (mark.records, mark.bytes) != (now.records, now.bytes):
        found = f"now it has {now.records} of {now.bytes}"
    elif mark.sum not in (None, now.sum):
        found = "now it has other ones of the same size"
    else:
        return
    raise KafkaWriteError(
        f"batch {place.batch} was written before, when task {place.task} had {mark.records} "
        f"record(s) of {mark.bytes} bytes; {found}. It must be tried again with the same "
        "partitioning, from the same offsets, and its rows must be the same when they are "
        "computed again"
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
        self._columns = {
            "key": options.key,
            "partition": options.partition,
            "headers": options.headers,
            "timestamp": options.timestamp,
            "topic": "topic" if options.topic is None else None,
        }
        self._batches = (batch for batch in batches if batch.num_rows)
        self._topic = options.topic
        self.records = 0
        self.bytes = 0
        self.sum = 0
        self.topic = ""

    def started(self) -> Iterator[RecordBatch] | None:
        """The batches, the first of which was waited for; None: there are none."""
        first = next(self._batches, None)
        if first is None:
            return None
        self.topic = self._topic or first.column("topic")[0].as_py() or ""
        return self._count(chain([first], self._batches))

    def mark(self, place: Place) -> Mark:
        """What has gone by."""
        return Mark(place.batch, self.records, self.bytes, self.sum, self.topic)

    def _count(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            self.records += batch.num_rows
            total, size = checksum(batch, **self._columns)
            self.bytes += size
            self.sum = (self.sum + total) % _SUM
            yield batch


def _late(config: Mapping[str, str], begun: float) -> str:
    """Words about a transaction that took longer than the brokers allow; none if it did not."""
    limit_s = int(config["transaction.timeout.ms"]) / 1000
    spent_s = time.monotonic() - begun
    if spent_s < limit_s:
        return ""
    return (
        f"the task took {spent_s:.0f} s, and brokers abort what takes longer than "
        f"kafka.transaction.timeout.ms ({limit_s:g} s): set that higher, or make tasks smaller "
        "(more partitions, or less in a micro-batch)"
    )


def _failed(name: str, exception: KafkaException, late: str = "") -> KafkaWriteError:
    error = exception.args[0]
    words = f"{error.str()} ({error.name()})"
    if late:
        words += f": {late}"
    elif error.code() in _FENCED:
        words += (
            ": another attempt of this task, or another query with the same transactionalIdPrefix "
            "and a copy of its checkpoint, has taken over"
        )
    elif error.code() in _RIGHTS:
        words += f": {_RIGHTS[error.code()]}"
    return KafkaWriteError(f'transaction "{name}": {words}')
