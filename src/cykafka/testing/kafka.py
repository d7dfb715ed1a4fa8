"""Real Kafka for tests: Apache Kafka's brokers in separate processes on this machine."""

from __future__ import annotations

import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.naming import public
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer
from cykafka._core.produce.producer import Producer
from cykafka.admin import AdminClient, NewTopic, OffsetSpec
from cykafka.testing._deployment import Deployment
from cykafka.testing._java import KAFKA, TOOL_TIMEOUT_S, archived_classes, java, run_tool
from cykafka.testing._node import KafkaNode
from cykafka.testing._process import KafkaClusterError, NoBrokerError
from cykafka.testing._server_properties import PLAINTEXT
from cykafka.testing.cluster import check_int, check_topic

__all__ = ["KafkaCluster", "KafkaClusterError", "KafkaNode", "NoBrokerError"]

_MAX_NODES = 9
_FIRST_TIMEOUT_S = 120.0
_MAX_PORT = 2**16 - 1
_MAX_PARTITIONS = 10_000
_TOPIC_TIMEOUT_S = 60.0
# A client learns of a new controller only with its next request, so keep requests short.
_REQUEST_TIMEOUT_S = 10.0
_LOOK_S = 0.02
# Errors while a cluster has no controller, as on a busy machine.
_PASSING = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
)


class RealCluster(ABC):
    """Real Kafka brokers: a `KafkaCluster`, which starts its nodes, or an `ExternalCluster`."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, joined by commas; for ``bootstrap.servers``."""

    @property
    def nodes(self) -> tuple[KafkaNode, ...]:
        """The nodes that you can control; empty for brokers that this process did not start."""
        return ()

    def keep_logs(self) -> Path | None:
        """Copy the brokers' logs to a new, permanent directory; None if they are inaccessible."""
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
        """Create a topic and wait until the brokers know it, for at most 60 s.

        The call retries while the cluster has no controller.

        Parameters
        ----------
        name : str
            Its name.
        partitions : int, default 4
            Number of partitions.
        replication_factor : int, optional
            Replicas per partition; by default the brokers' default.
        config : mapping of str to object, optional
            Topic settings, such as ``{"cleanup.policy": "compact"}``.

        Raises
        ------
        KafkaClusterError
            If the brokers refuse, with their message.
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
            deadline = time.monotonic() + _TOPIC_TIMEOUT_S
            _create(admin, topic, deadline)
            for address in self._askable():
                known = partial(_knows, address, name, partitions)
                _await(known, deadline, name, address)
            # A broker may still refuse requests although the metadata names it as leader.
            _await(partial(_serves, admin, name, partitions), deadline, name, servers)

    def tool(self, name: str, *args: str, timeout: float = TOOL_TIMEOUT_S) -> str:
        """Run one of Kafka's command line tools on the cluster; takes a second or two.

        Parameters
        ----------
        name : str
            The script's name in Kafka, such as ``"kafka-configs"``, or a Java class.
        *args : str
            Its arguments. The method adds ``--bootstrap-server``.
        timeout : float, default 120.0
            Longest run in s.

        Returns
        -------
        str
            Its output.

        Raises
        ------
        NoBrokerError
            If Java is missing, or Kafka's jars are neither cached nor downloadable.
        KafkaClusterError
            If the tool fails; the message contains its output.

        Examples
        --------
        >>> cluster.tool("kafka-configs", "--alter", "--entity-type", "users", "--entity-name",
        ...              "alice", "--add-config", "producer_byte_rate=100000")
        """
        servers = ("--bootstrap-server", self.bootstrap_servers)
        return run_tool(name, *servers, *args, timeout=timeout)


@public("cykafka.testing")
class KafkaCluster(RealCluster):
    """A throw-away cluster of real Kafka brokers on this machine, for tests.

    The cluster runs Apache Kafka 4.3 in KRaft mode and needs Java 17 or newer. Every node is
    broker and controller in its own Java process. Its loopback ports stay the same when the node
    restarts. Maven fetches Kafka's jars once per user. A node is ready in a few seconds and takes
    about 300 MB. The brokers end with this process, however it ends.

    Parameters
    ----------
    nodes : int, default 1
        Number of nodes, at most 9; their ids are 1 to `nodes`.
    port : int, default 0
        Port of the first node; the other ports follow. 0 for free ports.
    properties : mapping of str to object, optional
        Your broker settings, which override the defaults for tests. By default topics have one
        replica per node (at most three; ``min.insync.replicas=2`` with two or more nodes), groups
        start without delay, brokers keep records of any age (``log.retention.hours=-1``),
        the cluster detects a dead broker within about 2 s, and ACLs are supported.
    listeners : sequence of str, default ()
        Secured listeners of every node, beside the one without authentication that
        `bootstrap_servers` names: ``"tls"``, ``"mtls"`` (clients have certificates too),
        ``"sasl_plain"``, ``"sasl_scram_sha_256"``, ``"sasl_scram_sha_512"``,
        ``"sasl_oauthbearer"`` (unsigned tokens), ``"sasl_gssapi"`` (Kerberos, with its own KDC),
        and each SASL mechanism with TLS as ``"sasl_plain_tls"`` and so on.
        `client_config` returns the client settings.
    users : sequence of str, default ("alice",)
        Names of the secured listeners' users, who get new random passwords. A client without
        authentication is a super user; these users are not.
    java_options : sequence of str, default ()
        Options for the brokers' Java, such as ``-Xmx1g``. They come after the defaults, which
        speed up the start; ``-XX:TieredStopAtLevel=4`` makes the brokers faster after it.
    start_timeout : float, default 120.0
        Longest time until a node is ready, in s.

    Raises
    ------
    NoBrokerError
        Java is missing, Kafka's jars are neither cached nor downloadable, or a secured listener
        lacks a requirement. The error says what to do.
    KafkaClusterError
        A node does not start. The error contains lines from its log and the kept log's path.
    OSError
        A port is already in use.

    Notes
    -----
    If an exception leaves the ``with`` block, the cluster keeps the brokers' logs and adds a note
    with their path to the exception. Any thread may call any method. After a fork, the cluster
    belongs to the parent: in the child, `close` does nothing.

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
        listeners: Sequence[str] = (),
        users: Sequence[str] = ("alice",),
        java_options: Sequence[str] = (),
        start_timeout: float = 120.0,
    ) -> None:
        check_int("nodes", nodes, 1, _MAX_NODES)
        check_int("port", port, 0, _MAX_PORT + 1 - nodes)
        classes = archived_classes(java(), KAFKA.fetch(), _use_once)
        self._deployment = Deployment(
            nodes,
            port,
            properties or {},
            (*classes, *java_options),
            listeners,
            users,
            start_timeout,
        )
        self._finalizer = weakref.finalize(self, self._deployment.close)
        try:
            self._deployment.start()
        except BaseException as error:
            if isinstance(error, Exception):
                self._note_logs(error)
            self.close()
            raise

    def close(self) -> None:
        """Kill the brokers and drop their data; calling it again does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and self._deployment.owned:
            self._note_logs(error)
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
        """The nodes, which can be killed, stopped, started, paused and resumed."""
        return self._deployment.nodes

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, joined by commas; for ``bootstrap.servers``."""
        self._check_open()
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def client_environment(self) -> dict[str, str]:
        """Environment variables for processes with clients, such as Kerberos' ``KRB5_CONFIG``.

        Set them before you create the first client.
        """
        return self._deployment.client_environment

    def client_config(self, listener: str = PLAINTEXT, user: str | None = None) -> dict[str, str]:
        """Return the client settings for a listener.

        Parameters
        ----------
        listener : str, default "plaintext"
            One of the cluster's `listeners`, or ``"plaintext"``.
        user : str, optional
            One of the cluster's `users`; by default the first.

        Returns
        -------
        dict of str to str
            ``bootstrap.servers`` and the security settings, credentials included.
        """
        self._check_open()
        return self._deployment.client_config(listener, user)

    def _askable(self) -> list[str]:
        return [node.bootstrap_servers for node in self.nodes if node.alive and not node.paused]

    def keep_logs(self) -> Path | None:
        """Copy the brokers' logs to a new, permanent directory, and return its path.

        Returns None without logs: before a broker has started, or after `close`.
        """
        return self._deployment.keep_logs()

    def _check_open(self) -> None:
        if not self._deployment.owned:
            raise RuntimeError("the KafkaCluster belongs to the parent of this forked process")
        if not self._finalizer.alive:
            raise RuntimeError("the KafkaCluster is closed")

    def _note_logs(self, error: BaseException) -> None:
        if kept := self.keep_logs():
            error.add_note(f"the brokers' logs are kept in {kept}")


