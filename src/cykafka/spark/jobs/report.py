"""What a job counts, and how it is told: a line while it runs, a summary at the end."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

__all__ = ["Progress", "Summary", "human_bytes", "table"]

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
    """What a run of a job has done: only what is committed, and every record once.

    Parameters
    ----------
    job : str
    records : int
        Those read; each is also counted by one of `counts`, if they tell what became of it, but
        in a dry run.
    bytes : int
        Of their keys and values.
    bad : int
        Those of them that were unfit.
    ranges : dict
        By topic and partition: the first offset and the one behind the last.
    counts : dict
        By what the job did: ``{"written": 10, ...}``.
    warnings : list of str
        What the source, the sink or the job itself have warned of.
    without_record : int
        Offsets that were passed, and there was no record: compacted, taken by marks of
        transactions, or lost.
    unknown : int
        Records beside the others that may have been sent, or not: what was at work failed.
    dry_run : bool
        Nothing was sent: what would have been is no count, but one of `details`.
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

    def cover(self, topic: str, partition: int, start: int, end: int) -> None:
        """The offsets from `start` until `end` were read."""
        if start < end:
            low, high = self.ranges.get((topic, partition), (start, end))
            self.ranges[topic, partition] = min(low, start), max(high, end)

    def add(self, records: int, size: int, bad: int, counts: Mapping[str, int]) -> None:
        """More records are done."""
        self.records += records
        self.bytes += size
        self.bad += bad
        for name, count in counts.items():
            done = 0 if self.dry_run and name == "sent" else count
            self.counts[name] = self.counts.get(name, 0) + done

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON has it."""
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
        """Write it as JSON; whoever waits for the file sees it whole."""
        path = os.path.expanduser(path)
        beside = f"{path}.{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(self.as_dict(), file, indent=2)
            file.write("\n")
        os.replace(beside, path)

    def lines(self) -> list[str]:
        """The summary for people."""
        rate = self.records / self.seconds if self.seconds else 0.0
        facts = [
            ("records", f"{self.records:,}"),
            ("bytes", f"{human_bytes(self.bytes)} of keys and values"),
            *((name, f"{count:,}") for name, count in self.counts.items()),
            *([("unknown", f"up to {self.unknown:,} more were sent")] if self.unknown else []),
            ("bad records", f"{self.bad:,}"),
            *([("no record", f"{self.without_record:,} offsets")] if self.without_record else []),
            ("time", f"{human_time(self.seconds)}, {rate:,.0f} records/s"),
        ]
        warned = [f"  warning: {words}" for words in self.warnings[:_MANY]]
        if self.report:
            return [f"{self.job} {self.outcome}", "", *self.report, *warned]
        width = max(len(name) for name, _ in facts)
        dry = " (a dry run: nothing was sent)" if self.dry_run else ""
        lines = [
            f"{self.job} {self.outcome}{dry}",
            *(f"  {name:{width}}  {v}" for name, v in facts),
        ]
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
                    f"  and {len(rows) - _MANY} partitions more (all with --summary FILE)"
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
    console = Console(file=io.StringIO(), width=_WIDEST)
    console.print(grid)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [f" {line.rstrip()}" for line in text.splitlines()]


class Progress:
    """The line that shows how far a job is: in place on a terminal, else one now and then.

    Parameters
    ----------
    interval : float
        The time between lines if there is no terminal, in s; 0: no lines at all.
    stream : file, optional
        Standard error by default, because standard output is for the summary.
    """

    def __init__(self, interval: float, stream: TextIO | None = None) -> None:
        self._console = Console(file=sys.stderr if stream is None else stream)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False
        )
        self._interval = interval
        self._started = self._shown = time.monotonic()

    def show(self, words: str) -> None:
        """Show this line, if it is time to."""
        now = time.monotonic()
        if self._interval <= 0:
            return
        line = f"[{human_time(now - self._started)}] {words}"
        if self._console.is_terminal:
            self._live.start()
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif now - self._shown >= self._interval:
            self._shown = now
            self.note(line)

    def note(self, words: str) -> None:
        """Print this now, on a line of its own."""
        self._console.print(Text(words), soft_wrap=True)

    def clear(self) -> None:
        """Remove the line in place."""
        self._live.stop()
