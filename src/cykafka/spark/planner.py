"""On the driver: find the partitions, their first and last offsets, and the ranges to read."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

from cykafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from cykafka.spark.client import ClientConfig
from cykafka.spark.consumers import NoAnswerError, OpenConsumer, consumer_config
from cykafka.spark.loss import ADVICE, GONE, DataLossError
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

__all__ = ["Ends", "GroupMirror", "Planner", "tasks_of"]

T = TypeVar("T")
Narrow: TypeAlias = Callable[[PartitionRange], list[PartitionRange]]

_log = logging.getLogger("cykafka.spark")

# Timeout for brokers that do not answer, s.
REQUEST_S = 60.0
# Shortest pause, s, before a known partition that is missing is looked for again: a broker that
# has just started lacks metadata.
KNOWN_AGAIN_S = 0.5

# Topics that brokers make for themselves. A pattern never matches them.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True)
class Ends:
    """The earliest and latest offsets of partitions at the time of the request."""

    earliest: Offsets
    latest: Offsets


class Planner:
    """Requests partitions and offsets from the brokers, with one client made on first use."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._open: OpenConsumer | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"options": self.options, "_open": None}

    def close(self) -> None:
        """Close the client. The next request makes a new one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def brokers(self) -> OpenConsumer:
        if self._open is None:
            group = f"{self.options.group_id_prefix}-{uuid.uuid4()}-driver"
            self._open = OpenConsumer(consumer_config(self.options.kafka, group))
        return self._open

    def _retried(self, ask: Callable[[bool], T]) -> T:
        """The result of `ask`, retried fetchOffset.numRetries times.

        The argument of `ask` says whether this is the last attempt.
        """
        attempt, waited = 0, 0.0
        while True:
            last = attempt >= self.options.retries
            pause = self.options.retry_interval_s
            try:
                return ask(last)
            except NoAnswerError:
                raise  # the request has already waited for REQUEST_S
            except KafkaException:
                if last:
                    raise
                attempt += 1
            except _Unsettled as error:
                if last:
                    raise RuntimeError(str(error)) from error
                if error.known:
                    pause = max(pause, KNOWN_AGAIN_S)
                if error.coming and waited < REQUEST_S:
                    waited += pause
                else:
                    attempt += 1
            time.sleep(pause)

    # -- partitions

    def partitions(self, known: Iterable[Partition] = ()) -> list[Partition]:
        """The partitions that the options select now, sorted.

        Parameters
        ----------
        known : iterable of (str, int), optional
            Partitions that existed before. If one is missing, the request is retried first.
        """
        before = {each for each in known if self._means(each)}
        return self._retried(lambda last: self._find(before, last))

    def _means(self, each: Partition) -> bool:
        topics = self.options.topics
        if topics.kind == "subscribePattern":
            return re.fullmatch(topics.pattern, each[0]) is not None
        return each[0] in topics.names or each in topics.partitions

    def _find(self, known: Set[Partition], last: bool) -> list[Partition]:
        topics = self.options.topics
        missing: list[str] = []
        if topics.kind == "subscribePattern":
            found = self._matching(known)
        else:
            names = topics.names or _names(topics.partitions)
            found, missing = self._of_topics(names, known)
        if topics.kind == "assign":
            there = set(found)
            found = [each for each in topics.partitions if each in there]
        lost = known - set(found)
        if lost and not last:
            raise _Unsettled(f"{_list(sorted(lost))} do not exist any more", known=True)
        for name in missing:
            _log.warning("topic %s does not exist (any more); failOnDataLoss is false", name)
        if topics.kind == "assign" and len(found) < len(topics.partitions):
            absent = [each for each in topics.partitions if each not in there]
            _log.warning("option assign: these partitions do not exist: %s", _list(absent))
        return found

    def _matching(self, known: Set[Partition]) -> list[Partition]:
        pattern = re.compile(self.options.topics.pattern)
        before = set(_names(known))
        found: list[Partition] = []
        for name, topic in self.brokers.all_topics(REQUEST_S).items():
            if name in _INTERNAL or not pattern.fullmatch(name):
                continue
            if topic.error is not None and name in before and topic.error.code() not in GONE:
                raise _named(name, topic.error)  # with an error, it has no partitions here
            found.extend((name, number) for number in topic.partitions)
        return sorted(found)

    def _of_topics(
        self, names: Sequence[str], known: Set[Partition]
    ) -> tuple[list[Partition], list[str]]:
        """The partitions of topics, and the topics that do not exist."""
        found: list[Partition] = []
        missing = []
        topics = self.brokers.topics(names, REQUEST_S)
        for name in names:
            topic = topics.get(name)
            error = None if topic is None else topic.error
            if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _named(name, error)
            if topic is None or error is not None or not topic.partitions:
                missing.append(name)
            else:
                found.extend((name, number) for number in topic.partitions)
        if missing and self.options.fail_on_data_loss:
            raise _Unsettled(
                f"option {self.options.topics.kind}: topic {missing[0]} does not exist (any "
                "more). Create it; or set failOnDataLoss to false to read it once it exists",
                known=any(topic == missing[0] for topic, _ in known),
            )
        return sorted(found), missing

    # -- offsets

    def ends(
        self, partitions: Iterable[Partition], known: Mapping[Partition, int] | None = None
    ) -> Ends:
        """The first and last offsets of partitions.

        Parameters
        ----------
        partitions : iterable of (str, int)
        known : mapping of (str, int) to int, optional
            Offsets up to which the partitions were read. The request is retried if a partition
            ends before its offset, because the broker may not know the offset yet. The last answer
            counts.
        """
        asked = [TopicPartition(*each) for each in partitions]
        before = known or {}
        return self._retried(lambda last: self._ask_ends(asked, before, last))

    def _ask_ends(
        self, asked: list[TopicPartition], known: Mapping[Partition, int], last: bool
    ) -> Ends:
        ends = Ends({}, {})
        failed = []
        for each, at in self.brokers.watermarks(asked, REQUEST_S) if asked else ():
            if each.error is not None:
                failed.append(each)
            else:
                ends.earliest[each.topic, each.partition] = at.low
                ends.latest[each.topic, each.partition] = at.high
        behind = any(high < known.get(each, 0) for each, high in ends.latest.items())
        if failed and last:
            self._unknown(failed)
        elif (failed or behind) and not last:
            again = behind or any((each.topic, each.partition) in known for each in failed)
            # Brokers may be restarting; meanwhile their partitions have no leaders.
            coming = any(
                each.error is not None and each.error.code() not in GONE for each in failed
            )
            raise _Unsettled(
                "partitions end before their last known end", known=again or coming, coming=coming
            )
        return ends

    def _unknown(self, failed: Sequence[TopicPartition]) -> None:
        """Handle partitions without an answer: a data loss if they do not exist, else an error."""
        what = ", ".join(f"{each.topic} [{each.partition}]: {each.error}" for each in failed[:5])
        more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        what = f"cannot get the offsets of these partitions: {what}{more}"
        if all(each.error is not None and each.error.code() in GONE for each in failed):
            self.lose(what)
        else:
            raise RuntimeError(f"{what}. Check that they have leaders, and that these are up")

    def lose(self, what: str) -> None:
        """Raise DataLossError; with failOnDataLoss=false, log a warning instead."""
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{what}. {ADVICE}")
        _log.warning("%s; failOnDataLoss is false", what)

    def resolve(self, bound: Bound, ends: Ends) -> Offsets:
        """The offsets that an option selects in the partitions of `ends`."""
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
                f"option {bound.option}: expected exactly the partitions that are read"
                + (f"; missing: {_list(missing)}" if missing else "")
                + (f"; not read: {_list(extra)}" if extra else "")
            )

    def _by_time(self, bound: Bound, times: Mapping[Partition, int], ends: Ends) -> Offsets:
        asked = [TopicPartition(*each, at) for each, at in times.items()]
        if not asked:
            return {}
        found = self._retried(lambda _: self._ask_times(asked))
        late = [each for each, at in found.items() if at == OFFSET_END]
        starts = bound.option.startswith("starting")
        if late and starts and self.options.late_start == "error":
            each = late[0]
            more = f" (nor do {len(late) - 1} more partitions)" if len(late) > 1 else ""
            raise ValueError(
                f"option {bound.option}: {each[0]} [{each[1]}] has no record at or after "
                f"{times[each]} ms{more}; to begin behind its last record instead, set "
                "startingOffsetsByTimestampStrategy to latest"
            )
        # Do not read records that arrived after the request for the ends.
        return {
            each: ends.latest[each] if at == OFFSET_END else min(at, ends.latest[each])
            for each, at in found.items()
        }

    def _ask_times(self, asked: list[TopicPartition]) -> Offsets:
        found: Offsets = {}
        ask = partial(self.brokers.consumer.offsets_for_times, asked)
        for each in self.brokers.ask(ask, REQUEST_S):
            if each.error is not None:
                raise _named(_name((each.topic, each.partition)), each.error)
            found[each.topic, each.partition] = each.offset
        return found

    # -- ranges

    def batch_ranges(self, narrow: Narrow | None = None) -> list[PartitionRange]:
        """The ranges that a batch reads.

        Parameters
        ----------
        narrow : callable, optional
            Returns the parts of a range to read. Lost offsets outside these parts are no loss.

        Raises
        ------
        ValueError
            A partition would end before it begins.
        """
        ends = self.ends(self.partitions())
        start = self.resolve(self.options.start, ends)
        end = self.resolve(self.options.end, ends)
        wanted: Narrow = narrow or (lambda whole: [whole])
        ranges = []
        for each in sorted(start.keys() & end.keys()):
            low, high = ends.earliest[each], ends.latest[each]
            first, behind = start[each], end[each]
            if first > high and wanted(PartitionRange(*each, high, first)):
                self.lose(
                    f"{_name(each)}: the read would begin at {first}, but the partition "
                    f"ends at {high}"
                )
            elif behind < first and wanted(PartitionRange(*each, behind, first)):
                self._ends_before_it_begins(each, first, behind, low)
            for part in wanted(PartitionRange(*each, first, behind)):
                if part.size:
                    ranges.append(self._what_is_there(part, low, high))
        return [each for each in ranges if each.size]

    def _ends_before_it_begins(self, each: Partition, first: int, behind: int, low: int) -> None:
        """Handle such a range: a loss if the partition begins behind its end, else an error."""
        if behind < low:
            self.lose(
                f"{_name(each)}: the read would end at {behind}, but the partition begins at {low}"
            )
        else:
            raise ValueError(
                f"options {self.options.start.option} and {self.options.end.option}: "
                f"{_name(each)} would be read from {first} to {behind}: expected an end that is "
                "not before the start"
            )

    def _what_is_there(self, part: PartitionRange, low: int, high: int) -> PartitionRange:
        each = (part.topic, part.partition)
        if part.start < low:
            self.lose(
                f"{_name(each)}: offsets {part.start} to {min(low, part.end) - 1} are gone: "
                f"the partition begins at {low}"
            )
        if part.end > high:
            self.lose(
                f"{_name(each)}: offsets {max(part.start, high)} to {part.end - 1} do not exist: "
                f"the partition ends at {high}"
            )
        return PartitionRange(*each, max(part.start, low), min(part.end, high))

    def since(self, ranges: list[PartitionRange], time_ms: int) -> list[PartitionRange]:
        """Leave out the records before each partition's first one of this time or a later one."""
        asked = {(each.topic, each.partition) for each in ranges}
        if not asked:
            return []
        places = [TopicPartition(*each, time_ms) for each in sorted(asked)]
        found = self._retried(lambda _: self._ask_times(places))
        parts = []
        for each in ranges:
            first = found[each.topic, each.partition]
            start = each.end if first == OFFSET_END else max(each.start, first)
            parts.append(replace(each, start=start))
        return [each for each in parts if each.size > 0]

    def stream_ranges(self, start: Offsets, end: Offsets) -> list[PartitionRange]:
        """The ranges that a batch of a stream reads; new partitions from their beginning."""
        gone = sorted(start.keys() - end.keys())
        if gone:
            self.lose(f"{_list(gone)} are gone. The stream may have missed some records")
        new = sorted(end.keys() - start.keys())
        begins = self.ends(new).earliest
        for each in new:
            if each not in begins:
                self.lose(f"cannot get the first offset of the new partition {_name(each)}")
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
            "was deleted and created again, or the query's start is behind the partition's end"
        )


