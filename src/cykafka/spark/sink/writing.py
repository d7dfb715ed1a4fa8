"""Writes Arrow batches to Kafka, with one librdkafka call per batch."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from sys import intern, maxsize
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import RecordBatch
from pyspark.sql.datasource import WriterCommitMessage

from cykafka import Delivery, DeliveryError, KafkaError, KafkaException, Producer
from cykafka.internal import key_partitions
from cykafka.spark.clients.producers import (
    Borrowed,
    PartitionCounts,
    borrow_producer,
    return_producer,
)
from cykafka.spark.sink.write_options import WriteOptions

__all__ = [
    "KafkaWriteError",
    "Refused",
    "Rows",
    "Written",
    "describe_refusals",
    "find_refused_rows",
    "report_task",
    "sort_rows",
    "source_of",
    "write_batches",
    "write_task",
]

# Hints that follow librdkafka's error texts.
_HINTS = {
    KafkaError._UNKNOWN_TOPIC: "the topic does not exist, and brokers did not create it",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist, and brokers did not create it",
    KafkaError._UNKNOWN_PARTITION: "the topic has no such partition",
    KafkaError.MSG_SIZE_TOO_LARGE: "larger than kafka.message.max.bytes or the brokers allow",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not write to the topic",
    KafkaError._MSG_TIMED_OUT: "no broker has acknowledged it within kafka.delivery.timeout.ms",
    KafkaError._QUEUE_FULL: "larger than kafka.queue.buffering.max.kbytes",
    KafkaError.INVALID_TIMESTAMP: "outside of the topic's message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms",
    KafkaError._INVALID_DIFFERENT_RECORD: "brokers refused another record of the same request",
}
# Errors for records that brokers reject permanently, and for records in one request with such a
# record.
_REFUSALS = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD,
)
_MAY_PASS = (KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
# Errors for records whose transaction has failed.
_CUT_OFF = (KafkaError._STATE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
# How often a task checks whether its transaction has failed, s.
_LOOK_S = 0.1
# The most places, and the most errors, in one error message.
_TOLD = 5
# A task reports at most this many rejected records.
_MOST_REFUSED = 100_000
# The producer that finds out which records brokers reject. A rejected request would leave a gap in
# an idempotent producer's sequence numbers, and several requests in flight would change the order.
_CAREFUL = {
    "enable.idempotence": "false",
    "max.in.flight.requests.per.connection": "1",
    "linger.ms": "0",
}


class KafkaWriteError(RuntimeError):
    """A task failed to write records. Other records of the task may be in Kafka.

    Attributes
    ----------
    written : int
        How many records of the task are known to be in Kafka.
    may_pass : bool
        Whether a retry may succeed, because brokers did not respond in time.
    may_be_refusal : bool
        Whether brokers reject some of the records permanently, or a transaction has failed.
    """

    written: int = 0
    may_pass: bool = False
    may_be_refusal: bool = False


class Refused(NamedTuple):
    """A record that brokers reject permanently.

    Attributes
    ----------
    topic, partition, offset : str, int, int
        Where the record comes from.
    target : str
        The topic whose brokers reject the record.
    error : str
    """

    topic: str
    partition: int
    offset: int
    target: str
    error: str


@dataclass
class Written(WriterCommitMessage):
    """The result of a task.

    Attributes
    ----------
    records : int
        The number of records that are in Kafka.
    skipped : bool
        An earlier attempt at the same batch wrote the records, in a transaction.
    refused : tuple of Refused
        Records that brokers reject permanently.
    settled : int
        The number of further such records, which the task has left out of its transaction or
        replaced by dead letters.
    error : str or None
        The error that ended the task, from `report_task`.
    """

    records: int
    skipped: bool = False
    refused: tuple[Refused, ...] = ()
    settled: int = 0
    error: str | None = None


def write_task(options: WriteOptions, batches: Iterable[RecordBatch]) -> Written:
    """Write a task's records with a producer that later tasks reuse."""
    return _write_task(options, batches, None)


def report_task(options: WriteOptions, batches: Iterable[RecordBatch]) -> Written:
    """Like `write_task`, but report permanent errors instead of raising them.

    Spark would repeat a failed task, and so send its good records again. So the result contains
    rejected records and other permanent errors.
    """
    refused: list[Refused] = []
    try:
        return _write_task(options, batches, refused)
    except KafkaWriteError as error:
        if error.may_pass:
            raise
        return Written(error.written, refused=tuple(refused), error=str(error))


