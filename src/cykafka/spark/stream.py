"""On the driver of a stream: the offsets of its batches.

Spark asks for the first batch's start more than once, and again after a crash before that batch
was done. Were the answer another one each time (`latest` moves), the batch would begin behind its
own end, and what lies between be lost without a word. So the start is remembered, the end of the
first batch carries it, and a batch that begins behind its end is an error.
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
    """What one query knows of its offsets; pickled, it is as new."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.options = options
        self.planner = Planner(options)
        self._clock = clock
        self._mirror = (
            None
            if options.commit_group is None
            else GroupMirror(options.kafka, options.commit_group)
        )
        self._initial: Offsets | None = None
        self._target: Ends | None = None
        self._latest: Offsets | None = None
        self._last_batch: float | None = None
        self._ranges_told = False

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamPlan, (self.options, self._clock)

    def initial(self) -> dict[str, Any]:
        """Where a new query begins; the same however often it is asked."""
        if self._initial is None:
            # Frozen ends are all there is: a later `latest` would lie behind them.
            ends = self._target or self.planner.ends(self.planner.partitions())
            self._initial = self.planner.resolve(self.options.start, ends)
        return format_offsets(self._initial)

    def freeze(self) -> None:
        """From now on nothing is new (Trigger.AvailableNow)."""
        self._target = self.planner.ends(self.planner.partitions())

    def latest(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """Where a batch from `start` on ends; `start` itself if there is nothing to do.

        Parameters
        ----------
        start : mapping
            The end of the last batch, or the initial offset.
        limited : bool
            Whether the limits of the options count.
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

    def _ends(self, begin: Offsets) -> Ends:
        """Where partitions end, those that are known since the last batch among them."""
        target = self._target
        if target is None:
            return self.planner.ends(self.planner.partitions(begin), begin)
        # It was frozen before Spark told where the stream is: an answer without a partition that
        # was read may have been that of a broker that has just started.
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
        # With AvailableNow nothing more comes: to wait would be to end with records left.
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
        """The ends as they were last seen, for the query's progress."""
        return None if self._latest is None else format_offsets(self._latest)

    def ranges(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[PartitionRange]:
        """What the batch from `start` to `end` reads."""
        first, before = take_start(start)
        last, carried = take_start(end)
        begin = parse_offsets(first, _WHAT, lowest=0)
        if carried is not None and before is None:
            begin = carried
        elif carried is None and before is None and not self._ranges_told:
            self._check_start(begin, last)
        self._ranges_told = True
        return self.planner.stream_ranges(begin, parse_offsets(last, _WHAT, lowest=0))

    def _check_start(self, begin: Offsets, end: Mapping[str, Any]) -> None:
        """A first batch that another connector has planned: does it begin here?

        Ours carries its start. Another one's began where the options said *then*: were that
        `latest`, or a time, what came since would be passed over.
        """
        if begin != self._initial:
            return  # Spark has it from its log
        start = self.options.start
        moved = [
            each
            for each, at in begin.items()
            # What is given as a number stays; nothing lies before 0.
            if at > 0 and not (start.kind == "offsets" and start.each.get(each, -1) >= 0)
        ]
        if moved:
            self.planner.lose(
                "the checkpoint has a first batch that is not done and was planned by another "
                f"connector, up to {json.dumps(end)}. Where it began is not in there, and option "
                f"{start.option} may mean another place by now. Let that connector end the batch, "
                "or give its start as startingOffsets: it is in the checkpoint's sources/0/0"
            )

    def close(self) -> None:
        """Close the clients."""
        self.planner.close()
        if self._mirror is not None:
            self._mirror.close()