def tasks_of(
    ranges: Sequence[PartitionRange], options: ReadOptions, *, on_driver: bool = False
) -> list[tuple[PartitionRange, ...]]:
    """The ranges of each task: large ranges are cut and small ones combined, by the options.

    on_driver: it is a stream's micro-batch, which the driver may read as one task. The outcome
    depends on offsets and options alone: the transactional sink needs the same tasks when Spark
    repeats a micro-batch.
    """
    pieces = split(ranges, options.min_partitions, options.max_records)
    shared = options.max_shared
    if on_driver and sum(each.size for each in ranges) <= options.max_on_driver:
        shared = options.max_on_driver
    return pack(pieces, min(shared, options.max_records or shared), options.min_partitions)


class GroupMirror:
    """Commits a stream's offsets to a consumer group, for tools that monitor lag.

    The stream never reads the group, so a failure is only a warning.
    """

    def __init__(self, kafka: ClientConfig, group_id: str) -> None:
        self.config = consumer_config(kafka, group_id)
        self.config["group.id"] = group_id
        self._consumer: Consumer | None = None
        self._done: Offsets = {}

    def __getstate__(self) -> dict[str, object]:
        return {"config": self.config, "_consumer": None, "_done": {}}

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets that have changed, asynchronously."""
        try:
            if self._consumer is None:
                self._consumer = Consumer({**self.config, "on_commit": self._committed})
            self._consumer.poll(0)  # serves the callbacks of the last commits
            new = [
                TopicPartition(*each, at)
                for each, at in offsets.items()
                if self._done.get(each) != at
            ]
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
            "option commitGroup: cannot commit the stream's offsets to group %s: %s",
            self.config["group.id"],
            error,
        )

    def close(self) -> None:
        """Wait for commits in flight, and close."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class _Unsettled(Exception):
    """An answer that may soon change, so the request is retried.

    `known`: the missing partitions or offsets existed before. `coming`: partitions have no leaders
    now; up to REQUEST_S of waiting for them does not count as retries.
    """

    def __init__(self, what: str, *, known: bool, coming: bool = False) -> None:
        super().__init__(what)
        self.known = known
        self.coming = coming


def _named(what: str, error: KafkaError) -> KafkaException:
    return KafkaException(KafkaError(error.code(), f"{what}: {error.str()}"))


def _names(partitions: Iterable[Partition]) -> list[str]:
    return list(dict.fromkeys(topic for topic, _ in partitions))


def _name(each: Partition) -> str:
    return f"{each[0]} [{each[1]}]"


def _list(partitions: Sequence[Partition]) -> str:
    shown = ", ".join(_name(each) for each in partitions[:5])
    return f"{shown} and {len(partitions) - 5} more" if len(partitions) > 5 else shown
