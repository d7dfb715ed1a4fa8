"""A KafkaClient's librdkafka handles, created on first use."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, TypeVar

from cykafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from cykafka.admin import AdminClient
from cykafka.compat.kafka_python._translation import errno, text
from cykafka.compat.kafka_python.common import (
    ConsumerCoordinatorNotAvailableCode,
    KafkaUnavailableError,
    NotCoordinatorForConsumerCode,
    OffsetsLoadInProgressCode,
)
from cykafka.compat.kafka_python.common import KafkaError as OldError
from cykafka.internal import kafka_error

log = logging.getLogger("kafka.client")

_Answer = TypeVar("_Answer")
_Key = TypeVar("_Key")
_Handle = TypeVar("_Handle", AdminClient, Producer, Consumer, "GroupOffsets")

# librdkafka properties for every client; see install().
properties: dict[str, Any] = {}

# How often a wait checks whether all brokers are down, s.
_SLICE_S = 0.2
# The longest wait for a broker after a produce request's own timeout, ms.
_DELIVERY_MS = 10_000
# How long "all brokers are down" stays valid, s: longer than librdkafka's pause between attempts.
_DOWN_S = 3.0
# The longest wait for a group's coordinator and its response, s, and between two attempts.
_COORDINATOR_S = 10.0
_PAUSE_S = 0.05
# The most groups whose consumers stay open. Each has threads and file descriptors.
_GROUPS = 16
# How long close() waits for a pending commit, s.
_LEAVE_S = 1.0
# librdkafka's longest request timeout, s.
_MOST_S = 3600.0
_LAST_PORT = 65535
_CODECS = ("none", "gzip", "snappy")
_NO_COORDINATOR = {
    OffsetsLoadInProgressCode.errno,
    ConsumerCoordinatorNotAvailableCode.errno,
    NotCoordinatorForConsumerCode.errno,
}

_exiting = False


def addresses(hosts: Iterable[tuple[str, int]]) -> list[str]:
    """Return ``host:port`` per host, for ``collect_hosts()``, without impossible ports."""
    found = []
    for host, port in hosts:
        if port > _LAST_PORT:  # librdkafka would connect to another port
            log.error("Cannot connect to %s: %d is not a valid port", host, port)
            continue
        found.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found


def _first(present: _Handle | None, made: _Handle) -> _Handle:
    """Return the handle to keep: a signal handler may have created one at the same time."""
    if present is None:
        return made
    made.close()
    return present


@contextlib.contextmanager
def open_meanwhile() -> Iterator[None]:
    """Raise KafkaUnavailableError if another thread closes the client during the block.

    At interpreter exit, the block ends its thread, like the interpreter itself.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, OldError):
            raise
        if _exiting and threading.current_thread() is not threading.main_thread():
            raise SystemExit from None
        raise KafkaUnavailableError(str(error)) from error


class BrokerOutage:
    """Tracks, from a handle's errors, whether the handle cannot reach any broker.

    librdkafka reports that all brokers are down after each round of connection attempts.
    """

    def __init__(self) -> None:
        self.reason = ""  # of the last connection that failed
        self._error: KafkaError | None = None
        self._until = 0.0
        self._seen_at = 0.0

    def note(self, error: KafkaError) -> None:
        """The handle's error_cb. It also calls the error_cb in the properties."""
        if callable(properties.get("error_cb")):
            properties["error_cb"](error)
        self._seen_at = time.monotonic()
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._error, self._until = error, time.monotonic() + _DOWN_S
        else:
            self.reason = error.str()

    def end(self) -> None:
        """Note that a broker has responded."""
        self._error = None

    def error(self) -> KafkaError | None:
        """Return an error while all brokers are down, else None."""
        return self._error if time.monotonic() < self._until else None

    def look(self, serve: Callable[[], object]) -> bool:
        """Note the errors that are queued in the handle; `serve` polls them.

        Returns
        -------
        bool
            Whether the handle reported an outage that may be over, because nobody polled the
            handle for a while. error() does not return this outage.
        """
        seen_at, now = self._seen_at, time.monotonic()
        serve()
        is_old = now - seen_at > _DOWN_S and self._error is not None
        if is_old:
            self._error = None
        self._seen_at = now
        return is_old


