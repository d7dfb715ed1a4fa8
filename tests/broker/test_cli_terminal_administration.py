"""The questions and the live lag of ``cykafka`` in a terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pexpect
import pytest
from command_line import Run
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

from cykafka import TopicPartition

pytestmark = pytest.mark.ours


@pytest.fixture
def terminal(cluster: Any, own_profiles: None) -> Callable[..., Any]:
    """Run ``cykafka`` in a terminal until the block ends."""

    @contextmanager
    def run(*arguments: object, columns: int = 160) -> Iterator[Any]:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "cykafka", *map(str, arguments), "-b", cluster.bootstrap_servers],
            timeout=WAIT_S,
            dimensions=(30, columns),
            encoding="utf-8",
            # COLUMNS would count more than the terminal's size.
            env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": str(columns)},
        )
        try:
            yield child
        finally:
            child.close(force=True)

    return run


def end(child: Any) -> tuple[int, str]:
    """The exit status, and the plain text since the last expected one."""
    child.expect(pexpect.EOF)
    child.wait()
    return child.exitstatus, re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", child.before)


def exists(run_cli: Run, topic: str) -> bool:
    return topic in {row["topic"] for row in run_cli("topics", "list", "--json").rows}


def test_delete_of_a_topic_asks_and_obeys(
    terminal: Callable[..., Any],
    run_cli: Run,
    topic: str,
    make_producer: MakeProducer,
    wait_until: WaitUntil,
) -> None:
    make_producer().publish(topic, [b"x"] * 7).wait()

    with terminal("topics", "delete", topic) as child:
        child.expect_exact(f"topic {topic}: 4 partitions, 7 records")
        child.expect(r"Delete 1 topic\?.*: ")
        child.sendline("n")
        status, text = end(child)
    assert status == 1
    assert "cykafka: nothing was changed" in text
    assert exists(run_cli, topic)

    with terminal("topics", "delete", topic) as child:
        child.expect(r"Delete 1 topic\?.*: ")
        child.sendline("y")
        status, text = end(child)
    assert status == 0
    assert re.search(rf"{topic} .*deleted", text)
    wait_until(lambda: not exists(run_cli, topic))


def test_interrupt_at_the_question_changes_nothing(
    terminal: Callable[..., Any], run_cli: Run, topic: str
) -> None:
    with terminal("topics", "delete", topic) as child:
        child.expect(r"Delete 1 topic\?.*: ")
        child.sendintr()
        status, text = end(child)

    assert status == 130
    assert "cykafka: nothing was changed\r\ncykafka: interrupted\r\n" in text
    assert "Traceback" not in text
    assert exists(run_cli, topic)


def test_reset_shows_what_is_skipped_and_asks(
    terminal: Callable[..., Any],
    run_cli: Run,
    topic: str,
    unique: Unique,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
) -> None:
    group = unique("billing")
    make_producer().publish(topic, [b"x"] * 9, partitions=0).wait()
    make_consumer({"group.id": group}).commit(
        offsets=[TopicPartition(topic, 0, 4)], asynchronous=False
    )

    with terminal("groups", "reset", group, "--all-topics", "--to", "end") as child:
        child.expect_exact(f"{topic}[0]: 4 -> 9, skips 5 records")
        child.expect_exact(f"Reset 1 offset of group {group}?")
        child.sendline("y")
        status, text = end(child)

    assert status == 0
    assert "limited" in text
    (row,) = run_cli("groups", "lag", group, "--json").rows
    assert row["committed"] == 9


def test_reset_of_a_group_that_does_not_exist_says_so(
    terminal: Callable[..., Any], run_cli: Run, topic: str, unique: Unique
) -> None:
    group = unique("biling")

    with terminal("groups", "reset", group, "--topic", topic, "--to", "end") as child:
        child.expect_exact(f"group {group} does not exist, so it is created")
        child.expect_exact(f"Reset 4 offsets of group {group}?")
        child.sendline("n")
        status, _ = end(child)

    assert status == 1
    run_cli("groups", "list", group, status=1)


def test_lag_is_redrawn_until_ctrl_c(
    terminal: Callable[..., Any],
    topic: str,
    unique: Unique,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
) -> None:
    group = unique("billing-of-the-night-and-of-the-day")
    producer = make_producer()
    consumer = make_consumer({"group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)

    command = ("groups", "lag", group, "--watch", "--interval", "0.2")
    with terminal(*command, columns=80) as child:
        child.expect("billing-[a-z-]*\u2026 [^\\n]* 0 [^\\n]*\n[^\\n]*\n[^\\n]*Ctrl-C ends")
        producer.publish(topic, [b"x"] * 4321, partitions=0).wait()
        child.expect_exact("4321")
        child.kill(signal.SIGINT)
        status, text = end(child)

    assert status == 130
    assert "Traceback" not in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_interrupt_of_the_benchmark_removes_its_topic(
    terminal: Callable[..., Any], run_cli: Run, wait_until: WaitUntil, number: signal.Signals
) -> None:
    def topics() -> set[str]:
        rows = run_cli("topics", "list", "cykafka-bench-*", "--json", status=None).rows
        return {row["topic"] for row in rows}

    before = topics()
    with terminal("bench", "--records", 2_000_000_000) as child:
        child.expect(r"produce .*records/s")
        during = topics() - before
        child.kill(number)
        status, text = end(child)

    assert status == 130
    assert "Traceback" not in text
    assert during
    wait_until(lambda: not during & topics())
