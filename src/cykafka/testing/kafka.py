"""Real Kafka for tests: brokers of Apache Kafka in processes of their own, on this machine."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from cykafka._consumer import Consumer
from cykafka._errors import KafkaException
from cykafka.testing._checks import check_int, check_topic
from cykafka.testing._deployment import Deployment
from cykafka.testing._errors import KafkaClusterError, NoBrokerError
from cykafka.testing._node import KafkaNode

__all__ = ["KafkaCluster", "KafkaClusterError", "KafkaNode", "NoBrokerError"]

_MAX_NODES = 9
_MAX_PORT = 2**16 - 1
_MAX_PARTITIONS = 10_000
_TOPIC_TIMEOUT_S = 30.0
_LOOK_S = 0.02
# Kafka's scripts (without .sh) -> their main classes.
_TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


class KafkaCluster:
    """A throw-away cluster of real Kafka brokers on this machine, for tests.

    Apache Kafka 4.3 in KRaft mode, every node broker and controller, in Java processes of their
    own, on loopback ports that stay the same over a node's restart. It needs Java 17 or newer;
    Kafka's jars are fetched by Maven, once per user. One node is ready in a few seconds; each
    takes about 300 MB. The processes end with this one, however it ends.

    Parameters
    ----------
    nodes : int, default 1
        Number of nodes, at most 9; their ids are 1 to `nodes`.
    port : int, default 0
        Port of the first node; the other nodes' follow. 0 for free ports.
    properties : mapping of str to object, optional
        Broker settings of your own, over those a test wants: topics are as replicated as the
        number of nodes allows (up to three times, ``min.insync.replicas=2`` from two nodes on),
        groups start without delay, a broker that is gone is noticed within about 2 s, ACLs can be
        administered.
    java_options : sequence of str, default ()
        Options for the brokers' Java beside ours, such as ``-Xmx1g``.
    start_timeout : float, default 60.0
        How long a node may take to get ready, in s.

    Raises
    ------
    NoBrokerError
        If there is no Java, or Kafka's jars are neither cached nor to be had; tells what to do.
    KafkaClusterError
        If a node does not start; tells what its log says and where that was kept.
    OSError
        If a port is taken.

    Notes
    -----
    A ``with`` block that is left by an exception keeps the brokers' logs and notes their place on
    the exception. Any thread may call any method. After a fork, the cluster is the parent's: in
    the child, `close` does nothing.

    Examples
    --------
    >>> with KafkaCluster(nodes=3) as cluster:
    ...     cluster.create_topic("orders", partitions=6, replication_factor=3)
    ...     producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    ...     cluster.nodes[0].kill()
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int = 0,
        properties: Mapping[str, object] | None = None,
        java_options: Sequence[str] = (),
        start_timeout: float = 60.0,
    ) -> None:
        check_int("nodes", nodes, 1, _MAX_NODES)
        check_int("port", port, 0, _MAX_PORT + 1 - nodes)
        self._deployment = Deployment(nodes, port, properties or {}, java_options, start_timeout)
        self._finalizer = weakref.finalize(self, self._deployment.close)
        try:
            self._deployment.start()
        except BaseException as error:
            self._note_logs(error)
            self.close()
            raise

    def close(self) -> None:
        """Kill the brokers and drop their data; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_value is not None and self._finalizer.alive:
            self._note_logs(exc_value)
        self.close()

    def __del__(self) -> None:
        finalizer = getattr(self, "_finalizer", None)  # None: the constructor raised
        if finalizer is not None and finalizer.alive and self._deployment.owned:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        if not self._finalizer.alive:
            return "<KafkaCluster closed>"
        return f"<KafkaCluster of {len(self.nodes)} at {self.bootstrap_servers}>"

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        """The nodes: to be killed, stopped, started, paused and resumed."""
        return self._deployment.nodes

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, joined by commas; for ``bootstrap.servers``."""
        self._check_open()
        return ",".join(node.bootstrap_servers for node in self.nodes)

    def create_topic(
        self,
        name: str,
        partitions: int = 4,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Create a topic and wait until every living broker knows it.

        Parameters
        ----------
        name : str
            Its name.
        partitions : int, default 4
            Number of partitions.
        replication_factor : int, optional
            Replicas of each partition; by default as many as there are nodes, at most 3.
        config : mapping of str to object, optional
            Settings of the topic, such as ``{"cleanup.policy": "compact"}``.

        Raises
        ------
        KafkaClusterError
            If the brokers refuse; in their words.
        """
        self._check_open()
        check_topic("name", name)
        check_int("partitions", partitions, 1, _MAX_PARTITIONS)
        if replication_factor is None:
            replication_factor = min(3, len(self.nodes))
        check_int("replication_factor", replication_factor, 1, len(self.nodes))
        self.tool(
            "kafka-topics",
            *("--create", "--topic", name, "--partitions", str(partitions)),
            *("--replication-factor", str(replication_factor)),
            *(arg for key, value in (config or {}).items() for arg in ("--config", f"{key}={value}")),
        )
        self._await_topic(name, partitions)

    def _await_topic(self, name: str, partitions: int) -> None:
        """Wait until every living broker knows the topic and its leaders."""
        deadline = time.monotonic() + _TOPIC_TIMEOUT_S
        for node in self.nodes:
            while node.alive and not node.paused and not _knows(node, name, partitions):
                if time.monotonic() >= deadline:
                    raise KafkaClusterError(
                        f"topic {name!r} was created, but {node!r} does not know it "
                        f"after {_TOPIC_TIMEOUT_S:g} s"
                    )
                time.sleep(_LOOK_S)

    def tool(self, name: str, *args: str, timeout: float = 120.0) -> str:
        """Run one of Kafka's command line tools on the cluster; takes a second or two.

        Parameters
        ----------
        name : str
            Kafka's name of its script, such as ``"kafka-configs"``, or a Java class.
        *args : str
            Its arguments; ``--bootstrap-server`` is given by itself.
        timeout : float, default 120.0
            How long it may take, in s.

        Returns
        -------
        str
            What it printed.

        Raises
        ------
        KafkaClusterError
            If it fails; with what it printed.

        Examples
        --------
        >>> cluster.tool("kafka-configs", "--alter", "--entity-type", "users", "--entity-name",
        ...              "alice", "--add-config", "producer_byte_rate=100000")
        """
        if "." not in name and name not in _TOOLS:
            raise ValueError(f"name must be a Java class or one of {', '.join(_TOOLS)}: {name!r}")
        servers = ("--bootstrap-server", self.bootstrap_servers)
        return self._deployment.tool(_TOOLS.get(name, name), *servers, *args, timeout=timeout)

    def keep_logs(self) -> Path:
        """Copy the brokers' logs into a fresh folder that stays, and return it."""
        self._check_open()
        return self._deployment.keep_logs()

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeError("the KafkaCluster is closed")
        if not self._deployment.owned:
            raise RuntimeError("the KafkaCluster belongs to the process that was forked from")

    def _note_logs(self, error: BaseException) -> None:
        error.add_note(f"the brokers' logs are kept in {self._deployment.keep_logs()}")


def _knows(node: KafkaNode, topic: str, partitions: int) -> bool:
    # A client that has heard of the other nodes would ask any of them. A consumer's question
    # creates no topic.
    config = {"bootstrap.servers": node.bootstrap_servers, "group.id": "cykafka-testing"}
    with Consumer(config) as client:
        try:
            found = client.list_topics(timeout=_TOPIC_TIMEOUT_S).topics.get(topic)
        except KafkaException:
            return False
    return (
        found is not None
        and len(found.partitions) == partitions
        and all(partition.leader > 0 for partition in found.partitions.values())
    )
