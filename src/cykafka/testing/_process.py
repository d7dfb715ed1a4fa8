"""Runs programs, processes that never outlive this one; reserves ports; cluster errors."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cykafka._core.common.naming import public

HOST = "127.0.0.1"
# When the pipe closes, the keeper kills the group and removes its directory. A dying process may
# still write a file until then, so the keeper removes the directory twice.
_KEEPER = """
read -r _
kill -s KILL -- "-$1" 2>/dev/null
rm -rf -- "$2" 2>/dev/null || { sleep 1; rm -rf -- "$2"; }
"""
_groups: weakref.WeakSet[ProcessGroup] = weakref.WeakSet()


@public("cykafka.testing")
class KafkaClusterError(RuntimeError):
    """A cluster of real brokers cannot be started or controlled; the message says what to do."""


@public("cykafka.testing")
class NoBrokerError(KafkaClusterError):
    """This machine cannot run a broker; the message says what to install."""


class ProcessGroup:
    """A process group that ends with this process, with its directory.

    A keeper process waits at the other end of a pipe, which the kernel closes however this process
    ends. The keeper then kills the group and removes the directory. This works in every thread;
    PR_SET_PDEATHSIG would fire when the forking thread ends.

    Parameters
    ----------
    folder : Path
        The directory to remove with the group.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        reader, self._pipe = os.pipe()
        try:
            # The anchor reserves the group's number, even if the group has no other process.
            self._anchor = subprocess.Popen(["cat"], stdin=reader, process_group=0)
            self._keeper = subprocess.Popen(
                ["sh", "-c", _KEEPER, "sh", str(self._anchor.pid), str(folder)],
                stdin=reader,
                process_group=0,
            )
        finally:
            os.close(reader)
        _groups.add(self)

    @property
    def number(self) -> int:
        """The group's number, for `subprocess`. A process that joins the group ends with it."""
        return self._anchor.pid

    def start(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process in the group; append its output to `log`."""
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment,
                process_group=self.number,
            )

    def close(self) -> None:
        """Kill the group's processes and remove the directory. A second call does nothing."""
        if self._pipe < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.number, signal.SIGKILL)
        self.forget()
        # The keeper kills the group again, so the number must stay in use until the keeper ends.
        self._keeper.wait()
        self._anchor.wait()

    def forget(self) -> None:
        """Close a forked child's copy of the pipe, which would keep the group alive."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


def _forget_in_child() -> None:
    for group in list(_groups):
        group.forget()


os.register_at_fork(after_in_child=_forget_in_child)


def run_program(
    command: Sequence[str], timeout: float, *, stderr: int = subprocess.STDOUT, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program without input until it ends.

    Parameters
    ----------
    command : sequence of str
        The program and its arguments.
    timeout : float
        Longest run in s.
    stderr : int
        By default the result's `stdout` includes the program's errors.
    **options : object
        Further arguments of `subprocess.run`.

    Raises
    ------
    OSError
        The program cannot start.
    TimeoutExpired
        The program did not end in time and was killed.
    """
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
        **options,
    )


class Port:
    """A loopback port, reserved whether or not its server is running.

    The socket is bound and never listens. A server with SO_REUSEADDR, such as Java's, can
    therefore bind the port and listen, and the kernel never chooses it as a free port.

    Parameters
    ----------
    number : int
        The port; 0 for a free port.

    Raises
    ------
    OSError
        If another server uses the port.
    """

    def __init__(self, number: int = 0) -> None:
        self._socket = socket.socket()
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((HOST, number))
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"port {number} of {HOST}: {error.strerror}") from None
        self.number: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.number}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the port."""
        self._socket.close()
