"""The history of a run: what the clients did, and what the topic contains at the end.

A history is a folder of CSV files, one per writer and table. Each row is written at once and
survives its process; only the last row of a killed process may be incomplete. Times are monotonic,
in ns, and the same for all processes of a machine.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["DAMAGED", "TABLES", "History", "identity", "value"]

# The columns of each table.
TABLES = {
    # Written before the client sends the records `first` to `first + count - 1` of a sender.
    "sends": {"sender": "INT", "first": "BIGINT", "count": "BIGINT", "transaction": "BIGINT",
              "time": "BIGINT"},
    # Each outcome is stored, failed (in no log) or unknown. A stored record may lack its offset
    # (-1): librdkafka learns that a record is stored, but not where, if a response is lost.
    "outcomes": {"sender": "INT", "number": "BIGINT", "outcome": "TEXT", "part": "INT",
                 "place": "BIGINT", "code": "INT", "time": "BIGINT"},
    # Each outcome is committed, aborted or unknown.
    "transactions": {"sender": "INT", "transaction": "BIGINT", "outcome": "TEXT",
                     "time": "BIGINT"},
    # The records that members handed to the program, in the order of `seq`. A session is an
    # assignment's time; share groups have none (0).
    "reads": {"reader": "TEXT", "member": "INT", "session": "BIGINT", "seq": "BIGINT",
              "part": "INT", "place": "BIGINT", "sender": "INT", "number": "BIGINT",
              "time": "BIGINT"},
    # `sent` is written before the member commits an offset, `stored` after the commit succeeded.
    "commits": {"reader": "TEXT", "part": "INT", "place": "BIGINT", "outcome": "TEXT",
                "time": "BIGINT"},
    # The records that a share group accepts: `sent` before, `accepted` or `unknown` after.
    "accepts": {"reader": "TEXT", "part": "INT", "place": "BIGINT", "outcome": "TEXT",
                "time": "BIGINT"},
    # Senders that ended by themselves: all their records have an outcome.
    "ends": {"sender": "INT", "time": "BIGINT"},
    # Groups that read until the topic's end.
    "finished": {"reader": "TEXT", "time": "BIGINT"},
    # What went wrong on purpose, and when it was over.
    "faults": {"what": "TEXT", "time": "BIGINT"},
    # The topic's records as another program reads them.
    "log": {"part": "INT", "place": "BIGINT", "sender": "INT", "number": "BIGINT",
            "time": "BIGINT"},
}  # fmt: skip

# The identity of a damaged value, which no record has.
DAMAGED = -1, -1
_SIZES = 200


def value(sender: int, number: int) -> bytes:
    """A record's value, which names the record. Its size and its padding depend on the name."""
    name = f"{sender} {number} "
    padding = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{name}{padding * (_SIZES // len(padding) + 1)}".encode()[: 60 + number * 7 % _SIZES]


def identity(data: bytes | None) -> tuple[int, int]:
    """The sender and the number in a value; DAMAGED for a value that no sender has sent."""
    try:
        sender, number, _ = (data or b"").split(b" ")
        found = int(sender), int(number)
    except ValueError:
        return DAMAGED
    return found if value(*found) == data else DAMAGED


class History:
    """Writes a part of a history, as one process or thread.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        name = f"{os.getpid()}-{time.monotonic_ns()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL
        self._files = {table: os.open(folder / f"{table}-{name}.csv", flags) for table in TABLES}

    def sent(self, sender: int, first: int, count: int = 1, transaction: int = 0) -> None:
        """The client is about to send records, in a transaction or (0) in none."""
        self._add("sends", [(sender, first, count, transaction)])

    def stored(self, sender: int, rows: Iterable[tuple[int, int, int]]) -> None:
        """The brokers have stored records: number, partition, offset or less than 0."""
        self._add(
            "outcomes",
            ((sender, at, "stored", part, max(place, -1), 0) for at, part, place in rows),
        )

    def failed(
        self, sender: int, numbers: Iterable[int], code: int, *, may_be_stored: bool = True
    ) -> None:
        """Records have failed with an error's code."""
        outcome = "unknown" if may_be_stored else "failed"
        self._add("outcomes", ((sender, at, outcome, -1, -1, code) for at in numbers))

    def transaction(self, sender: int, transaction: int, outcome: str) -> None:
        """A transaction is committed, aborted or unknown."""
        self._add("transactions", [(sender, transaction, outcome)])

    def read(
        self,
        reader: str,
        rows: Iterable[tuple[int, int, int, int]],
        member: int = 0,
        session: int = 0,
    ) -> None:
        """A member has handed over records: partition, offset, sender, number."""
        first = time.monotonic_ns()
        self._add(
            "reads", ((reader, member, session, first + at, *row) for at, row in enumerate(rows))
        )

    def commit(self, reader: str, offsets: Iterable[tuple[int, int]], outcome: str) -> None:
        """A member is about to commit offsets (sent), or has committed them (stored)."""
        self._add("commits", ((reader, *row, outcome) for row in offsets))

    def accept(self, reader: str, places: Iterable[tuple[int, int]], outcome: str) -> None:
        """A member is about to accept records (sent); they are accepted, or it is unknown."""
        self._add("accepts", ((reader, *row, outcome) for row in places))

    def ended(self, sender: int) -> None:
        """A sender has ended, and was not killed."""
        self._add("ends", [(sender,)])

    def finished(self, reader: str) -> None:
        """A group has read until the topic's end."""
        self._add("finished", [(reader,)])

    def fault(self, what: str) -> None:
        """A fault is over."""
        self._add("faults", [(what.replace(",", ";"),)])

    def log(self, rows: Iterable[tuple[int, int, int, int]]) -> None:
        """The topic contains records: partition, offset, sender, number."""
        self._add("log", rows)

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)

    def _add(self, table: str, rows: Iterable[tuple[object, ...]]) -> None:
        now = time.monotonic_ns()
        text = "".join(",".join(map(str, row)) + f",{now}\n" for row in rows).encode()
        while text:
            text = text[os.write(self._files[table], text) :]
