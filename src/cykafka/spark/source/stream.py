"""Plans the offsets of a stream's batches, on the driver.

Spark requests the start of the first batch more than once, and again if a crash interrupts that
batch. With `startingOffsets=latest` the second response could be higher than the batch's end, and
the stream would silently lose the records between. So the plan keeps the start, the first batch's
end carries it, and a batch that starts after its end raises an error.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from cykafka.spark.source.offsets import (
    Offsets,
    PartitionRange,
    format_offsets,
    parse_offsets,
    rate_limit,
    take_start,
    with_start,
)
from cykafka.spark.source.planner import Ends, GroupMirror, Planner
from cykafka.spark.source.read_options import ReadOptions

__all__ = ["StreamPlan"]

_WHAT = "the stream's offset in the checkpoint"


class StreamPlan:
    """One query's offsets. Unpickling returns a plan in its initial state."""

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
        self._start_checked = False

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamPlan, (self.options, self._clock)

    def initial(self) -> dict[str, Any]:
        """Return the offsets at which a new query starts; the same in every call."""
        if self._initial is None:
            # Prefer the frozen ends: a `latest` that is resolved later would be higher.
            ends = self._target or self.planner.ends(self.planner.partitions())
            self._initial = self.planner.resolve(self.options.start, ends)
        return format_offsets(self._initial)

    def freeze(self) -> None:
        """Read only up to the partitions' current ends (Trigger.AvailableNow)."""
        self._target = self.planner.ends(self.planner.partitions())

    def unfreeze(self) -> None:
        """Read new records again."""
        self._target = None

    def latest(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """Return the end of the batch that starts at `start`; `start` itself without new records.

        Parameters
        ----------
        start : mapping
            The last batch's end, or the initial offset.
        limited : bool
            Whether the limits in the options apply.
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
        """Return the end of a batch that starts at `start` and reads nothing."""
        rest, carried = take_start(start)
        begin = parse_offsets(rest, _WHAT, lowest=0)
        # Spark runs and logs the first batch of a query even if the batch is empty.
        is_first = carried is None and begin == self._initial
        return with_start(begin, begin) if is_first else dict(start)

    def _ends(self, begin: Offsets) -> Ends:
        """Return the partitions' ends, including partitions in the last batch (`begin`)."""
        target = self._target
        if target is None:
            return self.planner.ends(self.planner.partitions(begin), begin)
        # freeze() ran before Spark passed the stream's position. If the frozen ends lack a
        # partition that was read, or end before its position, the response may have come from a
        # broker that had just started: request them again.
        stale = {
            partition for partition, at in begin.items() if target.latest.get(partition, -1) < at
        }
        if stale:
            found = stale.intersection(self.planner.partitions(begin))
            again = self.planner.ends(sorted(found), begin)
            target = Ends(target.earliest | again.earliest, target.latest | again.latest)
            self._target = target
        return target

    def _limit(self, begin: Offsets, end: Offsets, earliest: Offsets) -> Offsets:
        froms = {
            **{partition: earliest[partition] for partition in end if partition in earliest},
            **begin,
        }
        waiting = sum(max(at - froms.get(partition, at), 0) for partition, at in end.items())
        least = self.options.min_offsets
        # With AvailableNow no more records arrive: waiting would end the query before it has read
        # all records.
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
        """Return the partitions' last known ends, for the query's progress."""
        return None if self._latest is None else format_offsets(self._latest)

    def ranges(
        self, start: Mapping[str, Any], end: Mapping[str, Any], *, is_first: bool = False
    ) -> list[PartitionRange]:
        """Return the ranges of the batch from `start` to `end`.

        is_first: this is the query's first batch, and another process has resolved its `start`.
        """
        first, before = take_start(start)
        last, carried = take_start(end)
        begin = parse_offsets(first, _WHAT, lowest=0)
        if is_first:
            self._initial = begin
        if carried is not None and before is None:
            begin = carried
        stop = parse_offsets(last, _WHAT, lowest=0)
        # Only in PySpark before 4.2 can this process have planned an end without a start.
        is_ours = carried is not None or before is not None or stop == self._latest
        if not is_ours and not self._start_checked:
            self._check_start(begin, last)
        self._start_checked = True
        return self.planner.stream_ranges(begin, stop)

    def _check_start(self, begin: Offsets, end: Mapping[str, Any]) -> None:
        """Check the start of an unfinished first batch that another connector planned.

        cykafka's first batches carry their start. Another connector's batch started where the
        options pointed at that time. With `latest` or a timestamp, the options now point to later
        offsets, so the stream would lose the records between.
        """
        if begin != self._initial:
            return  # Spark read it from its log
        start = self.options.start
        moved = [
            partition
            for partition, at in begin.items()
            # A start that the options give as a number has not moved, and offset 0 is the lowest.
            if at > 0 and not (start.kind == "offsets" and start.numbers.get(partition, -1) >= 0)
        ]
        if moved:
            self.planner.report_loss(
                "the checkpoint has an unfinished first batch, which another connector planned up "
                f"to {json.dumps(end)}. The batch does not say where it begins, and option "
                f"{start.option} may point to a later offset by now. Finish the batch with that "
                "connector, or set startingOffsets to its start, which is in the checkpoint's "
                "sources/0/0"
            )

    def close(self) -> None:
        """Close the clients."""
        self.planner.close()
        if self._mirror is not None:
            self._mirror.close()
