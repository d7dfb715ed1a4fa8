"""KafkaClient: metadata, and the requests that consumers and producers send through it."""

from __future__ import annotations

import contextlib
import logging
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from cykafka import (
    Consumer,
    Delivery,
    DeliveryError,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from cykafka.admin import AdminClient, ClusterMetadata, ListOffsetsResultInfo, OffsetSpec
from cykafka.compat.kafka_python._fetch import Fetcher
from cykafka.compat.kafka_python._handles import Handles, open_meanwhile
from cykafka.compat.kafka_python._translation import (
    MessageSet,
    check_numbers,
    check_payloads,
    errno,
    failed_payload,
    is_unanswered,
    message_set,
    text,
    topic_name,
)
from cykafka.compat.kafka_python.common import (
    BrokerMetadata,
    BufferUnderflowError,
    ChecksumError,
    ConsumerMetadataResponse,
    FailedPayloadsError,
    FetchRequest,
    InvalidMessageError,
    KafkaTimeoutError,
    KafkaUnavailableError,
    LeaderNotAvailableError,
    MetadataResponse,
    NotLeaderForPartitionError,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetOutOfRangeError,
    OffsetRequest,
    OffsetResponse,
    PartitionMetadata,
    ProduceRequest,
    ProduceResponse,
    ProtocolError,
    ReplicaNotAvailableError,
    TopicAndPartition,
    TopicMetadata,
    UnknownTopicOrPartitionError,
    check_error,
)
from cykafka.compat.kafka_python.conn import DEFAULT_SOCKET_TIMEOUT_SECONDS, collect_hosts
from cykafka.compat.kafka_python.util import kafka_bytestring
from cykafka.internal import commit_within, kafka_error

__all__ = ["KafkaClient"]

log = logging.getLogger("kafka.client")

Name = str | bytes
Callback = Callable[[Any], Any] | None

# How long a metadata request waits for a topic that it makes the brokers create, s. Until then
# brokers without ZooKeeper report an unknown topic; brokers of kafka-python's time said "no
# leader".
_CREATION_S = 1.0
_SLOW_CREATION_S = 10.0
_PAUSE_S = 0.05
# The longest wait for the metadata that a producer lacks, s.
_REFRESH_S = 5.0
# How long to keep looking up offsets while the leader is new, s.
_NEW_LEADER_S = 5.0

_NO_LEADER = {LeaderNotAvailableError.errno, NotLeaderForPartitionError.errno}

_LATEST = -1
_EARLIEST = -2


class KafkaClient:
    """A connection to a cluster.

    Sends requests through librdkafka, which connects on demand, finds the leaders and follows
    leader changes. Thread-safe.

    Parameters
    ----------
    hosts : str or list of str
        ``host:port``, separated by commas; the port defaults to 9092.
    client_id : str or bytes
    timeout : float or None
        The longest wait for a response, s; None means 120 s. Requests fail earlier if all brokers
        are unreachable.
    correlation_id : int
        Kept for subclasses; librdkafka numbers its requests itself.

    Raises
    ------
    KafkaUnavailableError
        No broker responded.

    Attributes
    ----------
    brokers : dict of int to BrokerMetadata
    topic_partitions : dict of bytes to (dict of int to PartitionMetadata)
    topics_to_brokers : dict of TopicAndPartition to BrokerMetadata or None
        The leaders; None for a partition without one.
    """

    CLIENT_ID = b"kafka-python"

    def __init__(
        self,
        hosts: str | Iterable[str],
        client_id: Name = CLIENT_ID,
        timeout: float | None = DEFAULT_SOCKET_TIMEOUT_SECONDS,
        correlation_id: int = 0,
    ) -> None:
        self._prepare(collect_hosts(hosts), kafka_bytestring(client_id), timeout, correlation_id)
        self.load_metadata_for_topics()

    def _prepare(
        self,
        hosts: list[tuple[str, int]],
        client_id: bytes,
        timeout: float | None,
        correlation_id: int,
    ) -> None:
        self.hosts = hosts
        self.client_id = client_id
        self.timeout = timeout
        self.correlation_id = correlation_id
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics_to_brokers: dict[TopicAndPartition, BrokerMetadata | None] = {}
        self.topic_partitions: dict[bytes, dict[int, PartitionMetadata]] = {}
        self._handles = Handles(hosts, client_id, timeout)
        self._fetcher = Fetcher(self._handles)

    def __repr__(self) -> str:
        return f"<KafkaClient client_id={text(self.client_id)}>"

    # -- life

    def close(self) -> None:
        """Close the connections. The next request connects again, as in kafka-python."""
        self._handles.close()

    def copy(self) -> KafkaClient:
        """Return a client with the same settings and metadata, and its own connections."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._prepare(list(self.hosts), self.client_id, self.timeout, self.correlation_id)
        other.brokers = dict(self.brokers)
        other.topics_to_brokers = dict(self.topics_to_brokers)
        other.topic_partitions = {
            topic: dict(partitions) for topic, partitions in self.topic_partitions.items()
        }
        return other

    def __deepcopy__(self, _: object) -> KafkaClient:
        return self.copy()

    def reinit(self) -> None:
        """Close the connections; the next request connects again."""
        self.close()

    # -- metadata

    @property
    def topics(self) -> list[bytes]:
        """The known topics, list of bytes."""
        return list(self.topic_partitions)

    def has_metadata_for_topic(self, topic: Name) -> bool:
        """Whether partitions of the topic are known."""
        return bool(self.topic_partitions.get(kafka_bytestring(topic)))

    def get_partition_ids_for_topic(self, topic: Name) -> list[int]:
        """Return a topic's known partitions, in order; empty for an unknown topic."""
        return sorted(self.topic_partitions.get(kafka_bytestring(topic), ()))

    def reset_topic_metadata(self, *topics: Name) -> None:
        """Forget topics."""
        for topic in map(kafka_bytestring, topics):
            self.topic_partitions.pop(topic, None)
            for key in [key for key in list(self.topics_to_brokers) if key.topic == topic]:
                self.topics_to_brokers.pop(key, None)

    def reset_all_metadata(self) -> None:
        """Forget all topics."""
        self.topics_to_brokers.clear()
        self.topic_partitions.clear()

    def ensure_topic_exists(self, topic: Name, timeout: float = 30) -> None:
        """Wait until a topic exists. A broker with auto.create.topics.enable creates it.

        Parameters
        ----------
        topic : str or bytes
        timeout : float
            Seconds.

        Raises
        ------
        KafkaTimeoutError
            The topic did not get leaders in time.
        UnknownTopicOrPartitionError
            The brokers did not create the topic within 10 s.
        """
        begun = time.monotonic()
        deadline = begun + timeout
        while not self.has_metadata_for_topic(topic):
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"Unable to create topic {topic_name(topic)}")
            try:
                self.load_metadata_for_topics(topic)
            except LeaderNotAvailableError:
                time.sleep(_PAUSE_S)
            except UnknownTopicOrPartitionError:
                if time.monotonic() > min(deadline, begun + _SLOW_CREATION_S):
                    raise

    def load_metadata_for_topics(self, *topics: Name) -> None:
        """Request metadata from the brokers, and store it.

        Parameters
        ----------
        *topics : str or bytes
            Without topics: all topics. The client then logs a topic's errors instead of raising
            them.

        Raises
        ------
        UnknownTopicOrPartitionError
            A topic does not exist, and the brokers do not create it.
        LeaderNotAvailableError
            A topic is being created.
        KafkaUnavailableError
            No broker responded.
        """
        names = [kafka_bytestring(topic) for topic in topics]
        response = self.send_metadata_request(names)
        if names:
            self.reset_topic_metadata(*names)
        else:
            self.reset_all_metadata()
        self.brokers.update({broker.nodeId: broker for broker in response.brokers})
        for topic in response.topics:
            try:
                check_error(topic)
            except (UnknownTopicOrPartitionError, LeaderNotAvailableError) as error:
                if topic.topic in names:
                    raise
                log.error("Error loading topic metadata for %s: %s", topic.topic, type(error))
                continue
            self.topic_partitions[topic.topic] = {
                partition.partition: partition for partition in topic.partitions
            }
            for partition in topic.partitions:
                self._note_leader(partition)

    def _note_leader(self, partition: PartitionMetadata) -> None:
        key = TopicAndPartition(partition.topic, partition.partition)
        try:
            check_error(partition)
        except LeaderNotAvailableError:
            log.error("No leader for topic %s partition %d", *key)
            self.topics_to_brokers[key] = None
            return
        except ReplicaNotAvailableError:
            pass  # only the leader matters
        self.topics_to_brokers[key] = self.brokers.get(
            partition.leader, BrokerMetadata(partition.leader, None, None)
        )

    def _get_leader_for_partition(self, topic: bytes, partition: int) -> BrokerMetadata:
        """Return the leader. Raises UnknownTopicOrPartitionError or LeaderNotAvailableError."""
        key = TopicAndPartition(topic, partition)
        leader = self.topics_to_brokers.get(key)
        if leader is None:
            self.load_metadata_for_topics(topic)
            if partition not in self.topic_partitions.get(topic, ()):
                raise UnknownTopicOrPartitionError(key)
            leader = self.topics_to_brokers.get(key)
            if leader is None:
                raise LeaderNotAvailableError(self.topic_partitions[topic][partition])
        return leader

    def send_metadata_request(
        self,
        payloads: Sequence[Name] = (),
        fail_on_error: bool = True,
        callback: Callback = None,
    ) -> MetadataResponse:
        """Request the metadata of some topics, or of all topics.

        Parameters
        ----------
        payloads : sequence of str or bytes
            The topics; empty for all topics.
        fail_on_error, callback
            Have no effect, as in kafka-python.

        Returns
        -------
        MetadataResponse
            ``brokers``: list of BrokerMetadata; ``topics``: list of TopicMetadata, whose `error`
            is a number. Names and hosts are bytes.

        Raises
        ------
        KafkaUnavailableError
            No broker responded.
        """
        with _encoding():
            names = [topic_name(topic) for topic in payloads]
        answers = [self._metadata(name) for name in names] or [self._metadata(None)]
        topics = [topic for answer in answers for topic in _topics(answer)]
        brokers = {
            broker.id: BrokerMetadata(broker.id, (broker.host or "").encode(), broker.port)
            for answer in answers
            for broker in answer.brokers.values()
        }
        return MetadataResponse(list(brokers.values()), topics)

    def _metadata(self, topic: str | None) -> ClusterMetadata:
        """Return the metadata of one topic or all. Waits for a topic that brokers may create."""
        deadline = time.monotonic() + _CREATION_S
        while True:
            answer = self._handles.admin.ask(
                lambda admin, timeout: admin.list_topics(topic, timeout=timeout)
            )
            if topic is None or time.monotonic() > deadline:
                return answer
            if errno(answer.topics[topic].error) != UnknownTopicOrPartitionError.errno:
                return answer
            time.sleep(_PAUSE_S)

    # -- requests

    def send_produce_request(
        self,
        payloads: Sequence[ProduceRequest] = (),
        acks: int = 1,
        timeout: int = 1000,
        fail_on_error: bool = True,
        callback: Callback = None,
    ) -> list[Any]:
        """Send messages, all at once, and wait for their outcome.

        Parameters
        ----------
        payloads : sequence of ProduceRequest
            At most one per partition. The client unpacks compressed messages, and librdkafka
            compresses the batch with their codec.
        acks : int
            0: do not wait for the brokers; 1: wait for the leader; -1: wait for all in-sync
            replicas.
        timeout : int
            How long the leader waits for the replicas, ms. A message that no broker accepts fails
            10 s after that (earlier if the client's timeout is shorter).
        fail_on_error : bool
            Raise the first error, or return it.
        callback : callable, optional
            Maps each response.

        Returns
        -------
        list of ProduceResponse or FailedPayloadsError
            In the order of `payloads`; empty with `acks` 0. A FailedPayloadsError's payload
            contains the messages that the brokers may not have stored.

        Raises
        ------
        FailedPayloadsError
            The brokers did not respond.
        BrokerResponseError
            The brokers rejected the messages; the subclass says why.
        KafkaUnavailableError, UnsupportedCodecError, TypeError
        """
        responses = [
            self._settle(*sent, acks, timeout) for sent in self._publish(payloads, acks, timeout)
        ]
        if acks == 0:
            responses = [
                response for response in responses if isinstance(response, FailedPayloadsError)
            ]
        return self._checked(responses, fail_on_error, callback)

    def _publish(
        self, payloads: Sequence[ProduceRequest], acks: int, timeout: int
    ) -> list[tuple[ProduceRequest, MessageSet, Delivery | FailedPayloadsError]]:
        """Send the messages of all payloads. Sends none if a partition does not exist."""
        unavailable = None
        try:
            self._check_partitions(payloads)
        except KafkaUnavailableError as error:
            unavailable = error
        check_numbers("hi", acks=acks, timeout=timeout)
        check_payloads(payloads, "i", "partition")
        sets = [_messages_of(payload) for payload in payloads]
        if unavailable is not None:
            return [
                (payload, messages, failed_payload(payload, unavailable))
                for payload, messages in zip(payloads, sets, strict=True)
            ]
        sent: list[tuple[ProduceRequest, MessageSet, Delivery | FailedPayloadsError]] = []
        for payload, messages in zip(payloads, sets, strict=True):
            topic, partition = _key(payload)
            producer = self._handles.producer(
                acks, timeout, messages.codec, messages.compresslevel
            )
            with open_meanwhile():
                delivery = producer.publish(
                    topic_name(topic), messages.values, keys=messages.keys, partitions=partition
                )
            sent.append((payload, messages, delivery))
        return sent

    def _settle(
        self,
        payload: ProduceRequest,
        messages: MessageSet,
        delivery: Delivery | FailedPayloadsError,
        acks: int,
        timeout: int,
    ) -> ProduceResponse | FailedPayloadsError:
        """Wait for a payload's messages. Resend messages that brokers may accept now: their
        partition is new to the producer, or their batch was too large."""
        if isinstance(delivery, FailedPayloadsError):
            return delivery
        topic, partition = _key(payload)
        offset, failures = _outcome(delivery)
        for codes, in_batches in (
            # The partition is newer than the producer's metadata.
            ((KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC), True),
            # librdkafka's batch may exceed the topic's max.message.bytes, although each message
            # is smaller. kafka-python did not send batches.
            ((KafkaError.MSG_SIZE_TOO_LARGE,), False),
        ):
            places = [place for place, error in failures.items() if error.code() in codes]
            if not places or (len(messages.values) == 1 and not in_batches):
                continue
            again = messages.subset(places)
            with open_meanwhile():
                producer = self._handles.producer(
                    acks, timeout, again.codec, again.compresslevel, in_batches
                )
                if in_batches:
                    with contextlib.suppress(KafkaException):
                        producer.list_topics(
                            topic_name(topic), min(self._handles.timeout, _REFRESH_S)
                        )
                found, failed = _outcome(
                    producer.publish(
                        topic_name(topic), again.values, keys=again.keys, partitions=partition
                    )
                )
            offset = min((known for known in (offset, found) if known >= 0), default=-1)
            for place in places:
                del failures[place]
            failures.update({places[index]: error for index, error in failed.items()})
        if not failures:
            return ProduceResponse(topic, partition, 0, offset)
        left = payload._replace(messages=messages.subset(sorted(failures)))
        for error in failures.values():
            if is_unanswered(error):
                return failed_payload(left, KafkaException(error))
        # A retriable error takes precedence over a permanent one.
        numbers = sorted(
            map(errno, failures.values()), key=lambda number: number not in _NO_LEADER
        )
        response = _Refused(topic, partition, numbers[0], -1)
        response.payload = left
        return response

    def send_fetch_request(
        self,
        payloads: Sequence[FetchRequest] = (),
        fail_on_error: bool = True,
        callback: Callback = None,
        max_wait_time: int = 100,
        min_bytes: int = 4096,
    ) -> list[Any]:
        """Fetch messages. librdkafka prefetches, so most requests return at once.

        Parameters
        ----------
        payloads : sequence of FetchRequest
            Partitions, offsets and the most bytes per partition.
        fail_on_error : bool
            Raise the first error, or return it.
        callback : callable, optional
            Maps each response.
        max_wait_time : int
            How long to wait for `min_bytes`, ms; at most the client's timeout.
        min_bytes : int
            The minimum for all partitions together. 0: do not wait for new messages.

        Returns
        -------
        list of FetchResponse or FailedPayloadsError
            In the order of `payloads`. ``messages`` iterates over OffsetAndMessage once, and
            raises ConsumerFetchSizeTooSmall if the first message is larger than `max_bytes`.

        Raises
        ------
        OffsetOutOfRangeError, UnknownTopicOrPartitionError, FailedPayloadsError, ...
        """
        self._check(payloads, "iqi", "partition", "offset", "max_bytes")
        check_numbers("ii", max_wait_time=max_wait_time, min_bytes=min_bytes)
        responses = self._fetcher.fetch(payloads, max_wait_time, min_bytes)
        return self._checked(responses, fail_on_error, callback)

    def send_offset_request(
        self,
        payloads: Sequence[OffsetRequest] = (),
        fail_on_error: bool = True,
        callback: Callback = None,
    ) -> list[Any]:
        """Look up offsets.

        Parameters
        ----------
        payloads : sequence of OffsetRequest
            `time`: -1 for the end, -2 for the beginning, or ms since the epoch for the first
            message at that time or later (the end, if there is none). If `time` is -1 and
            `max_offsets` is more than 1, the response also contains the beginning.
        fail_on_error : bool
            Raise the first error, or return it.
        callback : callable, optional
            Maps each response.

        Returns
        -------
        list of OffsetResponse or FailedPayloadsError
            In the order of `payloads`. ``offsets`` is a tuple, highest first.

        Raises
        ------
        UnknownTopicOrPartitionError, FailedPayloadsError, ...
        """
        self._check(payloads, "iqi", "partition", "time", "max_offsets")
        # In 0.9.5's request other negative times are older than every segment: no offset.
        found = self._list_offsets(
            {_key(payload): payload.time for payload in payloads if payload.time >= _EARLIEST}
        )
        more = {}
        for payload in payloads:
            if payload.time == _LATEST and payload.max_offsets > 1:
                more[_key(payload)] = _EARLIEST
            elif found.get(_key(payload)) == -1:  # all messages are older
                more[_key(payload)] = _LATEST
        added = self._list_offsets(more)
        responses = []
        for payload in payloads:
            key = _key(payload)
            results = [answers[key] for answers in (found, added) if key in answers]
            offsets = tuple(
                result for result in results if isinstance(result, int) and result != -1
            )
            failed = [result for result in results if isinstance(result, KafkaException)]
            if failed:
                responses.append(_refused(payload, failed[0], OffsetResponse, ()))
            else:
                responses.append(OffsetResponse(*key, 0, offsets[: max(0, payload.max_offsets)]))
        return self._checked(responses, fail_on_error, callback)

    def _list_offsets(
        self, times: dict[tuple[bytes, int], int]
    ) -> dict[tuple[bytes, int], int | KafkaException]:
        if not times:
            return {}
        specs = {_LATEST: OffsetSpec.latest(), _EARLIEST: OffsetSpec.earliest()}
        wanted = {
            TopicPartition(topic_name(topic), partition): (
                specs.get(time_ms) or OffsetSpec.for_timestamp(time_ms)
            )
            for (topic, partition), time_ms in times.items()
        }
        found: dict[tuple[bytes, int], int | KafkaException] = {}
        deadline = time.monotonic() + _NEW_LEADER_S
        while True:
            answers = self._handles.admin.answers(partial(_list_offsets, wanted))
            for partition, answer in answers.items():
                found[partition.topic.encode(), partition.partition] = (
                    answer if isinstance(answer, KafkaException) else answer.offset
                )
            # After such an error the client looks for the leader, so the next response is better.
            wanted = {
                partition: wanted[partition]
                for partition, answer in answers.items()
                if isinstance(answer, KafkaException) and errno(kafka_error(answer)) in _NO_LEADER
            }
            if not wanted or time.monotonic() > deadline:
                return found
            time.sleep(_PAUSE_S)

    # -- offsets of groups

    def send_offset_commit_request(
        self,
        group: Name,
        payloads: Sequence[OffsetCommitRequest] = (),
        fail_on_error: bool = True,
        callback: Callback = None,
    ) -> list[Any]:
        """Commit a group's offsets to Kafka. The group must have no members.

        Parameters
        ----------
        group : str or bytes
        payloads : sequence of OffsetCommitRequest
            The offset of the next message to read; 0 or more.
        fail_on_error : bool
            Raise the first error, or return it.
        callback : callable, optional
            Maps each response.

        Returns
        -------
        list of OffsetCommitResponse or FailedPayloadsError
            In the order of `payloads`.
        """
        self._check(payloads, "iq", "partition", "offset")
        offsets = {
            _key(payload): TopicPartition(
                topic_name(payload.topic),
                payload.partition,
                payload.offset,
                None if payload.metadata is None else text(payload.metadata),
            )
            for payload in payloads
            if payload.offset >= 0
        }
        answers = self._of_group(group, offsets, commit_within)
        responses = []
        for payload in payloads:
            answer = answers.get(_key(payload))
            if answer is None:
                refused = OffsetOutOfRangeError.errno
                responses.append(OffsetCommitResponse(*_key(payload), refused))
            elif isinstance(answer, KafkaException):
                responses.append(_refused(payload, answer, OffsetCommitResponse))
            else:
                responses.append(OffsetCommitResponse(*_key(payload), errno(answer.error)))
        return self._checked(responses, fail_on_error, callback)

    def send_offset_fetch_request(
        self,
        group: Name,
        payloads: Sequence[OffsetFetchRequest] = (),
        fail_on_error: bool = True,
        callback: Callback = None,
    ) -> list[Any]:
        """Look up a group's offsets in Kafka (kafka-python used ZooKeeper, which is gone).

        Parameters
        ----------
        group : str or bytes
        payloads : sequence of OffsetFetchRequest
        fail_on_error : bool
            Raise the first error, or return it.
        callback : callable, optional
            Maps each response.

        Returns
        -------
        list of OffsetFetchResponse or FailedPayloadsError
            In the order of `payloads`. The offset is -1 if the group has none. `metadata` is
            bytes.
        """
        self._check(payloads, "i", "partition")
        partitions = {
            _key(payload): TopicPartition(topic_name(payload.topic), payload.partition)
            for payload in payloads
        }
        answers = self._of_group(group, partitions, Consumer.committed)
        responses = []
        for payload in payloads:
            answer = answers[_key(payload)]
            if isinstance(answer, KafkaException):
                responses.append(_refused(payload, answer, OffsetFetchResponse, -1, b""))
                continue
            responses.append(
                OffsetFetchResponse(
                    *_key(payload),
                    max(-1, answer.offset),
                    (answer.metadata or "").encode(),
                    errno(answer.error),
                )
            )
        return self._checked(responses, fail_on_error, callback)

    send_offset_fetch_request_kafka = send_offset_fetch_request

    def _of_group(
        self,
        group: Name | None,
        partitions: dict[tuple[bytes, int], TopicPartition],
        request: Callable[[Consumer, list[TopicPartition], float], list[TopicPartition] | None],
    ) -> dict[tuple[bytes, int], TopicPartition | KafkaException]:
        """Return each partition's result of a request about one group."""
        if group is None:  # brokers close the connection on a null group
            error = KafkaException(KafkaError(KafkaError._TRANSPORT, "the group is None"))
            return dict.fromkeys(partitions, error)
        name = text(group)
        if not name or "\0" in name:  # librdkafka cannot send them
            error = KafkaException(KafkaError(KafkaError.INVALID_GROUP_ID))
            return dict.fromkeys(partitions, error)
        if not partitions:
            return {}
        try:
            with self._handles.group(name) as consumer:
                found = consumer.ask(request, list(partitions.values()))
        except KafkaException as failed:
            return dict.fromkeys(partitions, failed)
        keys = {
            (partition.topic, partition.partition): key for key, partition in partitions.items()
        }
        return {keys[partition.topic, partition.partition]: partition for partition in found}

    def send_consumer_metadata_request(
        self,
        payloads: Name | tuple[()] = (),
        fail_on_error: bool = True,
        callback: Callback = None,
    ) -> ConsumerMetadataResponse:
        """Find a group's coordinator.

        Parameters
        ----------
        payloads : str or bytes
            The group.
        fail_on_error, callback
            Have no effect, as in kafka-python.

        Returns
        -------
        ConsumerMetadataResponse
            `error` is a number; `host` is bytes.

        Raises
        ------
        KafkaUnavailableError
            No broker responded.
        """
        with _encoding():
            group = text(payloads)  # type: ignore[arg-type]
        if not group or "\0" in group:
            return ConsumerMetadataResponse(KafkaError.INVALID_GROUP_ID, -1, b"", -1)
        answer = self._handles.admin.answers(
            lambda admin, timeout: admin.describe_consumer_groups([group], request_timeout=timeout)
        )[group]
        if isinstance(answer, KafkaException):
            error = kafka_error(answer)
            if error is not None and is_unanswered(error):
                raise KafkaUnavailableError(str(error)) from answer
            return ConsumerMetadataResponse(errno(error), -1, b"", -1)
        node = answer.coordinator
        return ConsumerMetadataResponse(0, node.id, node.host.encode(), node.port)

    # -- common parts of the requests

    def _check_partitions(self, payloads: Sequence[Any]) -> None:
        """Raise UnknownTopicOrPartitionError, LeaderNotAvailableError, KafkaUnavailableError."""
        for payload in payloads:
            self._get_leader_for_partition(*_key(payload))

    def _check(self, payloads: Sequence[Any], layout: str, *fields: str) -> None:
        """Find unknown leaders, and check the payloads."""
        with contextlib.suppress(KafkaUnavailableError):  # the responses report it
            self._check_partitions(payloads)
        check_payloads(payloads, layout, *fields)

    def _checked(self, responses: list[Any], fail_on_error: bool, callback: Callback) -> list[Any]:
        if fail_on_error:
            for response in responses:
                try:
                    check_error(response)
                except (UnknownTopicOrPartitionError, NotLeaderForPartitionError):
                    self.reset_topic_metadata(response.topic)
                    raise
        return responses if callback is None else [callback(response) for response in responses]


