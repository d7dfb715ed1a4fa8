"""The checker finds each fault of a history, and no fault in a right one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import checker
import pytest
from history import DAMAGED, History, identity, value

Row = tuple[int, int, int, int]

# The log: sender 1 sent 0 to 5 without transactions, sender 2 sent 0 to 3 in two transactions, of
# which the second was aborted, and sender 3 was killed while it sent 0 to 3. The offsets of part 1
# have a gap, as after a transaction's marker.
LOG = {
    0: [(1, 0), (2, 0), (1, 2), (1, 4), (3, 0)],
    1: [(1, 1), (1, 3), (2, 1), (3, 1)],
}
ROWS: list[Row] = [
    (part, place + (place > 2), *record)
    for part, records in LOG.items()
    for place, record in enumerate(records)
]
ENDS = [(0, 6), (1, 5)]
PLACES = {row[2:]: row[:2] for row in ROWS}
TIMED_OUT, TOO_LARGE = -192, 10


def stored(sender: int, *numbers: int) -> list[tuple[int, int, int]]:
    return [(number, *PLACES[sender, number]) for number in numbers]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """The senders' part of a history without a fault."""
    made = History(tmp_path)
    made.sent(1, 0, 6)
    made.stored(1, stored(1, 0, 1, 2))
    made.stored(1, [(3, -1, -1001)])
    made.failed(1, [4], TIMED_OUT)
    made.failed(1, [5], TOO_LARGE, may_be_stored=False)
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


def verdict_on(folder: Path) -> checker.Verdict:
    return checker.check(folder, {TIMED_OUT, TOO_LARGE})


def faults(folder: Path) -> set[str]:
    return {fault.split(":")[0] for fault in verdict_on(folder).faults}


def test_a_right_history_has_no_fault(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    history.log(ROWS[:2])  # read twice
    history.read("group", ROWS, 1, time.monotonic_ns())
    history.commit("group", ENDS, "sent")
    history.commit("group", ENDS, "stored")
    history.finished("group")

    verdict = verdict_on(tmp_path)

    assert verdict.faults == {}
    assert verdict.counts == {
        "sent": 14, "stored": 9, "stored at an unknown offset": 1, "failed": 1,
        "of unknown outcome": 1, "in the log": 9, "handed over": 9,
    }  # fmt: skip
    assert str(verdict).endswith("\nno fault")
    assert checker.handed_over(tmp_path, "group") == 9


def without(sender: int, number: int | None = None) -> list[Row]:
    return [row for row in ROWS if row[2] != sender or number not in (None, row[3])]


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (without(1, 2), {"lost"}),
        (without(1, 3), {"lost"}),  # its offset is unknown
        (without(1, 4), set()),  # its outcome is unknown
        (without(3, 0), {"lost"}),
        (without(3, 1), set()),
        ([*without(3, 0), (0, 9, 3, 0)], {"misplaced"}),
        ([*ROWS, (1, 6, 3, 1)], {"duplicated"}),
        ([*ROWS, (0, 7, 3, 2), (0, 8, 3, 3)], set()),
        ([*ROWS, (0, 7, 3, 3), (0, 8, 3, 2)], {"reordered"}),
        ([*ROWS, (0, 7, 3, 3), (0, 8, 1, 5)], {"denied"}),
        ([*ROWS, (1, 6, 3, 4)], {"invented"}),
        ([*ROWS, (1, 6, 4, 0)], {"invented"}),
        ([*ROWS, (1, 6, *DAMAGED)], {"invented"}),
        (without(2, 0), {"lost", "torn", "missing"}),
        (without(2), {"lost", "missing"}),
        ([*ROWS, (0, 40, 2, 2)], {"torn", "uncommitted"}),
        ([*ROWS, (0, 40, 2, 2), (1, 41, 2, 3)], {"uncommitted"}),
    ],
)
def test_a_wrong_log_is_found(
    history: History, tmp_path: Path, wrong: list[Row], found: set[str]
) -> None:
    history.log(wrong)

    assert faults(tmp_path) == found


def test_outcomes_are_counted(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    history.failed(1, [2], TIMED_OUT)
    history.sent(1, 6)
    history.failed(4, [0], TIMED_OUT)

    assert faults(tmp_path) == {"answered twice", "unanswered", "answered unasked"}


def test_errors_are_expected_ones(history: History, tmp_path: Path) -> None:
    history.log(ROWS)

    (found,) = checker.check(tmp_path, {TOO_LARGE}).faults.items()

    assert found[0].startswith("unexpected: ")
    assert found[1][0] == 1
    assert re.fullmatch(r" +sender 1, number 4, .* code -192, time \d+", found[1][1])


def test_a_sender_that_has_only_failures_after_a_fault_is_stuck(
    history: History, tmp_path: Path
) -> None:
    history.log(ROWS)
    history.fault("kill the leader, node 1")
    history.sent(1, 6)
    history.failed(1, [6], TIMED_OUT)

    ((name, (count, _)),) = verdict_on(tmp_path).faults.items()

    assert (name.split(":")[0], count) == ("stuck", 2)


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        ("unknown", {"torn"}),
        ("committed", {"torn", "missing", "lost"}),
        ("aborted", {"torn", "uncommitted"}),
    ],
)
def test_half_a_transaction_is_torn(
    history: History, tmp_path: Path, outcome: str, found: set[str]
) -> None:
    history.sent(3, 10, 2, transaction=9)
    history.stored(3, [(10, 1, 6), (11, 1, 7)])
    history.transaction(3, 9, outcome)
    history.log([*ROWS, (1, 6, 3, 10)])

    assert faults(tmp_path) == found


