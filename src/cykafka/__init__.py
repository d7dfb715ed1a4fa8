"""A Kafka client that costs what librdkafka costs, with confluent_kafka's interface."""

from cykafka import admin, error, serialization
from cykafka._consumer import Consumer
from cykafka._delivery import Delivery, DeliveryError
from cykafka._errors import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from cykafka._handle import ThrottleEvent, __version__
from cykafka._lag import Watermarks
from cykafka._message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from cykafka._message_batch import MessageBatch
from cykafka._model import (
    AcknowledgeType,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    IsolationLevel,
    Messages,
    Node,
    ShareConsumer,
    TopicCollection,
    TopicPartitionInfo,
)
from cykafka._module import Uuid, consistent, fnv1a, libversion, murmur2
from cykafka._partition import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
)
from cykafka._producer import Producer
from cykafka.deserializing_consumer import DeserializingConsumer
from cykafka.deserializing_share_consumer import DeserializingShareConsumer
from cykafka.serializing_producer import SerializingProducer


def version() -> str:
    """The version of this package."""
    return __version__


__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AcknowledgeType",
    "ConcurrentModificationException",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "Delivery",
    "DeliveryError",
    "DeserializingConsumer",
    "DeserializingShareConsumer",
    "ElectionType",
    "IllegalStateException",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "Message",
    "MessageBatch",
    "Messages",
    "Node",
    "Producer",
    "SerializingProducer",
    "ShareConsumer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "Watermarks",
    "__version__",
    "admin",
    "consistent",
    "error",
    "fnv1a",
    "libversion",
    "murmur2",
    "serialization",
    "version",
]
