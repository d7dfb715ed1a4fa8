"""Relays between clients and a broker that change requests and answers."""

from __future__ import annotations

import random
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BufferedIOBase
from typing import Any, TypeVar

__all__ = [
    "ADD_PARTITIONS_TO_TXN",
    "API_VERSIONS",
    "DELETE_TOPICS",
    "ELECT_LEADERS",
    "FIND_COORDINATOR",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_FETCH",
    "PRODUCE",
    "CorruptingRelay",
    "Relay",
    "ReplacingRelay",
    "StallingRelay",
    "Switch",
    "relay_before",
    "serving",
    "switch_to",
    "without_broker",
]

AnySwitch = TypeVar("AnySwitch", bound="Switch")

# The numbers of requests in Kafka's protocol.
PRODUCE, LIST_OFFSETS, METADATA, OFFSET_FETCH = 0, 2, 3, 9
FIND_COORDINATOR, API_VERSIONS = 10, 18
DELETE_TOPICS, ADD_PARTITIONS_TO_TXN, ELECT_LEADERS = 20, 24, 43


class Switch(socketserver.ThreadingTCPServer):
    """A fixed address in front of a broker, which another broker may replace."""

    daemon_threads = True
    host = "127.0.0.1"

    def __init__(self, bootstrap_servers: str) -> None:
        self.turn_to(bootstrap_servers)
        super().__init__((self.host, 0), _Connection)
        self.port: int = self.server_address[1]
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.bootstrap_servers = f"{host}:{self.port}"

    def turn_to(self, bootstrap_servers: str) -> None:
        """Send new connections to this broker, ``host:port``."""
        host, port = bootstrap_servers.split(":")
        self.broker = host, int(port)

    def request(self, number: int, request: bytes) -> bytes:
        """Return the broker's version of a client's request of that number."""
        return request

    def answer(self, request: int, answer: bytes) -> bytes:
        """Return the clients' version of the broker's answer to a request of that number."""
        return answer


class Relay(Switch):
    """Another address of a cluster's only broker. Answers tell clients only this address.

    On demand the answers name no broker, or the address refuses connections.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.names_none = False
        self.none_named = threading.Event()
        self._theirs = self.broker[0].encode() + struct.pack(">i", self.broker[1])
        self._ours = self.host.encode() + struct.pack(">i", self.port)
        self._connections: set[socket.socket] = set()

    def answer(self, request: int, answer: bytes) -> bytes:
        """Return the broker's answer with this address. On demand a metadata answer names no
        brokers."""
        if request not in {METADATA, FIND_COORDINATOR}:
            return answer
        if request != METADATA or not self.names_none:
            return answer.replace(self._theirs, self._ours)
        self.none_named.set()
        return without_broker(answer, self._theirs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a new connection."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection that was served."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        """Refuse new connections, and end existing ones."""
        self.shutdown()
        self.server_close()
        self.cut()

    def cut(self) -> None:
        """End the existing connections."""
        for connection in list(self._connections):
            with suppress(OSError):  # the connection has already ended
                connection.shutdown(socket.SHUT_RDWR)


class ReplacingRelay(Relay):
    """A relay that gives the answers to one kind of request itself."""

    def __init__(self, bootstrap_servers: str, request: int, body: bytes) -> None:
        super().__init__(bootstrap_servers)
        self.replaced, self.body = request, body

    def answer(self, request: int, answer: bytes) -> bytes:
        """Return the broker's answer, or the body behind the answer's correlation id."""
        if request == self.replaced:
            return answer[:4] + self.body
        return super().answer(request, answer)


class StallingRelay(Relay):
    """A relay that on demand does not answer the next request of one kind, nor those behind it
    on the same connection."""

    def __init__(self, bootstrap_servers: str, request: int) -> None:
        super().__init__(bootstrap_servers)
        self.kind = request
        self.stalled = False
        self._stalls = False
        self._resumed = threading.Event()

    def stall_next(self) -> None:
        """Stall the connection that asks next."""
        self._stalls = True

    def resume(self) -> None:
        """Answer again."""
        self._resumed.set()

    def answer(self, request: int, answer: bytes) -> bytes:
        """Return the broker's answer, perhaps too late."""
        if self._stalls and request == self.kind:
            self._stalls, self.stalled = False, True
            self._resumed.wait()
        return super().answer(request, answer)


class CorruptingRelay(Relay):
    """A relay that alters a share of the answers: flips bits, cuts the end off, or overwrites
    integers."""

    # What integers of lengths, counts and numbers become.
    integers = (0, -1, 1, 2, 127, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 0x01010101)

    def __init__(self, bootstrap_servers: str, seed: int, share: float = 0.12) -> None:
        super().__init__(bootstrap_servers)
        self.dice = random.Random(seed)
        self.share = share

    def answer(self, request: int, answer: bytes) -> bytes:
        """Return the answer, or an altered one, with this address."""
        answer = super().answer(request, answer)
        if self.dice.random() >= self.share or len(answer) < 5:
            return answer
        altered = self.altered(answer)
        # Another address might be that of a real host.
        return answer if self._ours in answer and self._ours not in altered else altered

    def altered(self, answer: bytes) -> bytes:
        """Alter an answer behind its correlation id."""
        body = bytearray(answer)
        kind = self.dice.choice(("flip", "cut", "overwrite"))
        if kind == "cut":
            return answer[: self.dice.randrange(4, len(answer))]
        for _ in range(self.dice.randrange(1, 4)):
            at = self.dice.randrange(4, len(answer))
            if kind == "flip":
                body[at] ^= 1 << self.dice.randrange(8)
            else:
                size = self.dice.choice((1, 2, 4, 8))
                number = self.dice.choice(self.integers) & (2 ** (8 * size) - 1)
                body[at : at + size] = number.to_bytes(size)[: len(body) - at]
        return bytes(body)


def without_broker(answer: bytes, address: bytes) -> bytes:
    """A metadata answer (version 9 or newer) without the broker of that host and port."""
    count = 4 + 1 + 4  # behind correlation id, empty tags, throttle time
    host = answer.index(address)
    begin = host - 1 - 4  # the length of the host, and the broker's id
    end = host + len(address)
    end += max(answer[end], 1) + 1  # the rack or null, and empty tags
    return answer[:count] + bytes([answer[count] - 1]) + answer[count + 1 : begin] + answer[end:]


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
                (number,) = struct.unpack_from(">h", request)
                _write(broker, self.server.request(number, request))
                answer = _read(answers)
                if not answer:
                    return
                _write(self.connection, self.server.answer(number, answer))


def _read(stream: BufferedIOBase) -> bytes:
    """A request or an answer without its size; empty at the end of the stream."""
    size = stream.read(4)
    return stream.read(*struct.unpack(">i", size)) if len(size) == 4 else b""


def _write(to: socket.socket, frame: bytes) -> None:
    to.sendall(struct.pack(">i", len(frame)) + frame)


@contextmanager
def serving(switch: AnySwitch) -> Iterator[AnySwitch]:
    """Run the switch: it accepts connections."""
    with switch:
        thread = threading.Thread(target=switch.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield switch
        finally:
            switch.shutdown()
            thread.join()


def relay_before(bootstrap_servers: str) -> AbstractContextManager[Relay]:
    """A relay in front of that broker; close its clients before the relay ends."""
    return serving(Relay(bootstrap_servers))


def switch_to(bootstrap_servers: str) -> AbstractContextManager[Switch]:
    """A switch that begins with that broker."""
    return serving(Switch(bootstrap_servers))
