"""A Kafka client with confluent_kafka's interface and hardly any overhead above librdkafka."""

import importlib

from cykafka._core.batch import MessageBatch
from cykafka._core.client.callbacks import ThrottleEvent
from cykafka._core.common.errors import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from cykafka._core.common.library import (
    Uuid,
    __version__,
    consistent,
    fnv1a,
    is_patched,
    libversion,
    murmur2,
)
from cykafka._core.common.message import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from cykafka._core.common.partition import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TopicPartition,
)
from cykafka._core.consume.consumer import Consumer
from cykafka._core.consume.lag import Watermarks
from cykafka._core.produce.delivery import Delivery, DeliveryError
from cykafka._core.produce.producer import Producer

# Names that a plain producer or consumer does not need are imported at the first access: they
# take half of the time of the import. (`typing` is a part of that.)
TYPE_CHECKING = False
if TYPE_CHECKING:
    from cykafka import admin, error, serialization
    from cykafka._core.build_info import build_info
    from cykafka._core.model import (
        AcknowledgeType,
        ConsumerGroupState,
        ConsumerGroupTopicPartitions,
        ConsumerGroupType,
        ElectionType,
        IsolationLevel,
        Messages,
        Node,
        TopicCollection,
        TopicPartitionInfo,
    )
    from cykafka._core.share.consumer import ShareConsumer
    from cykafka.deserializing_consumer import DeserializingConsumer
    from cykafka.deserializing_share_consumer import DeserializingShareConsumer
    from cykafka.serializing_producer import SerializingProducer

_MODULES = ("admin", "error", "serialization")
_MODULE_OF = {
    "DeserializingConsumer": "deserializing_consumer",
    "DeserializingShareConsumer": "deserializing_share_consumer",
    "SerializingProducer": "serializing_producer",
    "ShareConsumer": "_core.share.consumer",
    "build_info": "_core.build_info",
    **dict.fromkeys(
        (
            "AcknowledgeType",
            "ConsumerGroupState",
            "ConsumerGroupTopicPartitions",
            "ConsumerGroupType",
            "ElectionType",
            "IsolationLevel",
            "Messages",
            "Node",
            "TopicCollection",
            "TopicPartitionInfo",
        ),
        "_core.model",
    ),
}


# Type checkers would take any name for one of this module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return importlib.import_module(f"cykafka.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'cykafka' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"cykafka.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def version() -> str:
    """The version of this package."""
    return __version__


if not is_patched():
    from cykafka._core.build_info import warn_unless_patched

    warn_unless_patched()
del is_patched


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
    "build_info",
    "consistent",
    "error",
    "fnv1a",
    "libversion",
    "murmur2",
    "serialization",
    "version",
]
