"""Brokers with IPv6 addresses, which librdkafka writes in brackets since 2.15.1."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from typing import Any

import pytest
import trustme
from fixture_types import MakeConsumer, MakeProducer, Read, WaitUntil
from machine import WAIT_S
from relay import FIND_COORDINATOR, METADATA, Switch, serving

from cykafka.stats import parse


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback (::1)")


class AtIPv6(Switch):
    """The cluster's only broker at [::1], with TLS if `secured` is set."""

    address_family = socket.AF_INET6
    host = "::1"
    secured: ssl.SSLContext | None = None

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. socketserver drops it if the handshake fails."""
        connection, address = super().get_request()
        if self.secured is not None:
            connection = self.secured.wrap_socket(connection, server_side=True)
        return connection, address

    def answer(self, request: int, answer: bytes) -> bytes:
        """Name this address in place of the broker's: texts have their length in front."""
        if request not in {METADATA, FIND_COORDINATOR}:
            return answer
        host, port = self.broker[0].encode(), struct.pack(">i", self.broker[1])
        own, own_port = self.host.encode(), struct.pack(">i", self.port)
        for before, length in ((b"", 1), (b"\0", 0)):  # compact texts, and others
            theirs = before + bytes([len(host) + length]) + host + port
            answer = answer.replace(theirs, before + bytes([len(own) + length]) + own + own_port)
        return answer


def test_records_groups_and_transactions_at_an_ipv6_address(
    cluster: Any, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, read: Read
) -> None:
    seen: list[str] = []
    with serving(AtIPv6(cluster.bootstrap_servers)) as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        producer = make_producer({**servers, "transactional.id": topic})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.commit_transaction(WAIT_S)
        consumer = make_consumer(
            {**servers, "group.id": topic, "stats_cb": seen.append, "statistics.interval.ms": 50}
        )
        consumer.subscribe([topic])
        (message,) = read(consumer, 1)
        assert message.value() == b"x"
        assert consumer.commit(asynchronous=False)[0].error is None
        while not seen:
            consumer.poll(0.05)
        found = consumer.list_topics(timeout=WAIT_S).brokers
        consumer.close()
        producer.close()
    assert {broker.host for broker in found.values()} == {"::1"}
    brokers = json.loads(seen[-1])["brokers"]
    address = broker.bootstrap_servers
    assert brokers[f"{address}/1"]["nodename"] == address == f"[::1]:{broker.port}"
    assert parse(seen[-1]).brokers[f"{address}/1"].address == address
    assert brokers["GroupCoordinator"]["nodename"] == address


@pytest.mark.parametrize(
    ("name", "trusted"), [("::1", True), ("localhost", False), ("127.0.0.1", False)]
)
def test_certificate_of_an_ipv6_address_is_checked_by_its_address(
    cluster: Any,
    topic: str,
    make_producer: MakeProducer,
    wait_until: WaitUntil,
    tmp_path: Any,
    name: str,
    trusted: bool,
) -> None:
    """librdkafka looks for the address in the certificate's iPAddress entries."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, common_name="::1").configure_cert(context)
    errors: list[str] = []
    with serving(AtIPv6(cluster.bootstrap_servers)) as broker:
        broker.secured = context
        producer = make_producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "ssl",
                "ssl.ca.location": str(tmp_path / "ca.pem"),
                "error_cb": lambda error: errors.append(error.str()),
                "log_level": 0,
            }
        )
        producer.produce(topic, b"x")
        if trusted:
            assert producer.flush(WAIT_S) == 0
        else:
            wait_until(
                lambda: "certificate verify failed" in "".join(errors),
                lambda: producer.poll(0.05),
            )
            producer.purge()
        producer.close()
