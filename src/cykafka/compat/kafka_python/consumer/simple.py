"""SimpleConsumer: reads one topic."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat, zip_longest
from typing import Any

from cykafka.compat.kafka_python.common import (
    ConsumerFetchSizeTooSmall,
    ConsumerNoMoreData,
    FailedPayloadsError,
    FetchRequest,
    KafkaError,
    NotLeaderForPartitionError,
    OffsetAndMessage,
    OffsetOutOfRangeError,
    OffsetRequest,
    UnknownTopicOrPartitionError,
    check_error,
)
from cykafka.compat.kafka_python.consumer.base import (
    AUTO_COMMIT_INTERVAL,
    AUTO_COMMIT_MSG_COUNT,
    FETCH_BUFFER_SIZE_BYTES,
    FETCH_DEFAULT_BLOCK_TIMEOUT,
    FETCH_MAX_WAIT_TIME,
    FETCH_MIN_BYTES,
    ITER_TIMEOUT_SECONDS,
    MAX_FETCH_BUFFER_SIZE_BYTES,
    NO_MESSAGES_WAIT_TIME_SECONDS,
    Consumer,
    deadline_after,
    reset_time,
)

log = logging.getLogger("kafka.consumer.simple")

_LATEST = -1
_EARLIEST = -2


class FetchContext:
    """Sets the wait and the minimum bytes of a consumer's requests in a ``with`` block.

    Parameters
    ----------
    consumer : SimpleConsumer
    block : bool or int
        False: the request does not wait.
    timeout : float or None
        The wait, s; None or 0 means 1 s.
    """

    def __init__(self, consumer: SimpleConsumer, block: bool | int, timeout: float | None) -> None:
        self.consumer = consumer
        self.block = block
        if block:
            self.timeout = (timeout or FETCH_DEFAULT_BLOCK_TIMEOUT) * 1000

    def __enter__(self) -> None:
        self.orig_fetch_max_wait_time = self.consumer.fetch_max_wait_time
        self.orig_fetch_min_bytes = self.consumer.fetch_min_bytes
        if self.block:
            self.consumer.fetch_max_wait_time = self.timeout
            self.consumer.fetch_min_bytes = 1
        else:
            self.consumer.fetch_min_bytes = 0

    def __exit__(self, *_: object) -> None:
        self.consumer.fetch_max_wait_time = self.orig_fetch_max_wait_time
        self.consumer.fetch_min_bytes = self.orig_fetch_min_bytes


class SimpleConsumer(Consumer):
    """Reads the messages of a topic. Not thread-safe.

    Parameters
    ----------
    client, group, topic, auto_commit, partitions, auto_commit_every_n, auto_commit_every_t
        See :class:`Consumer`.
    fetch_size_bytes : int
        The minimum bytes for a request that does not specify whether to wait.
    buffer_size : int
        The bytes per partition in a request. They double for a larger message.
    max_buffer_size : int or None
        The limit for doubling `buffer_size`; None is unlimited.
    iter_timeout : float, optional
        How long the iteration waits for a message before it ends, s; None: it never ends.
    auto_offset_reset : str
        Where to continue if an offset does not exist: ``largest`` or ``smallest``. Anything else
        raises OffsetOutOfRangeError.

    Raises
    ------
    ValueError
        `buffer_size` is larger than `max_buffer_size`.
    """

    def __init__(
        self,
        client: Any,
        group: str | bytes | None,
        topic: str | bytes,
        auto_commit: bool = True,
        partitions: Sequence[int] | None = None,
        auto_commit_every_n: int | None = AUTO_COMMIT_MSG_COUNT,
        auto_commit_every_t: int | None = AUTO_COMMIT_INTERVAL,
        fetch_size_bytes: int = FETCH_MIN_BYTES,
        buffer_size: int = FETCH_BUFFER_SIZE_BYTES,
        max_buffer_size: int | None = MAX_FETCH_BUFFER_SIZE_BYTES,
        iter_timeout: float | None = None,
        auto_offset_reset: str | None = "largest",
    ) -> None:
        if buffer_size <= 0:
            raise ValueError(f"buffer_size must be > 0, got {buffer_size}")
        if max_buffer_size is not None and buffer_size > max_buffer_size:
            raise ValueError(
                f"buffer_size ({buffer_size}) is greater than max_buffer_size ({max_buffer_size})"
            )
        super().__init__(
            client,
            group,
            topic,
            partitions=partitions,
            auto_commit=auto_commit,
            auto_commit_every_n=auto_commit_every_n,
            auto_commit_every_t=auto_commit_every_t,
        )
        self.buffer_size = buffer_size
        self.max_buffer_size = max_buffer_size
        self.fetch_max_wait_time: float = FETCH_MAX_WAIT_TIME
        self.fetch_min_bytes = fetch_size_bytes
        self.fetch_offsets = self.offsets.copy()
        self.iter_timeout = iter_timeout
        self.auto_offset_reset = auto_offset_reset
        self.queue: deque[tuple[int, OffsetAndMessage]] = deque()

    def __repr__(self) -> str:
        return (
            f"<SimpleConsumer group={self.group!r}, topic={self.topic!r}, "
            f"partitions={list(self.offsets)}>"
        )

    # -- offsets

    def reset_partition_offset(self, partition: int) -> int | None:
        """Move to the beginning or the end of a partition, as `auto_offset_reset` says.

        Returns
        -------
        int or None
            The new offset, or None, after logging the error, if the brokers did not return one.

        Raises
        ------
        OffsetOutOfRangeError
            `auto_offset_reset` is neither. In an ``except`` block, that block's exception is
            raised instead.
        """
        time_ms = reset_time(self.auto_offset_reset)
        log.info("Resetting %s:%d to its %s offset", self.topic, partition, self.auto_offset_reset)
        try:
            (response,) = self.client.send_offset_request(
                [OffsetRequest(self.topic, partition, time_ms, 1)]
            )
        except KafkaError as error:
            log.error(
                "%s sending offset request for %s:%d", type(error).__name__, self.topic, partition
            )
            return None
        offset: int = response.offsets[0]
        self.offsets[partition] = self.fetch_offsets[partition] = offset
        return offset

    def seek(self, offset: int, whence: int | None = None, partition: int | None = None) -> None:
        """Move to another offset, like a file's ``seek()``.

        Parameters
        ----------
        offset : int
        whence : int, optional
            None: `offset` is absolute. Otherwise `offset` is relative to the beginning (0), the
            current offset (1) or the end (2).
        partition : int, optional
            Default: all. With `whence` 0 or 2, `offset` is then divided among all partitions.

        Raises
        ------
        ValueError
            `whence` has another value.
        """
        chosen = list(self.offsets) if partition is None else [partition]
        if not chosen:
            return
        if whence is None:
            self.offsets.update(dict.fromkeys(chosen, offset))
        elif whence == 1:
            self.offsets.update({number: self.offsets[number] + offset for number in chosen})
        elif whence in (0, 2):
            share, rest = divmod(offset, len(chosen))
            shares = {
                number: share + more
                for number, more in zip_longest(chosen, repeat(1, rest), fillvalue=0)
            }
            time_ms = _EARLIEST if whence == 0 else _LATEST
            for response in self.client.send_offset_request(
                [OffsetRequest(self.topic, number, time_ms, 1) for number in chosen]
            ):
                self.offsets[response.partition] = response.offsets[0] + shares[response.partition]
        else:
            raise ValueError(f"Unexpected value for `whence`, {whence}")
        self.fetch_offsets = self.offsets.copy()
        self.queue = deque()
        self.count_since_commit += 1
        if self.auto_commit:
            self.commit()

    # -- reading

    def get_messages(
        self, count: int = 1, block: bool | int = True, timeout: float | None = 0.1
    ) -> list[Any]:
        """Read up to `count` messages.

        Parameters
        ----------
        count : int
        block : bool or int
            True: wait for `count` messages. An int: wait for this many. False: do not wait.
        timeout : float or None
            The longest wait, s; None waits forever.

        Returns
        -------
        list of OffsetAndMessage
            Or of (partition, OffsetAndMessage); see :meth:`provide_partition_info`.

        Raises
        ------
        ConsumerFetchSizeTooSmall
            A message is larger than `max_buffer_size`.
        UnknownTopicOrPartitionError, OffsetOutOfRangeError
        """
        deadline = deadline_after(timeout)
        messages: list[Any] = []
        new_offsets = {}
        while len(messages) < count:
            left = None if deadline is None else deadline - time.monotonic()
            blocking = block is True or block > len(messages)
            try:
                result = self._get_message(blocking, left, True, update_offset=False)
            except KafkaError:
                if not messages:
                    raise
                break  # the next call raises the error again
            if result is None:
                if blocking and (deadline is None or time.monotonic() <= deadline):
                    continue
                break
            partition, message = result
            messages.append(result if self.partition_info else message)
            new_offsets[partition] = message.offset + 1
        self.offsets.update(new_offsets)
        self.count_since_commit += len(messages)
        self._auto_commit()
        return messages

    def get_message(
        self,
        block: bool | int = True,
        timeout: float | None = 0.1,
        get_partition_info: bool | None = None,
    ) -> Any:
        """Read a message.

        Parameters
        ----------
        block : bool
        timeout : float or None
            The longest wait, s; None and 0 mean 1 s.
        get_partition_info : bool, optional
            Return (partition, message); default: see :meth:`provide_partition_info`.

        Returns
        -------
        OffsetAndMessage, tuple or None
            None if no message arrived.
        """
        return self._get_message(block, timeout, get_partition_info)

    def _get_message(
        self,
        block: bool | int = True,
        timeout: float | None = 0.1,
        get_partition_info: bool | None = None,
        update_offset: bool = True,
    ) -> Any:
        # 0 means 1 s, as in kafka-python.
        patience = timeout or FETCH_DEFAULT_BLOCK_TIMEOUT
        deadline = time.monotonic() + patience
        while not self.queue:
            with FetchContext(self, block, max(0.001, deadline - time.monotonic())):
                self._fetch()
            if not block or time.monotonic() > deadline:
                break
        if not self.queue:
            return None
        partition, message = self.queue.popleft()
        if update_offset:
            self.offsets[partition] = message.offset + 1
            self.count_since_commit += 1
            self._auto_commit()
        if get_partition_info is None:
            get_partition_info = self.partition_info
        return (partition, message) if get_partition_info else message

    def __iter__(self) -> Iterator[Any]:
        timeout = ITER_TIMEOUT_SECONDS if self.iter_timeout is None else self.iter_timeout
        while True:
            message = self.get_message(True, timeout)
            if message is not None:
                yield message
            elif self.iter_timeout is None:
                time.sleep(NO_MESSAGES_WAIT_TIME_SECONDS)
            else:
                return

    def _fetch(self) -> None:
        """Fetch messages from all partitions into the queue."""
        sizes = dict.fromkeys(self.fetch_offsets, self.buffer_size)
        wait, least = int(self.fetch_max_wait_time), self.fetch_min_bytes
        while sizes:
            responses = self.client.send_fetch_request(
                [
                    FetchRequest(self.topic, partition, self.fetch_offsets[partition], size)
                    for partition, size in sizes.items()
                ],
                max_wait_time=wait,
                min_bytes=least,
                fail_on_error=False,
            )
            again = {}
            for response in responses:
                size = self._take(response, sizes)
                if size is not None:
                    again[response.partition] = size
            sizes = again
            wait = least = 0

    def _take(self, response: Any, sizes: dict[int, int]) -> int | None:
        """Queue a response's messages. Returns the size for a further request, or None."""
        try:
            check_error(response)
        except FailedPayloadsError as error:
            log.warning("FailedPayloadsError for %s:%d", self.topic, error.payload.partition)
            return None
        except UnknownTopicOrPartitionError:
            log.error("UnknownTopicOrPartitionError for %s:%d", self.topic, response.partition)
            self.client.reset_topic_metadata(response.topic)
            raise
        except NotLeaderForPartitionError:
            log.error("NotLeaderForPartitionError for %s:%d", self.topic, response.partition)
            self.client.reset_topic_metadata(response.topic)
            return None
        except OffsetOutOfRangeError:
            log.warning("OffsetOutOfRangeError for %s:%d", self.topic, response.partition)
            moved = self.reset_partition_offset(response.partition)
            return None if moved is None else sizes[response.partition]
        partition = response.partition
        try:
            for message in response.messages:
                if message.offset < self.fetch_offsets[partition]:
                    continue  # an earlier message in the same compressed batch
                self.queue.append((partition, message))
                self.fetch_offsets[partition] = message.offset + 1
        except ConsumerFetchSizeTooSmall:
            size = sizes[partition]
            if size == self.max_buffer_size:
                log.error("Max fetch size %d too small", size)
                raise
            size = (
                size * 2 if self.max_buffer_size is None else min(size * 2, self.max_buffer_size)
            )
            log.warning("Fetch size too small, increase to %d (2x) and retry", size)
            return size
        except ConsumerNoMoreData as error:
            log.debug("Iteration was ended by %r", error)
        return None
