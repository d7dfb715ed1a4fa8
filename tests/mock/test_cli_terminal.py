"""The command on a terminal: progress, colors, Ctrl-C, and brokers that go away."""

from __future__ import annotations

import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from fixture_types import Unique
from machine import WAIT_S

from cykafka import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.ours

CTRL_C = "\x03"
SHOW_CURSOR = "\x1b[?25h"
LEAVE_PAGE = "\x1b[?1049l"


@pytest.fixture
def own() -> Iterator[Any]:
    """A mock cluster for one test, whose broker may go down."""
    from cykafka.testing import MockCluster

    with MockCluster() as cluster:
        yield cluster


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Start the command on a terminal of its own; what is left is killed after the test."""
    started: list[Any] = []

    def terminal(*arguments: str) -> Any:
        child = pexpect.spawn(
            sys.executable,
            ["-m", "cykafka", *arguments],
            env={"XDG_CONFIG_HOME": str(tmp_path), "TERM": "xterm-256color", "PATH": "/bin"},
            encoding="utf-8",
            timeout=WAIT_S,
            dimensions=(24, 120),
        )
        child.delaybeforesend = None
        started.append(child)
        return child

    yield terminal
    for child in started:
        child.close(force=True)


def end(child: Any) -> tuple[int, str]:
    """The exit status, and what was printed after the last match."""
    child.expect(pexpect.EOF)
    rest = child.before
    child.close()
    return child.exitstatus, rest


@pytest.fixture
def lines(tmp_path: Path) -> str:
    path = tmp_path / "lines"
    path.write_text("x\n" * 100_000)
    return str(path)


def test_produce_shows_progress_and_ctrl_c_reports(
    own: Any, terminal: Callable[..., Any], lines: str
) -> None:
    own.create_topic("topic", 1)
    child = terminal("produce", "topic", "-b", own.bootstrap_servers, "--rate", "200", lines)
    child.expect(r"topic .*\d+ records, .*/s \(\d+ records/s\)")
    child.send(CTRL_C)
    child.expect(r"cykafka: interrupted after .*lines, line (\d+)")
    line = int(child.match[1])
    status, rest = end(child)

    assert status == 130
    summary = re.search(r"topic: ([\d,]+) records?, .* in .* s", rest)
    assert summary
    assert int(summary[1].replace(",", "")) == line
    assert SHOW_CURSOR in child.before or SHOW_CURSOR in rest


@pytest.mark.parametrize(("way", "expected"), [("q", 0), (CTRL_C, 130), ("SIGTERM", 130)])
def test_top_ends_at_once_though_the_broker_never_answers(
    way: str, expected: int, terminal: Callable[..., Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        child = terminal("top", "-b", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "600")
        child.expect("waiting for the first sample")
        silent.accept()[0].close()  # it is being asked
        if way == "SIGTERM":
            child.kill(signal.SIGTERM)
        else:
            child.send(way)
        status, rest = end(child)

    assert status == expected
    assert LEAVE_PAGE in rest
    assert SHOW_CURSOR in rest
    assert "Traceback" not in rest


def test_quiet_shows_no_progress(own: Any, terminal: Callable[..., Any], lines: str) -> None:
    own.create_topic("topic", 1)
    child = terminal("produce", "topic", "-b", own.bootstrap_servers, "-q", lines)
    assert end(child) == (0, "")


def test_second_ctrl_c_drops_records_that_nobody_takes(
    own: Any, terminal: Callable[..., Any]
) -> None:
    own.create_topic("topic", 1)
    child = terminal("produce", "topic", "-b", own.bootstrap_servers)
    child.sendline("first")
    with Consumer({"bootstrap.servers": own.bootstrap_servers, "group.id": "g"}) as consumer:
        consumer.assign([TopicPartition("topic", 0, 0)])
        assert consumer.poll(WAIT_S).value() == b"first"
    own.broker_down()
    child.sendline("second")
    child.expect("cannot reach any broker; retrying")
    child.send(CTRL_C)
    child.expect("interrupted; waiting for 1 record, Ctrl-C drops them")
    child.send(CTRL_C)
    status, rest = end(child)

    assert status == 130
    assert "standard input, line 2: Local: Purged in" in rest
    assert re.search("topic: 1 record, .*; 1 failed", rest)


def test_consume_in_a_pipe_draws_nothing(own: Any) -> None:
    own.create_topic("topic", 1)
    with Producer({"bootstrap.servers": own.bootstrap_servers}) as producer:
        producer.produce("topic", b"x")
        producer.flush(WAIT_S)
    command = f"{sys.executable} -m cykafka consume topic -b {own.bootstrap_servers} -e | cat"
    child = pexpect.spawn("/bin/sh", ["-c", command], encoding="utf-8", timeout=WAIT_S)
    try:
        status, rest = end(child)
    finally:
        child.close(force=True)
    assert status == 0
    assert "x\r\n" in rest
    assert "\x1b" not in rest


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("-f", r"<%s>\n"), r"<va\x1b[31mlue\u202e>"),
        (("-K", ":"), r"key:va\x1b[31mlue\u202e"),
        (("--json",), r'"value":"va\u001b[31mlue\u202e"'),
    ],
)
def test_consume_on_a_terminal_escapes_controls_in_every_format(
    own: Any, terminal: Callable[..., Any], arguments: tuple[str, ...], shown: str
) -> None:
    own.create_topic("topic", 1)
    with Producer({"bootstrap.servers": own.bootstrap_servers}) as producer:
        producer.produce("topic", "va\x1b[31mlue\u202e", b"key")
        producer.flush(WAIT_S)
    child = terminal("consume", "topic", "-e", "-b", own.bootstrap_servers, *arguments)
    child.expect_exact(shown)
    status, _ = end(child)
    assert status == 0


def test_consume_on_a_terminal_shows_places_and_escapes_controls(
    own: Any, terminal: Callable[..., Any], unique: Unique
) -> None:
    own.create_topic("topic", 1)
    with Producer({"bootstrap.servers": own.bootstrap_servers}) as producer:
        producer.produce("topic", b"va\x1b[31mlue", b"key", timestamp=5)
        producer.flush(WAIT_S)
    child = terminal("consume", "topic", "-b", own.bootstrap_servers)
    child.expect_exact("topic[0]@0  1970-01-01T00:00:00.005Z")
    child.expect_exact("key:")
    child.expect_exact(r"va\x1b[31mlue")
    child.send(CTRL_C)
    status, rest = end(child)
    assert status == 130
    assert "topic: 1 record, " in rest


def test_produce_on_a_terminal_escapes_controls_of_a_file(
    own: Any, terminal: Callable[..., Any], tmp_path: Path
) -> None:
    own.create_topic("topic", 1)
    path = tmp_path / "lines.csv"
    path.write_text("a\x1b[31m,b\n1,2\n")
    arguments = ("--csv", "--key-column", "nope", str(path))
    child = terminal("produce", "topic", "-b", own.bootstrap_servers, *arguments)
    child.expect_exact(r"it has a\x1b[31m, b")
    assert end(child)[0] == 2


def test_ctrl_c_of_a_member_waits_once_while_the_broker_is_down(
    own: Any, terminal: Callable[..., Any]
) -> None:
    own.create_topic("topic", 1)
    with Producer({"bootstrap.servers": own.bootstrap_servers}) as producer:
        producer.produce("topic", b"first")
        producer.flush(WAIT_S)
    child = terminal("consume", "topic", "-G", "g", "--timeout", "4", "-b", own.bootstrap_servers)
    child.expect_exact("first")
    own.broker_down()
    child.expect("cannot reach any broker; retrying")
    began = time.monotonic()
    child.send(CTRL_C)
    status, rest = end(child)

    assert status == 1
    assert "cannot commit the group's offsets" in rest
    assert 4 <= time.monotonic() - began < 7


def test_consume_to_a_file_shows_progress(
    own: Any, terminal: Callable[..., Any], tmp_path: Path
) -> None:
    own.create_topic("topic", 1)
    command = f"exec {sys.executable} -m cykafka consume topic -b {own.bootstrap_servers} > out"
    child = pexpect.spawn(
        "/bin/sh", ["-c", command], cwd=str(tmp_path), encoding="utf-8", timeout=WAIT_S
    )
    try:
        child.expect("topic .*0:00:0")
        child.send(CTRL_C)
        status, rest = end(child)
    finally:
        child.close(force=True)
    assert status == 130
    assert "topic: 0 records, " in rest
    assert (tmp_path / "out").read_bytes() == b""


def test_ctrl_c_ends_the_wait_for_brokers(terminal: Callable[..., Any]) -> None:
    child = terminal("consume", "topic", "-b", "127.0.0.1:1", "--timeout", "600", "-v")
    child.expect("FAIL")  # it is connecting
    child.send(CTRL_C)
    status, _ = end(child)
    assert status == 130
