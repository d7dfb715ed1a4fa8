"""Names from later kafka-python releases, for error messages that explain this interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable

HINT = (
    "cykafka.compat.kafka_python has the interface of kafka-python 0.9.5. A program for a later "
    "release needs that release, or cykafka's own clients (docs/kafka-python.md)"
)

_ADMIN = "cykafka.admin.AdminClient"
_COMMON = "kafka.common, or cykafka's own classes"
_CONSUMER = "kafka.KafkaConsumer, or cykafka.Consumer"
_PRODUCER = "kafka.SimpleProducer, kafka.KeyedProducer, or cykafka.Producer"
_SERIALIZATION = "cykafka.serialization"

# The names and modules that programs import, each with what to use instead.
_NAMES = {
    "AsyncConsumerRebalanceListener": "the callbacks of cykafka.Consumer.subscribe()",
    "BrokerConnection": "kafka.KafkaConnection",
    "ConsumerGroupMetadata": "cykafka.Consumer.consumer_group_metadata()",
    "ConsumerRebalanceListener": "the callbacks of cykafka.Consumer.subscribe()",
    "DefaultPartitioner": "kafka.partitioner.Murmur2Partitioner",
    "DefaultSerializer": _SERIALIZATION,
    "Deserializer": _SERIALIZATION,
    "IsolationLevel": "cykafka.IsolationLevel",
    "JsonSerializer": _SERIALIZATION,
    "KafkaAdminClient": _ADMIN,
    "KafkaProducer": _PRODUCER,
    "KafkaTimeoutError": _COMMON,
    "NoBrokersAvailable": "kafka.common.KafkaUnavailableError, or cykafka.KafkaException",
    "OffsetAndMetadata": "kafka.common.OffsetCommitRequest, or cykafka.TopicPartition",
    "OffsetAndTimestamp": "kafka.common.OffsetRequest, or cykafka.TopicPartition",
    "OffsetSpec": "cykafka.admin.OffsetSpec",
    "Serializer": _SERIALIZATION,
    "TopicPartition": "kafka.common.TopicAndPartition, or cykafka.TopicPartition",
    "TopicPartitionReplica": _COMMON,
    "admin": _ADMIN,
    "client_async": "kafka.KafkaClient",
    "cluster": _ADMIN,
    "coordinator": _CONSUMER,
    "errors": "kafka.common, or cykafka.error",
    "metrics": "cykafka.stats",
    "record": "cykafka.Producer, or cykafka.Consumer",
    "sasl": "cykafka.Producer, or cykafka.Consumer",
    "serializer": _SERIALIZATION,
    "structs": _COMMON,
}

# KafkaConsumer keys that have another name in 0.9.5.
_KEYS = {
    "enable_auto_commit": "auto_commit_enable",
    "fetch_max_wait_ms": "fetch_wait_max_ms",
    "max_partition_fetch_bytes": "fetch_message_max_bytes",
    "receive_buffer_bytes": "socket_receive_buffer_bytes",
    "request_timeout_ms": "socket_timeout_ms",
    "retry_backoff_ms": "refresh_leader_backoff_ms",
    "value_deserializer": "deserializer_class",
}

# Values of auto_offset_reset.
_RESETS = {"earliest": "smallest", "latest": "largest"}

# Methods of KafkaConsumer.
_METHODS = {
    "assign": "set_topic_partitions()",
    "assignment": "offsets()",
    "beginning_offsets": "get_partition_offsets()",
    "commit_async": "commit()",
    "committed": "offsets('commit')",
    "end_offsets": "get_partition_offsets()",
    "highwater": "offsets('highwater')",
    "offsets_for_times": "get_partition_offsets()",
    "partitions_for_topic": "kafka.KafkaClient.get_partition_ids_for_topic()",
    "pause": "cykafka.Consumer.pause()",
    "poll": "fetch_messages()",
    "position": "offsets('fetch')",
    "resume": "cykafka.Consumer.resume()",
    "seek": "set_topic_partitions()",
    "seek_to_beginning": "set_topic_partitions()",
    "seek_to_end": "set_topic_partitions()",
    "subscribe": "set_topic_partitions()",
    "subscription": "offsets()",
    "topics": "kafka.KafkaClient.topics",
    "unsubscribe": "set_topic_partitions()",
}


def explain_missing_name(name: str) -> str:
    """Return the error text for a module or name that 0.9.5 lacks, such as ``kafka.errors``."""
    use = next((_NAMES[part] for part in name.split(".")[1:] if part in _NAMES), None)
    return f"{name} is not part of kafka-python 0.9.5{f': use {use}' if use else ''}. {HINT}"


def explain_unknown_keys(keys: Iterable[str]) -> str:
    """Return the error text for unknown KafkaConsumer keys."""
    listed = sorted(keys)
    renamed = ", ".join(f"{key} is {_KEYS[key]} here" for key in listed if key in _KEYS)
    return f"Unknown configuration key(s): {listed}{f': {renamed}' if renamed else ''}. {HINT}"


def explain_refused_reset(value: object) -> str | None:
    """Return the error text for an `auto_offset_reset` from later releases."""
    if not isinstance(value, str) or value not in _RESETS:
        return None
    return f"auto_offset_reset: {value} is {_RESETS[value]} here. {HINT}"


def explain_missing_method(name: str) -> str:
    """Return the error text for an attribute that 0.9.5's KafkaConsumer lacks."""
    text = f"'KafkaConsumer' object has no attribute {name!r}"
    return f"{text}: use {_METHODS[name]}. {HINT}" if name in _METHODS else text


def getattr_of(module: str) -> Callable[[str], object]:
    """Return a module's ``__getattr__``, by the module's name in kafka-python.

    The function raises ImportError for a name from later releases, because Python replaces the
    text of an AttributeError in ``from kafka import KafkaProducer``.
    """

    def find(name: str) -> object:
        if name in _NAMES:
            raise ImportError(explain_missing_name(f"{module}.{name}"), name=module)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find
