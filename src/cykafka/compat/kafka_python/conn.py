"""A connection to one broker, and the parsing of host lists."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from logging import getLogger
from threading import local
from typing import TYPE_CHECKING, Any, NoReturn

from cykafka.compat.kafka_python._later import getattr_of
from cykafka.compat.kafka_python.common import ConnectionError

log = getLogger("kafka.conn")

DEFAULT_SOCKET_TIMEOUT_SECONDS = 120
DEFAULT_KAFKA_PORT = 9092

_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+?))\s*(?::\s*(\d+))?")


def collect_hosts(hosts: str | Iterable[str], randomize: bool = True) -> list[tuple[str, int]]:
    """Parse broker addresses.

    Parameters
    ----------
    hosts : str or iterable of str
        ``host`` or ``host:port``, separated by commas. An IPv6 address has brackets:
        ``[::1]:9092``. Empty addresses are skipped.
    randomize : bool
        Shuffle the result.

    Returns
    -------
    list of tuple
        The hosts and ports. The default port is 9092.

    Raises
    ------
    ValueError
        An address has a different form.
    """
    if isinstance(hosts, str):
        hosts = hosts.split(",")
    result = []
    for address in filter(None, map(str.strip, hosts)):
        match = _HOST.fullmatch(address)
        if match is None:
            raise ValueError(
                f"hosts: expected host, host:port or [IPv6 address]:port, got {address!r}"
            )
        ipv6, host, port = match.groups()
        result.append((ipv6 or host, int(port or DEFAULT_KAFKA_PORT)))
    if randomize:
        random.shuffle(result)
    return result


# Requests that brokers since 4.0 do not support, and what sends them.
_REMOVED: dict[int | None, str] = {
    0: "send_produce_request",
    1: "send_fetch_request",
    2: "send_offset_request",
}


def _inactive(
    cls: type[KafkaConnection], host: str, port: int, timeout: float | None
) -> KafkaConnection:
    """Create a connection without connecting."""
    # Do not call __init__, which connects. Other threads call it at their first access.
    connection = cls.__new__(cls, host, port, timeout)  # type: ignore[call-arg]
    connection.host, connection.port, connection.timeout = host, port, timeout
    connection._sock = None
    return connection


class KafkaConnection(local):
    """A connection to one broker. The constructor connects.

    Each thread uses its own socket, which connects when the thread first uses the connection.
    Call `recv` after each `send`. An error closes the connection; the next call connects again.

    Brokers since Kafka 4.0 do not support the old requests that `KafkaProtocol` encodes. They
    close the connection.

    Parameters
    ----------
    host : str
    port : int
    timeout : float or None
        The longest wait for a connection, and for a part of a request or response, in seconds.
        None waits forever.

    Raises
    ------
    ConnectionError
        From any method but `copy` and `close`: a connection failed, or the broker closed it.
    """

    # The kind of request whose response has not started.
    _awaited: int | None = None

    def __init__(
        self, host: str, port: int, timeout: float | None = DEFAULT_SOCKET_TIMEOUT_SECONDS
    ) -> None:
        super().__init__()
        self.host = host
        self.port = port
        self.timeout = timeout
        self._sock: socket.socket | None = None
        self.reinit()

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles are not connected.
        return _inactive, (type(self), self.host, self.port, self.timeout)

    def __repr__(self) -> str:
        return f"<KafkaConnection host={self.host} port={self.port}>"

    def _raise_connection_error(self) -> NoReturn:
        if self._sock is not None:
            self.close()
        text = f"Kafka @ {self.host}:{self.port} went away"
        instead = _REMOVED.get(self._awaited)
        if instead is not None:
            text += f"; brokers since 4.0 do so after this request: use KafkaClient.{instead}()"
        raise ConnectionError(text)

    def _read_bytes(self, num_bytes: int) -> bytes:
        sock = self.get_connected_socket()
        parts = []
        left = num_bytes
        while left:
            try:
                data = sock.recv(min(left, 4096))
                if not data:
                    raise OSError("the broker closed the connection in the middle of a response")
            except OSError:
                log.exception("Cannot receive data from %s:%s", self.host, self.port)
                self._raise_connection_error()
            left -= len(data)
            parts.append(data)
        return b"".join(parts)

    def get_connected_socket(self) -> socket.socket:
        """Return this thread's socket. Connects first if necessary."""
        if self._sock is None:
            self.reinit()
        assert self._sock is not None
        return self._sock

    def send(self, request_id: int, payload: bytes) -> None:
        """Send a request.

        Parameters
        ----------
        request_id : int
            Only for the log.
        payload : bytes
            A request with its length, as `KafkaProtocol` encodes it.
        """
        log.debug("Sending request %s of %d bytes", request_id, len(payload))
        self._awaited = None
        sock = self.get_connected_socket()
        try:
            sock.sendall(payload)
        except OSError:
            log.exception("Cannot send a request to %s:%s", self.host, self.port)
            self._raise_connection_error()
        self._awaited = int.from_bytes(payload[4:6], "big")

    def recv(self, request_id: int) -> bytes:
        """Receive a response.

        Parameters
        ----------
        request_id : int
            Only for the log.

        Returns
        -------
        bytes
            The response without its length, as `KafkaProtocol` decodes it.
        """
        log.debug("Receiving the response to request %s", request_id)
        (size,) = struct.unpack(">i", self._read_bytes(4))
        self._awaited = None
        if size < 0:
            log.error("%s:%s sent a response of %d bytes", self.host, self.port, size)
            self._raise_connection_error()
        return self._read_bytes(size)

    def copy(self) -> KafkaConnection:
        """Create a connection to the same broker for another thread.

        In this thread it connects only at its first `reinit`, `send` or `recv`.
        """
        factory, arguments = self.__reduce__()
        copied: KafkaConnection = factory(*arguments)
        return copied

    def close(self) -> None:
        """Close the socket of this thread. The next `send` or `recv` connects again."""
        log.debug("Closing the connection to %s:%s", self.host, self.port)
        sock, self._sock = self._sock, None
        if sock is None:
            return
        with suppress(OSError):  # the broker may have closed it first
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def reinit(self) -> None:
        """Close the socket of this thread and connect again."""
        log.debug("Connecting to %s:%s", self.host, self.port)
        if self._sock is not None:
            self.close()
        try:
            self._sock = socket.create_connection((self.host, self.port), self.timeout)
        except OSError:
            log.exception("Cannot connect to %s:%s", self.host, self.port)
            self._raise_connection_error()


if not TYPE_CHECKING:  # type checkers would take any name for one of this module
    __getattr__ = getattr_of("kafka.conn")
