"""Progress of long work on standard error, and a summary line."""

from __future__ import annotations

import sys
import time
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from cykafka.cli.terminal.texts import counted, printable

__all__ = ["Meter"]


class Meter:
    """Counts records and bytes, and shows them on standard error if that is a terminal.

    Parameters
    ----------
    what : str
        The topic or topics, shown before the figures.
    total : int, optional
        The total number of units, for a bar; None if unknown.
    shown : bool
        Whether to draw at all.
    """

    def __init__(self, what: str, total: int | None = None, shown: bool = True) -> None:
        self.what = what
        self.records = 0
        self.bytes = 0
        self.errors = 0
        self._started = time.monotonic()
        self._first: float | None = None
        self._progress: Progress | None = None
        self._task = TaskID(0)
        if not shown or not sys.stderr.isatty():
            return
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(printable(what), total=total, figures="")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def add(self, records: int, size: int, done: int) -> None:
        """Count records and their bytes; `done` is the number of finished units so far."""
        if self._first is None:
            self._first = time.monotonic()
        self.records += records
        self.bytes += size
        if self._progress is not None:
            self._progress.update(self._task, completed=done, figures=self._figures())

    def say(self, text: str) -> None:
        """Print a line on standard error, above the bar."""
        text = printable(text)
        if self._progress is not None:
            self._progress.console.print(Text(text), soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def warn(self, text: str) -> None:
        """Print a line that begins with the command's name."""
        self.say(f"cykafka: {text}")

    def summary(self) -> str:
        """Return ``orders: 1,000 records, 10 MB in 1.0 s (1,000 records/s, 10 MB/s)``."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        amount = f"{counted(self.records, 'record')}, {decimal(self.bytes)}"
        return (
            f"{self.what}: {amount} in {seconds:.1f} s "
            f"({self.records / seconds:,.0f} records/s, {decimal(int(self.bytes / seconds))}/s)"
        )

    def _figures(self) -> str:
        seconds = max(time.monotonic() - (self._first or self._started), 0.1)
        errors = f", {self.errors:,} failed" if self.errors else ""
        return (
            f"{counted(self.records, 'record')}, {decimal(int(self.bytes / seconds))}/s"
            f" ({self.records / seconds:,.0f} records/s){errors}"
        )