@pytest.mark.parametrize("outcomes", [[], ["committed", "aborted"]])
def test_a_transaction_has_one_outcome(
    history: History, tmp_path: Path, outcomes: list[str]
) -> None:
    history.log(ROWS)
    history.sent(2, 9, 1, transaction=3)
    history.failed(2, [9], TIMED_OUT)
    for outcome in outcomes:
        history.transaction(2, 3, outcome)

    assert "undecided" in faults(tmp_path)


def test_reads_are_compared_with_the_log(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    history.read("right", ROWS)
    history.finished("right")
    history.read("wrong", [(0, 0, 1, 1), (0, 0, *DAMAGED)])
    history.read("partial", ROWS[1:])

    assert faults(tmp_path) == {"misread"}

    history.finished("partial")

    assert faults(tmp_path) == {"misread", "unread"}


def test_commits_stay_behind_what_was_handed_over(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    for place in (0, 1):
        history.read("group", ROWS[place : place + 1])
        history.commit("group", [(0, place + 1)], "sent")
    assert faults(tmp_path) == set()

    history.commit("group", [(0, 5)], "sent")  # two records early
    history.read("group", ROWS[2:])
    history.commit("group", ENDS, "sent")

    ((name, (count, _)),) = verdict_on(tmp_path).faults.items()
    assert (name.split(":")[0], count) == ("skipped", 2)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (ROWS[:5], set()),
        ([ROWS[5], *ROWS[:2], ROWS[6], *ROWS[2:5]], set()),  # partitions take turns
        ([ROWS[0], ROWS[2]], {"gap"}),
        ([ROWS[1], ROWS[0]], {"gap", "late"}),
        ([ROWS[0], ROWS[0]], {"gap"}),
        ([ROWS[1]], {"late"}),
    ],
)
def test_a_member_reads_the_log_in_order(
    history: History, tmp_path: Path, rows: list[Row], found: set[str]
) -> None:
    history.log(ROWS)
    history.read("group", rows, 1, time.monotonic_ns())

    assert faults(tmp_path) == found


@pytest.mark.parametrize(
    ("first", "found"),
    [(0, {"forgotten"}), (1, {"forgotten"}), (2, set()), (3, {"late"}), (4, {"late"})],
)
def test_the_next_member_begins_where_the_group_committed(
    history: History, tmp_path: Path, first: int, found: set[str]
) -> None:
    history.log(ROWS)
    history.read("group", ROWS[:5], 1, time.monotonic_ns())  # all of them, but commits only two
    history.commit("group", [(0, 2)], "sent")
    history.commit("group", [(0, 2)], "stored")
    history.read("group", ROWS[first:5], 2, time.monotonic_ns())

    assert faults(tmp_path) == found


def test_a_failed_commit_moves_nobody(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    history.read("group", ROWS[:5], 1, time.monotonic_ns())
    history.commit("group", [(0, 6)], "sent")
    history.read("group", ROWS[2:5], 2, time.monotonic_ns())

    assert faults(tmp_path) == set()


def test_a_share_group_accepts_each_record(history: History, tmp_path: Path) -> None:
    places = [row[:2] for row in ROWS]
    history.log(ROWS)
    history.read("share", ROWS, 1)
    history.accept("share", places, "sent")
    history.accept("share", places[:3], "accepted")
    history.accept("share", places[3:5], "unknown")
    history.finished("share")
    assert faults(tmp_path) == set()

    history.read("share", ROWS[3:5], 2)  # it was not accepted
    assert faults(tmp_path) == set()

    history.read("share", ROWS[:1], 2)
    assert faults(tmp_path) == {"redelivered"}

    history.accept("share", places[:1], "accepted")
    assert faults(tmp_path) == {"redelivered", "accepted twice"}


def test_accepts_are_compared_with_reads(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    history.read("share", ROWS, 1)
    history.accept("share", [(0, 0), (1, 77)], "sent")
    history.finished("share")

    assert faults(tmp_path) == {"unaccepted", "accepted unread"}


def test_the_histories_of_processes_are_one(history: History, tmp_path: Path) -> None:
    history.log(ROWS)
    program = (
        "import os, pathlib, signal, sys; from history import History\n"
        "made = History(pathlib.Path(sys.argv[1]))\n"
        "made.sent(4, 0, 2)\n"
        "made.stored(4, [(0, 0, 7)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=Path(__file__).parent, check=False
    )

    assert done.returncode == -signal.SIGKILL
    assert faults(tmp_path) == {"lost"}


def test_the_last_row_of_a_killed_process_may_be_incomplete(
    history: History, tmp_path: Path
) -> None:
    history.log(ROWS)
    other = History(tmp_path)
    other.sent(4, 0, 1)
    (path,) = (path for path in tmp_path.glob("outcomes-*.csv") if not path.stat().st_size)
    other.stored(4, [(0, 1, 17)])
    other.close()
    row = path.read_bytes()
    assert faults(tmp_path) == {"lost"}

    for size in range(len(row)):
        path.write_bytes(row[:size])
        assert faults(tmp_path) == set()


def test_the_command_prints_the_verdict(history: History, tmp_path: Path) -> None:
    history.log(ROWS[1:])
    done = subprocess.run(
        [sys.executable, checker.__file__, str(tmp_path)], capture_output=True, text=True
    )

    assert done.returncode == 1
    assert "1 lost: acknowledged, but not in the log\n    sender 1, number 0, " in done.stdout


def test_a_value_names_its_record() -> None:
    good = value(3, 2**40)
    assert identity(good) == (3, 2**40)
    assert len({len(value(3, number)) for number in range(200)}) > 50
    for wrong in (
        b"3 4",
        b"3 4 y",
        b"",
        None,
        good[:-1],
        good + b"0",
        good.replace(b"3", b"4", 1),
    ):
        assert identity(wrong) == DAMAGED
