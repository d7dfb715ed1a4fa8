"""The outcome of the records that a job's tasks have sent, and how the job handles it.

If brokers reject records, tasks report them instead of failing (`writing.report_task`). Spark
would repeat a failed task, and a restart would repeat the whole micro-batch. Each repetition would
send the other records again.

Tasks import this module, so it does not import the configuration. PySpark's workers collect
garbage after each task, and this takes longer the more modules they have.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from cykafka.spark.clients.producers import borrow_producer, return_producer
from cykafka.spark.jobs.problems import explain_error
from cykafka.spark.jobs.records.columns import (
    DEAD_LETTER,
    DEAD_LETTER_TIME,
    WITHOUT_VALUE,
    replace_headers,
)
from cykafka.spark.sink.write_options import WriteOptions, write_options
from cykafka.spark.sink.writing import (
    KafkaWriteError,
    Refused,
    Written,
    describe_refusals,
    write_batches,
)
from cykafka.spark.source.far_times import in_milliseconds, restore_times
from cykafka.spark.source.offsets import Partition, PartitionRange
from cykafka.spark.source.read_options import ReadOptions
from cykafka.spark.source.schema import source_schema
from cykafka.spark.source.worker import read_ranges

if TYPE_CHECKING:
    from cykafka.spark.jobs.config.models import Mirror, Redrive, Replay
    from cykafka.spark.jobs.folders import AnyFolder

__all__ = [
    "REFUSED_NOTE",
    "WOULD_SEND",
    "BatchResults",
    "JobHandling",
    "Outcome",
    "RefusedError",
    "check_note",
    "is_refusal",
    "settle",
    "write_note",
]

REFUSED_NOTE = "cykafka.refused.json"
# By job: the key that names the topic for records that cannot be sent.
_TOPIC_KEYS = {"mirror": "dead_letter_topic", "redrive": "parking_topic"}


class RefusedError(RuntimeError):
    """Brokers reject some of the job's records permanently, and the job may not skip them."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of some tasks' records.

    Attributes
    ----------
    records : int
        How many are in Kafka.
    refused : tuple of Refused
    errors : tuple of str
        Errors from tasks that did not send all their records.
    settled : int
        How many rejected records the tasks have settled in their transactions.
    """

    records: int = 0
    refused: tuple[Refused, ...] = ()
    errors: tuple[str, ...] = ()
    settled: int = 0

    @classmethod
    def of(cls, written: Written) -> Outcome:
        """Return one task's outcome."""
        errors = () if written.error is None else (written.error,)
        return cls(written.records, written.refused, errors, written.settled)

    @classmethod
    def sum(cls, outcomes: Iterable[Outcome]) -> Outcome:
        """Return the outcome of several tasks."""
        parts = list(outcomes)
        return cls(
            sum(one.records for one in parts),
            tuple(record for one in parts for record in one.refused),
            tuple(error for one in parts for error in one.errors),
            sum(one.settled for one in parts),
        )

    def text(self) -> str:
        """Return the outcome as JSON. Rejected records share one entry per partition and error."""
        groups: dict[tuple[str, int, str, str], list[int]] = defaultdict(list)
        for topic, partition, offset, target, error in self.refused:
            groups[topic, partition, target, error].append(offset)
        refused = [[*of, groups[of]] for of in groups]
        return json.dumps([self.records, refused, self.errors, self.settled])

    @classmethod
    def from_text(cls, text: str) -> Outcome:
        """Parse the JSON from `text()`."""
        records, groups, errors, settled = json.loads(text)
        refused = tuple(
            Refused(topic, partition, offset, target, error)
            for topic, partition, target, error, offsets in groups
            for offset in offsets
        )
        return cls(records, refused, tuple(errors), settled)


def settle(handling: JobHandling, outcome: Outcome) -> dict[str, int]:
    """Raise the tasks' error, or send dead letters for rejected records. Returns the counts.

    Raises
    ------
    KafkaWriteError
        A task failed.
    RefusedError
        Brokers reject records, and the configuration does not say what to do with them.
    """
    if outcome.errors:
        raise KafkaWriteError(outcome.errors[0])
    if outcome.refused:
        if not handling.leaves_out:
            raise RefusedError(f"{describe_refusals(outcome.refused)}. {handling.advice}")
        if handling.letters_to is not None:
            _send_letters(handling, handling.letters_to, outcome.refused)
    count = handling.count(outcome.refused) + outcome.settled
    return {"refused": count} if count else {}


