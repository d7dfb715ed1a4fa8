"""Message queues on Kafka."""

from pip_services4_kafka.queues.KafkaMessageEnvelope import KafkaMessageEnvelope
from pip_services4_kafka.queues.KafkaMessageQueue import KafkaMessageQueue

__all__ = ["KafkaMessageEnvelope", "KafkaMessageQueue"]
