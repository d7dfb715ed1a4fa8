"""KafkaConsumer: reads partitions of any topics."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from cykafka.compat.kafka_python._later import (
    explain_missing_method,
    explain_refused_reset,
    explain_unknown_keys,
)
from cykafka.compat.kafka_python._translation import text
from cykafka.compat.kafka_python.client import KafkaClient
from cykafka.compat.kafka_python.common import (
    ConsumerTimeout,
    FailedPayloadsError,
    FetchRequest,
    KafkaConfigurationError,
    KafkaMessage,
    KafkaUnavailableError,
    NotLeaderForPartitionError,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetOutOfRangeError,
    OffsetRequest,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    check_error,
)
from cykafka.compat.kafka_python.consumer.base import reset_time
from cykafka.compat.kafka_python.util import kafka_bytestring

logger = logging.getLogger("kafka.consumer.kafka")

TopicPartition = tuple[str, int]


class OffsetsStruct(NamedTuple):
    """A consumer's offsets, by (topic, partition)."""

    fetch: dict[TopicPartition, int]
    highwater: dict[TopicPartition, int | None]
    commit: dict[TopicPartition, int | None]
    task_done: dict[TopicPartition, int | None]


DEFAULT_CONSUMER_CONFIG: dict[str, Any] = {
    "client_id": "kafka.consumer.kafka",
    "group_id": None,
    "bootstrap_servers": [],
    "socket_timeout_ms": 30 * 1000,
    "fetch_message_max_bytes": 1024 * 1024,
    "auto_offset_reset": "largest",
    "fetch_min_bytes": 1,
    "fetch_wait_max_ms": 100,
    "refresh_leader_backoff_ms": 200,
    "deserializer_class": lambda msg: msg,
    "auto_commit_enable": False,
    "auto_commit_interval_ms": 60 * 1000,
    "auto_commit_interval_messages": None,
    "consumer_timeout_ms": -1,
    # These have no effect, as in kafka-python.
    "socket_receive_buffer_bytes": 64 * 1024,
    "num_consumer_fetchers": 1,
    "default_fetcher_backoff_ms": 1000,
    "queued_max_message_chunks": 10,
    "rebalance_max_retries": 4,
    "rebalance_backoff_ms": 2000,
}

DEPRECATED_CONFIG_KEYS = {"metadata_broker_list": "bootstrap_servers"}


