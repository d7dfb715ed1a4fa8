"""Producers that select partitions in turn, or by a message's key."""

from typing import TYPE_CHECKING

from cykafka.compat.kafka_python._later import getattr_of
from cykafka.compat.kafka_python.producer.keyed import KeyedProducer
from cykafka.compat.kafka_python.producer.simple import SimpleProducer

__all__ = ["KeyedProducer", "SimpleProducer"]

if not TYPE_CHECKING:  # type checkers would take any name for one of this module
    __getattr__ = getattr_of("kafka.producer")