@contextlib.contextmanager
def _encoding() -> Iterator[None]:
    """Raise KafkaUnavailableError for values that do not fit into a request.

    kafka-python raises this exception for any error in a request to an arbitrary broker.
    """
    try:
        yield
    except (struct.error, TypeError) as error:
        raise KafkaUnavailableError(f"All servers failed to process request: {error}") from error


def _list_offsets(
    wanted: dict[TopicPartition, OffsetSpec], admin: AdminClient, timeout: float
) -> Mapping[TopicPartition, Future[ListOffsetsResultInfo]]:
    return admin.list_offsets(wanted, request_timeout=timeout)


def _key(payload: Any) -> tuple[bytes, int]:
    return kafka_bytestring(payload.topic), payload.partition


def _topics(answer: ClusterMetadata) -> Iterator[TopicMetadata]:
    for name, topic in answer.topics.items():
        partitions = [
            PartitionMetadata(
                name.encode(),
                partition.id,
                partition.leader,
                tuple(partition.replicas),
                tuple(partition.isrs),
                errno(partition.error),
            )
            for partition in topic.partitions.values()
        ]
        yield TopicMetadata(name.encode(), errno(topic.error), partitions)


def _refused(payload: Any, failed: KafkaException, response: type[Any], *fields: object) -> Any:
    """Return the response for a failed request; `fields` follow the topic and the partition."""
    error = kafka_error(failed)
    if error is None or is_unanswered(error):
        return failed_payload(payload, failed)
    if response is OffsetFetchResponse:
        return response(*_key(payload), *fields, errno(error))
    return response(*_key(payload), errno(error), *fields)


def _messages_of(payload: ProduceRequest) -> MessageSet:
    try:
        return message_set(payload.messages)
    except (ValueError, ProtocolError, ChecksumError, BufferUnderflowError) as error:
        # A compressed message contains damaged data. Brokers return this number for it.
        raise InvalidMessageError(
            ProduceResponse(*_key(payload), InvalidMessageError.errno, -1)
        ) from error


class _Refused(ProduceResponse):
    """A response whose `payload` is a request with the messages that were not stored."""

    payload: ProduceRequest


def _outcome(delivery: Delivery) -> tuple[int, dict[int, KafkaError]]:
    """Wait for messages, whose waiting time librdkafka limits. Returns the lowest offset and the
    failures."""
    failures: dict[int, KafkaError] = {}
    try:
        delivery.wait()
    except DeliveryError as error:
        failures = error.failures
    return min((offset for offset in delivery.offsets if offset >= 0), default=-1), failures
