"""Writes streams in transactions, so that a micro-batch that Spark repeats is written once.

Each task in a micro-batch writes one transaction. Together with the records, the task commits a
mark: an offset in the task's own consumer group, with the batch number and how much the task
wrote. Spark repeats a batch if it does not know that all its tasks have ended. The mark exists if
and only if the records do. So a task that finds the batch's mark writes nothing.

A task has the same transactional id in every run of the query. Its `init_transactions` fences the
producers of earlier attempts before the task reads the mark. So earlier attempts cannot commit a
mark afterwards.

A batch is not atomic across tasks: readers see a task's records as soon as the task has ended.

A record that brokers reject ends its transaction. A job's task then finds the rejected records
in transactions that it aborts. Afterwards it writes the other records, and dead letters for the
rejected ones, in one transaction with the mark (`Handling`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import RecordBatch

from cykafka import Consumer, KafkaError, KafkaException, TopicPartition
from cykafka.spark.clients.producers import ABORT_S, Borrowed, borrow_producer, return_producer
from cykafka.spark.clients.properties import ClientConfig
from cykafka.spark.sink.spool import Spool
from cykafka.spark.sink.write_options import WriteOptions
from cykafka.spark.sink.writing import (
    KafkaWriteError,
    Refused,
    Written,
    describe_refusals,
    find_refused_rows,
    write_batches,
)

__all__ = ["MODULUS", "Handling", "Mark", "Place", "hash_rows", "write_in_transaction"]

# Timeout for init_transactions, for aborting and for reading a mark, s.
_WAIT_S = 60.0
_PAUSE_S = 0.1
# Timeout per request for a mark, s. Between two requests the task polls the consumer for errors.
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
# Authorization errors, and the permissions that the user needs.
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user needs Read and Write on the topics, because "
    "the mark of a task is an offset of one of them",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the user needs Read on the groups whose names begin "
    "with transactionalIdPrefix, because they hold the marks of the tasks",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the user needs Write and Describe on the "
    "transactional ids that begin with transactionalIdPrefix",
}
_AS_USUAL: Mapping[str, str] = {}
# With one record per request, brokers reject single records instead of whole requests.
_SINGLE = {"batch.num.messages": "1", "linger.ms": "0"}
# A task finds at most this many rejected records. Each costs a transaction, about 50 ms.
_MOST_REFUSED = 1_000


@dataclass(frozen=True)
class Mark:
    """How much a task wrote in its last batch, as committed to its group."""

    batch: int
    records: int
    bytes: int
    hash: str  # the algorithm's name and the records' hash
    topic: str  # the mark is an offset of partition 0 of this topic
    settled: int = 0  # rejected records that the task skipped or replaced by dead letters


@dataclass(frozen=True)
class Place:
    """Identifies a task: its query, batch and number.

    `run` is Spark's id for one run of the query, or None if Spark does not provide it.
    """

    query: str
    batch: int
    task: int
    run: str | None = None
    attempt: int = 0

    @classmethod
    def here(cls) -> Place:
        """Return the current task, from Spark's TaskContext."""
        from pyspark import TaskContext

        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        if context is None or batch is None or query is None:
            raise KafkaWriteError(
                "option transactional: Spark does not pass the number of the micro-batch here; "
                "remove the option"
            )
        run = context.getLocalProperty("spark.jobGroup.id")
        return cls(query, int(batch), context.partitionId(), run, context.attemptNumber())


class Handling(Protocol):
    """What a job does with records that brokers reject.

    Attributes
    ----------
    leaves_out : bool
        Whether the task may write the other records.
    letters_to : WriteOptions or None
        How to write dead letters.
    forms : sequence of str
        The forms of dead letters. A task tries the next form if brokers reject one.
    """

    @property
    def leaves_out(self) -> bool: ...
    @property
    def letters_to(self) -> WriteOptions | None: ...
    @property
    def forms(self) -> Sequence[str]: ...
    def letters(self, refused: Iterable[Refused], form: str) -> Iterator[RecordBatch]: ...
    def count(self, refused: Iterable[Refused]) -> int:
        """Return how many records to count as rejected."""


