"""Producer: sends messages at once, or in batches from a thread."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Sequence
from queue import Empty, Full, SimpleQueue
from typing import Any

from cykafka.compat.kafka_python._translation import MessageSet, message_set
from cykafka.compat.kafka_python.common import (
    RETRY_BACKOFF_ERROR_TYPES,
    RETRY_ERROR_TYPES,
    RETRY_REFRESH_ERROR_TYPES,
    AsyncProducerQueueFull,
    KafkaError,
    ProduceRequest,
    RequestTimedOutError,
    RetryOptions,
    TopicAndPartition,
    UnknownError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    kafka_errors,
)
from cykafka.compat.kafka_python.protocol import ALL_CODECS, CODEC_NONE
from cykafka.compat.kafka_python.util import kafka_bytestring

log = logging.getLogger("kafka.producer")

BATCH_SEND_DEFAULT_INTERVAL = 20
BATCH_SEND_MSG_COUNT = 20
ASYNC_QUEUE_MAXSIZE = 0
ASYNC_QUEUE_PUT_TIMEOUT = 0
ASYNC_RETRY_LIMIT = None
ASYNC_RETRY_BACKOFF_MS = 100
ASYNC_RETRY_ON_TIMEOUTS = True
ASYNC_LOG_MESSAGES_ON_ERROR = True
STOP_ASYNC_PRODUCER = -1
ASYNC_STOP_TIMEOUT_SECS = 30
SYNC_FAIL_ON_ERROR_DEFAULT = True

# The names of the parameter `async`, which is a keyword since Python 3.7.
_ASYNC_NAMES = ("async", "is_async", "async_send")

# How often a call that waits for room checks whether the producer was stopped, s.
_LOOK_S = 0.2

_Item = tuple[Any, bytes | None, bytes | None]

# Producers whose thread runs. atexit closes cykafka's clients after these producers, because it
# calls functions in reverse order. A forked child does not have the threads.
_running: weakref.WeakSet[Producer] = weakref.WeakSet()
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _stop_all() -> None:
    producers = list(_running)
    for producer in producers:  # all of them at once
        producer.stopped = True
        producer.thread_stop_event.set()
        producer.queue.wake()
    for producer in producers:
        try:
            producer.thread.join()
        except KeyboardInterrupt:
            log.error("Ctrl-C: about %d messages may not be sent", producer.queue.qsize())


class _Queue:
    """The messages that wait for a producer's thread.

    Like ``queue.Queue``, but a signal handler may call it in the middle of any other call.

    Parameters
    ----------
    maxsize : int
        0 is unlimited.
    """

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self._items: SimpleQueue[_Item] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()  # one entry per free place
        for _ in range(maxsize):
            self._room.put(None)

    def put(self, item: _Item, block: bool = True, timeout: float | None = None) -> None:
        """Add a message. Raises Full if the queue has no room in time."""
        if self.maxsize:
            try:
                self._room.get(block, timeout)
            except Empty:
                raise Full from None
        self._items.put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> _Item:
        """Take a message, or the entry from wake(). Raises Empty if none arrives in time."""
        item = self._items.get(block, timeout)
        if self.maxsize and item[0] != STOP_ASYNC_PRODUCER:
            self._room.put(None)
        return item

    def wake(self) -> None:
        """End a get()."""
        self._items.put((STOP_ASYNC_PRODUCER, None, None))

    def qsize(self) -> int:
        """The number of messages."""
        return self._items.qsize()

    def empty(self) -> bool:
        """Whether the queue is empty."""
        return self._items.empty()


class _StopEvent(threading.Event):
    """An Event that remembers when it was set."""

    at = math.inf

    def set(self) -> None:
        self.at = min(self.at, time.monotonic())
        super().set()


class Producer:
    """Sends messages to a partition. The base class of SimpleProducer and KeyedProducer.

    Parameters
    ----------
    client : KafkaClient
        Or any object with its ``send_produce_request()``; for `async_` also with ``copy()``,
        ``reinit()`` and ``load_metadata_for_topics()``.
    req_acks : int
        0, 1 or -1 (all in-sync replicas).
    ack_timeout : int
        How long the leader waits for the replicas, ms.
    codec : int, optional
        One of ``kafka.protocol.ALL_CODECS``; default: none.
    codec_compresslevel : int, optional
        gzip's level, 1 to 9.
    sync_fail_on_error : bool
        Whether ``send_messages()`` raises errors (true) or returns them.
    async_ : bool
        Send in a thread. Also accepted as ``is_async``, ``async_send`` and ``**{"async": ...}``.
    batch_send : bool
        Deprecated; the same as `async_`.
    batch_send_every_n : int
        The thread sends after this many messages, or after `batch_send_every_t`.
    batch_send_every_t : float
        The longest time before the thread sends, s.
    async_retry_limit : int, optional
        How often the thread retries a failed batch; None is unlimited.
    async_retry_backoff_ms : int
        The pause before a retry, ms.
    async_retry_on_timeouts : bool
        Whether the thread retries messages that the replicas did not get within `ack_timeout`.
    async_queue_maxsize : int
        The most messages that wait for the thread; 0 is unlimited.
    async_queue_put_timeout : float
        How long ``send_messages()`` waits for room, s; 0 does not wait.
    async_log_messages_on_error : bool
        Log failed messages. If false, log only a hash.
    async_stop_timeout : float
        How long ``stop()`` keeps sending, s.

    Raises
    ------
    UnsupportedCodecError
    AssertionError
        A size or an interval of `async_` is not positive.
    """

    ACK_NOT_REQUIRED = 0
    ACK_AFTER_LOCAL_WRITE = 1
    ACK_AFTER_CLUSTER_COMMIT = -1

    DEFAULT_ACK_TIMEOUT = 1000

    def __init__(
        self,
        client: Any,
        req_acks: int = ACK_AFTER_LOCAL_WRITE,
        ack_timeout: int = DEFAULT_ACK_TIMEOUT,
        codec: int | None = None,
        codec_compresslevel: int | None = None,
        sync_fail_on_error: bool = SYNC_FAIL_ON_ERROR_DEFAULT,
        async_: bool = False,
        batch_send: bool = False,
        batch_send_every_n: int = BATCH_SEND_MSG_COUNT,
        batch_send_every_t: float = BATCH_SEND_DEFAULT_INTERVAL,
        async_retry_limit: int | None = ASYNC_RETRY_LIMIT,
        async_retry_backoff_ms: int = ASYNC_RETRY_BACKOFF_MS,
        async_retry_on_timeouts: bool = ASYNC_RETRY_ON_TIMEOUTS,
        async_queue_maxsize: int = ASYNC_QUEUE_MAXSIZE,
        async_queue_put_timeout: float | None = ASYNC_QUEUE_PUT_TIMEOUT,
        async_log_messages_on_error: bool = ASYNC_LOG_MESSAGES_ON_ERROR,
        async_stop_timeout: float = ASYNC_STOP_TIMEOUT_SECS,
        **names: bool,
    ) -> None:
        self.stopped = False
        unknown = set(names) - set(_ASYNC_NAMES)
        if unknown:
            raise TypeError(f"Producer() got an unexpected argument {min(unknown)!r}")
        self.is_async = bool(async_ or batch_send or any(names.values()))
        setattr(self, "async", self.is_async)
        if self.is_async:
            for name, value in (
                ("batch_send_every_n", batch_send_every_n),
                ("batch_send_every_t", batch_send_every_t),
                ("async_queue_maxsize + 1", async_queue_maxsize + 1),
            ):
                if value <= 0:
                    raise AssertionError(f"{name} must be > 0, got {value}")
        if codec is None:
            codec = CODEC_NONE
        elif codec not in ALL_CODECS:
            raise UnsupportedCodecError(f"Codec 0x{codec:02x} unsupported")
        self.client = client
        self.req_acks = req_acks
        self.ack_timeout = ack_timeout
        self.codec = codec
        self.codec_compresslevel = codec_compresslevel
        self.sync_fail_on_error = sync_fail_on_error
        if self.is_async:
            self.queue = _Queue(async_queue_maxsize)
            self.async_queue_put_timeout = async_queue_put_timeout
            self.thread_stop_event = _StopEvent()
            self.thread = threading.Thread(
                target=_send_upstream,
                name="kafka-producer",
                args=(
                    self.queue,
                    client.copy(),
                    codec,
                    batch_send_every_t,
                    batch_send_every_n,
                    req_acks,
                    ack_timeout,
                    RetryOptions(
                        async_retry_limit, async_retry_backoff_ms, async_retry_on_timeouts
                    ),
                    self.thread_stop_event,
                ),
                kwargs={
                    "log_messages_on_error": async_log_messages_on_error,
                    "stop_timeout": async_stop_timeout,
                    "codec_compresslevel": codec_compresslevel,
                },
                daemon=True,
            )
            try:
                self.thread.start()
            except BaseException:  # too many threads, or an interrupt: then the thread may run
                self.thread_stop_event.set()
                raise
            self._end_thread = weakref.finalize(
                self, _end_thread, self.queue, self.thread_stop_event, self.thread
            )
            # At exit all finalizers run together, perhaps after cykafka's clients were closed.
            self._end_thread.atexit = False
            _running.add(self)

    def send_messages(self, topic: str | bytes, partition: Any, *msg: bytes | None) -> list[Any]:
        """Send messages without a key to a partition.

        Parameters
        ----------
        topic : str or bytes
        partition : int
        *msg : bytes

        Returns
        -------
        list of ProduceResponse
            Or of FailedPayloadsError, without `sync_fail_on_error`. Empty with `async_` or
            `req_acks` 0.

        Raises
        ------
        TypeError
            A message is not bytes.
        AsyncProducerQueueFull
            ``failed_msgs`` contains the messages that the queue had no room for.
        KafkaError
            See :meth:`KafkaClient.send_produce_request`.
        """
        return self._send_messages(kafka_bytestring(topic), partition, *msg)

    def _send_messages(
        self, topic: bytes, partition: int, *msg: bytes | None, key: bytes | None = None
    ) -> list[Any]:
        for payload in msg:
            if payload is None:
                if key is None:
                    raise TypeError("key and payload can't be null in one")
            elif not isinstance(payload, bytes):
                raise TypeError("all produce message payloads must be null or type bytes")
        if not isinstance(topic, bytes):
            raise TypeError("the topic must be type bytes")
        if key is not None and not isinstance(key, bytes):
            raise TypeError("the key must be type bytes")
        if self.is_async:
            self._put(TopicAndPartition(topic, partition), msg, key)
            return []
        keys: list[bytes | None] | None = None if key is None else [key] * len(msg)
        messages = MessageSet(list(msg), keys, self.codec, self.codec_compresslevel)
        try:
            responses: list[Any] = self.client.send_produce_request(
                [ProduceRequest(topic, partition, messages)],
                acks=self.req_acks,
                timeout=self.ack_timeout,
                fail_on_error=self.sync_fail_on_error,
            )
        except Exception:
            log.exception("Unable to send messages")
            raise
        return responses

    def _put(
        self, place: TopicAndPartition, msg: Sequence[bytes | None], key: bytes | None
    ) -> None:
        """Queue messages for the thread."""
        for index, payload in enumerate(msg):
            try:
                self._put_one((place, payload, key))
            except Full:
                size = self.queue.qsize()
                raise AsyncProducerQueueFull(
                    msg[index:], f"Producer async queue overfilled. Current queue size {size}."
                ) from None

    def _put_one(self, item: _Item) -> None:
        refused = "the producer was stopped, so nothing would send the message"
        wait = self.async_queue_put_timeout
        deadline = math.inf if wait is None else time.monotonic() + wait
        while True:
            if self.stopped:
                raise KafkaError(refused)
            if not self.thread.is_alive():
                raise KafkaError(
                    "the producer's thread is not running: after a fork, create a new producer"
                )
            left = min(_LOOK_S, deadline - time.monotonic())
            try:
                self.queue.put(item, left > 0, max(0.0, left))
                break
            except Full:
                if time.monotonic() >= deadline:
                    raise
        if self.stopped and not self.thread.is_alive() and not self.queue.empty():
            raise KafkaError(refused)

    def stop(self, timeout: float | None = None) -> None:
        """Send the remaining messages, for at most `async_stop_timeout`, and end the thread.

        Parameters
        ----------
        timeout : float, optional
            Has no effect, as in kafka-python.
        """
        if timeout is not None:
            log.warning("timeout argument to stop() is deprecated and has no effect")
        if not self.is_async:
            log.warning("producer.stop() called, but producer is not async")
            return
        if self.stopped:
            log.warning("producer.stop() called, but producer is already stopped")
            return
        self.stopped = True
        self._end_thread()


def _end_thread(queue: _Queue, event: _StopEvent, thread: threading.Thread) -> None:
    event.set()
    queue.wake()
    if thread is not threading.current_thread():
        thread.join()


def _send_upstream(
    queue: _Queue,
    client: Any,
    codec: int,
    batch_time: float,
    batch_size: int,
    req_acks: int,
    ack_timeout: int,
    retry_options: RetryOptions,
    stop_event: _StopEvent,
    log_messages_on_error: bool = ASYNC_LOG_MESSAGES_ON_ERROR,
    stop_timeout: float = ASYNC_STOP_TIMEOUT_SECS,
    codec_compresslevel: int | None = None,
) -> None:
    """Run a producer's thread: send the queued messages in batches until the producer stops.

    The thread retries a failed batch before it sends the next one, so messages keep their order.
    """
    while not stop_event.is_set():
        try:
            client.reinit()
            break
        except Exception as error:
            log.warning("Async producer failed to connect: %s", error)
            time.sleep(retry_options.backoff_ms / 1000)
    sending: list[tuple[ProduceRequest, int]] = []  # requests, and how often each failed
    while sending or not (stop_event.is_set() and queue.empty()):
        if time.monotonic() > stop_event.at + stop_timeout:
            break
        if not sending:
            batch = _next_batch(queue, batch_size, batch_time, stop_event)
            sending = [
                (ProduceRequest(*place, MessageSet(values, keys, codec, codec_compresslevel)), 0)
                for place, (values, keys) in batch.items()
            ]
        responses = _send(client, [request for request, _ in sending], req_acks, ack_timeout)
        failed: list[tuple[ProduceRequest, int, type[BaseException]]] = []
        for (request, failures), response in zip(sending, responses, strict=False):
            reason = _error_of(response)
            if reason is None:
                continue
            request = getattr(response, "payload", request)  # without stored messages
            messages = request.messages
            log.error(
                "%s sending ProduceRequest to %s:%d with msgs %s",
                reason.__name__,
                *request[:2],
                messages if log_messages_on_error else hash(tuple(messages)),
            )
            if isinstance(response, UnknownTopicOrPartitionError):
                continue  # the client has asked the brokers; other topics must not wait
            failed.append((request, failures + 1, reason))
        again = [item for item in failed if _is_retried(item[2], item[1], retry_options)]
        sending = [(request, failures) for request, failures, _ in again]
        if any(issubclass(reason, RETRY_BACKOFF_ERROR_TYPES) for _, _, reason in again):
            time.sleep(retry_options.backoff_ms / 1000)
        if any(issubclass(reason, RETRY_REFRESH_ERROR_TYPES) for _, _, reason in again):
            try:
                client.load_metadata_for_topics()
            except Exception as error:
                log.error("Async producer couldn't reload topic metadata: %s", error)
    client.close()
    # Last, because other threads may add messages until this thread has ended.
    unsent = sum(len(message_set(request.messages).values) for request, _ in sending)
    while not queue.empty():
        unsent += queue.get()[0] != STOP_ASYNC_PRODUCER
    if unsent:
        log.error("Stopped producer with %d unsent messages", unsent)


def _next_batch(
    queue: _Queue, size: int, seconds: float, stop_event: threading.Event
) -> dict[TopicAndPartition, tuple[list[bytes | None], list[bytes | None]]]:
    """Take up to `size` messages, or those within a time. Returns values and keys by partition."""
    batch: dict[TopicAndPartition, tuple[list[bytes | None], list[bytes | None]]] = {}
    send_at = time.monotonic() + seconds
    for _ in range(size):
        try:
            wait = 0 if stop_event.is_set() else max(0, send_at - time.monotonic())
            place, value, key = queue.get(timeout=wait)
        except Empty:
            break
        if place == STOP_ASYNC_PRODUCER:
            stop_event.set()
            break
        values, keys = batch.setdefault(place, ([], []))
        values.append(value)
        keys.append(key)
    return batch


def _send(client: Any, requests: list[ProduceRequest], acks: int, timeout: int) -> list[Any]:
    """Return the response to each request, or the exception that the client raises for it."""
    if not requests:
        return []
    try:
        responses: list[Any] = client.send_produce_request(
            requests, acks=acks, timeout=timeout, fail_on_error=False
        )
        return responses
    except Exception as error:
        if len(requests) == 1:
            return [error]
        # For example, one request's topic is unknown, and the client sent nothing.
        return [
            response
            for request in requests
            for response in _send(client, [request], acks, timeout)
        ]


def _error_of(response: Any) -> type[BaseException] | None:
    if isinstance(response, BaseException):
        return type(response)
    number = getattr(response, "error", 0)
    return kafka_errors.get(number, UnknownError) if number else None


def _is_retried(error: type[BaseException], failures: int, options: RetryOptions) -> bool:
    if options.limit is not None and failures > options.limit:
        return False
    return issubclass(error, RETRY_ERROR_TYPES) or (
        options.retry_on_timeouts and issubclass(error, RequestTimedOutError)
    )
