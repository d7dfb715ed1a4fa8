"""What stands between clients and a broker, and changes what the broker answers."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase

__all__ = ["Relay", "relay_before"]

METADATA = 3  # the request's number in Kafka's protocol


class Relay(socketserver.ThreadingTCPServer):
    """The address of a cluster's only broker for clients; it can be told to name no broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, port = bootstrap_servers.split(":")
        self.broker = host, int(port)
        super().__init__((host, 0), _Connection)
        own_port = self.server_address[1]
        self.bootstrap_servers = f"{host}:{own_port}"
        self.names_none = False
        self._theirs = host.encode() + struct.pack(">i", self.broker[1])
        self._ours = host.encode() + struct.pack(">i", own_port)

    def metadata(self, answer: bytes) -> bytes:
        """The broker's answer, of version 9 or newer, with this address or without brokers."""
        if not self.names_none:
            return answer.replace(self._theirs, self._ours)
        before = 4 + 1 + 4  # the number of the request, no tags, the time to wait
        behind = answer.index(self._theirs) + len(self._theirs)
        behind += max(answer[behind], 1) + 1  # the rack, or that there is none, and no tags
        return answer[:before] + b"\x01" + answer[behind:]


class _Connection(socketserver.StreamRequestHandler):
    """One connection: a broker answers its requests one after the other."""

    server: Relay

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
def relay_before(bootstrap_servers: str) -> Iterator[Relay]:
    """A relay before that broker; at its end it waits for its clients, which must be closed."""
    with Relay(bootstrap_servers) as relay:
        serving = threading.Thread(target=relay.serve_forever, args=(0.02,))
        serving.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            serving.join()
