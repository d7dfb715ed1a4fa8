"""Connections to Kafka, their resolver and their subscriptions."""

from pip_services4_kafka.connect.IKafkaMessageListener import IKafkaMessageListener
from pip_services4_kafka.connect.KafkaConnection import KafkaConnection
from pip_services4_kafka.connect.KafkaConnectionResolver import KafkaConnectionResolver
from pip_services4_kafka.connect.KafkaSubscription import KafkaSubscription

__all__ = [
    "IKafkaMessageListener",
    "KafkaConnection",
    "KafkaConnectionResolver",
    "KafkaSubscription",
]
