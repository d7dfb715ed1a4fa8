"""Runs the command ``cykafka`` in the process of a test."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from cykafka.cli.main import main


@dataclass(frozen=True)
class Ran:
    """A command that has ended: its exit status, and its output."""

    status: int
    out: str
    error: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The lines of JSON that it has printed."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ran]


def runner(servers: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Make a function that runs ``cykafka`` with these brokers.

    The function gets the arguments. It fails the test if the exit status is not `status`; None
    allows every status.
    """

    def run(*arguments: object, status: int | None = 0) -> Ran:
        capsys.readouterr()
        ended = main([*map(str, arguments), "-b", servers])
        out, error = capsys.readouterr()
        assert status is None or ended == status, error or out
        return Ran(ended, out, error)

    return run
