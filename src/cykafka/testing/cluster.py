"""The embedded cluster: librdkafka's mock brokers, with fault injection."""

from __future__ import annotations

import operator
import time
import warnings
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Self, SupportsIndex

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.naming import public
from cykafka._core.common.near_miss import did_you_mean
from cykafka._core.common.partition import is_topic_name
from cykafka._core.mock import Cluster

# The requests that mock brokers support: Kafka's name -> (key, lowest version, highest version).
# librdkafka does not check versions against its implementation, so these are the limits of 2.15.1.
APIS = {
    "Produce": (0, 0, 10),
    "Fetch": (1, 0, 16),
    "ListOffsets": (2, 0, 7),
    "Metadata": (3, 0, 12),
    "OffsetCommit": (8, 0, 9),
    "OffsetFetch": (9, 0, 6),
    "FindCoordinator": (10, 0, 3),
    "JoinGroup": (11, 0, 6),
    "Heartbeat": (12, 0, 5),
    "LeaveGroup": (13, 0, 4),
    "SyncGroup": (14, 0, 4),
    "ApiVersions": (18, 0, 2),
    "InitProducerId": (22, 0, 4),
    "OffsetForLeaderEpoch": (23, 2, 2),
    "AddPartitionsToTxn": (24, 0, 1),
    "AddOffsetsToTxn": (25, 0, 1),
    "EndTxn": (26, 0, 1),
    "TxnOffsetCommit": (28, 0, 3),
    "ConsumerGroupHeartbeat": (68, 1, 1),
    "GetTelemetrySubscriptions": (71, 0, 0),
    "PushTelemetry": (72, 0, 0),
    "ShareGroupHeartbeat": (76, 1, 1),
    "ShareFetch": (78, 1, 1),
    "ShareAcknowledge": (79, 1, 1),
}
API_NAMES = {key: name for name, (key, _, _) in APIS.items()}
_ALL = -1
_INT32_MAX = 2**31 - 1
# librdkafka allocates memory for all partitions and brokers at once, and aborts without memory.
_MAX_PARTITIONS = 10_000
_MAX_BROKERS = 100
_POLL_S = 0.005


@public("cykafka.testing")
class MockRequest(NamedTuple):
    """A request that a mock broker received.

    Attributes
    ----------
    broker : int
        Id of the broker that received the request.
    api : str
        Kafka's name for the request, such as ``"Produce"``; the API key as a str if the mock does
        not support such requests.
    api_key : int
        The request's API key in Kafka's protocol.
    timestamp : float
        Time of arrival in s, on the clock of `time.monotonic`.
    """

    broker: int
    api: str
    api_key: int
    timestamp: float


