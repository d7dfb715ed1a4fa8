"""Random orders of a consumer's calls, the child process that makes them, and their test."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orders_child
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from repeated import examples

# The longest time that a call waits for the group is mostly that of the session. A commit waits
# behind a JoinGroup request, which waits max.poll.interval.ms for a member that does not poll.
_classic = {
    "heartbeat.interval.ms": 100,
    "session.timeout.ms": 6000,
    "max.poll.interval.ms": 6000,
}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range", **_classic},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", **_classic},
    "kip-848": {"group.protocol": "consumer"},
}

_which = st.lists(st.integers(0, len(orders_child.PARTITIONS) - 1), max_size=3, unique=True)
_offset = st.sampled_from([-1001, -2, -1, 0, 3, 1000])
_changes = ["assign", "incremental_assign", "incremental_unassign", "pause", "resume", "position"]
_plain = ["unassign", "memberid", "subscription", "consumer_group_metadata"]
# The calls, and how often each is made: most faults are about the membership.
_calls: dict[str, tuple[int, st.SearchStrategy[Any]]] = {
    "subscribe": (6, st.tuples(st.sampled_from([0, 0, 1, 2, 2, 3, 4, 5]))),
    "unsubscribe": (4, st.just(())),
    "settle": (5, st.just(())),
    "poll": (2, st.tuples(st.sampled_from([0, 0.02]))),
    "partitions": (3, st.tuples(st.sampled_from(_changes), _which, _offset)),
    "plain": (1, st.tuples(st.sampled_from(_plain))),
    "commit": (1, st.tuples(_which, st.booleans())),
    "seek": (1, st.tuples(st.integers(0, 3), _offset)),
    "committed": (1, st.just(())),
    "other_member": (1, st.just(())),
    "close": (1, st.tuples(st.sampled_from([None, 0, 0.05]))),
}
# A rebalance callback makes only calls that end at once.
_quick = ("subscribe", "unsubscribe", "partitions", "plain", "commit", "close")


def _call(names: Iterable[str]) -> st.SearchStrategy[tuple[Any, ...]]:
    often = [name for name in names for _ in range(_calls[name][0])]
    return st.sampled_from(often).flatmap(
        lambda name: _calls[name][1].map(lambda arguments: (name, *arguments))
    )


_begin = st.sampled_from([[], [("subscribe", 0)], [("subscribe", 2), ("settle",)]])
_in_callbacks = st.one_of(st.just([]), st.lists(_call(_quick), max_size=2))
# Orders that are made at the same time, each by a consumer of its own.
orders = st.lists(
    st.fixed_dictionaries(
        {
            "begin": _begin,
            "calls": st.lists(_call(_calls), min_size=2, max_size=8),
            "on_assign": _in_callbacks,
            "on_revoke": _in_callbacks,
        }
    ),
    min_size=orders_child.THREADS // 2,
    max_size=orders_child.THREADS,
)


class Child:
    """The process that makes the orders; a new one replaces a process that has ended."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._command = [sys.executable, "-X", "faulthandler", orders_child.__file__]
        self._command.append(json.dumps(config))
        self._process: subprocess.Popen[str] | None = None

    def make(self, orders: list[dict[str, Any]]) -> None:
        """Make these orders; fail with the child's last words if it ends."""
        if self._process is None:
            with tempfile.NamedTemporaryFile("w", delete=False) as words:
                self._words = Path(words.name)
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True,
                )  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(orders), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer == "made\n", self.end()

    def end(self) -> str:
        """End the process. Return its last words if it has failed."""
        if self._process is None:
            return ""
        process, self._process = self._process, None
        process.communicate()
        words = self._words.read_text(errors="replace")
        self._words.unlink()
        return f"exit status {process.returncode}\n{words}" if process.returncode else ""


@given(orders)
@settings(max_examples=examples(20))
@pytest.mark.timeout(600)
def test_no_order_ends_the_process(child: Child, orders: list[dict[str, Any]]) -> None:
    """For a module with a fixture `child`."""
    child.make(orders)
