"""Streams written in transactions: a micro-batch that Spark repeats is not written twice.

Each task of a micro-batch is one transaction. Together with the records it commits a mark: an
offset in a consumer group of the task, with the number of the batch and how much the task wrote.
Spark repeats a batch if it does not know that all its tasks have ended. The mark exists if and
only if the records do. So a task that finds the batch's mark writes nothing.

A task has the same transactional id in every run of the query. Its `init_transactions` fences the
producers of earlier attempts before the mark is read. So no earlier attempt can commit a mark
afterwards.

A batch is not atomic across tasks: readers see a task's records as soon as the task has ended.
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

# Timeout of init_transactions, of the abort and of reading a mark, s.
_WAIT_S = 60.0
_PAUSE_S = 0.1
# Timeout of one request for a mark, s; between two of them the consumer is polled for errors.
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
# The properties that consumers and producers share begin with one of these.
_SHARED = ("bootstrap.", "broker.", "client.", "debug", "enable.sasl", "enable.ssl", "https.",
           "log", "metadata.", "plugin.", "reconnect.", "retry.", "sasl.", "security.", "socket.",
           "ssl.", "topic.metadata.")  # fmt: skip
# Authorization errors, and the rights that the user needs.
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user needs Read and Write on the topics, because "
    "the mark of a task is an offset of one of them",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user needs Read on the groups whose names begin "
    "with transactionalIdPrefix, because they hold the marks of the tasks",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs Write and Describe on the "
    "transactional ids that begin with transactionalIdPrefix",
}
_SUM = 1 << 64


@dataclass(frozen=True)
class Mark:
    """How much a task wrote in its last batch, as committed in its group."""

    batch: int
    records: int
    bytes: int
    sum: int | None  # of the records' hashes; None: an older version wrote the mark without it
    topic: str  # the mark is an offset of partition 0 of this topic


@dataclass(frozen=True)
class Place:
    """A task of a batch of a query.

    `run` is Spark's id of the query from its start to its end; None: Spark does not give it.
    """

    query: str
    batch: int
    task: int
    run: str | None = None
    attempt: int = 0

    @classmethod
    def here(cls) -> Place:
        """The current task, by Spark's TaskContext."""
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if context is None or batch is None or query is None:
            raise KafkaWriteError(
                "option transactional: Spark does not give the number of the micro-batch here; "
                "remove the option"
            )
        run = context.getLocalProperty("spark.jobGroup.id")
        return cls(query, int(batch), context.partitionId(), run, context.attemptNumber())

    def name(self, prefix: str) -> str:
        """The name of both the task's transactional id and its group."""
        return f"{prefix}-{self.query}-{self.task}"


def write_in_transaction(options: WriteOptions, batches: Iterable[RecordBatch]) -> Written:
    """Write a task's records and its mark in one transaction; nothing if the mark exists.

    Raises
    ------
    KafkaWriteError
        Records failed, or another producer fenced this one, or the batch differs from the one that
        the mark describes.
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


# By the name of a task of this process: the last run of the query in which it had no rows.
_had_nothing: dict[str, str] = {}


def _check_nothing(config: ClientConfig, name: str, place: Place, topic: str | None) -> None:
    """Check that a task without rows had none in an earlier attempt of its batch, either.

    Only the first batch of a run may have been begun before, so one check in each run is enough.
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
    """A producer in a transaction and None; or, if the batch is written already, one in no
    transaction and the batch's mark."""
    borrowed = take(config)
    try:
        if isinstance(borrowed.notes, Mark):
            try:
                return borrowed, _continued(borrowed, name, borrowed.notes, place)
            except KafkaException:
                # Most likely another worker has run the task since then and fenced this producer.
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
    """Like _begun, for a producer that knows its last mark."""
    if last.batch >= place.batch:
        return last
    borrowed.producer.begin_transaction()
    # Only the brokers know whether another producer fenced this one. Send the last mark again to
    # learn it before the first record is read, because the records can be read only once. The
    # mark of this batch replaces it.
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
    """The properties with which another client reaches the same brokers as the same user."""
    return ClientConfig({key: config[key] for key in config if key.startswith(_SHARED)})


def _read_mark(config: Mapping[str, str], group: str, topic: str | None) -> Mark | None:
    """The mark of the last committed batch; None if there is none."""
    # Use a consumer, not an admin client: librdkafka 2.15.1 crashes when an admin client lists the
    # offsets of a group whose coordinator has moved to another broker. With read_committed the
    # brokers make the request wait for transactions that still commit offsets.
    asked = _shared(config) | {"group.id": group, "isolation.level": "read_committed"}
    deadline = time.monotonic() + _WAIT_S
    with Consumer(asked) as consumer:
        while True:
            try:
                marks = _marks(consumer, group, topic)
                return max(marks, key=lambda mark: mark.batch, default=None)
            except KafkaException as exception:
                error = exception.args[0]
                # Without access to the group the request times out; poll() returns the cause.
                said = consumer.poll(0)
                reason = None if said is None else said.error()
                if reason is not None and reason.code() in _RIGHTS:
                    raise KafkaException(reason) from exception
                if error.code() not in _NOT_YET or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)  # there is no event to wait for


def _marks(consumer: Consumer, group: str, topic: str | None) -> list[Mark]:
    # If a column has the topics, the mark is an offset of the topic of the batch's first record.
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
            f'the group "{group}" has offsets that another program committed: use another '
            "transactionalIdPrefix"
        ) from None


def _check_replay(place: Place, mark: Mark, now: Mark) -> None:
    """Raise if the batch's records differ from the records that its mark describes."""
    if (mark.records, mark.bytes) != (now.records, now.bytes):
        found = f"now the task has {now.records} record(s) of {now.bytes} bytes"
    elif mark.sum not in (None, now.sum):
        found = "now the task has different records of the same total size"
    else:
        return
    raise KafkaWriteError(
        f"batch {place.batch} was written before, when task {place.task} had {mark.records} "
        f"record(s) of {mark.bytes} bytes; {found}. A repeated batch must have the same "
        "partitioning and the same offsets, and the query must compute the same rows again"
    )


def _check_order(place: Place, mark: Mark) -> None:
    if mark.batch > place.batch:
        raise KafkaWriteError(
            f"cannot write batch {place.batch}: task {place.task} has already written batch "
            f"{mark.batch}, so the checkpoint is an old one; to write its batches again, use "
            "another transactionalIdPrefix"
        )


class _Counted:
    """A task's batches, with the count, bytes and checksum of the records read so far."""

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
        """Wait for the first batch and return all batches; None if there are none."""
        first = next(self._batches, None)
        if first is None:
            return None
        self.topic = self._topic or first.column("topic")[0].as_py() or ""
        return self._count(chain([first], self._batches))

    def mark(self, place: Place) -> Mark:
        """A mark with the totals so far."""
        return Mark(place.batch, self.records, self.bytes, self.sum, self.topic)

    def _count(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            self.records += batch.num_rows
            total, size = checksum(batch, **self._columns)
            self.bytes += size
            self.sum = (self.sum + total) % _SUM
            yield batch


def _late(config: Mapping[str, str], begun: float) -> str:
    """A text about a transaction that took longer than the brokers allow; else empty."""
    limit_s = int(config["transaction.timeout.ms"]) / 1000
    spent_s = time.monotonic() - begun
    if spent_s < limit_s:
        return ""
    return (
        f"the task took {spent_s:.0f} s, and brokers abort transactions after "
        f"kafka.transaction.timeout.ms ({limit_s:g} s): raise that option, or make tasks smaller "
        "(more partitions, or fewer records in a micro-batch)"
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
