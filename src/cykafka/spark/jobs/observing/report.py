"""What a job reports: its counts, in a progress line and a summary at the end, and its health."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

__all__ = ["Health", "ProgressLine", "Summary", "human_bytes", "table"]

_MANY = 20
_WIDEST = 1000


def human_bytes(count: float) -> str:
    """``1536`` -> ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError


def human_time(seconds: float) -> str:
    """``75`` -> ``1:15``, below a minute ``7.5 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass
class Summary:
    """The result of a job's run: only committed records, each counted once.

    Parameters
    ----------
    job : str
    records : int
        Records read. Except in a dry run, a job that uses `counts` counts each record under one
        outcome.
    bytes : int
        Bytes of their keys and values.
    bad : int
        Records that could not be decoded or did not match the schema.
    ranges : dict
        By topic and partition: the first offset, and the offset after the last.
    counts : dict
        Numbers of records by outcome: ``{"sent": 10, ...}``.
    warnings : list of str
        Warnings of the source, the sink and the job.
    without_record : int
        Offsets without a record: compacted, transaction markers, or lost.
    unknown : int
        The maximum number of further records that a failed step may have sent.
    dry_run : bool
        The job sent nothing. `details` contains the numbers that it would have sent.
    """

    job: str
    records: int = 0
    bytes: int = 0
    bad: int = 0
    ranges: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    batches: int = 0
    seconds: float = 0.0
    outcome: str = "finished"
    report: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    without_record: int = 0
    unknown: int = 0
    dry_run: bool = False

    def add_range(self, topic: str, partition: int, start: int, end: int) -> None:
        """Note that the offsets from `start` up to, but not including, `end` were read."""
        if start < end:
            low, high = self.ranges.get((topic, partition), (start, end))
            self.ranges[topic, partition] = min(low, start), max(high, end)

    def add_targets(self, counts: Mapping[str, int]) -> None:
        """Add the records by topic that a dry run would send."""
        would = self.details.setdefault("would_send", {})
        for topic, count in counts.items():
            would[topic] = would.get(topic, 0) + count

    def add(self, records: int, size: int, bad: int, counts: Mapping[str, int]) -> None:
        """Add records to the counts."""
        self.records += records
        self.bytes += size
        self.bad += bad
        for name, count in counts.items():
            done = 0 if self.dry_run and name == "sent" else count
            self.counts[name] = self.counts.get(name, 0) + done

    def as_dict(self) -> dict[str, Any]:
        """The summary as a document for JSON."""
        offsets: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, partition), (start, end) in sorted(self.ranges.items()):
            offsets.setdefault(topic, {})[str(partition)] = {"start": start, "end": end}
        return {
            "job": self.job,
            "outcome": self.outcome,
            "dry_run": self.dry_run,
            "records": self.records,
            "bytes": self.bytes,
            "bad": self.bad,
            "counts": self.counts,
            "offsets_without_record": self.without_record,
            "unknown": self.unknown,
            "warnings": self.warnings,
            "offsets": offsets,
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            **self.details,
        }

    def write(self, path: str) -> None:
        """Write the summary as JSON atomically: readers never see a partial file."""
        path = os.path.expanduser(path)
        beside = f"{path}.{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(self.as_dict(), file, indent=2)
            file.write("\n")
        os.replace(beside, path)

    def lines(self) -> list[str]:
        """The summary as text."""
        warned = [f"  warning: {words}" for words in self.warnings[:_MANY]]
        if self.report:
            return [f"{self.job} {self.outcome}", "", *self.report, *warned]
        facts = {
            "records": f"{self.records:,}",
            "bytes": f"{human_bytes(self.bytes)} of keys and values",
            **{name: f"{count:,}" for name, count in self.counts.items()},
        }
        if self.unknown:
            facts["unknown"] = f"up to {self.unknown:,} more may have been sent"
        facts["bad records"] = f"{self.bad:,}"
        if self.without_record:
            facts["no record"] = f"{self.without_record:,} offsets"
        rate = self.records / self.seconds if self.seconds else 0.0
        facts["time"] = f"{human_time(self.seconds)}, {rate:,.0f} records/s"
        width = max(map(len, facts))
        dry = " (a dry run: nothing was sent)" if self.dry_run else ""
        lines = [f"{self.job} {self.outcome}{dry}"]
        lines += [f"  {name:{width}}  {fact}" for name, fact in facts.items()]
        lines += warned
        would = self.details.get("would_send")
        if would:
            lines += [
                "",
                *table(["would send to", "records"], [[n, f"{c:,}"] for n, c in would.items()]),
            ]
        rows = [
            [topic, str(partition), f"{start:,}", f"{end - 1:,}", f"{end - start:,}"]
            for (topic, partition), (start, end) in sorted(self.ranges.items())
        ]
        if rows:
            head = ["topic", "partition", "first offset", "last offset", "offsets"]
            lines += ["", *table(head, rows[:_MANY])]
            if len(rows) > _MANY:
                lines.append(
                    f"  and {len(rows) - _MANY} more partitions (all with --summary FILE)"
                )
        return lines


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table as lines of text; columns of numbers are aligned to the right."""
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=True)
    for at, name in enumerate(head):
        numeric = all(
            row[at].replace(",", "").lstrip("-").isdigit() or row[at] == "-" for row in rows
        )
        grid.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=_WIDEST, color_system=None, force_terminal=False)
    console.print(grid)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [f" {line.rstrip()}" for line in text.splitlines()]


