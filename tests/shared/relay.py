"""What stands between clients and a broker, and changes what the broker answers."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedIOBase
from typing import TypeVar

__all__ = ["Relay", "Switch", "relay_before", "switch_to"]

AnySwitch = TypeVar("AnySwitch", bound="Switch")

METADATA = 3  # the request's number in Kafka's protocol


class Switch(socketserver.ThreadingTCPServer):
    """A fixed address in front of a broker, which another broker may replace."""

    daemon_threads = True

    def __init__(self, bootstrap_servers: str) -> None:
        self.turn_to(bootstrap_servers)
        super().__init__(("127.0.0.1", 0), _Connection)
        self.bootstrap_servers = "{}:{}".format(*self.server_address)

    def turn_to(self, bootstrap_servers: str) -> None:
        """Send new connections to this broker, ``host:port``."""
        host, port = bootstrap_servers.split(":")
        self.broker = host, int(port)

    def metadata(self, answer: bytes) -> bytes:
        """The answer that clients get for the broker's answer to a metadata request."""
        return answer


class Relay(Switch):
    """The address of a cluster's only broker, for clients; on demand its answers name no
    broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        host, own_port = self.server_address
        self.names_none = False
        self.none_named = threading.Event()
        self._theirs = self.broker[0].encode() + struct.pack(">i", self.broker[1])
        self._ours = host.encode() + struct.pack(">i", own_port)

    def metadata(self, answer: bytes) -> bytes:
        """The broker's answer, of version 9 or newer, with this address or without brokers."""
        if not self.names_none:
            return answer.replace(self._theirs, self._ours)
        before = 4 + 1 + 4  # the number of the request, no tags, the time to wait
        behind = answer.index(self._theirs) + len(self._theirs)
        behind += max(answer[behind], 1) + 1  # the rack, or that there is none, and no tags
        self.none_named.set()
        return answer[:before] + b"\x01" + answer[behind:]


class _Connection(socketserver.StreamRequestHandler):
    """One connection: a broker answers its requests one after the other."""

    server: Switch

    def handle(self) -> None:
        with (
            suppress(ConnectionError),
            socket.create_connection(self.server.broker) as broker,
            broker.makefile("rb") as answers,
        ):
            while request := _read(self.rfile):
                _write(broker, request)
                answer = _read(answers)
                if not answer:
                    return
                if request[:2] == struct.pack(">h", METADATA):
                    answer = self.server.metadata(answer)
                _write(self.connection, answer)


def _read(stream: BufferedIOBase) -> bytes:
    """A request or an answer without its size; nothing at the end."""
    size = stream.read(4)
    return stream.read(*struct.unpack(">i", size)) if len(size) == 4 else b""


def _write(to: socket.socket, frame: bytes) -> None:
    to.sendall(struct.pack(">i", len(frame)) + frame)


@contextmanager
def _serving(switch: AnySwitch) -> Iterator[AnySwitch]:
    with switch:
        serving = threading.Thread(target=switch.serve_forever, args=(0.02,))
        serving.start()
        try:
            yield switch
        finally:
            switch.shutdown()
            serving.join()


def relay_before(bootstrap_servers: str) -> AbstractContextManager[Relay]:
    """A relay in front of that broker; close its clients before the relay ends."""
    return _serving(Relay(bootstrap_servers))


def switch_to(bootstrap_servers: str) -> AbstractContextManager[Switch]:
    """A switch that begins with that broker."""
    return _serving(Switch(bootstrap_servers))