def _write_task(
    options: WriteOptions, batches: Iterable[RecordBatch], refused: list[Refused] | None
) -> Written:
    borrowed = borrow_producer(options.config)
    with return_producer(options.config, borrowed):
        rows = write_batches(borrowed, options, batches, refused)
    return Written(rows - len(refused or ()), refused=tuple(refused or ()))


def write_batches(
    borrowed: Borrowed,
    options: WriteOptions,
    batches: Iterable[RecordBatch],
    refused: list[Refused] | None = None,
) -> int:
    """Write Arrow batches, and wait until the brokers have acknowledged every record.

    Parameters
    ----------
    borrowed : Borrowed
        The producer.
    options : WriteOptions
    batches : iterable of pyarrow.RecordBatch
    refused : list of Refused, optional
        Gets the records that brokers reject permanently. They need a source, see `source_of`. By
        default such records raise an error.

    Returns
    -------
    int
        How many records were written or rejected.

    Raises
    ------
    KafkaWriteError
        Records failed. The message says how many, where, and why.
    """
    progress = _SendProgress()
    try:
        _write(borrowed, options, batches, refused, progress)
    except KafkaWriteError as error:
        if refused is not None:
            borrowed.producer.flush()
            error.written = progress.written()
        raise
    except KafkaException as error:
        raise _client_error(error) from error
    return progress.rows


def _write(
    borrowed: Borrowed,
    options: WriteOptions,
    batches: Iterable[RecordBatch],
    refused: list[Refused] | None,
    progress: _SendProgress,
) -> None:
    producer = borrowed.producer
    pending = progress.pending

    def check() -> None:
        """Raise an error for failed records, or find out which of them brokers reject."""
        if refused is None:
            if options.transaction is not None:
                _finish(producer, options, pending)
            raise _failure(borrowed, options, pending) from None
        producer.flush()
        refused.extend(_find_refused(borrowed, options, pending))
        pending.clear()
        progress.in_flight, progress.refused = 0, len(refused)
        if len(refused) > _MOST_REFUSED:
            raise KafkaWriteError(
                f"brokers refuse more than {_MOST_REFUSED:,} records of a task: make tasks "
                "smaller (maxOffsetsPerTrigger), or change the limits of the topic: "
                f"{describe_refusals(refused)}"
            )

    # Send the next batch when half of the queue is free. If the task sent as soon as a few records
    # fit, librdkafka would send many small requests.
    half = int(options.config["queue.buffering.max.messages"]) // 2 or maxsize
    wait_s = None if options.transaction is None else _LOOK_S
    for batch in batches:
        if batch.num_rows == 0:
            continue
        while pending and (progress.in_flight > half or pending[0].delivery.done):
            try:
                pending[0].delivery.wait(wait_s)
            except DeliveryError:
                check()
            except TimeoutError:
                if any(sent.delivery.failed for sent in pending):
                    check()
            else:
                progress.in_flight -= pending.popleft().rows.given.num_rows
        rows = sort_rows(batch, options, borrowed.counts)
        pending.append(_send(producer, options, rows, progress.rows))
        progress.rows += batch.num_rows
        progress.in_flight += batch.num_rows
    _finish(producer, options, pending)
    if any(sent.delivery.failed for sent in pending):
        check()


def _finish(producer: Producer, options: WriteOptions, pending: Collection[_Sent]) -> None:
    """Wait until rows have outcomes. After a failure, a transaction stops sending records."""
    # Unlike a wait for a delivery, flush() sends lingering records at once.
    while producer.flush(None if options.transaction is None else _LOOK_S):
        if any(sent.delivery.failed for sent in pending):
            producer.purge()


@dataclass
class _Sent:
    """Rows in flight."""

    delivery: Delivery
    rows: Rows
    first: int  # the number of the first row within the task


@dataclass
class _SendProgress:
    """How many rows a task has sent, how many are in flight, and how many were rejected."""

    rows: int = 0
    in_flight: int = 0
    refused: int = 0
    pending: deque[_Sent] = field(default_factory=deque)

    def written(self) -> int:
        """How many rows are in Kafka."""
        done = (sent.delivery for sent in self.pending if sent.delivery.done)
        arrived = sum(delivery.count - delivery.failed for delivery in done)
        return self.rows - self.in_flight - self.refused + arrived