def _use_once(java_options: Sequence[str]) -> None:
    """Run a broker, use each feature once, and stop the broker normally."""
    broker = Deployment(1, 0, {}, java_options, (), (), _FIRST_TIMEOUT_S)
    try:
        broker.start()
        client = {**broker.client_config(PLAINTEXT, None), "log_level": 0}
        with Producer({**client, "transactional.id": "first"}) as producer:
            producer.init_transactions(_FIRST_TIMEOUT_S)
            producer.begin_transaction()
            producer.produce("first", b"x")
            producer.commit_transaction(_FIRST_TIMEOUT_S)
        config = {**client, "group.id": "first", "auto.offset.reset": "earliest"}
        with Consumer(config) as consumer:
            consumer.subscribe(["first"])
            consumer.poll(_FIRST_TIMEOUT_S)
        broker.nodes[0].stop(_FIRST_TIMEOUT_S)
    except KafkaException as error:
        raise KafkaClusterError(f"the first broker: {error}") from error
    finally:
        broker.close()


# -- topics


def _create(admin: AdminClient, topic: NewTopic, deadline: float) -> None:
    maybe_created = False
    while True:
        try:
            admin.create_topics([topic], request_timeout=_REQUEST_TIMEOUT_S)[topic.topic].result()
            return
        except KafkaException as exception:
            error = exception.args[0]
        if maybe_created and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return
        # The code INVALID_REPLICATION_FACTOR also means that all brokers are fenced.
        passing = error.code() in _PASSING or "currently fenced" in error.str()
        if not passing or time.monotonic() >= deadline:
            raise KafkaClusterError(f"topic {topic.topic!r}: {error.str()}") from None
        maybe_created = True
        time.sleep(_LOOK_S)


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
    # A client that knows the other brokers could query any of them, so use a new client each time.
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
