"""The partitioners of kafka-python 0.9.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cykafka.compat.kafka_python._later import getattr_of
from cykafka.compat.kafka_python.partitioner.hashed import (
    HashedPartitioner,
    LegacyPartitioner,
    Murmur2Partitioner,
)
from cykafka.compat.kafka_python.partitioner.roundrobin import RoundRobinPartitioner

__all__ = [
    "HashedPartitioner",
    "LegacyPartitioner",
    "Murmur2Partitioner",
    "RoundRobinPartitioner",
]

if not TYPE_CHECKING:  # type checkers would take any name for one of this module
    __getattr__ = getattr_of("kafka.partitioner")
