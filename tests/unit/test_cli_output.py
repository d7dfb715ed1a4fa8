"""The tables of the command ``cykafka``, and the names in them."""

from __future__ import annotations

import io
import json
import sys
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest
from rich.console import Console

from cykafka import KafkaError, KafkaException, TopicPartition, Uuid
from cykafka.admin import ListOffsetsResultInfo, OffsetSpec, TopicDescription
from cykafka.cli.cluster.administration import Cluster, Outcomes, select
from cykafka.cli.cluster.lag import Position, sum_positions
from cykafka.cli.commands.topics import id_of
from cykafka.cli.main import run_reporting
from cykafka.cli.terminal.failures import Failed
from cykafka.cli.terminal.output import show, table

pytestmark = pytest.mark.ours

# It would clear the screen of a terminal.
EVIL = "evil\x1b[2J\r\u202e"
SAFE = r"evil\x1b[2J\r\u202e"


def test_columns_are_aligned_by_the_width_of_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wide = "\u8ba2\u5355" * 2  # each character takes two columns
    show(("group", "lag", "state"), [(wide, 5, None), ("billing", 1000, "stable")])

    assert capsys.readouterr().out == (
        f"group      lag  state\n{wide}     5  -\nbilling   1000  stable\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [80, 40])
def test_names_are_whole_on_narrow_terminals(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "listener.security.protocol.map"
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("COLUMNS", str(columns))

    show(("config", "value", "source"), [(name, "PLAINTEXT", "static broker")])

    (row,) = (line for line in shown.getvalue().splitlines() if "PLAINTEXT" in line)
    assert name in row
    assert ("\u2502" in row) == (columns == 80)


def test_json_on_a_terminal_escapes_controls_and_stays_the_same_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)

    show(("group",), [(EVIL + "\x9b\u2028\u061c\u00e4",)], as_json=True)

    assert json.loads(shown.getvalue()) == {"group": EVIL + "\x9b\u2028\u061c\u00e4"}
    assert not {"\u202e", "\x9b", "\u2028", "\u061c"} & set(shown.getvalue())
    assert "\u00e4" in shown.getvalue()


def test_table_that_cuts_has_whole_numbers_and_a_line_for_each_row() -> None:
    console = Console(file=io.StringIO(), width=53)
    name = "billing-of-the-night-and-of-the-day"
    rows = [(name, f"{name}-{at}", 123456789, 987654321, 1) for at in range(2)]

    console.print(table(("group", "topic", "end", "lag", "max_lag"), rows, cut=True))

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 2 + 1 + 1 + len(rows)
    for line in lines[3:-1]:
        assert "bill" in line
        assert "\u2026" in line
        assert "123456789" in line
        assert "987654321" in line


def test_control_characters_of_others_reach_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> int:
        raise Failed(f"group {EVIL} has 1 member")

    show(("group",), [(EVIL,)])
    Outcomes().fail(f"delete group {EVIL}", EVIL)
    assert run_reporting(fail) == 1

    out, error = capsys.readouterr()
    assert out == f"group\n{SAFE}\n"
    assert error == (
        f"cykafka: cannot delete group {SAFE}: {SAFE}\ncykafka: group {SAFE} has 1 member\n"
    )


def test_request_that_timed_out_says_how_to_wait_longer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    future: Future[None] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT, "no controller")))

    assert Outcomes().wait_for("delete topic orders", future) is None
    assert capsys.readouterr().err == (
        "cykafka: cannot delete topic orders: no controller; --timeout waits longer\n"
    )


def test_notes_of_a_failure_are_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        error = Failed("node 1 has ended")
        error.add_note("the logs are kept in /tmp/x")
        raise error

    assert run_reporting(fail) == 1
    assert capsys.readouterr().err == (
        "cykafka: node 1 has ended\ncykafka: the logs are kept in /tmp/x\n"
    )


def test_name_that_looks_like_a_pattern_selects_itself_alone() -> None:
    names = ["*", "a", "a[b]", "ab"]

    assert select(["a[b]"], names, "group") == ["a[b]"]
    assert select(["*"], names, "group") == ["*"]
    assert select(["a*", "ab"], names, "group") == ["a", "a[b]", "ab"]


def test_sums_leave_out_partitions_without_a_lag() -> None:
    found = [
        Position(group="g", topic="t", partition=number, committed=committed, end=end)
        for number, (committed, end) in enumerate([(40, 100), (5, 6), (None, 1000), (7, None)])
    ]

    assert sum_positions(found) == (45, 106, 61, 60)
    assert sum_positions(found[2:]) == (None, None, None, None)


def test_id_of_a_topic_is_that_of_the_scripts_of_kafka() -> None:
    assert id_of(TopicDescription("orders", Uuid(-1, -5), False, [])) == "____________________-w"


def test_offsets_are_asked_for_again_while_a_new_topic_has_no_leader() -> None:
    class Admin:
        """The first answer is an error of a new topic."""

        codes: ClassVar = [KafkaError.UNKNOWN_LEADER_EPOCH, None]

        def list_offsets(self, wanted: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
            future: Future[Any] = Future()
            code = self.codes.pop(0)
            if code is None:
                future.set_result(ListOffsetsResultInfo(7, -1, 0))
            else:
                future.set_exception(KafkaException(KafkaError(code)))
            return dict.fromkeys(wanted, future)

        def poll(self, timeout: float) -> int:
            return 0

    cluster = object.__new__(Cluster)  # without brokers
    cluster.admin, cluster.timeout = Admin(), 10.0  # type: ignore[assignment]
    outcomes, place = Outcomes(), TopicPartition("orders", 0)

    found = cluster.offsets([place], OffsetSpec.latest(), outcomes)

    assert (found[place].offset, outcomes.failures) == (7, 0)
