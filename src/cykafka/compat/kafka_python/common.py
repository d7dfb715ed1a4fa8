"""The structs and errors of kafka-python 0.9.5."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from cykafka import KafkaError as CoreError
from cykafka.compat.kafka_python._later import getattr_of

# Structs. Topics are bytes in requests and responses, as on the wire.


class MetadataRequest(NamedTuple):
    """Request the metadata of topics; none means all topics."""

    topics: Sequence[bytes | str]


class BrokerMetadata(NamedTuple):
    """The address of a broker."""

    nodeId: int
    host: bytes | str | None
    port: int | None


class PartitionMetadata(NamedTuple):
    """The leader and the replicas of a partition, by node id."""

    topic: bytes
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: int


class TopicMetadata(NamedTuple):
    """The partitions of a topic."""

    topic: bytes
    error: int
    partitions: list[PartitionMetadata]


class MetadataResponse(NamedTuple):
    """The brokers and topics of a cluster."""

    brokers: list[BrokerMetadata]
    topics: list[TopicMetadata]


class ConsumerMetadataRequest(NamedTuple):
    """Request the coordinator of consumer groups."""

    groups: bytes | str


class ConsumerMetadataResponse(NamedTuple):
    """The coordinator of a consumer group."""

    error: int
    nodeId: int
    host: bytes | str | None
    port: int


class Message(NamedTuple):
    """A message as on the wire. The low two bits of `attributes` are its codec."""

    magic: int
    attributes: int
    key: bytes | None
    value: bytes | None


class OffsetAndMessage(NamedTuple):
    """A message that a consumer read, with its offset."""

    offset: int
    message: Message


class ProduceRequest(NamedTuple):
    """Messages for one partition."""

    topic: bytes | str
    partition: int
    messages: Iterable[Message]


class ProduceResponse(NamedTuple):
    """The offset of the first message that a ProduceRequest stored."""

    topic: bytes | str
    partition: int
    error: int
    offset: int


class FetchRequest(NamedTuple):
    """Request at most `max_bytes` of messages from `offset` on."""

    topic: bytes | str
    partition: int
    offset: int
    max_bytes: int


class FetchResponse(NamedTuple):
    """Messages of one partition. `highwaterMark` is the offset after the last message."""

    topic: bytes | str
    partition: int
    error: int
    highwaterMark: int
    messages: Iterable[OffsetAndMessage]


class OffsetRequest(NamedTuple):
    """Request offsets before `time`: ms since 1970, -1 for the latest, -2 for the earliest."""

    topic: bytes | str
    partition: int
    time: int
    max_offsets: int


class OffsetResponse(NamedTuple):
    """The offsets for an OffsetRequest, highest first."""

    topic: bytes | str
    partition: int
    error: int
    offsets: tuple[int, ...]


class OffsetCommitRequest(NamedTuple):
    """An offset for a group to commit."""

    topic: bytes | str
    partition: int
    offset: int
    metadata: bytes | str | None


class OffsetCommitResponse(NamedTuple):
    """The result of an OffsetCommitRequest."""

    topic: bytes | str
    partition: int
    error: int


class OffsetFetchRequest(NamedTuple):
    """Request the offset that a group committed."""

    topic: bytes | str
    partition: int


class OffsetFetchResponse(NamedTuple):
    """The offset that a group committed, or -1."""

    topic: bytes | str
    partition: int
    offset: int
    metadata: bytes | str | None
    error: int


class TopicAndPartition(NamedTuple):
    """The name of a partition."""

    topic: bytes | str
    partition: int


class KafkaMessage(NamedTuple):
    """A message of KafkaConsumer. `value` is what the deserializer returned."""

    topic: bytes | str
    partition: int
    offset: int
    key: bytes | None
    value: Any


class RetryOptions(NamedTuple):
    """How an asynchronous producer retries. A `limit` of 0 disables retries; None is unlimited."""

    limit: int | None
    backoff_ms: int
    retry_on_timeouts: bool


# Errors. The names and the hierarchy match 0.9.5.


class KafkaError(RuntimeError):
    """The base of all errors of this package."""


class BrokerResponseError(KafkaError):
    """The base of the errors that brokers report.

    Attributes
    ----------
    errno : int
        The number of the error in Kafka's protocol.
    message : str
        Its name.
    """

    errno: ClassVar[int]
    message: ClassVar[str]


class UnknownError(BrokerResponseError):
    """An error that this package does not know."""

    errno = -1
    message = "UNKNOWN"

    def __str__(self) -> str:
        text = super().__str__()
        number = getattr(self.args[0], "error", None) if self.args else None
        if not isinstance(number, int) or number in (0, self.errno):
            return text
        return f"{text}: {CoreError(number).str()}"


class OffsetOutOfRangeError(BrokerResponseError):
    """The partition has no message at the wanted offset."""

    errno = 1
    message = "OFFSET_OUT_OF_RANGE"


class InvalidMessageError(BrokerResponseError):
    """The checksum of a message is wrong."""

    errno = 2
    message = "INVALID_MESSAGE"


class UnknownTopicOrPartitionError(BrokerResponseError):
    """The broker does not know the topic or partition."""

    errno = 3
    message = "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchRequestError(BrokerResponseError):
    """The size of a fetch request is negative."""

    errno = 4
    message = "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(BrokerResponseError):
    """The partition has no leader at present."""

    errno = 5
    message = "LEADER_NOT_AVAILABLE"


class NotLeaderForPartitionError(BrokerResponseError):
    """The broker does not lead the partition."""

    errno = 6
    message = "NOT_LEADER_FOR_PARTITION"


class RequestTimedOutError(BrokerResponseError):
    """The broker did not complete the request in time."""

    errno = 7
    message = "REQUEST_TIMED_OUT"


class BrokerNotAvailableError(BrokerResponseError):
    """A broker is down."""

    errno = 8
    message = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(BrokerResponseError):
    """The broker has no replica of the partition."""

    errno = 9
    message = "REPLICA_NOT_AVAILABLE"


class MessageSizeTooLargeError(BrokerResponseError):
    """A message is larger than the broker accepts."""

    errno = 10
    message = "MESSAGE_SIZE_TOO_LARGE"


class StaleControllerEpochError(BrokerResponseError):
    """A request of an earlier controller."""

    errno = 11
    message = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(BrokerResponseError):
    """The metadata of a committed offset is larger than the broker accepts."""

    errno = 12
    message = "OFFSET_METADATA_TOO_LARGE"


class StaleLeaderEpochCodeError(BrokerResponseError):
    """A request of an earlier leader."""

    errno = 13
    message = "STALE_LEADER_EPOCH_CODE"


class OffsetsLoadInProgressCode(BrokerResponseError):
    """The coordinator still loads the offsets of the group."""

    errno = 14
    message = "OFFSETS_LOAD_IN_PROGRESS_CODE"


class ConsumerCoordinatorNotAvailableCode(BrokerResponseError):
    """The group has no coordinator at present."""

    errno = 15
    message = "CONSUMER_COORDINATOR_NOT_AVAILABLE_CODE"


class NotCoordinatorForConsumerCode(BrokerResponseError):
    """The broker does not coordinate the group."""

    errno = 16
    message = "NOT_COORDINATOR_FOR_CONSUMER_CODE"


class KafkaUnavailableError(KafkaError):
    """No broker responds."""


class KafkaTimeoutError(KafkaError):
    """An operation did not end in time."""


class FailedPayloadsError(KafkaError):
    """A request failed before a broker responded.

    Parameters
    ----------
    payload
        The request.
    *args
        The arguments of the exception.
    """

    def __init__(self, payload: Any, *args: Any) -> None:
        super().__init__(*args)
        self.payload = payload

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception.__reduce__ does not pass `payload` to __init__.
        return type(self), (self.payload, *self.args), self.__dict__


class ConnectionError(KafkaError):
    """The connection to a broker failed. (Python's own ConnectionError is an OSError.)"""


class BufferUnderflowError(KafkaError):
    """A response ends too early."""


class ChecksumError(KafkaError):
    """The checksum of a message is wrong."""


class ConsumerFetchSizeTooSmall(KafkaError):
    """A fetch response does not contain a complete message."""


class ConsumerNoMoreData(KafkaError):
    """A partition has no more messages at present."""


class ConsumerTimeout(KafkaError):
    """No message arrived within the timeout of KafkaConsumer."""


class ProtocolError(KafkaError):
    """A message or response does not follow Kafka's protocol."""


class UnsupportedCodecError(KafkaError):
    """A codec other than none, gzip and snappy."""


class KafkaConfigurationError(KafkaError):
    """A wrong or missing configuration value."""


class AsyncProducerQueueFull(KafkaError):
    """The queue of an asynchronous producer is full.

    Parameters
    ----------
    failed_msgs
        The messages that the queue did not accept.
    *args
        The arguments of the exception.
    """

    def __init__(self, failed_msgs: Any, *args: Any) -> None:
        super().__init__(*args)
        self.failed_msgs = failed_msgs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failed_msgs, *self.args), self.__dict__


