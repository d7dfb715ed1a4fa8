"""Real Kafka for tests: brokers of Apache Kafka in processes of their own, on this machine."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from cykafka._core.common.errors import KafkaException
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


class KafkaCluster(RealCluster):
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
    listeners : sequence of str, default ()
        Secured listeners of every node, beside the one without authentication that
        `bootstrap_servers` names: ``"tls"``, ``"mtls"`` (clients have certificates too),
        ``"sasl_plain"``, ``"sasl_scram_sha_256"``, ``"sasl_scram_sha_512"``,
        ``"sasl_oauthbearer"`` (unsigned tokens), ``"sasl_gssapi"`` (Kerberos, with a KDC of its
        own), and each SASL mechanism with TLS as ``"sasl_plain_tls"`` and so on.
        `client_config` has what a client needs.
    users : sequence of str, default ("alice",)
        Names of the users that the secured listeners know, with fresh random passwords. Whoever
        comes without authentication is a super user; these are not.
    java_options : sequence of str, default ()
        Options for the brokers' Java, such as ``-Xmx1g``. They come after our own, which speed up
        the start; ``-XX:TieredStopAtLevel=4`` speeds up the time after it.
    start_timeout : float, default 120.0
        How long a node may take to get ready, in s.

    Raises
    ------
    NoBrokerError
        There is no Java, or Kafka's jars are neither cached nor downloadable, or a secured
        listener lacks something it needs. The error says what to do.
    KafkaClusterError
        A node does not start. The error has lines of its log and the path of the kept log.
    OSError
        A port is taken.

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

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exc_value, Exception) and self._deployment.owned:
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

    @property
    def client_environment(self) -> dict[str, str]:
        """Environment variables that processes with clients need; Kerberos' ``KRB5_CONFIG``.

        Set them before the first client is made.
        """
        return self._deployment.client_environment

    def client_config(self, listener: str = PLAINTEXT, user: str | None = None) -> dict[str, str]:
        """Settings of a client that uses a listener.

        Parameters
        ----------
        listener : str, default "plaintext"
            One of the cluster's `listeners`, or ``"plaintext"``.
        user : str, optional
            One of its `users`; the first by default.

        Returns
        -------
        dict of str to str
            ``bootstrap.servers`` and what security asks for, credentials included.
        """
        self._check_open()
        return self._deployment.client_config(listener, user)

    def _askable(self) -> list[str]:
        return [node.bootstrap_servers for node in self.nodes if node.alive and not node.paused]

    def keep_logs(self) -> Path | None:
        """Copy the brokers' logs into a fresh folder that stays, and return it.

        None if there are none: no broker has started, or the cluster is closed.
        """
        return self._deployment.keep_logs()

    def _check_open(self) -> None:
        if not self._deployment.owned:
            raise RuntimeError("the KafkaCluster belongs to the process that was forked from")
        if not self._finalizer.alive:
            raise RuntimeError("the KafkaCluster is closed")

    def _note_logs(self, error: BaseException) -> None:
        if kept := self.keep_logs():
            error.add_note(f"the brokers' logs are kept in {kept}")


def _use_once(java_options: Sequence[str]) -> None:
    """Run a broker that uses a little of everything, and stop it normally."""
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
