"""Accounts for every record of a history: ``python tests/faults/checker.py FOLDER``.

The checker knows only the files of `history`, and no client.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from history import TABLES

__all__ = ["FAULTS", "Verdict", "check", "handed_over"]

VIEWS = """
CREATE TABLE records AS
    SELECT sender, unnest(range(first, first + count)) AS number, transaction FROM sends;
-- A record of a transaction that is not committed may be in the log or not, whatever its outcome.
CREATE TABLE acknowledged AS
    SELECT o.* FROM outcomes o JOIN records r USING (sender, number)
    LEFT JOIN transactions t ON t.sender = r.sender AND t.transaction = r.transaction
    WHERE o.outcome = 'stored' AND (r.transaction = 0 OR t.outcome = 'committed');
-- Kafka's own consumer may read a record again, too.
CREATE TABLE places AS
    SELECT *, row_number() OVER (PARTITION BY part ORDER BY place) AS rank
    FROM (SELECT DISTINCT part, place, sender, number FROM log);
CREATE VIEW visible AS
    SELECT r.sender, r.transaction, count(DISTINCT number) AS sent,
        count(DISTINCT number) FILTER (l.place IS NOT NULL) AS found
    FROM records r LEFT JOIN places l USING (sender, number)
    WHERE r.transaction != 0 GROUP BY ALL;
CREATE VIEW first_reads AS
    SELECT reader, part, place, min(time) AS time FROM reads GROUP BY ALL;
CREATE VIEW intents AS FROM commits WHERE outcome = 'sent';
-- From when on a commit covers all offsets before this one.
CREATE VIEW covers AS
    SELECT reader, part, place,
        min(time) OVER (PARTITION BY reader, part ORDER BY place DESC) AS time FROM intents;
CREATE VIEW covered AS
    SELECT c.reader, l.part, l.place, c.time FROM
        (FROM places CROSS JOIN (SELECT DISTINCT reader FROM intents)) l
        ASOF JOIN covers c ON c.reader = l.reader AND c.part = l.part AND l.place < c.place;
-- What a member reads of a partition during an assignment, by the order of the log.
CREATE VIEW sessions AS
    SELECT r.*, l.rank FROM reads r JOIN places l USING (part, place) WHERE session != 0;
CREATE VIEW starts AS
    SELECT reader, member, session, part, arg_min(rank, seq) AS rank, min(time) AS time
    FROM sessions GROUP BY ALL;
-- A member begins at the last offset that may have been committed before, or earlier.
CREATE VIEW bounds AS
    SELECT s.reader, s.member, s.session, s.part, s.rank,
        coalesce(max(i.place), 0) AS committed
    FROM starts s LEFT JOIN intents i
        ON i.reader = s.reader AND i.part = s.part AND i.time < s.time
    GROUP BY ALL;