def _send(producer: Producer, options: WriteOptions, rows: Rows, first: int) -> _Sent:
    batch = rows.given
    if options.topic is None and batch.column("topic").null_count:
        row = pc.index(pc.is_null(batch.column("topic")), True).as_py()
        raise KafkaWriteError(
            f"the topic of {_describe_row(batch, row, first)} is null: set the option topic, or "
            "filter such rows out"
        )
    try:
        delivery = producer.publish_arrow(
            options.topic,
            rows.batch,
            key=options.key,
            headers=options.headers,
            timestamp=options.timestamp,
            partition=options.partition,
        )
    except ValueError as error:
        raise _unfit(options, batch, first, error) from error
    return _Sent(delivery, rows, first)


# -- refused records


def _find_refused(
    borrowed: Borrowed, options: WriteOptions, pending: Sequence[_Sent]
) -> Iterator[Refused]:
    """Find the records that brokers reject, and send all others.

    Brokers reject whole requests. So this resends all rows of a partition from the first failed
    row on, even rows that have arrived. The partition's last records are then in row order.
    """
    for sent in pending:
        if any(error.code() not in _REFUSALS for error in sent.delivery.errors.values()):
            raise _failure(borrowed, options, pending)
    config = options.config | _CAREFUL
    careful = borrow_producer(config)
    with return_producer(config, careful):
        for rows in _rows_to_repeat(options, pending):
            for index, error in _send_singly(careful.producer, options, rows):
                yield _refusal(options, rows, index, error)


def _refusal(options: WriteOptions, rows: RecordBatch, row: int, error: KafkaError) -> Refused:
    source = source_of(rows, row)
    assert source is not None, "the rows of jobs say where they come from"
    topic, partition, offset = source
    target = options.topic or rows.column("topic")[row].as_py()
    # Pickle stores an interned text once, even if brokers reject all rows.
    return Refused(
        intern(topic), partition, offset, intern(target), intern(_describe_error(error))
    )


def _rows_to_repeat(options: WriteOptions, pending: Sequence[_Sent]) -> Iterator[RecordBatch]:
    """Yield each failed partition's rows, from the first failed row on."""
    wanted: dict[tuple[str, int], list[tuple[_Sent, int]]] = {}
    for sent in pending:
        errors, partitions = sent.delivery.errors, sent.delivery.partitions
        topics = None if options.topic else sent.rows.batch.column("topic").to_pylist()
        for index, partition in enumerate(partitions):
            place = (topics[index] if topics else "", partition)
            if index in errors or place in wanted:
                wanted.setdefault(place, []).append((sent, index))
    for found in wanted.values():
        for _, of_batch in groupby(found, key=lambda pair: pair[0].first):
            pairs = list(of_batch)
            rows = pairs[0][0].rows
            yield rows.given.take(pa.array([rows.place(index) for _, index in pairs]))


def _send_singly(
    producer: Producer, options: WriteOptions, rows: RecordBatch
) -> Iterator[tuple[int, KafkaError]]:
    """Send a partition's rows in order, and yield rows that fail even alone.

    If rows fail together, this sends them again in halves.
    """
    left = [(0, rows.num_rows)]
    while left:
        low, high = left.pop()
        part = rows.slice(low, high - low)
        delivery = _send(producer, options, Rows(part, part), low).delivery
        producer.flush()
        errors = delivery.errors
        if not errors:
            continue
        for index, error in errors.items():
            if error.code() not in _REFUSALS:
                source = source_of(part, index)
                row = "a row" if source is None else _source(source)
                failure = KafkaWriteError(
                    f"{row} could not be sent again: {_describe_error(error)}"
                )
                failure.may_pass = error.code() in _MAY_PASS
                raise failure
        if high - low == 1:
            yield low, errors[0]
            continue
        low += min(errors)  # the rows before it have arrived
        middle = (low + high + 1) // 2
        left += [(middle, high)] if middle < high else []
        left.append((low, middle))