class KafkaConsumer:
    """Reads partitions of topics. Never joins a group: each consumer reads all its partitions.

    Not thread-safe.

    Parameters
    ----------
    *topics
        See :meth:`set_topic_partitions`.
    **configs
        See :meth:`configure`.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = dict(DEFAULT_CONSUMER_CONFIG)

    def __init__(self, *topics: Any, **configs: Any) -> None:
        self.configure(**configs)
        self.set_topic_partitions(*topics)

    def __repr__(self) -> str:
        topics = "|".join(f"{topic}-{partition}" for topic, partition in self._topics)
        return f"<{type(self).__name__} topics=({topics})>"

    # Type checkers would take any name for an attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(explain_missing_method(name), name=name, obj=self)

    def configure(self, **configs: Any) -> None:
        """Configure and connect.

        Parameters
        ----------
        bootstrap_servers : str or list of str
            ``host:port`` of brokers.
        client_id : str
        group_id : str, optional
            The group to commit offsets for.
        fetch_message_max_bytes : int
            The most bytes per partition in a request; a message must not be larger.
        fetch_min_bytes : int
            The minimum number of bytes that a request waits for.
        fetch_wait_max_ms : int
            How long a request waits for `fetch_min_bytes`.
        refresh_leader_backoff_ms : int
            The pause after an error.
        socket_timeout_ms : int
            The longest wait for a response.
        auto_offset_reset : str
            Where to start without a committed offset, and where to continue if an offset does not
            exist: ``smallest`` or ``largest``. Anything else raises OffsetOutOfRangeError.
        deserializer_class : callable
            Called with the value of each message.
        auto_commit_enable : bool
            Whether ``task_done()`` commits.
        auto_commit_interval_ms : int
            With `auto_commit_enable`: commit every this many ms.
        auto_commit_interval_messages : int or None
            With `auto_commit_enable`: commit after this many messages.
        consumer_timeout_ms : int
            How long to wait for a message before ConsumerTimeout. A negative value waits forever.

        Raises
        ------
        KafkaConfigurationError
            A key is unknown, a required key is missing, or `auto_offset_reset` has a value from
            later releases.
        KafkaUnavailableError
            No broker responded.
        """
        for old, new in DEPRECATED_CONFIG_KEYS.items():
            if old in configs:
                logger.warning("Deprecated configuration: %s. Please use %s instead.", old, new)
                configs.setdefault(new, configs.pop(old))
        unknown = configs.keys() - self.DEFAULT_CONFIG.keys()
        if unknown:
            raise KafkaConfigurationError(explain_unknown_keys(unknown))
        refused = explain_refused_reset(configs.get("auto_offset_reset"))
        if refused:
            raise KafkaConfigurationError(refused)
        self._config = {**self.DEFAULT_CONFIG, **configs}
        if self._config["auto_commit_enable"] and not self._config["group_id"]:
            raise KafkaConfigurationError(
                "KafkaConsumer configured to auto-commit without required consumer group "
                "(group_id)"
            )
        if not self._config["bootstrap_servers"]:
            raise KafkaConfigurationError("bootstrap_servers required to configure KafkaConsumer")
        self._reset_auto_commit()
        self._client = KafkaClient(
            self._config["bootstrap_servers"],
            client_id=self._config["client_id"],
            timeout=self._config["socket_timeout_ms"] / 1000,
        )

    def set_topic_partitions(self, *topics: Any) -> None:
        """Choose the partitions to read. Replaces the earlier choice.

        Parameters
        ----------
        *topics
            ``"topic"`` (all partitions), ``("topic", 2)``, ``("topic", 2, offset)``,
            ``{"topic": 2}``, ``{"topic": [0, 2]}`` or ``{("topic", 2): offset}``. Without an
            offset, the consumer starts at the group's committed offset, or else as
            `auto_offset_reset` says.

        Raises
        ------
        KafkaConfigurationError
            An argument has another type.
        UnknownTopicOrPartitionError
        """
        self._topics: list[TopicPartition] = []
        self._offsets = OffsetsStruct({}, {}, {}, {})
        self._message_iterator: Iterator[KafkaMessage] | None = None
        self._client.load_metadata_for_topics()
        for topic in topics:
            self._choose(topic)
        if self._config["group_id"]:
            self._get_commit_offsets()
        for key in self._topics:
            committed = self._offsets.commit.setdefault(key, None)
            if key not in self._offsets.fetch:
                self._offsets.fetch[key] = (
                    self._reset_partition_offset(key) if committed is None else committed
                )
            self._offsets.highwater[key] = self._offsets.task_done[key] = None

    def _choose(self, topic: Any) -> None:
        if isinstance(topic, (str, bytes)):
            partitions = self._client.get_partition_ids_for_topic(topic)
            if not partitions:
                logger.warning("Topic %s not found in broker metadata", text(topic))
            for partition in partitions:
                self._add(topic, partition)
        elif isinstance(topic, tuple):
            self._add(*topic[:3])
        elif isinstance(topic, dict):
            for key, value in topic.items():
                if isinstance(key, tuple):
                    self._add(key[0], key[1], value)
                elif isinstance(value, int):
                    self._add(key, value)
                elif isinstance(value, (list, tuple)):
                    for partition in value:
                        self._add(key, partition)
                else:
                    raise KafkaConfigurationError(
                        f"Unknown topic type for {key!r}: expected an int or a list of ints, "
                        f"got {type(value).__name__}"
                    )
        else:
            raise KafkaConfigurationError(f"Unknown topic type ({type(topic).__name__})")

    def _add(self, topic: str | bytes, partition: int, offset: int | None = None) -> None:
        topic = text(topic)
        if not isinstance(partition, int):
            raise KafkaConfigurationError(
                f"Unknown partition type ({type(partition).__name__}) -- expected int"
            )
        if not self._client.has_metadata_for_topic(topic):
            raise UnknownTopicOrPartitionError(f"Topic {topic} not found in broker metadata")
        if partition not in self._client.get_partition_ids_for_topic(topic):
            raise UnknownTopicOrPartitionError(
                f"Partition {partition} not found in Topic {topic} in broker metadata"
            )
        key = (topic, partition)
        if key not in self._topics:
            self._topics.append(key)
        if offset is not None:
            self._offsets.fetch[key] = offset

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # -- reading

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> KafkaMessage:
        return self.next()

    def next(self) -> KafkaMessage:
        """Return the next message.

        Returns
        -------
        KafkaMessage

        Raises
        ------
        ConsumerTimeout
            No message arrived within `consumer_timeout_ms`.
        """
        self._set_consumer_timeout_start()
        if self._message_iterator is not None:
            for message in self._message_iterator:
                return message
        while True:
            self._message_iterator = self.fetch_messages()
            for message in self._message_iterator:
                return message
            self._message_iterator = None
            self._check_consumer_timeout()

    def fetch_messages(self) -> Iterator[KafkaMessage]:
        """Read from all partitions once.

        Returns
        -------
        iterator of KafkaMessage
            The messages that arrived within `fetch_wait_max_ms`. A message counts as read when the
            iterator returns it. `topic` is a str.

        Raises
        ------
        KafkaConfigurationError
            No partitions were chosen; see :meth:`set_topic_partitions`.
        ConsumerFetchSizeTooSmall
            A message is larger than `fetch_message_max_bytes`.
        """
        if not self._topics:
            raise KafkaConfigurationError("No topics or partitions configured")
        config = self._config
        fetched = self._offsets.fetch
        deserialize = config["deserializer_class"]
        responses = self._client.send_fetch_request(
            [
                FetchRequest(
                    topic.encode(),
                    partition,
                    fetched[topic, partition],
                    config["fetch_message_max_bytes"],
                )
                for topic, partition in self._topics
            ],
            max_wait_time=config["fetch_wait_max_ms"],
            min_bytes=config["fetch_min_bytes"],
            fail_on_error=False,
        )
        for key, response in zip(self._topics, responses, strict=True):
            if not self._check_response(key, response):
                continue
            topic, partition = key
            self._offsets.highwater[key] = response.highwaterMark
            for offset, message in response.messages:
                if offset < fetched[key]:
                    continue  # an earlier message in the same compressed batch
                value = deserialize(message.value)  # an exception leaves the message unread
                fetched[key] = offset + 1
                yield KafkaMessage(topic, partition, offset, message.key, value)

    def _check_response(self, key: TopicPartition, response: Any) -> bool:
        """Whether the response contains messages. Logs errors and resets the offset."""
        try:
            check_error(response)
        except (FailedPayloadsError, NotLeaderForPartitionError) as error:
            logger.warning("%s attempting to fetch data of %s-%d", type(error).__name__, *key)
            self._refresh_metadata_on_error()
        except OffsetOutOfRangeError:
            logger.warning(
                "OffsetOutOfRange: topic %s, partition %d, offset %d (Highwatermark: %d)",
                *key,
                self._offsets.fetch[key],
                response.highwaterMark,
            )
            self._offsets.fetch[key] = self._reset_partition_offset(key)
        except RequestTimedOutError:
            logger.warning("RequestTimedOutError for %s - %d", *key)
        else:
            return True
        return False

    def _refresh_metadata_on_error(self) -> None:
        pause = self._config["refresh_leader_backoff_ms"] / 1000
        while True:
            time.sleep(pause * random.uniform(0.9, 1.1))
            try:
                self._client.load_metadata_for_topics()
                return
            except KafkaUnavailableError:
                logger.warning("Unable to refresh topic metadata... cluster unavailable")
                self._check_consumer_timeout()

    _consumer_timeout: float | None = None

    def _set_consumer_timeout_start(self) -> None:
        timeout = self._config["consumer_timeout_ms"]
        self._consumer_timeout = time.monotonic() + timeout / 1000 if timeout >= 0 else None

    def _check_consumer_timeout(self) -> None:
        if self._consumer_timeout is not None and time.monotonic() > self._consumer_timeout:
            raise ConsumerTimeout(
                f"Consumer timed out after {self._config['consumer_timeout_ms']} ms"
            )

    # -- offsets

    def get_partition_offsets(
        self, topic: str | bytes, partition: int, request_time_ms: int, max_num_offsets: int
    ) -> tuple[int, ...]:
        """Look up a partition's offsets.

        Parameters
        ----------
        topic : str or bytes
        partition : int
        request_time_ms : int
            -1: the end; -2: the beginning; or ms since the epoch: the first message at that time
            or later.
        max_num_offsets : int
            If more than 1, and `request_time_ms` is -1: also return the beginning.

        Returns
        -------
        tuple of int
            Highest first.
        """
        request = OffsetRequest(
            kafka_bytestring(topic), partition, request_time_ms, max_num_offsets
        )
        (response,) = self._client.send_offset_request([request])
        offsets: tuple[int, ...] = response.offsets
        return offsets

    def offsets(self, group: str | None = None) -> dict[Any, Any]:
        """Return a copy of the consumer's offsets.

        Parameters
        ----------
        group : str, optional
            ``fetch``, ``commit``, ``task_done`` or ``highwater``; default: all, by these names.

        Returns
        -------
        dict
            By (topic, partition); the topic is a str.
        """
        if group:
            return dict(getattr(self._offsets, group))
        return {name: dict(offsets) for name, offsets in self._offsets._asdict().items()}

    def task_done(self, message: KafkaMessage) -> bool:
        """Mark a message as done, so that the next commit includes it.

        Parameters
        ----------
        message : KafkaMessage

        Returns
        -------
        bool
            False if the consumer does not read the message's partition.
        """
        topic = message.topic if isinstance(message.topic, str) else text(message.topic)
        key = (topic, message.partition)
        if key not in self._offsets.task_done:
            logger.warning("Unrecognized topic/partition in task_done message: %s:%d", *key)
            return False
        offset = message.offset
        previous = self._offsets.task_done[key]
        if previous is not None and offset != previous + 1:
            logger.warning(
                "Marking task_done on a non-continuous offset: %d != %d + 1", offset, previous
            )
        committed = self._offsets.commit[key]
        if committed is not None and offset + 1 <= committed:
            logger.warning(
                "Marking task_done on a previously committed offset?: %d (+1) <= %d",
                offset,
                committed,
            )
        self._offsets.task_done[key] = offset
        if self._config["auto_commit_enable"]:
            self._uncommitted += 1
            if self._should_auto_commit():
                self.commit()
        return True

    def commit(self) -> bool:
        """Commit the offsets of messages that are done.

        Returns
        -------
        bool
            False if the consumer has no new offsets to commit.

        Raises
        ------
        KafkaConfigurationError
            The consumer has no `group_id`.
        KafkaError
            The commit failed.
        """
        if not self._config["group_id"]:
            logger.warning("Cannot commit without a group_id!")
            raise KafkaConfigurationError(
                "Attempted to commit offsets without a configured consumer group (group_id)"
            )
        commits = {
            key: done + 1
            for key, done in self._offsets.task_done.items()
            if done is not None and done + 1 != self._offsets.commit[key]
        }
        if not commits:
            logger.info("No new offsets found to commit in group %s", self._config["group_id"])
            return False
        logger.info("committing consumer offsets to group %s", self._config["group_id"])
        responses = self._client.send_offset_commit_request(
            kafka_bytestring(self._config["group_id"]),
            [
                OffsetCommitRequest(topic.encode(), partition, offset, b"")
                for (topic, partition), offset in commits.items()
            ],
            fail_on_error=False,
        )
        for (key, offset), response in zip(commits.items(), responses, strict=True):
            check_error(response)
            self._offsets.commit[key] = offset
        self._reset_auto_commit()
        return True

    def _get_commit_offsets(self) -> None:
        responses = self._client.send_offset_fetch_request(
            kafka_bytestring(self._config["group_id"]),
            [OffsetFetchRequest(topic.encode(), partition) for topic, partition in self._topics],
            fail_on_error=False,
        )
        for key, response in zip(self._topics, responses, strict=True):
            check_error(response)
            self._offsets.commit[key] = None if response.offset == -1 else response.offset

    def _reset_partition_offset(self, key: TopicPartition) -> int:
        time_ms = reset_time(self._config["auto_offset_reset"])
        return self.get_partition_offsets(*key, time_ms, 1)[0]

    def _reset_auto_commit(self) -> None:
        self._uncommitted = 0
        interval = self._config["auto_commit_interval_ms"]
        self._next_commit = time.monotonic() + interval / 1000 if interval else None

    def _should_auto_commit(self) -> bool:
        most = self._config["auto_commit_interval_messages"]
        if most and self._uncommitted >= most:
            return True
        return self._next_commit is not None and time.monotonic() >= self._next_commit
