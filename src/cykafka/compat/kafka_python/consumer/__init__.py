"""Consumers: of one topic, of several, and in several processes."""

from cykafka.compat.kafka_python.consumer.kafka import KafkaConsumer
from cykafka.compat.kafka_python.consumer.multiprocess import MultiProcessConsumer
from cykafka.compat.kafka_python.consumer.simple import SimpleConsumer

__all__ = ["KafkaConsumer", "MultiProcessConsumer", "SimpleConsumer"]
