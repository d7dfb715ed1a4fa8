"""Settings for a test broker that is small, starts fast and detects failures fast."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# The listener for other nodes, the command line tools and plain clients. It does not authenticate
# clients, and treats them as super users.
PLAINTEXT = "plaintext"
_CONTROLLER = "CONTROLLER"
# How long a broker may be silent before the controller fences it.
SESSION_TIMEOUT = "broker.session.timeout.ms"


@dataclass(frozen=True)
class BrokerEndpoint:
    """An address that a broker listens on, and its security protocol."""

    name: str
    protocol: str
    host: str
    port: int

    @property
    def listener(self) -> str:
        """The listener's name in Kafka."""
        return self.name.upper()

    @property
    def address(self) -> str:
        """``host:port``, as brokers advertise it."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The value for ``listeners`` and ``advertised.listeners``."""
        return f"{self.listener}://{self.address}"


def server_properties(
    node: int,
    data: Path | str,
    endpoints: Sequence[BrokerEndpoint],
    controllers: Mapping[int, str],
) -> dict[str, str]:
    """Return one node's properties.

    Parameters
    ----------
    node : int
        The node's id.
    data : Path or str
        The directory for its records.
    endpoints : sequence of BrokerEndpoint
        Its listeners.
    controllers : mapping of int to str
        ``host:port`` of the controllers, by id.
    """
    replicas = min(3, len(controllers))
    in_sync = min(2, replicas)
    protocols = {endpoint.listener: endpoint.protocol for endpoint in endpoints}
    urls = [endpoint.url for endpoint in endpoints]
    settings: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{id_}@{at}" for id_, at in controllers.items()),
        "controller.listener.names": _CONTROLLER,
        "listeners": ",".join([*urls, f"{_CONTROLLER}://{controllers[node]}"]),
        "advertised.listeners": ",".join(urls),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {**protocols, _CONTROLLER: "PLAINTEXT"}.items()
        ),
        "inter.broker.listener.name": PLAINTEXT.upper(),
        "log.dirs": data,
        # A group starts with its first member, without waiting for more.
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.share.min.session.timeout.ms": 1000,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.min.record.lock.duration.ms": 1000,
        # Members learn of changes, and brokers detect dead members, before a test times out.
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.session.timeout.ms": 6000,
        "group.share.heartbeat.interval.ms": 500,
        "group.share.session.timeout.ms": 6000,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        # Brokers would soon delete records whose timestamps are more than 7 days old. A user's
        # log.retention.ms or .minutes takes precedence over the hours.
        "log.retention.hours": -1,
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,  # per cleaner thread, of a small heap
        # The cluster detects a killed broker within about two seconds.
        "broker.heartbeat.interval.ms": 300,
        SESSION_TIMEOUT: 2000,
        # KafkaCluster's start_timeout limits a node's start.
        "initial.broker.registration.timeout.ms": 2**31 - 1,
        "controller.quorum.election.timeout.ms": 500,
        "controller.quorum.fetch.timeout.ms": 1000,
        "controller.quorum.election.backoff.max.ms": 300,
        "replica.lag.time.max.ms": 3000,
        # Supports ACLs; resources without an ACL allow every client.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    return {name: str(value) for name, value in settings.items()}


def write_properties(path: Path, settings: Mapping[str, object]) -> None:
    """Write a .properties file that only its owner may read, because it contains passwords."""
    path.touch(mode=0o600)
    path.write_text(
        "".join(f"{_escaped_key(name)}={_escaped(value)}\n" for name, value in settings.items()),
        encoding="ascii",
    )


def kafka_uuid() -> str:
    """Return a random id in Kafka's format: 22 characters of base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # the tools would read it as an option
            return text


def _escaped(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    # Java would read a leading blank as part of the separator.
    text = f"\\{text}" if text[:1].isspace() else text
    return "".join(char if char.isascii() else _unicode_escape(char) for char in text)


def _escaped_key(name: str) -> str:
    return re.sub(r"([\s:=#!])", r"\\\1", _escaped(name))


def _unicode_escape(char: str) -> str:
    units = char.encode("utf-16-be")  # Java's characters
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
