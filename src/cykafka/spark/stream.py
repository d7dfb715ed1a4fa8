"""On the driver of a stream: the offsets of its batches.

Spark requests the start of the first batch more than once, and again if a crash interrupts that
batch. With `startingOffsets=latest` the second answer could be behind the batch's end, and the
records between would be lost silently. So the start is kept, the end of the first batch carries
it, and a batch that begins behind its end is an error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from cykafka.spark.offsets import (
    Offsets,
    PartitionRange,
    format_offsets,
    parse_offsets,
    rate_limit,
    take_start,
    with_start,
)
from cykafka.spark.options import ReadOptions
from cykafka.spark.planner import Ends, GroupMirror, Planner

__all__ = ["StreamPlan"]

_WHAT = "the stream's offset in the checkpoint"


class StreamPlan:
    """The offsets of one query. Unpickling gives a plan in its initial state."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.planner = Planner(options)
        self._clock = clock
        group = options.commit_group
        self._mirror = None if group is None else GroupMirror(options.kafka, group)
        self._initial: Offsets | None = None
        self._target: Ends | None = None
        self._latest: Offsets | None = None
        self._last_batch: float | None = None
        self._ranges_told = False

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamPlan, (self.options, self._clock)

    def initial(self) -> dict[str, Any]:
        """The offsets at which a new query begins; the same in every call."""
        if self._initial is None:
            # Prefer the frozen ends: a `latest` that is resolved later would lie behind them.
            ends = self._target or self.planner.ends(self.planner.partitions())
            self._initial = self.planner.resolve(self.options.start, ends)
        return format_offsets(self._initial)

    def freeze(self) -> None:
        """Read only up to the present ends of the partitions (Trigger.AvailableNow)."""
        self._target = self.planner.ends(self.planner.partitions())

    def unfreeze(self) -> None:
        """Read new records again."""
        self._target = None

    def latest(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """The end of the batch that begins at `start`; `start` itself if there are no records.

        Parameters
        ----------
        start : mapping
            The end of the last batch, or the initial offset.
        limited : bool
            Whether the limits of the options apply.
        """
        rest, carried = take_start(start)
        begin = parse_offsets(rest, _WHAT, lowest=0)
        if self._mirror is not None:
            self._mirror.commit(begin)
        ends = self._ends(begin)
        self._latest = dict(ends.latest)
        end = self._latest
        if limited:
            end = self._limit(begin, end, ends.earliest)
        if carried is None and begin == self._initial:
            return with_start(end, begin)
        if end == begin:
            return dict(start)
        return format_offsets(end)

    def stay(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """The end of a batch that begins at `start` and reads nothing."""
        rest, carried = take_start(start)
        begin = parse_offsets(rest, _WHAT, lowest=0)
        # Spark runs and logs the first batch of a query even if the batch is empty.
        is_first = carried is None and begin == self._initial
        return with_start(begin, begin) if is_first else dict(start)

    def _ends(self, begin: Offsets) -> Ends:
        """Where the partitions end, including those of the last batch (`begin`)."""
        target = self._target
        if target is None:
            return self.planner.ends(self.planner.partitions(begin), begin)
        # The ends were frozen before Spark gave the stream's position. If they lack a partition
        # that was read, or end before its position, a broker that had just started may have
        # answered: ask again.
        stale = {each for each, at in begin.items() if target.latest.get(each, -1) < at}
        if stale:
            found = stale.intersection(self.planner.partitions(begin))
            again = self.planner.ends(sorted(found), begin)
            target = Ends(target.earliest | again.earliest, target.latest | again.latest)
            self._target = target
        return target

    def _limit(self, begin: Offsets, end: Offsets, earliest: Offsets) -> Offsets:
        froms = {**{each: earliest[each] for each in end if each in earliest}, **begin}
        waiting = sum(max(at - froms.get(each, at), 0) for each, at in end.items())
        least = self.options.min_offsets
        # With AvailableNow no more records arrive: a wait would end the query with records left.
        if least is not None and self._target is None:
            now = self._clock()
            due = self._last_batch is None or now - self._last_batch >= self.options.max_delay_s
            if not due and waiting < least:
                return begin
            self._last_batch = now
        if self.options.max_offsets is None:
            return end
        return rate_limit(self.options.max_offsets, froms, end)

    def report(self) -> dict[str, Any] | None:
        """The last known ends of the partitions, for the query's progress."""
        return None if self._latest is None else format_offsets(self._latest)

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[PartitionRange]:
        """The ranges of the batch from `start` to `end`."""
        first, before = take_start(start)
        last, carried = take_start(end)
        begin = parse_offsets(first, _WHAT, lowest=0)
        if carried is not None and before is None:
            begin = carried
        stop = parse_offsets(last, _WHAT, lowest=0)
        # Without a start this process itself planned an end only in PySpark before 4.2.
        is_ours = carried is not None or before is not None or stop == self._latest
        if not is_ours and not self._ranges_told:
            self._check_start(begin, last)
        self._ranges_told = True
        return self.planner.stream_ranges(begin, stop)

    def _check_start(self, begin: Offsets, end: Mapping[str, Any]) -> None:
        """Check the start of an unfinished first batch that another connector planned.

        Our first batches carry their start. Another connector's began where the options pointed at
        that time. With `latest` or a timestamp they point further on now, and the records between
        would be lost.
        """
        if begin != self._initial:
            return  # Spark read it from its log
        start = self.options.start
        moved = [
            each
            for each, at in begin.items()
            # A start that the options give as a number has not moved, and no offset is before 0.
            if at > 0 and not (start.kind == "offsets" and start.each.get(each, -1) >= 0)
        ]
        if moved:
            self.planner.lose(
                "the checkpoint has an unfinished first batch, which another connector planned up "
                f"to {json.dumps(end)}. The batch does not say where it begins, and option "
                f"{start.option} may point further on by now. Finish the batch with that "
                "connector, or set startingOffsets to its start, which is in the checkpoint's "
                "sources/0/0"
            )

    def close(self) -> None:
        """Close the clients."""
        self.planner.close()
        if self._mirror is not None:
            self._mirror.close()