def write_in_transaction(
    options: WriteOptions, batches: Iterable[RecordBatch], handling: Handling | None = None
) -> Written:
    """Write a task's records and its mark in one transaction. Writes nothing if the mark exists.

    Parameters
    ----------
    options : WriteOptions
    batches : iterable of RecordBatch
    handling : Handling, optional
        What to do with rejected records, whose rows then need a source (`source_of`). By default
        rejected records raise an error. If `handling` does not leave them out, the result contains
        them, and the task writes nothing.

    Raises
    ------
    KafkaWriteError
        Records failed, another producer fenced this one, or the batch differs from the batch that
        the mark describes.
    """
    task = _TransactionTask(options, Place.here())
    counted = _Counted(options, batches)
    rows = counted.start()
    if rows is None:
        _check_nothing(task)
        return Written(0)
    if handling is None:
        return _write(task, counted, rows)
    with closing(Spool()) as spool:
        kept = spool.keep(rows)
        try:
            return _write(task, counted, kept)
        except KafkaWriteError as error:
            if not error.may_be_refusal:
                raise
            for _ in kept:
                pass
            return _write_others(task, counted, spool, handling)


@dataclass(frozen=True)
class _TransactionTask:
    """A task that writes in transactions."""

    options: WriteOptions
    place: Place

    @property
    def name(self) -> str:
        """The task's transactional id and also its group id."""
        return f"{self.options.transaction}-{self.place.query}-{self.place.task}"

    @property
    def config(self) -> ClientConfig:
        """Return the properties for the task's producer."""
        return self.options.config | {"transactional.id": self.name}


def _write(
    task: _TransactionTask,
    counted: _Counted,
    rows: Iterable[RecordBatch],
    letters: Iterable[tuple[WriteOptions | None, Iterator[RecordBatch]]] = (),
    settled: int = 0,
    more: Mapping[str, str] = _AS_USUAL,
) -> Written:
    """Write rows, dead letters, and the mark with the counts."""
    place, options = task.place, task.options
    config = task.config | more
    borrowed, mark = _begin(task, config)
    begun = time.monotonic()
    with return_producer(config, borrowed):
        if mark is not None:
            _check_order(place, mark)
            for _ in rows:
                pass
            _check_replay(place, mark, counted.mark(place))
            written = counted.records - mark.settled
            return Written(written, skipped=True, settled=mark.settled)
        try:
            write_batches(borrowed, options, rows)
            for target, batches in letters:
                write_batches(borrowed, target or options, batches)
            mark = counted.mark(place, settled)
            _send(borrowed, task.name, mark)
            borrowed.producer.commit_transaction()
        except KafkaException as error:
            raise _transaction_error(task.name, error, _late(config, begun)) from error
        except KafkaWriteError as error:
            late = _late(config, begun)
            if not late:
                raise
            raise KafkaWriteError(f"{error}; {late}") from error
        borrowed.notes = mark
        borrowed.spent = more is _SINGLE
    return Written(counted.records - settled, settled=settled)


# -- refused records


def _write_others(
    task: _TransactionTask, counted: _Counted, spool: Spool, handling: Handling
) -> Written:
    """Write the rows that brokers accept, and dead letters for the others."""
    most = _MOST_REFUSED if handling.leaves_out else 0  # one is enough to stop the job
    refused = _find_refused(task, task.options, spool.batches(), most)
    if refused and not handling.leaves_out:
        return Written(0, refused=tuple(refused.values()))
    if len(refused) > most:
        raise KafkaWriteError(
            f"brokers refuse more than {most:,} records of a transaction: make tasks smaller "
            "(maxOffsetsPerTrigger), change the limits of the topic, or use no transactions: "
            f"{describe_refusals([*refused.values()])}"
        )
    letters = []
    target = handling.letters_to
    if target is not None:
        left = [*refused.values()]
        for form in handling.forms:
            bad = _find_refused(task, target, handling.letters(left, form), most).values()
            places = {record[:3] for record in bad}
            letters.append(([record for record in left if record[:3] not in places], form))
            left = [record for record in left if record[:3] in places]
        if left:
            raise KafkaWriteError(
                f"brokers refuse even the dead letters: {describe_refusals([*bad])}"
            )
    settled = handling.count(refused.values())
    # If brokers reject no single record, the requests were too large.
    for more in (_AS_USUAL, _SINGLE) if refused else (_SINGLE,):
        rows = _without(spool.batches(), refused)
        again = ((target, handling.letters(*part)) for part in letters if part[0])
        try:
            return _write(task, counted, rows, again, settled, more)
        except KafkaWriteError as error:
            if not error.may_be_refusal or more is _SINGLE:
                raise
    raise AssertionError


