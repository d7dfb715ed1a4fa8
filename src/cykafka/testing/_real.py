"""The base of clusters of real brokers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from cykafka._core.common.errors import KafkaException
from cykafka._core.common.partition import TopicPartition
from cykafka._core.produce.producer import Producer
from cykafka.admin import AdminClient, NewTopic, OffsetSpec
from cykafka.testing._checks import check_int, check_topic
from cykafka.testing._errors import KafkaClusterError
from cykafka.testing._node import KafkaNode
from cykafka.testing._tools import TIMEOUT_S, run_tool

_MAX_PARTITIONS = 10_000
_TOPIC_TIMEOUT_S = 30.0
_LOOK_S = 0.02


class RealCluster(ABC):
    """Real Kafka brokers: a `KafkaCluster`, which starts its nodes, or an `ExternalCluster`."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, joined by commas; for ``bootstrap.servers``."""

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        """The nodes that can be controlled; empty for brokers that this process did not start."""
        return ()

    def keep_logs(self) -> Path | None:
        """Copy the brokers' logs into a new folder that stays; None if they are not accessible."""
        return None

    @abstractmethod
    def _askable(self) -> Sequence[str]:
        """Addresses of the brokers that must know a new topic before a test uses it."""

    def create_topic(
        self,
        name: str,
        partitions: int = 4,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic and wait until the brokers know it.

        Parameters
        ----------
        name : str
            Its name.
        partitions : int, default 4
            Number of partitions.
        replication_factor : int, optional
            Replicas of each partition; by default as the brokers are configured.
        config : mapping of str to object, optional
            Settings of the topic, such as ``{"cleanup.policy": "compact"}``.

        Raises
        ------
        KafkaClusterError
            If the brokers refuse; the message is theirs.
        """
        servers = self.bootstrap_servers
        check_topic("name", name)
        check_int("partitions", partitions, 1, _MAX_PARTITIONS)
        if replication_factor is None:
            replication_factor = -1
        else:
            check_int("replication_factor", replication_factor, 1, 2**15 - 1)
        settings = {key: str(value) for key, value in (config or {}).items()}
        topic = NewTopic(name, partitions, replication_factor, config=settings)
        with AdminClient({"bootstrap.servers": servers, "log_level": 0}) as admin:
            try:
                admin.create_topics([topic], request_timeout=_TOPIC_TIMEOUT_S)[name].result()
            except KafkaException as error:
                raise KafkaClusterError(f"topic {name!r}: {error.args[0].str()}") from None
            deadline = time.monotonic() + _TOPIC_TIMEOUT_S
            for address in self._askable():
                known = partial(_knows, address, name, partitions)
                _await(known, deadline, name, address)
            # A broker may still refuse requests although the metadata names it as leader.
            _await(partial(_serves, admin, name, partitions), deadline, name, servers)

    def tool(self, name: str, *args: str, timeout: float = TIMEOUT_S) -> str:
        """Run one of Kafka's command line tools on the cluster; takes a second or two.

        Parameters
        ----------
        name : str
            Kafka's name of its script, such as ``"kafka-configs"``, or a Java class.
        *args : str
            Its arguments, without ``--bootstrap-server``, which is added.
        timeout : float, default 120.0
            Longest run in s.

        Returns
        -------
        str
            Its output.

        Raises
        ------
        NoBrokerError
            If there is no Java, or Kafka's jars are neither cached nor downloadable.
        KafkaClusterError
            If the tool fails; the message has its output.

        Examples
        --------
        >>> cluster.tool("kafka-configs", "--alter", "--entity-type", "users", "--entity-name",
        ...              "alice", "--add-config", "producer_byte_rate=100000")
        """
        servers = ("--bootstrap-server", self.bootstrap_servers)
        return run_tool(name, *servers, *args, timeout=timeout)


def _await(ready: Callable[[], bool], deadline: float, topic: str, address: str) -> None:
    while not ready():
        if time.monotonic() >= deadline:
            raise KafkaClusterError(
                f"topic {topic!r} was created, but {address} still does not know it after "
                f"{_TOPIC_TIMEOUT_S:g} s"
            )
        time.sleep(_LOOK_S)


def _serves(admin: AdminClient, topic: str, partitions: int) -> bool:
    latest = OffsetSpec.latest()
    asked = {TopicPartition(topic, number): latest for number in range(partitions)}
    try:
        for future in admin.list_offsets(asked).values():
            future.result()
    except KafkaException:
        return False
    return True


def _knows(address: str, topic: str, partitions: int) -> bool:
    # A client that knows the other brokers would ask any of them, so use a new client each time.
    with Producer({"bootstrap.servers": address, "log_level": 0}) as client:
        try:
            found = client.list_topics(timeout=_TOPIC_TIMEOUT_S).topics.get(topic)
        except KafkaException:
            return False
    return (
        found is not None
        and len(found.partitions) == partitions
        and all(partition.leader > 0 for partition in found.partitions.values())
    )
