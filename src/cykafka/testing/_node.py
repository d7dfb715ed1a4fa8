"""One KafkaCluster broker: a Java process that tests start, stop, kill and pause."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from cykafka._core.common.naming import public
from cykafka.testing._process import KafkaClusterError

_READY = b"Kafka Server started"
_LOOK_S = 0.05
_TROUBLE = re.compile(r"^\S+ (?:ERROR|FATAL) |^(?:Caused by: )?[\w.$]+(?:Exception|Error)\b")
_LINES_OF_TROUBLE = 4


@public("cykafka.testing")
class KafkaNode:
    """One node of a `KafkaCluster`, broker and controller in one process.

    A cluster creates its nodes. A node keeps its address and data across `kill`, `stop`, `start`.
    """

    def __init__(
        self,
        id_: int,
        bootstrap_servers: str,
        log: Path,
        launch: Callable[[Path], subprocess.Popen[bytes]],
        timeout: float,
    ) -> None:
        self._id = id_
        self._bootstrap_servers = bootstrap_servers
        self._log = log
        self._launch = launch
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._log_begin = 0
        self._starting = threading.Lock()

    def __repr__(self) -> str:
        state = "paused" if self.paused else "alive" if self.alive else "down"
        return f"<KafkaNode {self._id} at {self._bootstrap_servers}, {state}>"

    @property
    def id(self) -> int:
        """The broker's id, from 1."""
        return self._id

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of this node's listener without authentication."""
        return self._bootstrap_servers

    @property
    def pid(self) -> int | None:
        """The node's process id; None while the node is down."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        """Whether the process exists, even if it is paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def paused(self) -> bool:
        """Whether `pause` has halted the process."""
        return self._paused and self.alive

    @property
    def log_path(self) -> Path:
        """The broker's log file, which covers all starts."""
        return self._log

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the broker's log."""
        text = self._log.read_bytes().decode(errors="replace") if self._log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def start(self, *, wait: bool = True) -> None:
        """Start the node if it is down.

        Parameters
        ----------
        wait : bool, default True
            Whether to wait until the node serves clients. With several nodes, this happens only
            when the majority runs.

        Raises
        ------
        KafkaClusterError
            If the node ends instead, or is not ready within the cluster's `start_timeout`.
        """
        with self._starting:  # two brokers in one directory would destroy its data
            if not self.alive:
                self._log_begin = self._log.stat().st_size if self._log.exists() else 0
                self._process = self._launch(self._log)
                self._paused = False
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the node serves clients. Start the node first.

        Raises
        ------
        KafkaClusterError
            If the node ends, or is not ready within the cluster's `start_timeout`.
        """
        process = self._process
        if process is None:
            raise KafkaClusterError(f"node {self._id} was not started; start() it first")
        deadline = time.monotonic() + self._timeout
        while _READY not in self._log_bytes():
            if process.poll() is not None:
                raise KafkaClusterError(
                    f"node {self._id} did not start, exit status {process.returncode}: "
                    f"{self._trouble()}"
                )
            if time.monotonic() >= deadline:
                raise KafkaClusterError(
                    f"node {self._id} was not ready within {self._timeout:g} s: {self._trouble()}"
                )
            time.sleep(_LOOK_S)  # a growing file causes no event

    def stop(self, timeout: float = 30.0) -> None:
        """Stop the node cleanly (SIGTERM): it moves its leaderships and closes its files.

        Without a majority of running nodes the node cannot move them and takes long; then use
        `kill`.

        Parameters
        ----------
        timeout : float, default 30.0
            Longest wait in s.

        Raises
        ------
        KafkaClusterError
            If the node does not end in time; it then continues to run.
        """
        if not self.alive:
            return
        process = self._alive()
        process.send_signal(signal.SIGTERM)
        self.resume()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise KafkaClusterError(
                f"node {self._id} did not stop within {timeout:g} s; kill() it, or wait longer"
            ) from None

    def kill(self) -> None:
        """Kill the node at once (SIGKILL), as if its machine had failed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._paused = False

    def restart(self, *, wait: bool = True) -> None:
        """Stop the node cleanly and start it again."""
        self.stop()
        self.start(wait=wait)

    def pause(self) -> None:
        """Halt the process (SIGSTOP): connections stay open, but the node does not respond.

        Raises
        ------
        KafkaClusterError
            If the node is down.
        """
        process = self._alive()
        process.send_signal(signal.SIGSTOP)
        # Wait until the signal takes effect, when the process is next scheduled.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._paused = True

    def resume(self) -> None:
        """Continue a paused process (SIGCONT)."""
        if self.alive:
            self._alive().send_signal(signal.SIGCONT)
        self._paused = False

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or not self.alive:
            raise KafkaClusterError(f"node {self._id} is down; start() it first")
        return self._process

    def _log_bytes(self) -> bytes:
        """Return the log since the last start."""
        with self._log.open("rb") as file:
            file.seek(self._log_begin)
            return file.read()

    def _trouble(self) -> str:
        """Return the errors in the log since the last start, on one line."""
        lines = self._log_bytes().decode(errors="replace").splitlines()
        found = [line.strip() for line in lines if _TROUBLE.match(line)] or lines[-1:]
        return " | ".join(found[:_LINES_OF_TROUBLE]) or "it logged nothing"
