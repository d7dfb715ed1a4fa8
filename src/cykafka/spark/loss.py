"""Data loss: the error that driver and executors raise for records that no longer exist."""

from __future__ import annotations

from cykafka import KafkaError

__all__ = ["ADVICE", "GONE", "DataLossError"]

# The errors of topics and partitions that brokers or librdkafka do not know.
GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)

ADVICE = (
    "To continue without these records, set the option failOnDataLoss to false. To prevent such a "
    "loss, raise the topic's retention (retention.ms, retention.bytes) above the query's lag"
)


class DataLossError(RuntimeError):
    """Records of the requested offsets no longer exist."""
