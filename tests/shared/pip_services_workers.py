"""Processes that handle messages, for tests that kill them.

An interpreter takes longer to start than a killed worker lives. So one process, the nursery,
imports everything once and forks the workers. The nursery itself has neither threads nor clients.

When a worker has handled a message, it writes a line `partition offset body` to a file, which is
open with O_APPEND. Written lines survive a kill, so the test knows exactly which messages were
handled at that moment.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Handled", "Nursery", "new_seed", "nursery"]

NURSERY = """
import json
import os
import signal
import sys
import time
import warnings

warnings.simplefilter("ignore")
import pip_services4_kafka.queues
from pip_services4_components.config import ConfigParams
from pip_services4_components.refer import Descriptor, References
from pip_services4_messaging.queues import IMessageReceiver
from pip_services4_observability.log import ConsoleLogger


def work(config, mode, path, seconds):
    handled = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(message):
        time.sleep(seconds)
        record = message.get_reference()
        line = b"%d %d %s\\n" % (record.partition(), record.offset(), message.message)
        os.write(handled, line)

    class Receiver(IMessageReceiver):
        def receive_message(self, message, queue):
            handle(message)
            if mode == "complete":
                queue.complete(message)

    queue = pip_services4_kafka.queues.KafkaMessageQueue("worker")
    queue.configure(ConfigParams(config))
    logger = ConsoleLogger()
    logger.set_level(3)
    queue.set_references(
        References.from_tuples(Descriptor("test", "logger", "console", "default", "1.0"), logger)
    )
    queue.open(None)
    if mode != "receive":
        queue.listen(None, Receiver())
    while mode == "receive":
        message = queue.receive(None, 1000)
        if message is not None:
            handle(message)
            queue.complete(message)


living = set()
print("ready", flush=True)
for line in sys.stdin:
    order, *arguments = json.loads(line)
    if order == "start":
        pid = os.fork()
        if pid == 0:
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(2, 1)  # the pipe to the test belongs to the nursery
            try:
                work(*arguments)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stderr.flush()
                os._exit(1)
        living.add(pid)
        print(pid, flush=True)
    else:
        (pid,) = arguments
        os.kill(pid, signal.SIGKILL)
        living.discard(pid)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
for pid in living:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


class Nursery:
    """Starts and kills workers.

    Parameters
    ----------
    command : list of str
        The command that runs NURSERY.
    log : Path
        The file for the output of the nursery and the workers.
    """

    def __init__(self, command: list[str], log: Path) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the nursery has ended: {self.output()}"
        return line.strip()

    def _ask(self, *order: Any) -> int:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return int(self._answer())

    def start(self, config: dict[str, Any], mode: str, handled: Path, seconds: float) -> int:
        """Start a worker and return its process id.

        Parameters
        ----------
        config : dict
            The configuration of its queue.
        mode : str
            ``autocommit`` and ``complete`` listen, the latter completes each message; ``receive``
            receives and completes.
        handled : Path
            The file for the handled messages.
        seconds : float
            The time that it works on a message.
        """
        return self._ask("start", config, mode, str(handled), seconds)

    def kill(self, pid: int) -> None:
        """Kill a worker (SIGKILL), which must not have ended by itself."""
        status = self._ask("kill", pid)
        assert status == -signal.SIGKILL, (
            f"worker {pid} ended by itself ({status}): {self.output()}"
        )

    def output(self) -> str:
        """The last lines of what the workers printed."""
        return self._log.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End all workers."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Handled:
    """What workers have handled, read from their file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._read = 0
        self.bodies: Counter[str] = Counter()
        self.offsets: dict[int, set[int]] = {}

    def look(self) -> int:
        """Read new lines; return the number of handled messages so far, including repetitions."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            lines = file.read()
        self._read += lines.rfind(b"\n") + 1
        for line in lines[: lines.rfind(b"\n") + 1].decode().splitlines():
            partition, offset, body = line.split(" ", 2)
            self.bodies[body] += 1
            self.offsets.setdefault(int(partition), set()).add(int(offset))
        return self.bodies.total()

    def skipped(self, committed: dict[int, int]) -> dict[int, list[int]]:
        """Unhandled offsets below the committed ones, which are never redelivered."""
        found = {
            partition: sorted(set(range(end)) - self.offsets.get(partition, set()))
            for partition, end in committed.items()
        }
        return {partition: offsets for partition, offsets in found.items() if offsets}


def new_seed() -> str:
    """The seed of the test's random choices: CYKAFKA_TEST_SEED, or a random one."""
    return os.environ.get("CYKAFKA_TEST_SEED") or str(random.SystemRandom().randrange(2**32))


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """A process that forks workers."""
    log = tmp_path_factory.mktemp("nursery") / "said"
    made = Nursery([sys.executable, "-X", "faulthandler", "-c", NURSERY], log)
    yield made
    made.close()
