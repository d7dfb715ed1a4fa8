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
from cykafka.spark.clients.consumers import GONE, NoAnswerError, OpenConsumer, consumer_config
from cykafka.spark.clients.properties import ClientConfig
from cykafka.spark.source.offsets import (
    EARLIEST,
    LATEST,
    Offsets,
    Partition,
    PartitionRange,
    pack,
    split,
)
from cykafka.spark.source.read_options import Bound, DataLossError, ReadOptions

__all__ = ["Ends", "GroupMirror", "Planner", "tasks_of"]

T = TypeVar("T")
Narrow: TypeAlias = Callable[[PartitionRange], list[PartitionRange]]

_log = logging.getLogger("cykafka.spark")

# Timeout for broker requests, s.
REQUEST_S = 60.0
# Shortest pause, s, before the planner looks again for a known partition that is missing: a broker
# that has just started lacks metadata.
KNOWN_AGAIN_S = 0.5

# Topics that brokers create for themselves. A pattern never matches them.
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


@dataclass(frozen=True)
class Ends:
    """The earliest and latest offsets of partitions at the time of the request."""

    earliest: Offsets
    latest: Offsets


class Planner:
    """Requests partitions and offsets from the brokers. Creates one client on first use."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._open: OpenConsumer | None = None

    def close(self) -> None:
        """Close the client. The next request creates a new one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    @property
    def brokers(self) -> OpenConsumer:
        if self._open is None:
            group = f"{self.options.group_id_prefix}-{uuid.uuid4()}-driver"
            self._open = OpenConsumer(consumer_config(self.options.kafka, group))
        return self._open

    def _retry(self, request: Callable[[bool], T]) -> T:
        """Return the result of `request`. Retries up to fetchOffset.numRetries times.

        The argument of `request` says whether this is the last attempt.
        """
        attempt, waited = 0, 0.0
        while True:
            last = attempt >= self.options.retries
            pause = self.options.retry_interval_s
            try:
                return request(last)
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
        """Return the partitions that the options select now, sorted.

        Parameters
        ----------
        known : iterable of (str, int), optional
            Partitions that existed before. If one is missing, the planner first retries.
        """
        before = {partition for partition in known if self._is_selected(partition)}
        return self._retry(lambda last: self._find(before, last))

    def _is_selected(self, partition: Partition) -> bool:
        topics = self.options.topics
        if topics.kind == "subscribePattern":
            return re.fullmatch(topics.pattern, partition[0]) is not None
        return partition[0] in topics.names or partition in topics.partitions

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
            found = [partition for partition in topics.partitions if partition in there]
        lost = known - set(found)
        if lost and not last:
            raise _Unsettled(f"{_list(sorted(lost))} do not exist any more", known=True)
        for name in missing:
            _log.warning("topic %s does not exist (any more); failOnDataLoss is false", name)
        if topics.kind == "assign" and len(found) < len(topics.partitions):
            absent = [partition for partition in topics.partitions if partition not in there]
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
        """Return the topics' partitions, and the topics that do not exist."""
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
        """Return the first and last offsets of partitions.

        Parameters
        ----------
        partitions : iterable of (str, int)
        known : mapping of (str, int) to int, optional
            Offsets up to which the partitions were read. If a partition ends before its offset,
            the planner retries, because the broker may not know the offset yet. It returns the
            last response.
        """
        asked = [TopicPartition(*partition) for partition in partitions]
        before = known or {}
        return self._retry(lambda last: self._ask_ends(asked, before, last))

    def _ask_ends(
        self, asked: list[TopicPartition], known: Mapping[Partition, int], last: bool
    ) -> Ends:
        ends = Ends({}, {})
        failed = []
        for place, at in self.brokers.watermarks(asked, REQUEST_S) if asked else ():
            if place.error is not None:
                failed.append(place)
            else:
                ends.earliest[place.topic, place.partition] = at.low
                ends.latest[place.topic, place.partition] = at.high
        behind = any(high < known.get(partition, 0) for partition, high in ends.latest.items())
        if failed and last:
            self._handle_unknown(failed)
        elif (failed or behind) and not last:
            again = behind or any((place.topic, place.partition) in known for place in failed)
            # Partitions lack a leader while brokers restart.
            coming = any(
                place.error is not None and place.error.code() not in GONE for place in failed
            )
            raise _Unsettled(
                "partitions end before their last known end", known=again or coming, coming=coming
            )
        return ends

    def _handle_unknown(self, failed: Sequence[TopicPartition]) -> None:
        """Handle partitions without offsets: data loss if they do not exist, else an error."""
        what = ", ".join(
            f"{place.topic} [{place.partition}]: {place.error}" for place in failed[:5]
        )
        more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        what = f"cannot get the offsets of these partitions: {what}{more}"
        if all(place.error is not None and place.error.code() in GONE for place in failed):
            self.report_loss(what)
        else:
            raise RuntimeError(f"{what}. Check that they have leaders, and that these are up")

    def report_loss(self, what: str) -> None:
        """Raise DataLossError; with failOnDataLoss=false, log a warning instead."""
        self.options.report_loss(what)
        _log.warning("%s; failOnDataLoss is false", what)

    def resolve(self, bound: Bound, ends: Ends) -> Offsets:
        """Return the offsets that an option selects in the partitions of `ends`."""
        partitions = ends.latest.keys()
        if bound.kind == "earliest":
            return {partition: ends.earliest[partition] for partition in partitions}
        if bound.kind == "latest":
            return dict(ends.latest)
        if bound.kind == "offsets":
            self._check_named(bound, partitions)
            special = {EARLIEST: ends.earliest, LATEST: ends.latest}
            return {
                partition: special[at][partition] if at in special else at
                for partition, at in bound.numbers.items()
                if partition in partitions
            }
        times = bound.numbers
        if bound.kind == "timestamp":
            times = dict.fromkeys(partitions, bound.timestamp)
        else:
            self._check_named(bound, partitions)
        return self._by_time(
            bound, {partition: times[partition] for partition in partitions}, ends
        )

    def _check_named(self, bound: Bound, partitions: Iterable[Partition]) -> None:
        read = set(partitions)
        missing = sorted(read - bound.numbers.keys())
        extra = sorted(bound.numbers.keys() - read)
        if missing or (extra and self.options.fail_on_data_loss):
            raise ValueError(
                f"option {bound.option}: expected exactly the partitions that are read"
                + (f"; missing: {_list(missing)}" if missing else "")
                + (f"; not read: {_list(extra)}" if extra else "")
            )

    def _by_time(self, bound: Bound, times: Mapping[Partition, int], ends: Ends) -> Offsets:
        asked = [TopicPartition(*partition, at) for partition, at in times.items()]
        if not asked:
            return {}
        found = self._retry(lambda _: self._ask_times(asked))
        late = [partition for partition, at in found.items() if at == OFFSET_END]
        starts = bound.option.startswith("starting")
        if late and starts and self.options.late_start == "error":
            partition = late[0]
            more = f" (nor do {len(late) - 1} more partitions)" if len(late) > 1 else ""
            raise ValueError(
                f"option {bound.option}: {_name(partition)} has no record at or after "
                f"{times[partition]} ms{more}; to begin behind its last record instead, set "
                "startingOffsetsByTimestampStrategy to latest"
            )
        # Do not read records that arrived after the request for the ends.
        return {
            partition: ends.latest[partition]
            if at == OFFSET_END
            else min(at, ends.latest[partition])
            for partition, at in found.items()
        }

    def _ask_times(self, asked: list[TopicPartition]) -> Offsets:
        found: Offsets = {}
        request = partial(self.brokers.consumer.offsets_for_times, asked)
        for place in self.brokers.request(request, REQUEST_S):
            if place.error is not None:
                raise _named(_name((place.topic, place.partition)), place.error)
            found[place.topic, place.partition] = place.offset
        return found

    # -- ranges

    def batch_ranges(self, narrow: Narrow | None = None) -> list[PartitionRange]:
        """Return the ranges that a batch reads.

        Parameters
        ----------
        narrow : callable, optional
            Returns the parts of a range to read. Missing offsets outside these parts do not
            count as data loss.

        Raises
        ------
        ValueError
            A partition would end before it starts.
        """
        ends = self.ends(self.partitions())
        start = self.resolve(self.options.start, ends)
        end = self.resolve(self.options.end, ends)
        wanted: Narrow = narrow or (lambda whole: [whole])
        ranges = []
        for partition in sorted(start.keys() & end.keys()):
            low, high = ends.earliest[partition], ends.latest[partition]
            first, behind = start[partition], end[partition]
            if first > high and wanted(PartitionRange(*partition, high, first)):
                self.report_loss(
                    f"{_name(partition)}: the read would begin at {first}, but the partition "
                    f"ends at {high}"
                )
            elif behind < first and wanted(PartitionRange(*partition, behind, first)):
                self._report_end_before_start(partition, first, behind, low)
            for part in wanted(PartitionRange(*partition, first, behind)):
                if part.size:
                    ranges.append(self._clip_to_existing(part, low, high))
        return [part for part in ranges if part.size]

    def _report_end_before_start(
        self, partition: Partition, first: int, behind: int, low: int
    ) -> None:
        """Handle such a range: data loss if the partition begins after the range's end, else an
        error."""
        if behind < low:
            self.report_loss(
                f"{_name(partition)}: the read would end at {behind}, but the partition begins at "
                f"{low}"
            )
        else:
            raise ValueError(
                f"options {self.options.start.option} and {self.options.end.option}: "
                f"{_name(partition)} would be read from {first} to {behind}: expected an end "
                "that is not before the start"
            )

    def _clip_to_existing(self, part: PartitionRange, low: int, high: int) -> PartitionRange:
        partition = (part.topic, part.partition)
        if part.start < low:
            self.report_loss(
                f"{_name(partition)}: offsets {part.start} to {min(low, part.end) - 1} are gone: "
                f"the partition begins at {low}"
            )
        if part.end > high:
            self.report_loss(
                f"{_name(partition)}: offsets {max(part.start, high)} to {part.end - 1} do not "
                f"exist: the partition ends at {high}"
            )
        return PartitionRange(*partition, max(part.start, low), min(part.end, high))

    def since(self, ranges: list[PartitionRange], time_ms: int) -> list[PartitionRange]:
        """Skip each partition's records before the first record with this or a later timestamp."""
        asked = {(part.topic, part.partition) for part in ranges}
        if not asked:
            return []
        places = [TopicPartition(*partition, time_ms) for partition in sorted(asked)]
        found = self._retry(lambda _: self._ask_times(places))
        parts = []
        for part in ranges:
            first = found[part.topic, part.partition]
            start = part.end if first == OFFSET_END else max(part.start, first)
            parts.append(replace(part, start=start))
        return [part for part in parts if part.size > 0]

    def stream_ranges(self, start: Offsets, end: Offsets) -> list[PartitionRange]:
        """Return the ranges that a stream's batch reads. New partitions start at the beginning."""
        missing = sorted(start.keys() - end.keys())
        gone = [partition for partition in missing if self._is_selected(partition)]
        if gone:
            self.report_loss(f"{_list(gone)} are gone. The stream may have missed some records")
        dropped = [partition for partition in missing if not self._is_selected(partition)]
        if dropped:
            self._report_dropped(dropped)
        new = sorted(end.keys() - start.keys())
        begins = self.ends(new).earliest
        for partition in new:
            if partition not in begins:
                self.report_loss(
                    f"cannot get the first offset of the new partition {_name(partition)}"
                )
            elif begins[partition]:
                self.report_loss(
                    f"the new partition {_name(partition)} begins at {begins[partition]} "
                    "instead of 0"
                )
        ranges = []
        for partition in sorted(end):
            first = start.get(partition, begins.get(partition))
            if first is None:
                continue
            if first > end[partition]:
                self._report_backwards(partition, first, end[partition])
            ranges.append(PartitionRange(*partition, first, end[partition]))
        return [part for part in ranges if part.size]

    def _report_dropped(self, dropped: Sequence[Partition]) -> None:
        """Handle partitions that the query has read but no longer selects."""
        option = self.options.topics.kind
        what = (
            f"the stream has read {_list(dropped)} until now, and option {option} does not select "
            "them any more"
        )
        if self.options.fail_on_data_loss:
            raise DataLossError(
                f"{what}. Select them again; or, to leave out their further records, set the "
                "option failOnDataLoss to false"
            )
        _log.warning("%s; failOnDataLoss is false", what)

    def _report_backwards(self, partition: Partition, first: int, end: int) -> None:
        self.report_loss(
            f"{_name(partition)}: the batch would begin at {first} and end at {end}. Either the "
            "topic was deleted and created again, or the query's start is behind the partition's "
            "end"
        )