def _find_refused(
    task: _TransactionTask, options: WriteOptions, batches: Iterable[RecordBatch], most: int
) -> dict[int, Refused]:
    """Find the rows that brokers reject, by row number. Stops at more than `most`."""
    found: dict[int, Refused] = {}
    first = 0
    for batch in batches:
        places = pa.array(range(first, first + batch.num_rows), pa.int64())
        first += batch.num_rows
        for more in (_AS_USUAL, _SINGLE):
            while batch.num_rows and len(found) <= most:
                with _trial(task, more) as borrowed:
                    refused, others = find_refused_rows(borrowed.producer, options, batch)
                if more is _AS_USUAL and (refused or others):
                    break  # any row of a request may be the reason
                found |= {places[row].as_py(): record for row, record in refused.items()}
                rest = pa.array(others, pa.int64())
                batch, places = batch.take(rest), places.take(rest)
    return found


@contextmanager
def _trial(task: _TransactionTask, more: Mapping[str, str]) -> Iterator[Borrowed]:
    """Lend a new producer in a transaction, and abort the transaction afterwards."""
    config = task.config | more
    borrowed = borrow_producer(config)
    try:
        borrowed.producer.init_transactions(_WAIT_S)
        borrowed.producer.begin_transaction()
        yield borrowed
        with suppress(KafkaException):  # the next producer ends the transaction
            borrowed.producer.abort_transaction(ABORT_S)
    except KafkaException as error:
        raise _transaction_error(task.name, error) from error
    finally:
        borrowed.discard()


def _without(batches: Iterable[RecordBatch], rows: Collection[int]) -> Iterator[RecordBatch]:
    """Yield batches without the rows that have these numbers."""
    first = 0
    for batch in batches:
        last = first + batch.num_rows
        wanted = [row not in rows for row in range(first, last)]
        first = last
        yield batch if all(wanted) else batch.filter(pa.array(wanted))


# Per task name in this process: the last run of the query in which the task had no rows.
_had_nothing: dict[str, str] = {}


def _check_nothing(task: _TransactionTask) -> None:
    """Check that a task without rows also had none in an earlier attempt at its batch.

    Only a run's first batch may have earlier attempts, so one check per run is enough.
    """
    place, name = task.place, task.name
    if place.run is not None and place.attempt == 0 and _had_nothing.get(name) == place.run:
        return
    borrowed, mark = _begin(task, task.config)
    with return_producer(task.config, borrowed):
        if mark is None:
            try:
                borrowed.producer.abort_transaction(_WAIT_S)
            except KafkaException as error:
                raise _transaction_error(name, error) from error
        else:
            _check_order(place, mark)
            _check_replay(place, mark, Mark(place.batch, 0, 0, _hash_text(0), ""))
        if borrowed.notes is None:
            borrowed.spent = True
    if place.run is not None:
        _had_nothing[name] = place.run


def _begin(task: _TransactionTask, config: ClientConfig) -> tuple[Borrowed, Mark | None]:
    """Return a producer in a transaction, and None. If the batch is already written, return a
    producer without a transaction, and the batch's mark."""
    borrowed = borrow_producer(config)
    try:
        if isinstance(borrowed.notes, Mark):
            try:
                return borrowed, _continue(borrowed, task, borrowed.notes)
            except KafkaException:
                # Probably another worker has run the task since then and fenced this producer.
                borrowed.discard()
                borrowed = borrow_producer(config)
        borrowed.producer.init_transactions(_WAIT_S)
        mark = _read_mark(config, task.name, task.options.topic)
        borrowed.notes = mark
        if mark is None or mark.batch < task.place.batch:
            borrowed.producer.begin_transaction()
            mark = None
        return borrowed, mark
    except KafkaException as error:
        borrowed.discard()
        raise _transaction_error(task.name, error) from error
    except BaseException:
        borrowed.discard()
        raise


