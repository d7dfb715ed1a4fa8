"""The clients of `clients` as child processes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Clients"]

_PROGRAM = Path(__file__).with_name("clients.py")


class Clients:
    """Starts, ends and kills clients that write to one history.

    Parameters
    ----------
    folder : Path
        The history's folder.
    topic : str
    config : dict
        The clients' configuration.
    """

    def __init__(self, folder: Path, topic: str, config: dict[str, Any]) -> None:
        self._given = {"folder": str(folder), "topic": topic, "config": config}
        self._senders = itertools.count(1)
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start a client of a kind of `clients`, with more items of its configuration."""
        given = {**self._given, "sender": next(self._senders), **more}
        client = subprocess.Popen(
            [sys.executable, str(_PROGRAM), kind, json.dumps(given)], stdin=subprocess.PIPE
        )
        self._running.append(client)
        return client

    def kill(self, client: subprocess.Popen[bytes]) -> None:
        """Kill a client with -9. Raises if it has ended before."""
        assert client.poll() is None, f"{client.args} ended with {client.returncode}"
        client.kill()
        self._forget(client)

    def check(self) -> None:
        """Raise if a client has ended."""
        for client in self._running:
            assert client.poll() is None, f"{client.args} ended with {client.returncode}"

    def end(self, client: subprocess.Popen[bytes], timeout: float) -> None:
        """Ask a client to end, and wait. Raises if it fails."""
        assert client.stdin is not None
        client.stdin.close()
        assert client.wait(timeout) == 0, f"{client.args} ended with {client.returncode}"
        self._forget(client)

    def _forget(self, client: subprocess.Popen[bytes]) -> None:
        client.wait()
        if client.stdin is not None:
            client.stdin.close()
        self._running.remove(client)

    @contextmanager
    def killed_at_the_end(self) -> Iterator[Clients]:
        """Kill the clients that still run."""
        try:
            yield self
        finally:
            for client in [*self._running]:
                client.kill()
                self._forget(client)