def tasks_of(
    ranges: Sequence[PartitionRange], options: ReadOptions
) -> list[tuple[PartitionRange, ...]]:
    """Return the ranges per task. The options say how to cut large ranges and combine small ones.

    The result depends on offsets and options alone: the transactional sink needs the same tasks
    when Spark repeats a micro-batch.
    """
    pieces = split(ranges, options.min_partitions, options.max_records)
    shared = options.max_shared
    return pack(pieces, min(shared, options.max_records or shared), options.min_partitions)


class GroupMirror:
    """Commits a stream's offsets to a consumer group, for tools that monitor lag.

    The stream never reads the group, so a failed commit only logs a warning.
    """

    def __init__(self, kafka: ClientConfig, group_id: str) -> None:
        self.config = consumer_config(kafka, group_id)
        self.config["group.id"] = group_id
        self._consumer: Consumer | None = None
        self._done: Offsets = {}

    def commit(self, offsets: Offsets) -> None:
        """Commit changed offsets asynchronously."""
        try:
            if self._consumer is None:
                self._consumer = Consumer({**self.config, "on_commit": self._committed})
            self._consumer.poll(0)  # runs the callbacks of earlier commits
            new = [
                TopicPartition(*partition, at)
                for partition, at in offsets.items()
                if self._done.get(partition) != at
            ]
            if new:
                self._consumer.commit(offsets=new, asynchronous=True)
                self._done = dict(offsets)
        except KafkaException as error:
            self._warn(error.args[0])

    def _committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        error = error or next((place.error for place in partitions if place.error), None)
        if error is not None:
            self._warn(error)

    def _warn(self, error: object) -> None:
        self._done = {}
        _log.warning(
            "option commitGroup: cannot commit the stream's offsets to group %s: %s",
            self.config["group.id"],
            error,
        )

    def close(self) -> None:
        """Wait for pending commits and close the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


class _Unsettled(Exception):
    """A response that may soon change, so the planner retries the request.

    `known`: the missing partitions or offsets existed before. `coming`: partitions lack a leader
    now. Up to REQUEST_S of waiting for a leader does not count as a retry.
    """

    def __init__(self, what: str, *, known: bool, coming: bool = False) -> None:
        super().__init__(what)
        self.known = known
        self.coming = coming


def _named(what: str, error: KafkaError) -> KafkaException:
    return KafkaException(KafkaError(error.code(), f"{what}: {error.str()}"))


def _names(partitions: Iterable[Partition]) -> list[str]:
    return list(dict.fromkeys(topic for topic, _ in partitions))


def _name(partition: Partition) -> str:
    return f"{partition[0]} [{partition[1]}]"


def _list(partitions: Sequence[Partition]) -> str:
    shown = ", ".join(_name(partition) for partition in partitions[:5])
    return f"{shown} and {len(partitions) - 5} more" if len(partitions) > 5 else shown