class Admin:
    """An AdminClient that is created on first use, and again after close(). Thread-safe.

    Parameters
    ----------
    config : dict
    timeout : float
        The longest wait for a response, s.
    """

    def __init__(self, config: dict[str, Any], timeout: float) -> None:
        if not config["bootstrap.servers"]:
            raise KafkaUnavailableError("hosts: expected at least one host with a valid port")
        self._config = config
        self._timeout = timeout
        self._lock = threading.RLock()  # a signal handler may use the client, too
        self._client: AdminClient | None = None
        self._outage = BrokerOutage()

    def _opened(self) -> AdminClient:
        with self._lock:
            if self._client is None:
                made = AdminClient(
                    {
                        # kafka-python's requests for metadata create topics.
                        "allow.auto.create.topics": True,
                        **self._config,
                        "error_cb": self._outage.note,
                    }
                )
                self._client = _first(self._client, made)
            return self._client

    def close(self) -> None:
        """Close the client."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @open_meanwhile()
    def ask(self, request: Callable[[AdminClient, float], _Answer]) -> _Answer:
        """Call `request` with the client and a timeout in s, until the request succeeds.

        Raises
        ------
        KafkaUnavailableError
            All brokers are down, or none responded within the client's timeout.
        """
        client = self._opened()
        deadline = time.monotonic() + self._timeout
        client.poll(0)
        self._outage.end()
        patience = _SLICE_S
        while True:
            left = deadline - time.monotonic()
            try:
                return request(client, max(0.01, min(patience, left)))
            except KafkaException as error:
                client.poll(0)
                if self._outage.error() is not None or left <= patience:
                    text = f"All servers failed to process request: {self._outage.reason or error}"
                    raise KafkaUnavailableError(text) from error
                patience *= 2  # gives a slow broker enough time

    @open_meanwhile()
    def answers(
        self,
        request: Callable[[AdminClient, float], Mapping[_Key, Future[_Answer]]],
    ) -> dict[_Key, _Answer | KafkaException]:
        """Return the results of the client's futures, or their errors.

        The wait ends if all brokers are down, or after the client's timeout. The error is then
        ``_ALL_BROKERS_DOWN`` or ``_TIMED_OUT``.
        """
        client = self._opened()
        patience = max(1.0, self._timeout)
        deadline = time.monotonic() + patience
        client.poll(0)
        self._outage.end()
        futures = request(client, patience)
        left = set(futures.values())
        while left and self._outage.error() is None and time.monotonic() < deadline:
            left = wait(left, _SLICE_S, FIRST_COMPLETED).not_done
            client.poll(0)
        down = self._outage.error()
        code = KafkaError._TIMED_OUT if down is None else KafkaError._ALL_BROKERS_DOWN
        missing = KafkaException(KafkaError(code, self._outage.reason or None))
        results: dict[_Key, _Answer | KafkaException] = {}
        for key, future in futures.items():
            if future in left:
                results[key] = missing
                continue
            try:
                results[key] = future.result()
            except KafkaException as error:
                results[key] = error
        return results


class GroupOffsets:
    """Reads and commits a group's offsets with a consumer that never joins the group. Thread-safe.

    This class does not use an admin client. With one, the system's librdkafka keeps sending
    requests to a coordinator that has moved, and aborts the process if requests wait for a
    coordinator that was down.

    Parameters
    ----------
    config : dict
    timeout : float
        The longest wait for the coordinator's response, s.
    """

    def __init__(self, config: dict[str, Any], timeout: float) -> None:
        self.users = 0  # counted by Handles.group()
        self._outage = BrokerOutage()
        self._timeout = timeout
        self._asking: set[int] = set()  # threads that are sending a request
        self._consumer = Consumer({**config, "error_cb": self._outage.note})

    def close(self, timeout: float = _LEAVE_S) -> None:
        """Close the consumer. Waits up to `timeout` s for a pending commit."""
        self._consumer.close(timeout)

    @open_meanwhile()
    def ask(
        self,
        request: Callable[[Consumer, list[TopicPartition], float], list[TopicPartition] | None],
        places: list[TopicPartition],
    ) -> list[TopicPartition]:
        """Send a request about partitions, until the coordinator responds.

        Raises
        ------
        KafkaException
            ``_ALL_BROKERS_DOWN`` as soon as librdkafka notices, and other errors.
        """
        deadline = time.monotonic() + self._timeout
        self._outage.look(self._serve)
        patience = _SLICE_S
        while True:
            down = self._outage.error()
            if down is not None:
                reason = self._outage.reason or None
                raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, reason))
            left = deadline - time.monotonic()
            try:
                found = self._request(request, places, max(0.01, min(patience, left)))
            except KafkaException as error:
                cause = kafka_error(error)
                waits = cause is not None and cause.code() == KafkaError._TIMED_OUT
                if left <= 0 or not (waits or errno(cause) in _NO_COORDINATOR):
                    raise
                patience *= 2  # gives a slow coordinator enough time
            else:
                errors = {errno(partition.error) for partition in found or ()}
                self._outage.end()
                if left <= 0 or errors.isdisjoint(_NO_COORDINATOR):
                    return found or []
            time.sleep(_PAUSE_S)
            self._serve()

    def _serve(self) -> None:
        # A signal handler that interrupts this thread's commit may commit, but not poll.
        if threading.get_ident() not in self._asking:
            self._consumer.poll(0)

    def _request(
        self, request: Callable[..., list[TopicPartition] | None], *args: Any
    ) -> list[TopicPartition] | None:
        thread = threading.get_ident()
        if thread in self._asking:  # the outer request ends later
            return request(self._consumer, *args)
        try:
            self._asking.add(thread)  # a signal handler that raises may run next
            return request(self._consumer, *args)
        finally:
            self._asking.discard(thread)


# Programs for kafka-python often do not close their clients. atexit closes the handles after the
# consumers and producers that use them, because it calls functions in reverse order.
_existing: weakref.WeakSet[Handles] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    global _exiting
    _exiting = True
    while True:
        try:
            existing = list(_existing)
            break
        except RuntimeError:  # a thread is creating a client
            continue
    for handles in existing:
        handles.close()


class Handles:
    """An admin client, one producer per kind of request, and consumers.

    Thread-safe. A forked child creates its own handles.

    Parameters
    ----------
    hosts : list of (str, int)
    client_id : bytes
    timeout : float or None
        The longest wait for a response, s.
    """

    def __init__(
        self, hosts: Iterable[tuple[str, int]], client_id: bytes, timeout: float | None
    ) -> None:
        self._hosts = list(hosts)
        self._client_id = client_id
        self.timeout = min(120.0 if timeout is None else float(timeout), _MOST_S)
        self._reset()
        _existing.add(self)

    def _reset(self) -> None:
        self._admin = Admin(self._common(), self.timeout)
        self._lock = threading.RLock()  # a signal handler may use the client, too
        self._groups: OrderedDict[str, GroupOffsets] = OrderedDict()
        self._producers: dict[tuple[int, int, int, int | None, bool], Producer] = {}
        self._consumer: Consumer | None = None
        self._pid = os.getpid()

    def _common(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(addresses(self._hosts)),
            "client.id": text(self._client_id),
            "logger": log,
            "reconnect.backoff.max.ms": 1000,
            **properties,
        }

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            self._reset()  # librdkafka's threads exist only in the parent

    def close(self) -> None:
        """Close all handles. The next call creates new ones."""
        self._check_process()
        with self._lock:
            handles: list[Any] = [self._admin, *self._producers.values()]
            if self._consumer is not None:
                handles.append(self._consumer)
            groups = list(self._groups.values())
            self._consumer = None
            self._producers.clear()
            self._groups.clear()
        for handle in handles:
            handle.close()
        deadline = time.monotonic() + _LEAVE_S
        for group in groups:
            group.close(max(0.0, deadline - time.monotonic()))

    @property
    def admin(self) -> Admin:
        """Return the client for metadata and offsets."""
        self._check_process()
        return self._admin

    def __del__(self) -> None:
        # Programs for kafka-python often leave their clients to the garbage collector.
        if hasattr(self, "_pid"):  # not if __init__() has raised
            self.close()

    # -- producers

    def producer(
        self,
        acks: int,
        timeout: int,
        codec: int,
        compresslevel: int | None,
        in_batches: bool = True,
    ) -> Producer:
        """Return the producer for these settings; `timeout` in ms."""
        self._check_process()
        timeout = max(1, min(timeout, 900_000))
        acks = max(-1, min(acks, 1000))
        key = (acks, timeout, codec, compresslevel, in_batches)
        with self._lock:
            producer = self._producers.get(key)
            if producer is None:
                patience = min(int(self.timeout * 1000), _DELIVERY_MS)
                made = Producer(
                    {
                        "acks": acks,
                        "request.timeout.ms": timeout,
                        "message.timeout.ms": timeout + patience,
                        # As in kafka-python, the caller decides whether to send again.
                        "retries": 0,
                        "linger.ms": 0,
                        "batch.num.messages": 10_000 if in_batches else 1,
                        # The brokers decide which message is too large.
                        "message.max.bytes": 1_000_000_000,
                        "compression.type": _CODECS[codec],
                        "compression.level": -1 if compresslevel is None else compresslevel,
                        **self._common(),
                    }
                )
                producer = self._producers[key] = _first(self._producers.get(key), made)
            return producer

    # -- consumers

    @contextlib.contextmanager
    def group(self, name: str) -> Iterator[GroupOffsets]:
        """Use a group. Only the most recent idle groups stay open."""
        self._check_process()
        with self._lock:
            group = self._groups.get(name)
            if group is None:
                config = {"group.id": name, "enable.auto.commit": False, **self._common()}
                made = GroupOffsets(config, min(self.timeout, _COORDINATOR_S))
                group = self._groups[name] = _first(self._groups.get(name), made)
            group.users += 1
            self._groups.move_to_end(name)
            old = [
                self._groups.pop(oldest)
                for oldest in list(self._groups)[:-_GROUPS]
                if not self._groups[oldest].users
            ]
        try:
            for unused in old:
                unused.close()
            yield group
        finally:
            with self._lock:
                group.users -= 1

    def consumer(self, outage: BrokerOutage) -> Consumer:
        """Return the consumer, which never joins a group. The first call sets where it reports
        errors."""
        self._check_process()
        with self._lock:
            if self._consumer is None:
                made = Consumer(
                    {
                        # assign() needs a group name. The consumer never commits to it.
                        "group.id": "kafka-python",
                        "enable.auto.commit": False,
                        "enable.auto.offset.store": False,
                        "auto.offset.reset": "error",
                        "enable.partition.eof": True,
                        "allow.auto.create.topics": True,
                        "fetch.wait.max.ms": 100,
                        "fetch.message.max.bytes": 8 * 1024 * 1024,
                        "receive.message.max.bytes": 1_000_000_000,
                        **self._common(),
                        "error_cb": outage.note,
                    }
                )
                self._consumer = _first(self._consumer, made)
            return self._consumer