def find_refused_rows(
    producer: Producer, options: WriteOptions, rows: RecordBatch
) -> tuple[dict[int, Refused], list[int]]:
    """Send rows in a transaction. Returns the rejected rows, and other rows that failed.

    Parameters
    ----------
    producer : Producer
        A producer in a transaction, with one record per request.
    options : WriteOptions
    rows : RecordBatch

    Raises
    ------
    KafkaWriteError
        Rows failed, but brokers rejected none of them.
    """
    sent = _send(producer, options, Rows(rows, rows), 0)
    _finish(producer, options, [sent])
    delivery = sent.delivery
    refused, others = {}, []
    for index, error in delivery.errors.items():
        if error.code() in _REFUSALS:
            refused[index] = _refusal(options, rows, index, error)
        else:
            others.append(index)
    if others and not refused:
        error = delivery.errors[others[0]]
        raise KafkaWriteError(
            f"{_describe_row(rows, others[0], 0)}, could not be sent: {_describe_error(error)}"
        )
    return refused, others


def describe_refusals(refused: Sequence[Refused]) -> str:
    """Describe rejected records: how many, and the first one per error."""
    counts = Counter((record.target, record.error) for record in refused)
    firsts = {(record.target, record.error): record for record in reversed(refused)}
    lines = [
        f'topic "{target}": {error}: {count} record(s), the first is '
        f"{_source(firsts[target, error][:3])}"
        for (target, error), count in counts.most_common(_TOLD)
    ]
    return "; ".join(lines)


# -- sources


def source_of(rows: RecordBatch, row: int) -> tuple[str, int, int] | None:
    """Return a row's original topic, partition and offset, or None if the row lacks them.

    They come from the fields of the column ``source``, else from the Kafka source's columns.
    """
    names = ("topic", "partition", "offset")
    columns = rows.schema.names
    if "source" in columns and pa.types.is_struct(rows.column("source").type):
        found = rows.column("source")[row].as_py() or {}
    else:
        found = {name: rows.column(name)[row].as_py() for name in names if name in columns}
    topic, partition, offset = (found.get(name) for name in names)
    if topic is None or partition is None or offset is None:
        return None
    return topic, partition, offset


def _source(place: tuple[str, int, int]) -> str:
    return f"offset {place[2]} of {place[0]} [{place[1]}]"


def _describe_row(rows: RecordBatch, row: int, first: int) -> str:
    """Describe a row for an error message."""
    source = source_of(rows, row)
    words = f"row {first + row} of the task"
    return words if source is None else f"{words}, which is {_source(source)}"


# -- errors


def _failure(
    borrowed: Borrowed, options: WriteOptions, pending: Iterable[_Sent]
) -> KafkaWriteError:
    """Return the error for failed records: how many, and the first one per place and code."""
    counts: Counter[tuple[str, int, int]] = Counter()
    firsts: dict[tuple[str, int, int], tuple[str, KafkaError]] = {}
    rows = 0
    for sent in pending:
        rows += sent.rows.batch.num_rows
        partitions = sent.delivery.partitions
        for index, error in sent.delivery.errors.items():
            topic = options.topic or sent.rows.batch.column("topic")[index].as_py()
            key = (topic, partitions[index], error.code())
            counts[key] += 1
            if key not in firsts:
                place = sent.rows.place(index)
                firsts[key] = _describe_row(sent.rows.given, place, sent.first), error
    lines = [
        f"{_place(*key[:2])}: {_describe_error(error)}: {counts[key]} record(s), the first in "
        f"{row}"
        for key, (row, error) in sorted(firsts.items(), key=_is_innocent)[:_TOLD]
    ]
    if len(firsts) > _TOLD:
        lines.append(f"and {len(firsts) - _TOLD} more places and errors")
    if borrowed.complaint is not None:
        lines.append(f"the connections' last error: {borrowed.complaint.str()}")
    failure = KafkaWriteError(
        f"{sum(counts.values())} of the last {rows} records could not be written to Kafka: "
        + "; ".join(lines)
    )
    codes = {code for _, _, code in firsts}
    failure.may_pass = not codes.isdisjoint(_MAY_PASS)
    failure.may_be_refusal = not codes.isdisjoint((*_REFUSALS, *_CUT_OFF))
    return failure


def _is_innocent(item: tuple[tuple[str, int, int], object]) -> bool:
    """Whether records failed only because others did. The others' errors come first."""
    return item[0][2] in (KafkaError._INVALID_DIFFERENT_RECORD, *_CUT_OFF)