@public("cykafka.testing")
class MockCluster:
    """A Kafka cluster inside this process: librdkafka's mock brokers, with fault injection.

    Any Kafka client in this or another process on the machine can connect to its address. The
    cluster keeps all data in memory, needs no installation and starts in milliseconds.

    Parameters
    ----------
    brokers : int, default 1
        Number of brokers, at most 100; their ids are 1 to `brokers`.
    group_initial_rebalance_delay_ms : int, default 0
        How long, in ms, the first join of a classic group waits for more members
        (``group.initial.rebalance.delay.ms``). Kafka's default is 3000; 0 saves tests the wait.
    group_consumer_heartbeat_interval_ms : int, default 3000
        ``group.consumer.heartbeat.interval.ms`` for KIP-848 groups, in ms. A short interval speeds
        up their rebalances.
    group_consumer_session_timeout_ms : int, default 30000
        ``group.consumer.session.timeout.ms`` for KIP-848 groups, in ms.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or is out of range. All methods raise these errors.
    OSError
        If the process has too few file descriptors left for the brokers' sockets.

    Notes
    -----
    The cluster serves producers (plain, idempotent, transactional) and consumers (manually
    assigned, in classic groups, in KIP-848 groups, in share groups). Its **limits**:

    - Each partition keeps about 5 MB and at most 100,000 batches, and drops older batches. A
      reader that lags further loses data. Let the writer wait for the reader.
    - It does not support admin requests (CreateTopics, DeleteTopics, configurations, ACLs and so
      on). `create_topic` creates topics; first use also creates a topic, with 4 partitions.
    - It cannot look up offsets by timestamp, compact topics, or delete records by age.
    - It does not hide aborted records from ``read_committed`` consumers, does not apply a
      transaction's offsets, and does not fence older producers.
    - It lacks TLS, SASL and quotas, listens on 127.0.0.1 only, and loses all data at `close`.
    - A member that left a classic group can rejoin only after ``session.timeout.ms`` less 1 s. A
      classic group refuses commits during a rebalance, so members may read some records twice.
      KIP-848 groups (``group.protocol=consumer``) do not have these limits.
    - Injected errors are first in, first out per request type, whatever the topic or partition.

    So use it for tests and demonstrations, not to measure throughput.

    Any thread may call any method. After a fork, in the child, `close` does nothing and every
    other method raises RuntimeError; the parent's cluster keeps running. After `close`, every
    method except `close` raises RuntimeError.

    Examples
    --------
    >>> with MockCluster(brokers=3) as cluster:
    ...     cluster.create_topic("orders", partitions=6, replication_factor=3)
    ...     producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        group_initial_rebalance_delay_ms: int = 0,
        group_consumer_heartbeat_interval_ms: int = 3000,
        group_consumer_session_timeout_ms: int = 30000,
    ) -> None:
        self._brokers = check_int("brokers", brokers, 1, _MAX_BROKERS)
        timing = [
            check_int(name, value, lowest, _INT32_MAX)
            for name, value, lowest in (
                ("group_initial_rebalance_delay_ms", group_initial_rebalance_delay_ms, 0),
                ("group_consumer_heartbeat_interval_ms", group_consumer_heartbeat_interval_ms, 1),
                ("group_consumer_session_timeout_ms", group_consumer_session_timeout_ms, 1),
            )
        ]
        self._tracking = False
        self._cluster = Cluster(self._brokers)
        self._cluster.set_group_timing(*timing)

    def close(self) -> None:
        """Stop the brokers and drop their data; calling it again does nothing.

        Clients that are still connected see their connections closed.
        """
        self._cluster.close()

    def __enter__(self) -> Self:
        self._cluster.bootstrap_servers()  # raises if closed
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        cluster: Cluster | None = getattr(self, "_cluster", None)  # None: the constructor raised
        if cluster is not None and not cluster.closed and not cluster.forked:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        if self._cluster.closed or self._cluster.forked:
            return "<MockCluster closed>"
        return f"<MockCluster of {self._brokers} at {self._cluster.bootstrap_servers()}>"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every broker, joined by commas; for ``bootstrap.servers``."""
        return self._cluster.bootstrap_servers()

    @property
    def brokers(self) -> int:
        """Number of brokers; their ids are 1 to this number."""
        return self._brokers

    def create_topic(self, name: str, partitions: int = 4, replication_factor: int = 1) -> None:
        """Create a topic.

        Parameters
        ----------
        name : str
            Its name.
        partitions : int, default 4
            Number of partitions, at most 10,000.
        replication_factor : int, default 1
            Replicas per partition, at most the number of brokers. The mock picks each partition's
            first leader at random from its replicas.

        Raises
        ------
        KafkaException
            ``TOPIC_ALREADY_EXISTS`` if the topic exists.
        """
        err = self._cluster.create_topic(
            check_topic("name", name),
            check_int("partitions", partitions, 1, _MAX_PARTITIONS),
            check_int("replication_factor", replication_factor, 1, self._brokers),
        )
        check_err(err, f"topic {name!r} not created")

    def set_topic_error(self, topic: str, error: KafkaError | int) -> None:
        """Fail metadata requests for a topic with an error.

        Parameters
        ----------
        topic : str
            The topic. If it does not exist, the mock creates it with 4 partitions.
        error : KafkaError or int
            The error or its code; 0 ends the errors. AddPartitionsToTxn also gets the error.
        """
        self._cluster.set_topic_error(check_topic("topic", topic), check_code("error", error))

    def configure_share_groups(
        self,
        *,
        session_timeout_ms: int | None = None,
        heartbeat_interval_ms: int | None = None,
        record_lock_duration_ms: int | None = None,
        delivery_count_limit: int | None = None,
        partition_max_record_locks: int | None = None,
        max_size: int | None = None,
        auto_offset_reset: Literal["earliest", "latest"] | None = None,
        isolation_level: Literal["read_committed", "read_uncommitted"] | None = None,
    ) -> None:
        """Set the brokers' configuration of all share groups (``group.share.*``, KIP-932).

        Parameters
        ----------
        session_timeout_ms, heartbeat_interval_ms : int, optional
            Until a silent member is removed; between its heartbeats. A short interval speeds up
            joins.
        record_lock_duration_ms : int, optional
            How long a record stays acquired, 30 s by default. The mock looks for expired locks
            each second. 0 means the session timeout (45 s by default).
        delivery_count_limit : int, optional
            The deliveries of a record, 5 by default, after which it is archived; 0 for no limit.
        partition_max_record_locks : int, optional
            Acquired records per partition, 2000 by default; 0 for no limit.
        max_size : int, optional
            Members per group, 200 by default; 0 for no limit.
        auto_offset_reset : str, optional
            Where a new group begins: ``earliest`` or ``latest`` (the default).
        isolation_level : str, optional
            ``read_uncommitted`` (the default) or ``read_committed``.
        """
        self._cluster.bootstrap_servers()  # raises if closed
        numbers = {
            "session_timeout_ms": session_timeout_ms,
            "heartbeat_interval_ms": heartbeat_interval_ms,
            "record_lock_duration_ms": record_lock_duration_ms,
            "delivery_count_limit": delivery_count_limit,
            "partition_max_record_locks": partition_max_record_locks,
            "max_size": max_size,
            "auto_offset_reset": _number_of(
                "auto_offset_reset", auto_offset_reset, ("latest", "earliest")
            ),
            "isolation_level": _number_of(
                "isolation_level", isolation_level, ("read_uncommitted", "read_committed")
            ),
        }
        checked = {
            name: check_int(name, value, 0, _INT32_MAX)
            for name, value in numbers.items()
            if value is not None
        }
        for name, value in checked.items():
            self._cluster.set_share_group(name, value)

    def set_partition_leader(self, topic: str, partition: int, broker: int | None) -> None:
        """Move a partition to another leader, which begins a new leader epoch.

        Parameters
        ----------
        topic : str
            The topic; created, with `partition` + 1 partitions, if it does not exist.
        partition : int
            The partition.
        broker : int or None
            Id of the new leader, None for no leader.

        Raises
        ------
        KafkaException
            ``UNKNOWN_TOPIC_OR_PART`` if the topic has no such partition.
        """
        err = self._cluster.set_partition_leader(
            check_topic("topic", topic),
            check_int("partition", partition, 0, _MAX_PARTITIONS - 1),
            self._check_broker(broker),
        )
        check_err(err, f"leader of {topic!r} [{partition}] not set")

    def set_partition_follower(self, topic: str, partition: int, broker: int | None) -> None:
        """Set the preferred replica that consumers fetch a partition from (KIP-392).

        Parameters
        ----------
        topic : str
            The topic; created, with `partition` + 1 partitions, if it does not exist.
        partition : int
            The partition.
        broker : int or None
            Id of the preferred replica, None for the leader itself.

        Raises
        ------
        KafkaException
            ``UNKNOWN_TOPIC_OR_PART`` if the topic has no such partition.
        """
        err = self._cluster.set_partition_follower(
            check_topic("topic", topic),
            check_int("partition", partition, 0, _MAX_PARTITIONS - 1),
            self._check_broker(broker),
        )
        check_err(err, f"follower of {topic!r} [{partition}] not set")

    def set_coordinator(
        self, key_type: Literal["group", "transaction"], key: str, broker: int
    ) -> None:
        """Choose the broker that coordinates a group or a transactional producer.

        Parameters
        ----------
        key_type : {"group", "transaction"}
            What `key` names.
        key : str
            The ``group.id`` or ``transactional.id``.
        broker : int
            Id of the coordinator.
        """
        if key_type not in ("group", "transaction"):
            raise ValueError(f"key_type must be 'group' or 'transaction', not {key_type!r}")
        if not isinstance(key, str):
            raise TypeError(f"key must be a str, not {type(key).__name__}")
        if not key or "\0" in key:
            raise ValueError(f"key must have characters, none of them NUL, not {key!r}")
        err = self._cluster.set_coordinator(
            key_type.encode(), key.encode(), check_int("broker", broker, 1, self._brokers)
        )
        check_err(err, f"coordinator of {key_type} {key!r} not set")

    def broker_down(self, broker: int | None = None) -> None:
        """Close a broker's connections and refuse new ones; partitions keep their leaders.

        Parameters
        ----------
        broker : int, optional
            Id of the broker; all of them if None.
        """
        err = self._cluster.broker_down(self._check_broker(broker))
        check_err(err, f"broker {broker} not taken down")

    def broker_up(self, broker: int | None = None) -> None:
        """Accept connections again, at the same address.

        Parameters
        ----------
        broker : int, optional
            Id of the broker; all of them if None.
        """
        err = self._cluster.broker_up(self._check_broker(broker))
        check_err(err, f"broker {broker} not brought up")

    def set_rtt(self, rtt_ms: int, broker: int | None = None) -> None:
        """Delay every response.

        Parameters
        ----------
        rtt_ms : int
            Round-trip time in ms; 0 for no delay.
        broker : int, optional
            Id of the broker; all of them if None.
        """
        rtt_ms = check_int("rtt_ms", rtt_ms, 0, _INT32_MAX)
        err = self._cluster.set_rtt(self._check_broker(broker), rtt_ms)
        check_err(err, f"round-trip time of broker {broker} not set")

    def push_request_errors(
        self,
        api: str | int,
        errors: Iterable[KafkaError | int],
        broker: int | None = None,
        *,
        rtt_ms: int = 0,
    ) -> None:
        """Fail the next requests of one type, one error per request, in order.

        Parameters
        ----------
        api : str or int
            The request type: Kafka's name, such as ``"Produce"``, or its API key.
        errors : iterable of KafkaError or int
            One error per request; 0 lets a request pass. ``KafkaError._TRANSPORT`` closes the
            connection instead of responding.
        broker : int, optional
            Id of the broker; None for the broker that gets the request. After you push errors for
            one broker, that broker ignores this type's errors for all brokers, even after its own
            errors are used up.
        rtt_ms : int, default 0
            Delay of these responses in ms; needs `broker`.
        """
        key = check_api(api)
        codes = [check_code("errors", error) for error in errors]
        rtt_ms = check_int("rtt_ms", rtt_ms, 0, _INT32_MAX)
        if broker is None:
            if rtt_ms:
                raise ValueError("rtt_ms needs a broker; set_rtt() delays all of them")
            self._cluster.push_request_errors(key, codes)
            return
        broker = self._check_broker(broker)
        for code in codes:
            err = self._cluster.push_broker_request_error(broker, key, code, rtt_ms)
            check_err(err, f"error for broker {broker} not pushed")

    def clear_request_errors(self, api: str | int | None = None) -> None:
        """Drop the remaining errors that were pushed for all brokers.

        Errors pushed for one broker stay, because librdkafka cannot remove them.

        Parameters
        ----------
        api : str or int, optional
            The request type; None clears all types.
        """
        for key in API_NAMES if api is None else [check_api(api)]:
            self._cluster.clear_request_errors(key)

    def set_api_versions(self, api: str | int, lowest: int, highest: int) -> None:
        """Limit the offered versions of a request type, as in another Kafka release.

        Clients learn the limits when they connect; existing connections keep theirs.

        Parameters
        ----------
        api : str or int
            The request type: Kafka's name, such as ``"Produce"``, or its API key.
        lowest, highest : int
            The offered versions; -1 and -1 for brokers that do not support the request.
        """
        key = check_api(api)
        name = API_NAMES[key]
        _, first, last = APIS[name]
        lowest = check_int("lowest", lowest, -1, last)
        highest = check_int("highest", highest, -1, last)
        if (lowest, highest) != (-1, -1) and not first <= lowest <= highest:
            raise ValueError(
                f"lowest and highest must lie in {name}'s versions {first} to {last}, or both be "
                f"-1, not {lowest} and {highest}"
            )
        err = self._cluster.set_api_versions(key, lowest, highest)
        check_err(err, f"versions of {name} not set")

    def start_request_tracking(self) -> None:
        """Drop the previous record, and record the requests received from now on.

        The record grows until `clear_requests`, `stop_request_tracking` or `close`.
        """
        self._cluster.track_requests(True)
        self._tracking = True

    def stop_request_tracking(self) -> None:
        """Stop recording requests and drop the record."""
        self._cluster.track_requests(False)
        self._tracking = False

    def clear_requests(self) -> None:
        """Drop the recorded requests and continue recording."""
        self._cluster.clear_requests()

    def requests(self, api: str | int | None = None) -> list[MockRequest]:
        """Return the recorded requests, oldest first.

        Parameters
        ----------
        api : str or int, optional
            Return only this request type.

        Raises
        ------
        RuntimeError
            If `start_request_tracking` was not called.
        """
        wanted = None if api is None else check_api(api)
        recorded = self._cluster.requests()
        if not self._tracking:
            raise RuntimeError("call start_request_tracking() before requests()")
        return [
            MockRequest(broker, API_NAMES.get(key, str(key)), key, timestamp_us / 1e6)
            for broker, key, timestamp_us in recorded
            if wanted is None or key == wanted
        ]

    def wait_for_requests(
        self, api: str | int, count: int = 1, timeout: float = 10.0
    ) -> list[MockRequest]:
        """Wait until at least `count` requests of one type are recorded.

        Parameters
        ----------
        api : str or int
            The request type.
        count : int, default 1
            Number of requests.
        timeout : float, default 10.0
            Longest wait in s.

        Returns
        -------
        list of MockRequest
            All recorded requests of that type, at least `count`.

        Raises
        ------
        TimeoutError
            If fewer arrived in time; the message contains their number.
        RuntimeError
            If `start_request_tracking` was not called.
        """
        count = check_int("count", count, 1, _INT32_MAX)
        deadline = time.monotonic() + timeout
        # librdkafka signals no event here, so poll.
        while len(found := self.requests(api)) < count:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{len(found)} of {count} {api} requests within {timeout} s")
            time.sleep(_POLL_S)
        return found

    def _check_broker(self, broker: int | None) -> int:
        return _ALL if broker is None else check_int("broker", broker, 1, self._brokers)


