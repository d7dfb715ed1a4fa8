"""On the driver: which partitions there are, where they begin and end, what a read reads."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cykafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from cykafka.spark.client import ClientConfig
from cykafka.spark.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    Partition,
    PartitionRange,
    pack,
    split,
)
from cykafka.spark.options import Bound, ReadOptions
from cykafka.spark.worker import ADVICE, GONE, DataLossError, consumer_config

__all__ = ["Ends", "GroupMirror", "Planner", "tasks_of"]

T = TypeVar("T")

_log = logging.getLogger("cykafka.spark")

# Ranges of several partitions share a task up to so many offsets: a task costs more than these.
PER_TASK = 10_000
REQUEST_S = 60.0
# Partitions whose ends are asked for at once: what librdkafka needs grows with their square.
AT_ONCE = 500

# Made by brokers for themselves; a pattern does not mean them.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True)
class Ends:
    """Where partitions begin, and end now."""

    earliest: Offsets
    latest: Offsets


class Planner:
    """Asks the brokers, by one client that is made when it is first wanted and stays."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._consumer: Consumer | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"options": self.options, "_consumer": None}

    def close(self) -> None:
        """Close the client; the next question makes another."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    @property
    def consumer(self) -> Consumer:
        if self._consumer is None:
            group = f"{self.options.group_id_prefix}-{uuid.uuid4()}-driver"
            self._consumer = Consumer(dict(consumer_config(self.options.kafka, group)))
        return self._consumer

    def _retried(self, ask: Callable[[], T]) -> T:
        """What `ask` gives, as often as fetchOffset.numRetries says."""
        for attempt in range(self.options.retries + 1):
            try:
                return ask()
            except (_Unsettled, KafkaException) as error:
                if attempt == self.options.retries:
                    if isinstance(error, _Unsettled):
                        raise RuntimeError(str(error)) from error
                    raise
                time.sleep(self.options.retry_interval_s)
        raise AssertionError("unreachable")

    # -- partitions

    def partitions(self, known: Iterable[Partition] = ()) -> list[Partition]:
        """What the options mean, now, sorted.

        Parameters
        ----------
        known : iterable of (str, int), optional
            Partitions that have been there: they count as gone only if the brokers say so.
        """
        topics = self.options.topics
        if topics.kind == "subscribePattern":
            names = {topic for topic, _ in known}
            return self._retried(lambda: self._matching(re.compile(topics.pattern), names))
        if topics.kind == "subscribe":
            return self._retried(lambda: self._of_topics(topics.names))
        found = set(self._retried(lambda: self._of_topics(_names(topics.partitions))))
        missing = [each for each in topics.partitions if each not in found]
        if missing:
            _log.warning("option assign: there is no %s", _list(missing))
        return [each for each in topics.partitions if each in found]

    def _matching(self, pattern: re.Pattern[str], known: Container[str]) -> list[Partition]:
        found: list[Partition] = []
        for name, topic in self.consumer.list_topics(timeout=REQUEST_S).topics.items():
            if name in _INTERNAL or not pattern.fullmatch(name):
                continue
            if topic.error is not None and name in known and topic.error.code() not in GONE:
                raise KafkaException(topic.error)  # it looks as if it had no partitions
            found.extend((name, number) for number in topic.partitions)
        return sorted(found)

    def _of_topics(self, names: Sequence[str]) -> list[Partition]:
        found: list[Partition] = []
        for name in names:
            topic = self.consumer.list_topics(name, REQUEST_S).topics.get(name)
            error = None if topic is None else topic.error
            if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
            if topic is None or error is not None or not topic.partitions:
                if self.options.fail_on_data_loss:
                    raise _Unsettled(
                        f"option {self.options.topics.kind}: topic {name} does not exist (any "
                        "more). Create it; or set failOnDataLoss to false, to read it once it "
                        "is there"
                    )
                _log.warning("topic %s does not exist (any more); failOnDataLoss is false", name)
                continue
            found.extend((name, number) for number in topic.partitions)
        return sorted(found)

    # -- offsets

    def ends(
        self, partitions: Iterable[Partition], known: Mapping[Partition, int] | None = None
    ) -> Ends:
        """Where partitions begin and end.

        Parameters
        ----------
        partitions : iterable of (str, int)
        known : mapping of (str, int) to int, optional
            Offsets that have been there: an end before them is asked for again, since a broker may
            not know of them yet. If it stays it is given out.
        """
        asked = [TopicPartition(*each) for each in partitions]
        if not asked:
            return Ends({}, {})
        for attempt in range(self.options.retries + 1):
            last = attempt == self.options.retries
            earliest, latest, failed = self._ask_ends(asked)
            behind = [
                each for each in latest if known is not None and latest[each] < known.get(each, 0)
            ]
            if last and failed:
                self._unknown(failed)
            if last or not (failed or behind):
                return Ends(earliest, latest)
            time.sleep(self.options.retry_interval_s)
        raise AssertionError("unreachable")

    def _ask_ends(
        self, asked: list[TopicPartition]
    ) -> tuple[Offsets, Offsets, list[TopicPartition]]:
        earliest: Offsets = {}
        latest: Offsets = {}
        failed = []
        for first in range(0, len(asked), AT_ONCE):
            part = asked[first : first + AT_ONCE]
            for each, ends in self.consumer.watermarks(part, REQUEST_S).items():
                if each.error is not None:
                    failed.append(each)
                else:
                    earliest[each.topic, each.partition] = ends.low
                    latest[each.topic, each.partition] = ends.high
        return earliest, latest, failed

    def _unknown(self, failed: Sequence[TopicPartition]) -> None:
        """Partitions whose ends nobody told: a loss only if they are gone."""
        what = ", ".join(f"{each.topic} [{each.partition}]: {each.error}" for each in failed[:5])
        more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        what = f"the offsets of these partitions are not to be had: {what}{more}"
        if all(each.error is not None and each.error.code() in GONE for each in failed):
            self.lose(what)
        else:
            raise RuntimeError(f"{what}. Do they have leaders, and are these up?")

    def lose(self, what: str) -> None:
        """Raise, or warn, as failOnDataLoss says."""
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{what}. {ADVICE}")
        _log.warning("%s; failOnDataLoss is false", what)

    def resolve(self, bound: Bound, ends: Ends) -> Offsets:
        """The offsets that an option means, of the partitions whose ends are given."""
        partitions = ends.latest.keys()
        if bound.kind == "earliest":
            return {each: ends.earliest[each] for each in partitions}
        if bound.kind == "latest":
            return dict(ends.latest)
        if bound.kind == "offsets":
            self._check_named(bound, partitions)
            special = {EARLIEST: ends.earliest, LATEST: ends.latest}
            return {
                each: special[at][each] if at in special else at
                for each, at in bound.each.items()
                if each in partitions
            }
        times = bound.each
        if bound.kind == "timestamp":
            times = dict.fromkeys(partitions, bound.timestamp)
        else:
            self._check_named(bound, partitions)
        return self._by_time(bound, {each: times[each] for each in partitions}, ends)

    def _check_named(self, bound: Bound, partitions: Iterable[Partition]) -> None:
        read = set(partitions)
        missing = sorted(read - bound.each.keys())
        extra = sorted(bound.each.keys() - read)
        if missing or (extra and self.options.fail_on_data_loss):
            raise ValueError(
                f"option {bound.option}: expected all partitions that are read and no others"
                + (f"; missing: {_list(missing)}" if missing else "")
                + (f"; not read: {_list(extra)}" if extra else "")
            )

    def _by_time(self, bound: Bound, times: Mapping[Partition, int], ends: Ends) -> Offsets:
        asked = [TopicPartition(*each, at) for each, at in times.items()]
        if not asked:
            return {}
        found = self._retried(lambda: self._ask_times(asked))
        late = [each for each, at in found.items() if at == OFFSET_END]
        starts = bound.option.startswith("starting")
        if late and starts and self.options.late_start == "error":
            each = late[0]
            more = f" (nor do {len(late) - 1} more partitions)" if len(late) > 1 else ""
            raise ValueError(
                f"option {bound.option}: {each[0]} [{each[1]}] has no record at or after "
                f"{times[each]} ms{more}; set startingOffsetsByTimestampStrategy to latest, to "
                "begin behind the last record then"
            )
        # Records that came since the ends were asked for are behind them, like those to come.
        return {
            each: ends.latest[each] if at == OFFSET_END else min(at, ends.latest[each])
            for each, at in found.items()
        }

    def _ask_times(self, asked: list[TopicPartition]) -> Offsets:
        found: Offsets = {}
        for each in self.consumer.offsets_for_times(asked, REQUEST_S):
            if each.error is not None:
                raise KafkaException(each.error)
            found[each.topic, each.partition] = each.offset
        return found

    # -- ranges

    def batch_ranges(self) -> list[PartitionRange]:
        """What a batch reads; a range that ends before it begins is empty."""
        ends = self.ends(self.partitions())
        start = self.resolve(self.options.start, ends)
        end = self.resolve(self.options.end, ends)
        ranges = []
        for each in sorted(start.keys() & end.keys()):
            low, high = ends.earliest[each], ends.latest[each]
            first, behind = start[each], end[each]
            if first > high:
                self.lose(
                    f"{_name(each)}: the read would begin at {first}, but the partition "
                    f"ends at {high}"
                )
            if first < behind and first < low:
                self.lose(
                    f"{_name(each)}: offsets {first} to {min(low, behind) - 1} are gone: "
                    f"the partition begins at {low}"
                )
                first = low
            if first < behind and behind > high:
                self.lose(
                    f"{_name(each)}: offsets {max(first, high)} to {behind - 1} are not "
                    f"there: the partition ends at {high}"
                )
                behind = high
            ranges.append(PartitionRange(*each, first, behind))
        return [each for each in ranges if each.size]

    def stream_ranges(self, start: Offsets, end: Offsets) -> list[PartitionRange]:
        """What a batch of a stream reads; partitions that are new, from their beginning."""
        gone = sorted(start.keys() - end.keys())
        if gone:
            self.lose(f"{_list(gone)} are gone. Some records may have been missed")
        new = sorted(end.keys() - start.keys())
        begins = self.ends(new).earliest
        for each in new:
            if each not in begins:
                self.lose(f"where the new partition {_name(each)} begins is not to be had")
            elif begins[each]:
                self.lose(f"the new partition {_name(each)} begins at {begins[each]} instead of 0")
        ranges = []
        for each in sorted(end):
            first = start.get(each, begins.get(each))
            if first is None:
                continue
            if first > end[each]:
                self._backwards(each, first, end[each])
            ranges.append(PartitionRange(*each, first, end[each]))
        return [each for each in ranges if each.size]

    def _backwards(self, each: Partition, first: int, end: int) -> None:
        self.lose(
            f"{_name(each)}: the batch would begin at {first} and end at {end}. Either the topic "
            "was deleted and made anew, or the query was given a start behind the partition's end"
        )


def tasks_of(
    ranges: Sequence[PartitionRange], options: ReadOptions
) -> list[tuple[PartitionRange, ...]]:
    """The ranges of each task: cut, and small ones put together, as the options say."""
    pieces = split(ranges, options.min_partitions, options.max_records)
    per_task = PER_TASK if options.max_records is None else min(PER_TASK, options.max_records)
    return pack(pieces, per_task, options.min_partitions)


class GroupMirror:
    """Writes a stream's positions into a group, where tools that watch lag look for them.

    Nothing is read from it, so what fails is a warning.
    """

    def __init__(self, kafka: ClientConfig, group_id: str) -> None:
        self.config = consumer_config(kafka, group_id)
        self.config["group.id"] = group_id
        self._consumer: Consumer | None = None
        self._done: Offsets = {}

    def __getstate__(self) -> dict[str, object]:
        return {"config": self.config, "_consumer": None, "_done": {}}

    def commit(self, offsets: Offsets) -> None:
        """Have the positions written, without waiting for it; those that are new."""
        new = [
            TopicPartition(*each, at) for each, at in offsets.items() if self._done.get(each) != at
        ]
        try:
            if self._consumer is None:
                self._consumer = Consumer({**self.config, "on_commit": self._committed})
            self._consumer.poll(0)  # what became of the last ones
            if new:
                self._consumer.commit(offsets=new, asynchronous=True)
                self._done = dict(offsets)
        except KafkaException as error:
            self._failed(error.args[0])

    def _committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        error = error or next((each.error for each in partitions if each.error), None)
        if error is not None:
            self._failed(error)

    def _failed(self, error: object) -> None:
        self._done = {}
        _log.warning(
            "option commitGroup: the positions could not be written into group %s: %s",
            self.config["group.id"],
            error,
        )

    def close(self) -> None:
        """Wait for what is on its way, and close."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class _Unsettled(Exception):
    """An answer that may be another one soon."""


def _names(partitions: Iterable[Partition]) -> list[str]:
    return list(dict.fromkeys(topic for topic, _ in partitions))


def _name(each: Partition) -> str:
    return f"{each[0]} [{each[1]}]"


def _list(partitions: Sequence[Partition]) -> str:
    shown = ", ".join(_name(each) for each in partitions[:5])
    return f"{shown} and {len(partitions) - 5} more" if len(partitions) > 5 else shown