def _continue(borrowed: Borrowed, task: _TransactionTask, last: Mark) -> Mark | None:
    """Like _begin, for a producer that knows its last mark."""
    if last.batch >= task.place.batch:
        return last
    borrowed.producer.begin_transaction()
    # Only the brokers know whether another producer fenced this one. Send the last mark again to
    # find out before reading the first record, because the task can read its records only once.
    # This batch's mark replaces the last one.
    _send(borrowed, task.name, last)
    return None


# -- marks


def _send(borrowed: Borrowed, group: str, mark: Mark) -> None:
    content = {name: value for name, value in asdict(mark).items() if name != "topic"}
    place = TopicPartition(mark.topic, 0, mark.batch, metadata=json.dumps(content))
    borrowed.producer.send_offsets_to_transaction([place], group, _WAIT_S)


def _shared(config: Mapping[str, str]) -> ClientConfig:
    """Return the properties with which another client connects to the same brokers as the same
    user."""
    return ClientConfig({key: config[key] for key in config if key.startswith(_SHARED)})


def _read_mark(config: Mapping[str, str], group: str, topic: str | None) -> Mark | None:
    """Return the last committed batch's mark, or None without one."""
    # Use a consumer, not an admin client: librdkafka 2.15.1 crashes when an admin client lists the
    # offsets of a group whose coordinator has moved to another broker. With read_committed, the
    # request waits in the broker for transactions that still commit offsets.
    asked = _shared(config) | {"group.id": group, "isolation.level": "read_committed"}
    deadline = time.monotonic() + _WAIT_S
    with Consumer(asked) as consumer:
        while True:
            try:
                marks = _read_marks(consumer, group, topic)
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
            time.sleep(_PAUSE_S)  # librdkafka signals no event to wait for


def _read_marks(consumer: Consumer, group: str, topic: str | None) -> list[Mark]:
    # If a column contains the topics, the mark is an offset in the topic of the batch's first
    # record.
    topics = [topic] if topic is not None else list(consumer.list_topics(timeout=_WAIT_S).topics)
    found = consumer.committed([TopicPartition(name, 0) for name in topics], _ASK_S)
    for place in found:
        if place.error is not None:
            raise KafkaException(place.error)
    return [_parse_mark(group, place) for place in found if place.offset >= 0]


