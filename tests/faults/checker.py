"""Accounts for every record of a history: ``python tests/faults/checker.py FOLDER``.

The checker knows only the files of `history`, and no client.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from history import TABLES

__all__ = ["FAULTS", "Verdict", "check"]

VIEWS = """
CREATE VIEW records AS
    SELECT sender, unnest(range(first, first + count)) AS number, transaction FROM sends;
-- A record of a transaction that is not committed may be in the log or not, whatever its outcome.
CREATE VIEW acknowledged AS
    SELECT o.* FROM outcomes o JOIN records r USING (sender, number)
    LEFT JOIN transactions t ON t.sender = r.sender AND t.transaction = r.transaction
    WHERE o.outcome = 'stored' AND (r.transaction = 0 OR t.outcome = 'committed');
CREATE VIEW first_reads AS
    SELECT reader, part, place, min(time) AS time FROM reads GROUP BY ALL;
-- From when on a commit covers all offsets before this one.
CREATE VIEW covers AS
    SELECT reader, part, place,
        min(time) OVER (PARTITION BY reader, part ORDER BY place DESC) AS time FROM commits;
CREATE VIEW covered AS
    SELECT c.reader, l.part, l.place, c.time FROM
        (SELECT * FROM log CROSS JOIN (SELECT DISTINCT reader FROM commits)) l
        ASOF JOIN covers c ON c.reader = l.reader AND c.part = l.part AND l.place < c.place;
CREATE VIEW visible AS
    SELECT r.sender, r.transaction, count(*) AS sent, count(l.place) AS found
    FROM records r LEFT JOIN log l USING (sender, number)
    WHERE r.transaction != 0 GROUP BY ALL;
"""

# What a history must not contain, and the query for it.
FAULTS = {
    "lost: acknowledged, but not in the log at its offset": """
        FROM acknowledged ANTI JOIN log USING (sender, number, part, place)""",
    "duplicated: more than once in the log": """
        SELECT sender, number, count(*) FROM log GROUP BY ALL HAVING count(*) > 1""",
    "reordered: after a later record of its sender": """
        FROM (SELECT *, max(number) OVER (PARTITION BY part, sender ORDER BY place
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM log)
        WHERE number < before""",
    "invented: in the log, but never sent": """
        FROM log ANTI JOIN records USING (sender, number)""",
    "denied: in the log, although its error says that it is not": """
        FROM log SEMI JOIN (FROM outcomes WHERE outcome = 'failed') USING (sender, number)""",
    "unanswered: without an outcome": """
        FROM records SEMI JOIN ends USING (sender) ANTI JOIN outcomes USING (sender, number)""",
    "answered twice: more than one outcome": """
        SELECT sender, number, count(*) FROM outcomes GROUP BY ALL HAVING count(*) > 1""",
    "torn: only a part of a transaction is in the log": """
        FROM visible WHERE found NOT IN (0, sent)""",
    "uncommitted: in the log, although its transaction was aborted": """
        FROM visible JOIN transactions USING (sender, transaction)
        WHERE outcome = 'aborted' AND found > 0""",
    "missing: not in the log, although its transaction was committed": """
        FROM visible JOIN transactions USING (sender, transaction)
        WHERE outcome = 'committed' AND found < sent""",
    "misread: not the log's record at this offset": """
        FROM reads ANTI JOIN log USING (part, place, sender, number)""",
    "skipped: its offset was committed before it was handed over": """
        FROM covered LEFT JOIN first_reads USING (reader, part, place)
        WHERE first_reads.time IS NULL OR first_reads.time > covered.time""",
    "unread: never handed over": """
        FROM (SELECT * FROM log CROSS JOIN finished)
        ANTI JOIN reads USING (reader, part, place)""",
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


def check(folder: Path) -> Verdict:
    """Return the verdict on a history."""
    with duckdb.connect() as base:
        for table, columns in TABLES.items():
            names = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
            base.execute(f"CREATE TABLE {table} ({names})")
            if any(folder.glob(f"{table}-*.csv")):
                base.execute(f"COPY {table} FROM '{folder}/{table}-*.csv' ({_FORMAT})")
        base.execute(VIEWS)
        counts = {
            "sent": "FROM records",
            "acknowledged": "FROM outcomes WHERE outcome = 'stored'",
            "failed": "FROM outcomes WHERE outcome = 'failed'",
            "of unknown outcome": "FROM outcomes WHERE outcome = 'unknown'",
            "in the log": "FROM log",
            "handed over": "SELECT DISTINCT reader, part, place FROM reads",
        }
        return Verdict(
            {name: _count(base, query) for name, query in counts.items()},
            {
                name: (count, _examples(base, query))
                for name, query in FAULTS.items()
                if (count := _count(base, query))
            },
        )


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