def _unfit(
    options: WriteOptions, batch: RecordBatch, first: int, error: ValueError
) -> KafkaWriteError:
    """Return the error for a row whose partition or timestamp is out of range."""
    for name, words in (
        (options.partition, "expected 0 or more; null and -1 leave the choice to the partitioner"),
        (options.timestamp, "expected a time after 1970-01-01; null means now"),
    ):
        column = None if name is None else batch.column(name)
        low = 0 if name == options.timestamp else -1
        if column is not None and pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        bad = None if column is None else pc.index(pc.less(column, low), True).as_py()
        if bad is not None and bad >= 0:
            # Python's times start at the year 1.
            found = batch.column(name)[bad]
            if pa.types.is_timestamp(found.type):
                found = found.cast(pa.timestamp("us")).cast(pa.string())
            return KafkaWriteError(
                f"the {name} of {_describe_row(batch, bad, first)} is {found}: {words}"
            )
    return KafkaWriteError(
        f"cannot write {_describe_row(batch, 0, first)}, and later rows: {error}"
    )


def _place(topic: str, partition: int) -> str:
    return f'topic "{topic}"' if partition < 0 else f'topic "{topic}" partition {partition}'


def _describe_error(error: KafkaError) -> str:
    hint = _HINTS.get(error.code())
    return f"{error.str()} ({error.name()})" + (f", {hint}" if hint else "")


def _client_error(error: KafkaException) -> KafkaWriteError:
    cause = error.args[0]
    words = f"{cause.str()} ({cause.name()})" if isinstance(cause, KafkaError) else str(error)
    failure = KafkaWriteError(f"cannot write to Kafka: {words}")
    failure.may_pass = True
    return failure


# -- the order of rows


@dataclass(frozen=True)
class Rows:
    """Rows to send together.

    Attributes
    ----------
    batch : RecordBatch
        The rows, sorted, with the columns to write.
    given : RecordBatch
        The task's rows, with all their columns.
    places : Array or None
        The place in `given` of each row in `batch`; None if the places are the same.
    """

    batch: RecordBatch
    given: RecordBatch
    places: pa.Array | None = None

    def place(self, index: int) -> int:
        """Return the place in `given` of a row in `batch`."""
        return index if self.places is None else int(self.places[index].as_py())


def sort_rows(batch: RecordBatch, options: WriteOptions, counts: PartitionCounts) -> Rows:
    """Sort rows by partition. Rows of one partition keep their order.

    librdkafka keeps one record list per partition. If rows come in mixed order, a list's records
    are scattered in memory, and each record is out of the processor's cache when librdkafka builds
    the request. That doubles the time for a 100-byte record.

    Sorting changes only the order: librdkafka chooses each record's partition. If a topic got new
    partitions in the last five minutes, the rows are only less well sorted.
    """
    partitions = _partitions(batch, options, counts)
    if partitions is None:
        return Rows(batch, batch)
    places = pc.sort_indices(partitions)  # a stable sort
    return Rows(batch.select(options.columns).take(places), batch, places)


def _partitions(
    batch: RecordBatch, options: WriteOptions, counts: PartitionCounts
) -> pa.Array | None:
    """Return each row's partition, or None if not all are known or all are the same."""
    partitions = None if options.partition is None else batch.column(options.partition)
    if partitions is None or partitions.null_count == len(partitions):
        partitions = _partitions_of_keys(batch, options, counts)
    if partitions is None or partitions.null_count:
        return None
    ends = pc.min_max(partitions)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return partitions if 0 <= low < high else None


def _partitions_of_keys(
    batch: RecordBatch, options: WriteOptions, counts: PartitionCounts
) -> pa.Array | None:
    """Return each row's partition by its key. Returns None for several topics, for a topic with
    one partition, or if the partition count is unknown."""
    topic = options.topic
    if topic is None:
        topics = pc.unique(batch.column("topic"))
        topic = topics[0].as_py() if len(topics) == 1 else None
    count = 0 if options.key is None or topic is None else counts.of(topic)
    if count < 2:
        return None
    keys = batch.column(options.key)
    packed = key_partitions(keys, options.config["partitioner"], count)
    return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(packed)])
