"""Connections to brokers, and the parsing of host lists."""

from __future__ import annotations

import copy
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cykafka.compat.kafka_python import conn
from cykafka.compat.kafka_python.common import ConnectionError
from cykafka.compat.kafka_python.conn import KafkaConnection, collect_hosts

pytestmark = pytest.mark.ours

WAIT_S = 30


class Broker:
    """Accepts connections. The test reads and writes them."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WAIT_S)
        self.port: int = self.listener.getsockname()[1]
        self.accepted: list[socket.socket] = []

    def accept(self) -> socket.socket:
        peer, _ = self.listener.accept()
        peer.settimeout(WAIT_S)
        self.accepted.append(peer)
        return peer

    def close(self) -> None:
        for item in (self.listener, *self.accepted):
            item.close()

    def has_a_waiting_connection(self) -> bool:
        self.listener.settimeout(0)
        try:
            self.accept()
        except BlockingIOError:
            return False
        finally:
            self.listener.settimeout(WAIT_S)
        return True


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[..., KafkaConnection]]:
    """Make connections to the broker that are closed at the end of the test."""
    made: list[KafkaConnection] = []

    def connect(**options: Any) -> KafkaConnection:
        made.append(KafkaConnection("127.0.0.1", broker.port, **options))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("a:1,b", [("a", 1), ("b", 9092)]),
        (" a:1 , b ", [("a", 1), ("b", 9092)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        (("a : 1",), [("a", 1)]),
        ("[::1]:1,[fe80::2]", [("::1", 1), ("fe80::2", 9092)]),
        ("a,", [("a", 9092)]),
        ("", []),
        ([], []),
    ],
)
def test_collect_hosts_reads_hosts_and_ports(hosts: Any, expected: list[tuple[str, int]]) -> None:
    assert collect_hosts(hosts, randomize=False) == expected
    assert sorted(collect_hosts(hosts)) == sorted(expected)


def test_collect_hosts_shuffles_hosts() -> None:
    hosts = [f"host{i}" for i in range(100)]

    assert collect_hosts(hosts) != collect_hosts(hosts, randomize=False)


@pytest.mark.parametrize(
    "hosts", ["a:b", "a:", "a:1:2", ":1", "::1", "[::1", "[::1]1", "[]:1", "a:-1", "a b:c"]
)
def test_collect_hosts_raises_for_another_form(hosts: str) -> None:
    with pytest.raises(ValueError, match="expected host, host:port or"):
        collect_hosts(hosts)


def test_constants_are_those_of_the_original() -> None:
    assert (conn.DEFAULT_KAFKA_PORT, conn.DEFAULT_SOCKET_TIMEOUT_SECONDS) == (9092, 120)


def test_connection_connects_when_made(
    broker: Broker, connect: Callable[..., KafkaConnection]
) -> None:
    connection = connect()
    peer = broker.accept()

    sock = connection.get_connected_socket()
    assert sock.getsockname() == peer.getpeername()
    assert sock.gettimeout() == 120
    assert connection.timeout == 120
    assert repr(connection) == f"<KafkaConnection host=127.0.0.1 port={broker.port}>"


def test_connection_raises_for_a_closed_port(closed_port: int) -> None:
    with pytest.raises(ConnectionError, match=f"Kafka @ 127.0.0.1:{closed_port} went away"):
        KafkaConnection("127.0.0.1", closed_port)


def test_send_and_recv_exchange_requests_and_responses(
    broker: Broker, connect: Callable[..., KafkaConnection]
) -> None:
    connection = connect()
    peer = broker.accept()

    connection.send(1, b"\0\0\0\x01a")
    assert peer.recv(99) == b"\0\0\0\x01a"
    # Longer than one read, with the next response behind it.
    large = bytes(range(256)) * 40
    peer.sendall(struct.pack(">i", len(large)) + large + b"\0\0\0\x02ok" + b"\0\0\0\0")

    assert connection.recv(1) == large
    assert connection.recv(2) == b"ok"
    assert connection.recv(3) == b""


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x03ab", b"\xff\xff\xff\xff"])
def test_recv_raises_and_closes_after_a_broken_response(
    broker: Broker, connect: Callable[..., KafkaConnection], sent: bytes
) -> None:
    connection = connect()
    sock = connection.get_connected_socket()
    peer = broker.accept()
    peer.sendall(sent)
    peer.shutdown(socket.SHUT_WR)

    with pytest.raises(ConnectionError, match="went away"):
        connection.recv(1)

    assert sock.fileno() == -1
    assert not broker.has_a_waiting_connection()


def test_recv_raises_after_the_timeout(
    broker: Broker, connect: Callable[..., KafkaConnection]
) -> None:
    connection = connect(timeout=0.05)
    broker.accept()

    with pytest.raises(ConnectionError):
        connection.recv(1)


def test_send_raises_and_closes_after_an_error(
    broker: Broker, connect: Callable[..., KafkaConnection]
) -> None:
    connection = connect()
    connection.get_connected_socket().shutdown(socket.SHUT_WR)

    with pytest.raises(ConnectionError, match="went away"):
        connection.send(1, b"a")

    connection.send(2, b"b")
    broker.accept()
    assert broker.accept().recv(9) == b"b"


def test_closed_connection_connects_again(
    broker: Broker, connect: Callable[..., KafkaConnection]
) -> None:
    connection = connect()
    first = broker.accept()
    connection.close()
    connection.close()
    assert first.recv(1) == b""

    connection.send(1, b"a")
    second = broker.accept()
    assert second.recv(9) == b"a"
    connection.reinit()
    assert second.recv(1) == b""
    broker.accept().sendall(b"\0\0\0\x01b")
    assert connection.recv(2) == b"b"


def test_reinit_raises_when_the_broker_is_gone(
    broker: Broker, connect: Callable[..., KafkaConnection]
) -> None:
    connection = connect()
    broker.close()

    for attempt in (connection.reinit, connection.get_connected_socket):
        with pytest.raises(ConnectionError):
            attempt()


def via_pickle(connection: KafkaConnection) -> Any:
    return pickle.loads(pickle.dumps(connection))


@pytest.mark.parametrize("duplicate", [KafkaConnection.copy, copy.deepcopy, via_pickle])
def test_copies_are_not_connected_before_their_use(
    broker: Broker,
    connect: Callable[..., KafkaConnection],
    duplicate: Callable[[KafkaConnection], KafkaConnection],
) -> None:
    connection = connect(timeout=7)
    broker.accept()

    copied = duplicate(connection)

    assert (copied.host, copied.port, copied.timeout) == ("127.0.0.1", broker.port, 7)
    assert not broker.has_a_waiting_connection()
    copied.send(1, b"a")
    assert broker.accept().recv(9) == b"a"
    connection.send(2, b"b")
    assert broker.accepted[0].recv(9) == b"b"
    copied.close()


@pytest.mark.parametrize("copies", [False, True])
def test_each_thread_has_its_own_socket(
    broker: Broker, connect: Callable[..., KafkaConnection], copies: bool
) -> None:
    connection = connect()
    broker.accept()
    shared = connection.copy() if copies else connection
    seen: list[Any] = []

    def use() -> None:
        seen.append((shared.host, shared.port))
        shared.send(1, b"a")
        shared.close()

    thread = threading.Thread(target=use)
    thread.start()
    assert broker.accept().recv(9) == b"a"
    thread.join(WAIT_S)

    assert seen == [("127.0.0.1", broker.port)]
    connection.send(1, b"b")
    assert broker.accepted[0].recv(9) == b"b"
