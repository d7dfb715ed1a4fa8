"""Producers: to partitions in turn, or by a message's key."""

from cykafka.compat.kafka_python.producer.keyed import KeyedProducer
from cykafka.compat.kafka_python.producer.simple import SimpleProducer

__all__ = ["KeyedProducer", "SimpleProducer"]
