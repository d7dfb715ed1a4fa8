"""Real Kafka for tests: Apache Kafka's brokers in separate processes on this machine."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from cykafka._core.common.errors import KafkaException
from cykafka._core.common.naming import public
from cykafka._core.consume.consumer import Consumer
from cykafka._core.produce.producer import Producer
from cykafka.testing._artifacts import KAFKA, java
from cykafka.testing._checks import check_int
from cykafka.testing._classes import archived_classes
from cykafka.testing._deployment import Deployment
from cykafka.testing._errors import KafkaClusterError, NoBrokerError
from cykafka.testing._node import KafkaNode
from cykafka.testing._real import RealCluster
from cykafka.testing._settings import PLAINTEXT

__all__ = ["KafkaCluster", "KafkaClusterError", "KafkaNode", "NoBrokerError"]

_MAX_NODES = 9
_FIRST_TIMEOUT_S = 120.0
_MAX_PORT = 2**16 - 1


@public("cykafka.testing")
class KafkaCluster(RealCluster):
    """A throw-away cluster of real Kafka brokers on this machine, for tests.

    Apache Kafka 4.3 in KRaft mode. Every node is broker and controller in its own Java process, on
    loopback ports that stay the same over a node's restart. It needs Java 17 or newer. Maven
    fetches Kafka's jars once per user. A node is ready in a few seconds and takes about 300 MB.
    The brokers end with this process, however it ends.

    Parameters
    ----------
    nodes : int, default 1
        Number of nodes, at most 9; their ids are 1 to `nodes`.
    port : int, default 0
        Port of the first node; the other ports follow. 0 for free ports.
    properties : mapping of str to object, optional
        Your broker settings, which override the defaults for tests. By default topics have one
        replica per node (at most three; ``min.insync.replicas=2`` from two nodes on), groups start
        without delay, brokers keep records whatever their timestamps (``log.retention.hours=-1``),
        the cluster detects a dead broker within about 2 s, and ACLs are supported.
    listeners : sequence of str, default ()
        Secured listeners of every node, beside the one without authentication that
        `bootstrap_servers` names: ``"tls"``, ``"mtls"`` (clients have certificates too),
        ``"sasl_plain"``, ``"sasl_scram_sha_256"``, ``"sasl_scram_sha_512"``,
        ``"sasl_oauthbearer"`` (unsigned tokens), ``"sasl_gssapi"`` (Kerberos, with a KDC of its
        own), and each SASL mechanism with TLS as ``"sasl_plain_tls"`` and so on.
        `client_config` has what a client needs.
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
        There is no Java, or Kafka's jars are neither cached nor downloadable, or a secured
        listener lacks a requirement. The error says what to do.
    KafkaClusterError
        A node does not start. The error has lines of its log and the path of the kept log.
    OSError
        A port is taken.

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
        """Settings of a client that uses a listener.

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
        """Copy the brokers' logs into a new folder that stays, and return the folder.

        None if there are none: no broker has started, or the cluster is closed.
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
    """Run a broker that uses every feature a little, and stop it normally."""
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
