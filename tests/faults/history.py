"""The history of a run: what the clients did, and what the topic contains at the end.

A history is a folder of CSV files, one per process and table. Lines are written at once, so they
survive the process. Times are monotonic, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["TABLES", "History", "identity", "value"]

# The columns of each table.
TABLES = {
    # Written before the client sends records `first` to `first + count - 1` of `sender`.
    "sends": {"sender": "INT", "first": "BIGINT", "count": "BIGINT", "transaction": "BIGINT"},
    # Each outcome is stored, failed (in no log) or unknown.
    "outcomes": {"sender": "INT", "number": "BIGINT", "outcome": "TEXT", "part": "INT",
                 "place": "BIGINT"},
    # Each outcome is committed, aborted or unknown.
    "transactions": {"sender": "INT", "transaction": "BIGINT", "outcome": "TEXT"},
    # Records that a group's member handed to the program, or that a share group accepted.
    "reads": {"reader": "TEXT", "part": "INT", "place": "BIGINT", "sender": "INT",
              "number": "BIGINT", "time": "BIGINT"},
    # Written before the member commits an offset.
    "commits": {"reader": "TEXT", "part": "INT", "place": "BIGINT", "time": "BIGINT"},
    # Senders that ended by themselves: all their records have an outcome.
    "ends": {"sender": "INT"},
    # Groups that read until the topic's end.
    "finished": {"reader": "TEXT"},
    # The topic's records as another program reads them.
    "log": {"part": "INT", "place": "BIGINT", "sender": "INT", "number": "BIGINT"},
}  # fmt: skip


def value(sender: int, number: int, size: int = 0) -> bytes:
    """A record's value, which names the record."""
    return f"{sender} {number} ".encode().ljust(size, b"x")


def identity(data: bytes) -> tuple[int, int]:
    """The sender and the number in a value. Raises ValueError for a damaged one."""
    sender, number, rest = data.split(b" ")
    if rest.strip(b"x"):
        raise ValueError(f"a damaged value: {data!r}")
    return int(sender), int(number)


class History:
    """Appends to the files of one process.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        self._files = {
            table: os.open(
                folder / f"{table}-{os.getpid()}.csv", os.O_WRONLY | os.O_CREAT | os.O_APPEND
            )
            for table in TABLES
        }

    def sent(self, sender: int, first: int, count: int = 1, transaction: int = 0) -> None:
        """The client is about to send records, in a transaction or (0) in none."""
        self._add("sends", [(sender, first, count, transaction)])

    def stored(self, sender: int, rows: Iterable[tuple[int, int, int]]) -> None:
        """The brokers have acknowledged records: number, partition, offset."""
        self._add("outcomes", ((sender, number, "stored", *place) for number, *place in rows))

    def failed(self, sender: int, numbers: Iterable[int], *, may_be_stored: bool) -> None:
        """Records have failed."""
        outcome = "unknown" if may_be_stored else "failed"
        self._add("outcomes", ((sender, number, outcome, -1, -1) for number in numbers))

    def transaction(self, sender: int, transaction: int, outcome: str) -> None:
        """A transaction is committed, aborted or unknown."""
        self._add("transactions", [(sender, transaction, outcome)])

    def read(self, reader: str, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """A group has handed over records: partition, offset, sender, number."""
        now = time.monotonic_ns()
        self._add("reads", ((reader, *row, now) for row in rows))

    def committing(self, reader: str, offsets: Iterable[tuple[int, int]]) -> None:
        """A group is about to commit offsets: partition, offset."""
        now = time.monotonic_ns()
        self._add("commits", ((reader, *row, now) for row in offsets))

    def ended(self, sender: int) -> None:
        """A sender has ended, and was not killed."""
        self._add("ends", [(sender,)])

    def finished(self, reader: str) -> None:
        """A group has read until the topic's end."""
        self._add("finished", [(reader,)])

    def log(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """The topic contains records: partition, offset, sender, number."""
        self._add("log", rows)

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)

    def _add(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        text = "".join(",".join(map(str, row)) + "\n" for row in rows)
        if text:
            os.write(self._files[table], text.encode())
