"""The question of the command ``cykafka`` before it removes something."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable

import pytest

from cykafka.cli.cluster.administration import confirm
from cykafka.cli.main import main
from cykafka.cli.terminal.failures import Failed

pytestmark = pytest.mark.ours

DESTRUCTIVE = [
    "topics delete t",
    "topics delete-records t --before end",
    "topics alter t --partitions 9",
    "configs alter topic t --delete segment.ms",
    "configs alter topic t --set retention.ms=1",
    "configs alter topic t --subtract cleanup.policy=compact",
    "configs alter broker 1 --set log.retention.ms=1",
    "configs alter broker 1 --set log.cleaner.delete.retention.ms=1",
    "groups delete g",
    "groups delete-offsets g t",
    "groups reset g --topic t --to end",
    "acls delete --topic t",
    "acls delete --all",
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Terminal]:
    """Make standard input and standard error a terminal on which a user types; return the latter.

    Call it in the test itself, because pytest replaces both before the test begins.
    """

    def make(typed: str) -> Terminal:
        shown = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(typed))
        monkeypatch.setattr(sys, "stderr", shown)
        return shown

    return make


@pytest.mark.parametrize("line", DESTRUCTIVE)
def test_destructive_command_without_a_terminal_is_refused(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # a pipe is no answer

    # It refuses before it connects: no broker listens there.
    assert main([*line.split(), "-b", "127.0.0.1:1"]) == 2
    assert "pass --yes to skip the prompt" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
@pytest.mark.parametrize("line", DESTRUCTIVE)
def test_destructive_command_that_may_run_needs_brokers(
    line: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*line.split(), option, "-b", "127.0.0.1:1", "--timeout", "0.1"]

    assert main(arguments) == 1
    assert "cannot reach 127.0.0.1:1 within 0.1 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "topics delete",
        "topics delete-records --before end",
        "topics alter --partitions 9",
        "configs alter topic --delete segment.ms",
        "groups delete",
        "groups delete-offsets g",
        "acls delete",
    ],
)
def test_destructive_command_without_names_is_refused(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Lists take no name for all; what removes something does not.
    assert main([*line.split(), "--yes", "-b", "127.0.0.1:1"]) == 2
    assert "cannot reach" not in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["y\n", "maybe\ny\n"])
def test_yes_on_the_terminal_goes_on(typed: str, terminal: Callable[[str], Terminal]) -> None:
    shown = terminal(typed)

    confirm("delete 2 topics", ["topic a: [1]", "topic b"], yes=False)

    text = re.sub(r"\x1b\[[\d;]*m", "", shown.getvalue())
    assert text.startswith("topic a: [1]\ntopic b\nDelete 2 topics? [y/n] (n): ")


@pytest.mark.parametrize("typed", ["n\n", "\n", ""], ids=["no", "enter", "end of file"])
def test_no_on_the_terminal_changes_nothing(
    typed: str, terminal: Callable[[str], Terminal]
) -> None:
    terminal(typed)

    with pytest.raises(Failed, match="nothing was changed"):
        confirm("delete 2 topics", [], yes=False)


def test_yes_on_the_command_line_does_not_ask(terminal: Callable[[str], Terminal]) -> None:
    shown = terminal("n\n")

    confirm("delete 2 topics", ["topic a"], yes=True)

    assert shown.getvalue() == ""