@dataclass(frozen=True)
class JobHandling:
    """What a job does with rejected records: stop, skip them, or send dead letters.

    Attributes
    ----------
    leaves_out : bool
        Whether the job continues without the rejected records.
    topic : str or None
        The topic for dead letters; None if the job does not send them.
    sink, source : mapping of str to str
        The options for writing dead letters, and for reading the rejected records again.
    adds_errors : bool
        Whether dead letters get headers with the error.
    advice : str
        What the user can do if the job stops.
    """

    leaves_out: bool
    topic: str | None
    sink: Mapping[str, str] = field(repr=False)  # with secrets, like source
    source: Mapping[str, str] = field(repr=False)
    adds_errors: bool
    advice: str
    # A dead letter that is too large goes without its value, which is still in the source.
    forms: ClassVar[tuple[str, ...]] = ("whole", "without value")

    @classmethod
    def of(cls, config: Mirror | Redrive | Replay) -> JobHandling:
        """Return what a configuration says."""
        key = _TOPIC_KEYS.get(config.job)
        topic = getattr(config, key) if key else None
        keep = f"To keep such records, set {key}. " if key else ""
        return cls(
            config.on_refused == "skip" or topic is not None,
            topic,
            config.copy_options() if topic else {},
            config.source_options() if topic else {},
            config.job != "redrive",  # its records are dead letters already
            f'{keep}To leave them out, set on_refused = "skip". If brokers accept them now, start '
            'once with on_refused = "retry"',
        )

    @property
    def letters_to(self) -> WriteOptions | None:
        """How to write dead letters; None if the job does not send them."""
        if self.topic is None:
            return None
        source = source_schema(include_headers=True)
        columns = StructType([source[name] for name in ("key", "value", "headers")])
        return write_options({**self.sink, "topic": self.topic}, columns, stream=True)

    def letters(self, refused: Iterable[Refused], form: str) -> Iterator[pa.RecordBatch]:
        """Yield dead letters for records, with the source's columns."""
        errors: dict[Partition, dict[int, str]] = defaultdict(dict)
        for record in refused:
            errors[record.topic, record.partition].setdefault(record.offset, record.error)
        columns = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
        options = ReadOptions.of(self.source, "stream")
        for (topic, partition), wanted in errors.items():
            whole = PartitionRange(topic, partition, min(wanted), max(wanted) + 1)
            offsets = pa.array(wanted, pa.int64())
            for batch in read_ranges([whole], options, columns, restore_times, keep_times=True):
                rows = batch.filter(pc.is_in(batch["offset"], offsets))
                if rows.num_rows:
                    words = [wanted[at] for at in rows["offset"].to_pylist()]
                    yield _letter(rows, words if self.adds_errors else None, form)

    def count(self, refused: Iterable[Refused]) -> int:
        """Return how many records to count. Dead letters that do not fit already count as bad."""
        return sum(record.target != self.topic for record in refused)


# -- the note in a checkpoint


def is_refusal(error: BaseException) -> bool:
    """Whether an error is a RefusedError, perhaps wrapped by Spark."""
    return isinstance(error, RefusedError) or f"{RefusedError.__name__}: " in str(error)


def write_note(folder: AnyFolder, error: BaseException) -> None:
    """Note in the checkpoint that the job has stopped at rejected records."""
    folder.make()
    folder.write(REFUSED_NOTE, json.dumps({"refused": explain_error(error)}) + "\n")


def check_note(config: Mirror | Redrive | Replay, folder: AnyFolder) -> None:
    """Stop before a restart sends records again, unless the configuration says what to do.

    Raises
    ------
    RefusedError
    """
    if not folder.exists(REFUSED_NOTE):
        return
    if config.on_refused == "stop" and not JobHandling.of(config).leaves_out:
        words = json.loads(folder.read(REFUSED_NOTE))["refused"]
        raise RefusedError(f"nothing was sent, because the last run has stopped here: {words}")
    folder.delete(REFUSED_NOTE)


# -- dead letters


def _send_letters(handling: JobHandling, sink: WriteOptions, refused: Sequence[Refused]) -> None:
    """Read rejected records again, and send them as dead letters."""
    firsts = {record[:3]: record for record in reversed(refused)}
    for form in handling.forms:
        rest: list[Refused] = []
        _write(sink, handling.letters(refused, form), rest)
        if not rest:
            return
        # The letters say why brokers rejected the records.
        refused = [firsts[record[:3]] for record in rest]
    raise RefusedError(
        f"brokers refuse even dead letters without values: {describe_refusals(rest)}"
    )


def _write(sink: WriteOptions, batches: Iterable[pa.RecordBatch], refused: list[Refused]) -> None:
    borrowed = borrow_producer(sink.config)
    borrowed.spent = True  # letters are rare
    with return_producer(sink.config, borrowed):
        write_batches(borrowed, sink, batches, refused)


def _letter(rows: pa.RecordBatch, errors: list[str] | None, form: str) -> pa.RecordBatch:
    """Convert rows to dead letters. Rows that already are dead letters get no new `errors`."""
    count = rows.num_rows
    added: dict[str, Any] = {}
    if errors is not None:
        times = in_milliseconds(rows["timestamp"])
        origin = (rows["topic"], rows["partition"], rows["offset"])
        values = (*origin, pa.array(errors), pa.repeat("1", count), times)
        added = dict(zip((*DEAD_LETTER, DEAD_LETTER_TIME), values, strict=True))
    if form == "without value":
        added[WITHOUT_VALUE] = pa.repeat("true", count)
        value = rows.schema.get_field_index("value")
        rows = rows.set_column(value, "value", pa.nulls(count, pa.binary()))
    return replace_headers(rows, added)


# -- counts of micro-batches

# The name of the counts, by topic, of records that a dry run would send.
WOULD_SEND = "would_send"


class BatchResults:
    """The counts of micro-batches that the job has not read yet.

    Parameters
    ----------
    folder : AnyFolder, optional
        With Spark Connect, the directory for the counts as files. There the function runs in a
        server process, with a copy of this object.
    """

    def __init__(self, folder: AnyFolder | None = None) -> None:
        self._folder = folder
        self._kept: dict[int, dict[str, Any]] = {}
        self.is_used = False

    def put(self, number: int, counts: dict[str, Any]) -> None:
        """Store a micro-batch's counts. They replace the counts of an earlier attempt."""
        if self._folder is None:
            self._kept[number] = counts
            return
        self._folder.make()
        self._folder.write(f"{number}.json", json.dumps(counts))

    def pop(self, number: int, default: dict[str, Any]) -> dict[str, Any]:
        """Return a micro-batch's counts, or `default` without counts."""
        if self._folder is None or not self.is_used:
            return self._kept.pop(number, default)
        name = f"{number}.json"
        if not self._folder.exists(name):
            return default
        counts: dict[str, Any] = json.loads(self._folder.read(name))
        self._folder.delete(name)
        return counts
