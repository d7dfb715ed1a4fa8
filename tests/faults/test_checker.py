"""The checker finds each fault of a history, and no fault in a right one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import checker
import pytest
from history import History, identity, value

# The log: sender 1 sent 0 to 5 without transactions, sender 2 sent 0 to 3 in two transactions, of
# which the second was aborted, and sender 3 was killed while it sent 0 to 3.
LOG = {
    0: [(1, 0), (2, 0), (1, 2), (1, 4), (3, 0)],
    1: [(1, 1), (1, 3), (2, 1), (3, 1)],
}
ROWS = [
    (part, place, *record) for part, records in LOG.items() for place, record in enumerate(records)
]
PLACES = {row[2:]: row[:2] for row in ROWS}


def stored(sender: int, *numbers: int) -> list[tuple[int, int, int]]:
    return [(number, *PLACES[sender, number]) for number in numbers]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """The senders' part of a history without a fault."""
    made = History(tmp_path)
    made.sent(1, 0, 6)
    made.stored(1, stored(1, 0, 1, 2, 3))
    made.failed(1, [4], may_be_stored=True)
    made.failed(1, [5], may_be_stored=False)
    made.ended(1)
    made.sent(2, 0, 2, transaction=1)
    made.stored(2, stored(2, 0, 1))
    made.transaction(2, 1, "committed")
    made.sent(2, 2, 2, transaction=2)
    made.stored(2, [(2, 0, 40), (3, 1, 41)])
    made.transaction(2, 2, "aborted")
    made.ended(2)
    made.sent(3, 0, 4)
    made.stored(3, stored(3, 0))
    yield made
    made.close()


def read_all(history: History, reader: str = "group") -> None:
    history.read(reader, ROWS)
    history.committing(reader, [(0, 5), (1, 4)])
    history.finished(reader)


def faults(folder: Path) -> set[str]:
    return {fault.split(":")[0] for fault in checker.check(folder).faults}


def test_a_right_history_has_no_fault(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    read_all(history)

    verdict = checker.check(tmp_path)

    assert verdict.faults == {}
    assert verdict.counts == {
        "sent": 14, "acknowledged": 9, "failed": 1, "of unknown outcome": 1, "in the log": 9,
        "handed over": 9,
    }  # fmt: skip
    assert str(verdict).endswith("\nno fault")


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ([row for row in ROWS if row[2:] != (1, 2)], {"lost"}),
        ([row for row in ROWS if row[2:] != (1, 4)], set()),  # its outcome is unknown
        ([row for row in ROWS if row[2:] != (3, 0)], {"lost"}),
        ([row for row in ROWS if row[2:] != (3, 1)], set()),
        ([*ROWS, (1, 4, 3, 1)], {"duplicated"}),
        ([*ROWS, (0, 5, 3, 2), (0, 6, 3, 3)], set()),
        ([*ROWS, (0, 5, 3, 3), (0, 6, 3, 2)], {"reordered"}),
        ([*ROWS, (0, 5, 3, 3), (0, 6, 1, 5)], {"denied"}),
        ([*ROWS, (1, 4, 3, 4)], {"invented"}),
        ([*ROWS, (1, 4, 4, 0)], {"invented"}),
        ([row for row in ROWS if row[2:] != (2, 0)], {"lost", "torn", "missing"}),
        ([row for row in ROWS if row[2] != 2], {"lost", "missing"}),
        ([*ROWS, (0, 40, 2, 2)], {"torn", "uncommitted"}),
        ([*ROWS, (0, 40, 2, 2), (1, 41, 2, 3)], {"uncommitted"}),
    ],
)
def test_a_wrong_log_is_found(
    history: History, tmp_path: Path, wrong: list[tuple[int, int, int, int]], found: set[str]
) -> None:
    history.log(wrong)

    assert faults(tmp_path) == found


def test_a_record_of_a_killed_sender_that_moved_is_lost(history: History, tmp_path: Path) -> None:
    history.log([(part, place + (part == 1), *record) for part, place, *record in ROWS])

    assert faults(tmp_path) == {"lost"}


def test_outcomes_are_counted(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    history.failed(1, [3], may_be_stored=True)
    history.sent(1, 6)

    assert faults(tmp_path) == {"answered twice", "unanswered"}


@pytest.mark.parametrize(("outcome", "found"), [("unknown", {"torn"}), ("committed", {"torn",
                         "missing", "lost"}), ("aborted", {"torn", "uncommitted"})])  # fmt: skip
def test_half_a_transaction_is_torn(
    history: History, tmp_path: Path, outcome: str, found: set[str]
) -> None:
    history.sent(3, 10, 2, transaction=9)
    history.stored(3, [(10, 1, 4), (11, 1, 5)])
    history.transaction(3, 9, outcome)
    history.log([*ROWS, (1, 4, 3, 10)])

    assert faults(tmp_path) == found


def test_reads_are_compared_with_the_log(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    read_all(history, "right")
    history.read("wrong", [(0, 0, 1, 1)])
    history.read("partial", ROWS[1:])

    assert faults(tmp_path) == {"misread"}

    history.finished("partial")

    assert faults(tmp_path) == {"misread", "unread"}


def test_commits_stay_behind_what_was_handed_over(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    for place in (0, 1):
        history.read("group", ROWS[place : place + 1])
        history.committing("group", [(0, place + 1)])
    assert faults(tmp_path) == set()

    history.committing("group", [(0, 4)])  # two records early
    history.read("group", ROWS[2:])
    history.committing("group", [(0, 5), (1, 4)])

    verdict = checker.check(tmp_path)
    assert [(name.split(":")[0], count) for name, (count, _) in verdict.faults.items()] == [
        ("skipped", 2)
    ]


def test_the_histories_of_processes_are_one(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    program = (
        "import sys, pathlib; from history import History; import os, signal\n"
        "made = History(pathlib.Path(sys.argv[1]))\n"
        "made.sent(4, 0, 2)\n"
        "made.stored(4, [(0, 0, 7)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parent, check=False
    )

    assert faults(tmp_path) == {"lost"}


def test_the_command_prints_the_verdict(history: History, tmp_path: Path) -> None:
    history.log(ROWS[1:])
    done = subprocess.run(
        [sys.executable, checker.__file__, str(tmp_path)], capture_output=True, text=True
    )

    assert done.returncode == 1
    assert "1 lost: acknowledged, but not in the log" in done.stdout


def test_a_value_names_its_record() -> None:
    assert identity(value(3, 2**40, 100)) == (3, 2**40)
    for damaged in (b"3 4", b"3 4 y", b"", b"3 4 xx\0"):
        with pytest.raises(ValueError, match=r"value|literal|unpack"):
            identity(damaged)