"""

# What a history must not contain, and the query for it.
FAULTS = {
    "lost: acknowledged, but not in the log": """
        FROM acknowledged ANTI JOIN places USING (sender, number)""",
    "misplaced: in the log, but not where its report says": """
        SELECT o.*, l.part AS found_part, l.place AS found_place
        FROM outcomes o JOIN places l USING (sender, number)
        WHERE o.outcome = 'stored' AND o.place >= 0 AND (o.part, o.place) != (l.part, l.place)""",
    "duplicated: more than once in the log": """
        SELECT sender, number, count(*) FROM places GROUP BY ALL HAVING count(*) > 1""",
    "reordered: after a later record of its sender": """
        FROM (SELECT *, max(number) OVER (PARTITION BY part, sender ORDER BY place
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM places)
        WHERE number < before""",
    "invented: in the log, but never sent": """
        FROM places ANTI JOIN records USING (sender, number)""",
    "denied: in the log, although its error says that it is not": """
        FROM places SEMI JOIN (FROM outcomes WHERE outcome = 'failed') USING (sender, number)""",
    "unexpected: failed with an error that this run should not have": """
        FROM outcomes ANTI JOIN allowed USING (code) WHERE outcome != 'stored'""",
    "unanswered: without an outcome": """
        FROM records SEMI JOIN ends USING (sender) ANTI JOIN outcomes USING (sender, number)""",
    "answered twice: more than one outcome": """
        SELECT sender, number, count(*) FROM outcomes GROUP BY ALL HAVING count(*) > 1""",
    "answered unasked: an outcome of a record that was not sent": """
        FROM outcomes ANTI JOIN records USING (sender, number)""",
    "stuck: a sender had no success after the last fault": """
        SELECT sender FROM ends WHERE EXISTS (FROM faults) AND sender NOT IN
            (SELECT sender FROM outcomes WHERE outcome = 'stored'
             AND time > (SELECT max(time) FROM faults))""",
    "torn: only a part of a transaction is in the log": """
        FROM visible WHERE found NOT IN (0, sent)""",
    "uncommitted: in the log, although its transaction was aborted": """
        FROM visible JOIN transactions USING (sender, transaction)
        WHERE outcome = 'aborted' AND found > 0""",
    "missing: not in the log, although its transaction was committed": """
        FROM visible JOIN transactions USING (sender, transaction)
        WHERE outcome = 'committed' AND found < sent""",
    "undecided: a transaction without one outcome": """
        SELECT r.sender, r.transaction, count(t.outcome) FROM
            (SELECT DISTINCT sender, transaction FROM records SEMI JOIN ends USING (sender)
             WHERE transaction != 0) r
        LEFT JOIN transactions t ON t.sender = r.sender AND t.transaction = r.transaction
        GROUP BY ALL HAVING count(t.outcome) != 1""",
    "misread: not the log's record at this offset": """
        FROM reads ANTI JOIN places USING (part, place, sender, number)""",
    "skipped: its offset was committed before it was handed over": """
        FROM covered LEFT JOIN first_reads USING (reader, part, place)
        WHERE first_reads.time IS NULL OR first_reads.time > covered.time""",
    "gap: a member skipped or repeated records within an assignment": """
        FROM (SELECT *, lag(rank) OVER (PARTITION BY reader, member, session, part ORDER BY seq)
              AS before FROM sessions)
        WHERE rank != before + 1""",
    "late: a member began after what was committed": """
        SELECT b.* FROM bounds b JOIN
            (SELECT b.reader, b.member, b.session, b.part, min(l.rank) AS first FROM bounds b
             JOIN places l ON l.part = b.part AND l.place >= b.committed GROUP BY ALL) f
            USING (reader, member, session, part)
        WHERE b.rank > f.first""",
    "forgotten: handed over again by a member that joined after its commit": """
        FROM reads r JOIN (SELECT reader, part, max(place) AS place, min(time) AS time
            FROM commits WHERE outcome = 'stored' GROUP BY reader, part, place) c
        ON r.reader = c.reader AND r.part = c.part AND r.place < c.place AND r.session > c.time""",
    "unread: never handed over": """
        FROM (FROM places CROSS JOIN (SELECT reader FROM finished))
        ANTI JOIN reads USING (reader, part, place)""",
    "unaccepted: a share group finished without it": """
        FROM (FROM places CROSS JOIN (SELECT DISTINCT reader FROM accepts SEMI JOIN finished
            USING (reader)))
        ANTI JOIN accepts USING (reader, part, place)""",
    "accepted unread: a share group never handed it over": """
        FROM accepts ANTI JOIN reads USING (reader, part, place)""",
    "accepted twice: by the members of a share group": """
        SELECT reader, part, place, count(*) FROM accepts WHERE outcome = 'accepted'
        GROUP BY ALL HAVING count(*) > 1""",
    "redelivered: handed over again after it was accepted": """
        FROM reads r JOIN accepts a USING (reader, part, place)
        WHERE a.outcome = 'accepted' AND r.time > a.time""",
}
_COUNTS = {
    "sent": "FROM records",
    "stored": "FROM outcomes WHERE outcome = 'stored'",
    "stored at an unknown offset": "FROM outcomes WHERE outcome = 'stored' AND place < 0",
    "failed": "FROM outcomes WHERE outcome = 'failed'",
    "of unknown outcome": "FROM outcomes WHERE outcome = 'unknown'",
    "in the log": "FROM places",
    "handed over": "FROM reads",
}
_SHOWN = 5
_FORMAT = "FORMAT csv, HEADER false, DELIM ',', AUTO_DETECT false"


@dataclass(frozen=True)
class Verdict:
    """What a history contains.

    Attributes
    ----------
    counts : dict
        The number of records by what happened to them.
    faults : dict
        The number of each fault, and some examples as text.
    """

    counts: dict[str, int]
    faults: dict[str, tuple[int, str]]

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        found = [
            f"{count:,} {fault}\n{shown}" for fault, (count, shown) in self.faults.items()
        ] or ["no fault"]
        return "\n".join([counts, *found])


def check(folder: Path, allowed: Iterable[int] = ()) -> Verdict:
    """Return the verdict on a history.

    Parameters
    ----------
    folder : Path
    allowed : iterable of int
        The codes of errors that records of this run may have.
    """
    with duckdb.connect() as base:
        base.execute("CREATE TABLE allowed (code INT)")
        for code in allowed:
            base.execute("INSERT INTO allowed VALUES (?)", [code])
        for table in TABLES:
            _load(base, folder, table)
        base.execute(VIEWS)
        return Verdict(
            {name: _count(base, query) for name, query in _COUNTS.items()},
            {
                name: (count, _examples(base, query))
                for name, query in FAULTS.items()
                if (count := _count(base, query))
            },
        )


def handed_over(folder: Path, reader: str) -> int:
    """The number of records that a group has handed over so far."""
    with duckdb.connect() as base:
        _load(base, folder, "reads")
        return _count(base, f"SELECT DISTINCT part, place FROM reads WHERE reader = '{reader}'")


def _load(base: Any, folder: Path, table: str) -> None:
    names = ", ".join(f'"{name}" {kind}' for name, kind in TABLES[table].items())
    base.execute(f"CREATE TABLE {table} ({names})")
    with tempfile.NamedTemporaryFile(suffix=".csv") as whole:
        for path in folder.glob(f"{table}-*.csv"):
            data = path.read_bytes()
            whole.write(data[: data.rfind(b"\n") + 1])  # a killed process may have begun a row
        whole.flush()
        if whole.tell():
            base.execute(f"COPY {table} FROM '{whole.name}' ({_FORMAT})")


def _count(base: Any, query: str) -> int:
    ((count,),) = base.execute(f"SELECT count(*) FROM ({query})").fetchall()
    return int(count)


def _examples(base: Any, query: str) -> str:
    rows = base.execute(f"{query} LIMIT {_SHOWN}")
    names = [name for name, *_ in rows.description]
    return "\n".join(
        "    " + ", ".join(f"{name} {item}" for name, item in zip(names, row, strict=True))
        for row in rows.fetchall()
    )


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    print(found)
    sys.exit(1 if found.faults else 0)