# Names that exist only in the documentation of 0.9.5.
BrokerNotFoundError = BrokerNotAvailableError
LeaderNotFoundError = LeaderNotAvailableError
InvalidFetchRequest = InvalidFetchRequestError
OffsetOutOfRangeException = OffsetOutOfRangeError
x = UnknownTopicOrPartitionError

kafka_errors = {kind.errno: kind for kind in BrokerResponseError.__subclasses__()}


def check_error(response: Any) -> None:
    """Raise the error in a response, if any.

    Parameters
    ----------
    response
        A response struct, or an exception that took its place.

    Raises
    ------
    BrokerResponseError
        The response contains an error number: raises the class for that number, or UnknownError.
        The response is the exception's argument.
    Exception
        The response is this exception.
    """
    if isinstance(response, Exception):
        raise response
    if response.error:
        raise kafka_errors.get(response.error, UnknownError)(response)


RETRY_BACKOFF_ERROR_TYPES = (
    KafkaUnavailableError,
    LeaderNotAvailableError,
    ConnectionError,
    FailedPayloadsError,
)
RETRY_REFRESH_ERROR_TYPES = (
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
    LeaderNotAvailableError,
    ConnectionError,
)
RETRY_ERROR_TYPES = RETRY_BACKOFF_ERROR_TYPES + RETRY_REFRESH_ERROR_TYPES

if not TYPE_CHECKING:  # type checkers would take any name for one of this module
    __getattr__ = getattr_of("kafka.common")
