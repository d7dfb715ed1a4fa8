"""Brokers that processes share: started once, and stopped when the last process leaves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from machine import WAIT_S

from cykafka.admin import AdminClient
from cykafka.testing import NoBrokerError
from cykafka.testing._provide import shared_cluster

pytestmark = [pytest.mark.ours, pytest.mark.usefixtures("own_brokers")]

USER = """
import pathlib, sys
from cykafka.testing._provide import shared_cluster
with shared_cluster(pathlib.Path(sys.argv[1])) as cluster:
    print(cluster.bootstrap_servers, flush=True)
    sys.stdin.read()
"""


class User:
    """A process that uses the brokers until its standard input ends."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def servers(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def start(
    script_command: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], User]]:
    monkeypatch.delenv("CYKAFKA_TEST_BOOTSTRAP", raising=False)
    with ExitStack() as users:

        def start() -> User:
            user = User(script_command(USER, str(tmp_path / "kafka")))
            users.callback(user.leave, kill=True)
            return user

        yield start


def processes_of(folder: Path) -> list[Path]:
    """The keeper: processes with the folder's name on their command line."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # the process has just ended
            continue
        if b"cykafka.testing._provide" in words and str(folder).encode() in words:
            found.append(process)
    return found


def answers(servers: str) -> bool:
    with AdminClient({"bootstrap.servers": servers, "log_level": 0}) as client:
        return client.describe_cluster(request_timeout=2).exception(WAIT_S) is None


def test_brokers_run_until_the_last_user_leaves(start: Callable[[], User], tmp_path: Path) -> None:
    first, second = start(), start()
    servers = first.servers()
    assert servers
    assert second.servers() == servers

    first.leave()
    assert answers(servers)
    third = start()
    assert third.servers() == servers
    second.leave(kill=True)
    assert answers(servers)
    third.leave(kill=True)

    deadline = time.monotonic() + WAIT_S
    while processes_of(tmp_path / "kafka"):
        assert time.monotonic() < deadline, "the keeper still runs"
        time.sleep(0.05)
    assert not answers(servers)


def test_user_after_the_last_one_gets_new_brokers(start: Callable[[], User]) -> None:
    first = start()
    before = first.servers()
    first.leave()

    second = start()

    servers = second.servers()
    assert servers != before
    assert answers(servers)


def test_each_user_gets_the_error_of_brokers_that_do_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CYKAFKA_TEST_BOOTSTRAP", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    shell = tmp_path / "bin" / "sh"
    shell.parent.mkdir()
    shell.symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(shell.parent))

    for _ in range(2):
        with (
            pytest.raises(NoBrokerError, match="needs Java 17"),
            shared_cluster(tmp_path / "kafka"),
        ):
            pass