class ProgressLine:
    """The progress line: updated in place on a terminal, else printed at intervals.

    Parameters
    ----------
    interval : float
        Without a terminal: the time between lines, s. 0: no progress lines at all.
    stream : file, optional
        Standard error by default, because standard output is for the summary.
    log : logging.Logger, optional
        The log that gets all lines instead, also on a terminal.
    """

    def __init__(
        self,
        interval: float,
        stream: TextIO | None = None,
        log: logging.Logger | None = None,
    ) -> None:
        self._log = log
        self._console = Console(file=sys.stderr if stream is None else stream)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._interval = interval
        self._started = self._shown = time.monotonic()

    def show(self, words: str, **fields: Any) -> None:
        """Show this progress, on a terminal at once, else when the interval is over.

        `fields` are for the log.
        """
        now = time.monotonic()
        if self._interval <= 0:
            return
        line = f"[{human_time(now - self._started)}] {words}"
        if self._console.is_terminal and self._log is None:
            self._live.start()
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif now - self._shown >= self._interval:
            self._shown = now
            if self._log is None:
                self.print_line(line)
            else:
                self.print_line(words, **fields)

    def show_stage(self, words: str) -> None:
        """Show what a job begins to do, at once."""
        if self._interval <= 0:
            return
        if self._console.is_terminal and self._log is None:
            self.show(words)
        else:
            self.print_line(words)

    def print_line(self, words: str, **fields: Any) -> None:
        """Print this now, on its own line."""
        if self._log is None:
            self._console.print(Text(words), soft_wrap=True)
        else:
            self._log.info(words, extra=fields)

    def warn(self, words: str) -> None:
        """Print a warning now, on its own line."""
        if self._log is None:
            self.print_line(f"warning: {words}")
        else:
            self._log.warning(words)

    def clear(self) -> None:
        """Erase the progress line, so that other text can be printed."""
        self._live.stop()


# -- health


class Health:
    """The times of a job's last progress and of Spark's last response.

    The job's thread records the times; any thread may call the other methods.

    Parameters
    ----------
    timeout : float
        The longest time without a response from Spark or without progress, s.
    clock : callable
        Returns the time, s.
    """

    def __init__(
        self, timeout: float = 300.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._timeout = timeout
        self._clock = clock
        self._answered: float | None = None
        self._moved: float | None = None
        self._doing = ""

    def note_response(self) -> None:
        """Note that Spark has responded."""
        self._answered = self._clock()

    def note_progress(self) -> None:
        """Note that a micro-batch has ended, or that there is none to run."""
        self._moved = self._clock()

    def note_activity(self, words: str) -> None:
        """Note Spark's description of its current activity."""
        self._doing = words

    def liveness_problem(self) -> str | None:
        """Return why a scheduler should end the job (Spark does not respond), or None."""
        return self._describe_delay("Spark has not responded", self._answered)

    def readiness_problem(self) -> str | None:
        """Return why the job makes no progress, or None."""
        if self._answered is None:
            return "the job is starting"
        what = "the micro-batch has not ended"
        return self.liveness_problem() or self._describe_delay(what, self._moved, self._doing)

    def _describe_delay(self, what: str, since: float | None, doing: str = "") -> str | None:
        seconds = 0.0 if since is None else self._clock() - since
        if seconds <= self._timeout:
            return None
        words = f"{what} for {seconds:.0f} s (health_timeout: {self._timeout:g} s)"
        return f"{words}; Spark: {doing}" if doing else words
