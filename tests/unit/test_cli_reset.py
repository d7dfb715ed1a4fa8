"""The plans of ``cykafka groups reset``."""

from __future__ import annotations

from typing import Any

import pytest

from cykafka import TopicPartition
from cykafka.cli.cluster.administration import Outcomes
from cykafka.cli.commands.reset import Move, plan, read_offsets, shift_offsets
from cykafka.cli.main import main
from cykafka.cli.records.places import find_offsets, parse_place_option
from cykafka.cli.terminal.failures import Failed, UsageError

pytestmark = pytest.mark.ours

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
ENDS = {FIRST: (10, 100), SECOND: (0, 50)}


@pytest.mark.parametrize(
    ("wanted", "after", "limited"),
    [(10, 10, False), (100, 100, False), (50, 50, False), (9, 10, True), (101, 100, True)],
)
def test_plan_keeps_offsets_within_the_partition(wanted: int, after: int, limited: bool) -> None:
    (move,) = plan({FIRST: wanted}, {FIRST: 60}, ENDS)

    assert move == Move("orders", 0, 60, after, 10, 100, limited)
    assert move.skipped == after - 60


def test_plan_without_a_committed_offset_counts_from_the_first_record() -> None:
    (move,) = plan({FIRST: 40}, {}, ENDS)

    assert move.before is None
    assert move.skipped == 30


def test_plan_is_sorted() -> None:
    moves = plan({SECOND: 1, FIRST: 20}, {}, ENDS)

    assert [(item.topic, item.partition) for item in moves] == [("orders", 0), ("orders", 1)]


@pytest.mark.parametrize(
    ("to", "first", "second"),
    [
        ("beginning", 10, 0),
        ("earliest", 10, 0),
        ("end", 100, 50),
        ("latest", 100, 50),
        ("stored", 60, 50),
        ("current", 60, 50),
        ("20", 20, 20),
        ("-60", 40, 0),
    ],
)
def test_places_become_offsets(to: str, first: int, second: int) -> None:
    cluster: Any = None  # only times need the brokers
    offsets = find_offsets(cluster, parse_place_option("--to", to), ENDS, Outcomes(), {FIRST: 60})

    assert offsets == {FIRST: first, SECOND: second}


@pytest.mark.parametrize("to", ["", "soon", "1.5", "@", "@soon", "-1h"])
def test_place_of_another_form_is_refused(to: str) -> None:
    with pytest.raises(UsageError, match=r"^--to: "):
        parse_place_option("--to", to)


def test_shift_adds_to_committed_offsets() -> None:
    assert shift_offsets(-5, [FIRST], {FIRST: 60, SECOND: 1}) == {FIRST: 55}


def test_shift_without_a_committed_offset_names_the_partition() -> None:
    with pytest.raises(Failed, match=r"but orders\[1\] has none; use --to"):
        shift_offsets(1, ENDS, {FIRST: 60})


@pytest.mark.parametrize(
    "text",
    [
        "orders,0,7\norders,1,8\n",
        "topic,partition,offset\r\norders,0,7\r\n\r\norders, 1, 8",
        "g,orders,0,7\nother,orders,0,9\ng,orders,1,8\n",
        '"orders",0,7\n"orders",1,8\n',
    ],
    ids=["rows", "header", "groups", "quotes"],
)
def test_csv_rows_are_offsets(text: str) -> None:
    assert read_offsets(text.splitlines(True), "plan.csv", "g") == {FIRST: 7, SECOND: 8}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "plan.csv has no offsets for group g"),
        ("other,orders,0,7\n", "plan.csv has no offsets for group g"),
        ("orders,0,7\norders,0,8\n", r"plan.csv, line 2: orders\[0\] appears twice"),
        ("orders,0,7\norders,x,8\n", "plan.csv, line 2: expected topic,partition,offset"),
        ("orders,0\n", "plan.csv, line 1: expected"),
        (f"orders,{2**40},0\n", "plan.csv, line 1: expected"),
        ("orders,0,-1\n", "plan.csv, line 1: expected"),
        (",0,1\n", "plan.csv, line 1: expected"),
        ("a,b,orders,0,1\n", "plan.csv, line 1: expected"),
    ],
)
def test_csv_error_names_the_line(text: str, words: str) -> None:
    with pytest.raises(Failed, match=words):
        read_offsets(text.splitlines(True), "plan.csv", "g")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "one of --to, --shift-by and --from-csv"),
        (["--to", "end", "--shift-by", "1", "-t", "a"], "one of --to, --shift-by and --from-csv"),
        (["--to", "end"], "either --topic or --all-topics"),
        (["--to", "end", "-t", "a", "--all-topics"], "either --topic or --all-topics"),
        (["--from-csv", "x", "-t", "a"], "--from-csv names the partitions"),
        (["--to", "end", "-t", "a", "--csv", "--json"], "one of --csv and --json"),
        (["--to", "soon", "-t", "a"], "--to: "),
        (["--from-csv", "/no/such/file", "--yes"], "cannot read /no/such/file"),
    ],
)
def test_options_that_contradict_exit_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "reset", "g", "-b", "127.0.0.1:1", *arguments]) == 2
    assert words in capsys.readouterr().err
