"""Factories for queues and connections."""

from pip_services4_kafka.build.DefaultKafkaFactory import DefaultKafkaFactory
from pip_services4_kafka.build.KafkaMessageQueueFactory import KafkaMessageQueueFactory
from pip_services4_kafka.queues.KafkaMessageQueue import KafkaMessageQueue

__all__ = ["DefaultKafkaFactory", "KafkaMessageQueue", "KafkaMessageQueueFactory"]
