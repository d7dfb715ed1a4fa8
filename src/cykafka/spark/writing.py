"""Write Arrow batches to Kafka: one call to librdkafka for each batch."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import RecordBatch
from pyspark.sql.datasource import WriterCommitMessage

from cykafka import Delivery, DeliveryError, KafkaError, KafkaException, Producer
from cykafka.spark.garbage import exempt_modules
from cykafka.spark.producers import Borrowed, keeping, take
from cykafka.spark.row_order import RowOrder, Rows
from cykafka.spark.write_options import WriteOptions

__all__ = ["KafkaWriteError", "Written", "write_batches", "write_task"]

# Hints that follow librdkafka's error texts.
_HINTS = {
    KafkaError._UNKNOWN_TOPIC: "the topic does not exist, and brokers did not create it",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist, and brokers did not create it",
    KafkaError._UNKNOWN_PARTITION: "the topic has no such partition",
    KafkaError.MSG_SIZE_TOO_LARGE: "larger than kafka.message.max.bytes or the brokers allow",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not write to the topic",
    KafkaError._MSG_TIMED_OUT: "no broker has acknowledged it within kafka.delivery.timeout.ms",
    KafkaError._QUEUE_FULL: "larger than kafka.queue.buffering.max.kbytes",
}
# An error text names up to so many different places and errors.
_TOLD = 5


class KafkaWriteError(RuntimeError):
    """A task failed to write records. Kafka may have other records of the task."""


@dataclass
class Written(WriterCommitMessage):
    """The result of a task.

    Attributes
    ----------
    task : int
        The number of the task's partition in Spark.
    records : int
        The number of records that are in Kafka.
    skipped : bool
        An earlier attempt of the same batch wrote the records, in a transaction.
    """

    task: int
    records: int
    skipped: bool = False


def write_task(options: WriteOptions, batches: Iterable[RecordBatch]) -> Written:
    """Write a task's records with a producer that later tasks reuse."""
    from pyspark import TaskContext

    context = TaskContext.get()
    exempt_modules()
    task = context.partitionId() if context is not None else 0
    borrowed = take(options.config)
    with keeping(options.config, borrowed):
        return Written(task, write_batches(borrowed, options, batches))


def write_batches(
    borrowed: Borrowed, options: WriteOptions, batches: Iterable[RecordBatch]
) -> int:
    """Write Arrow batches, and wait until the brokers have acknowledged every record.

    Parameters
    ----------
    borrowed : Borrowed
        The producer.
    options : WriteOptions
    batches : iterable of pyarrow.RecordBatch

    Returns
    -------
    int
        How many records were written.

    Raises
    ------
    KafkaWriteError
        Records failed. The error says how many, where, and why.
    """
    producer = borrowed.producer
    order = RowOrder(options, borrowed.counts)
    pending: deque[_Sent] = deque()
    rows = in_flight = 0
    # Send the next batch when half of the queue is free. If it went whenever a few records fit,
    # librdkafka would send it in many small requests.
    half = int(options.config["queue.buffering.max.messages"]) // 2 or sys.maxsize
    try:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            while pending and (in_flight > half or pending[0].delivery.done):
                pending[0].delivery.wait()
                in_flight -= pending.popleft().rows.given.num_rows
            pending.append(_send(producer, options, order.sort(batch), rows))
            rows += batch.num_rows
            in_flight += batch.num_rows
        # Unlike a wait for a delivery, flush() sends lingering records at once.
        producer.flush()
    except DeliveryError:
        raise _failure(borrowed, options, pending) from None
    except KafkaException as error:
        raise _gone(error) from error
    if any(sent.delivery.failed for sent in pending):
        raise _failure(borrowed, options, pending)
    return rows


@dataclass
class _Sent:
    """Rows on their way."""

    delivery: Delivery
    rows: Rows
    first: int  # the number of their first row in the task


def _send(producer: Producer, options: WriteOptions, rows: Rows, first: int) -> _Sent:
    batch = rows.given
    if options.topic is None and batch.column("topic").null_count:
        row = first + pc.index(pc.is_null(batch.column("topic")), True).as_py()
        raise KafkaWriteError(
            f"the topic of row {row} of the task is null: set the option topic, or filter such "
            "rows out"
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


# -- errors


def _failure(
    borrowed: Borrowed, options: WriteOptions, pending: Iterable[_Sent]
) -> KafkaWriteError:
    """The error for the failed records: how many, and the first one of each place and code."""
    counts: Counter[tuple[str, int, int]] = Counter()
    firsts: dict[tuple[str, int, int], tuple[int, KafkaError]] = {}
    rows = 0
    for sent in pending:
        rows += sent.rows.batch.num_rows
        partitions = sent.delivery.partitions
        for index, error in sent.delivery.errors.items():
            topic = options.topic or sent.rows.batch.column("topic")[index].as_py()
            key = (topic, partitions[index], error.code())
            counts[key] += 1
            firsts.setdefault(key, (sent.first + sent.rows.place(index), error))
    lines = [
        f"{_place(*key[:2])}: {_words(error)}: {counts[key]} record(s), the first in row {row} "
        "of the task"
        for key, (row, error) in list(firsts.items())[:_TOLD]
    ]
    if len(firsts) > _TOLD:
        lines.append(f"and {len(firsts) - _TOLD} more places and errors")
    if borrowed.complaint is not None:
        lines.append(f"the connections' last error: {borrowed.complaint.str()}")
    return KafkaWriteError(
        f"{sum(counts.values())} of the last {rows} records could not be written to Kafka: "
        + "; ".join(lines)
    )


def _unfit(
    options: WriteOptions, batch: RecordBatch, first: int, error: ValueError
) -> KafkaWriteError:
    """The error for a row whose partition or timestamp is out of range."""
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
            found = batch.column(name)[bad].as_py()
            return KafkaWriteError(
                f"the {name} of row {first + bad} of the task is {found}: {words}"
            )
    return KafkaWriteError(f"cannot write rows {first} and later of the task: {error}")


def _place(topic: str, partition: int) -> str:
    return f'topic "{topic}"' if partition < 0 else f'topic "{topic}" partition {partition}'


def _words(error: KafkaError) -> str:
    hint = _HINTS.get(error.code())
    return f"{error.str()} ({error.name()})" + (f", {hint}" if hint else "")


def _gone(error: KafkaException) -> KafkaWriteError:
    told = error.args[0]
    words = f"{told.str()} ({told.name()})" if isinstance(told, KafkaError) else str(error)
    return KafkaWriteError(f"cannot write to Kafka: {words}")