def _parse_mark(group: str, place: TopicPartition) -> Mark:
    try:
        content = json.loads(place.metadata or "")
        return Mark(
            place.offset,
            int(content["records"]),
            int(content["bytes"]),
            str(content["hash"]),
            place.topic,
            int(content.get("settled", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise KafkaWriteError(
            f'the group "{group}" has offsets that another program committed: use another '
            "transactionalIdPrefix"
        ) from None


def _hash_text(total: int) -> str:
    return f"{_HASH}:{total:016x}"


def _check_replay(place: Place, mark: Mark, now: Mark) -> None:
    """Raise if the batch's records differ from the records that its mark describes."""
    if (mark.records, mark.bytes) != (now.records, now.bytes):
        found = f"now the task has {now.records} record(s) of {now.bytes} bytes"
    elif not mark.hash.startswith(f"{_HASH}:"):
        raise KafkaWriteError(
            f"batch {place.batch} was written before, by a version of cykafka whose marks have "
            f"another hash ({mark.hash.partition(':')[0]}): finish the batch with that version"
        )
    elif mark.hash != now.hash:
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
    """A task's batches, with the count, bytes and hash of the records read so far."""

    def __init__(self, options: WriteOptions, batches: Iterable[RecordBatch]) -> None:
        self._sizes = [name for name in (options.key, "value") if name is not None]
        topic = "topic" if options.topic is None else None
        self._columns = (options.key, "value", topic, options.partition, options.timestamp,
                         options.headers)  # fmt: skip
        self._batches = (batch for batch in batches if batch.num_rows)
        self._topic = options.topic
        self.records = 0
        self.bytes = 0
        self.hash = 0
        self.topic = ""

    def start(self) -> Iterator[RecordBatch] | None:
        """Wait for the first batch and return all batches, or None if there are none."""
        first = next(self._batches, None)
        if first is None:
            return None
        self.topic = self._topic or first.column("topic")[0].as_py() or ""
        return self._count(chain([first], self._batches))

    def mark(self, place: Place, settled: int = 0) -> Mark:
        """Return a mark with the totals so far."""
        text = _hash_text(self.hash)
        return Mark(place.batch, self.records, self.bytes, text, self.topic, settled)

    def _count(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        for batch in batches:
            self.records += batch.num_rows
            for name in self._sizes:
                self.bytes += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
            self.hash = (self.hash + hash_rows(batch, *self._columns)) % MODULUS
            yield batch


# -- the hashes of rows

# The name of this hash in marks. Another algorithm needs another name.
_HASH = "xxh3_64"
MODULUS = 1 << 64
# Memory holds the texts of at most this many rows, or of rows with this many bytes, at once.
_ROWS_AT_ONCE = 4_000
_BYTES_AT_ONCE = 8 << 20
_COLON = pa.scalar(b":", pa.large_binary())
_NULL = pa.scalar(b"-", pa.large_binary())


def hash_rows(batch: pa.RecordBatch, *names: str | None) -> int:
    """Return the hash of all rows of a batch.

    A row's text consists of its columns in the order of `names`, joined by colons. A key, a value,
    a topic and each half of a header become ``length:content``, with the length in bytes. A
    partition and a timestamp become a number. Numbers and lengths are decimal digits, or ``-`` for
    null. A row's hash is the text's XXH3 with 64 bits. The hash of several rows is the sum of
    their hashes modulo 2**64, because shuffles change the order of rows.

    Parameters
    ----------
    batch : RecordBatch
    names : str or None
        The columns: text, bytes, numbers, timestamps or headers. None is a column of nulls.
    """
    from xxhash import xxh3_64_intdigest  # sinks without transactions work without it

    rows = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * batch.num_rows // max(1, batch.nbytes)))
    return (
        sum(
            sum(map(xxh3_64_intdigest, _texts(batch.slice(start, rows), names).to_pylist()))
            for start in range(0, batch.num_rows, rows)
        )
        % MODULUS
    )


def _texts(batch: pa.RecordBatch, names: tuple[str | None, ...]) -> pa.LargeBinaryArray:
    """Return each row's text."""
    return _join(
        piece
        for name in names
        for piece in ([_NULL] if name is None else _pieces(batch.column(name)))
    )


def _pieces(column: pa.Array) -> list[pa.LargeBinaryArray]:
    """Return a column as pieces of text."""
    if pa.types.is_list(column.type):
        return [_header_texts(column)]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        return [_digits(column)]
    content = column.cast(pa.large_binary())
    return [_digits(pc.binary_length(content)), pc.fill_null(content, b"")]


def _header_texts(lists: pa.ListArray) -> pa.LargeBinaryArray:
    """Return the text of each row's headers. Null and an empty list give the same text."""
    pairs = lists.flatten()
    texts = _join(_pieces(pairs.field("key")) + _pieces(pairs.field("value")))
    counts = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(counts.cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, texts), _COLON)
    return pc.fill_null(joined, b"")


def _digits(numbers: pa.Array) -> pa.LargeBinaryArray:
    return pc.fill_null(numbers.cast(pa.large_string()).cast(pa.large_binary()), _NULL)


def _join(pieces: Iterable[pa.LargeBinaryArray | pa.LargeBinaryScalar]) -> pa.LargeBinaryArray:
    return pc.binary_join_element_wise(*pieces, _COLON)


# -- errors


def _late(config: Mapping[str, str], begun: float) -> str:
    """Return a text if the transaction took longer than the brokers allow, else an empty text."""
    limit_s = int(config["transaction.timeout.ms"]) / 1000
    spent_s = time.monotonic() - begun
    if spent_s < limit_s:
        return ""
    return (
        f"the task took {spent_s:.0f} s, and brokers abort transactions after "
        f"kafka.transaction.timeout.ms ({limit_s:g} s): raise that option, or make tasks smaller "
        "(more partitions, or fewer records in a micro-batch)"
    )


def _transaction_error(name: str, exception: KafkaException, late: str = "") -> KafkaWriteError:
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