def _number_of(argument: str, text: str | None, texts: tuple[str, ...]) -> int | None:
    """The mock's number for a text."""
    if text is None:
        return None
    if text not in texts:
        raise ValueError(f"{argument}: expected {' or '.join(texts)}, got {text!r}")
    return texts.index(text)


# -- checks of arguments and results


def check_int(name: str, value: SupportsIndex, lowest: int, highest: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    number = operator.index(value)
    if not lowest <= number <= highest:
        raise ValueError(f"{name} must be from {lowest} to {highest}, not {number}")
    return number


def check_topic(name: str, value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not is_topic_name(value):
        raise ValueError(f"{name} must be 1 to 249 of A-Z a-z 0-9 . _ -, not {value!r}")
    return value.encode()


def check_api(api: str | int) -> int:
    if isinstance(api, str):
        if api in APIS:
            return APIS[api][0]
        hint = did_you_mean(api, APIS, cutoff=0.6) or f"; it supports {', '.join(APIS)}"
        raise ValueError(f"the mock cluster does not support the api {api!r}{hint}")
    if isinstance(api, bool) or not hasattr(api, "__index__"):
        raise TypeError(f"api must be a str or an int, not {type(api).__name__}")
    if api not in API_NAMES:
        raise ValueError(f"the mock cluster does not support the api key {api}")
    return operator.index(api)


def check_code(name: str, error: KafkaError | int) -> int:
    code: Any = error.code() if isinstance(error, KafkaError) else error
    if isinstance(code, bool) or not hasattr(code, "__index__"):
        raise TypeError(f"{name} must be KafkaErrors or their codes, not {type(code).__name__}")
    return check_int(name, code, -(2**15), 2**15 - 1)


def check_err(code: int, what: str) -> None:
    if code:
        raise KafkaException(KafkaError(code, f"{what}: {KafkaError(code).str()}"))
