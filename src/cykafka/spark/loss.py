"""Records that are not there any more, in the words of the driver and of the executors."""

from __future__ import annotations

from cykafka import KafkaError

__all__ = ["ADVICE", "GONE", "DataLossError"]

# What brokers and librdkafka say of topics and partitions that they do not know.
GONE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)

ADVICE = (
    "If these records may be missed, set the option failOnDataLoss to false; if not, let the "
    "topic keep its records for longer (retention.ms, retention.bytes) than the query falls behind"
)


class DataLossError(RuntimeError):
    """Records that were to be read are not there any more."""
