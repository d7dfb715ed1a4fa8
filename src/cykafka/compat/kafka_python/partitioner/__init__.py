"""The partitioners of kafka-python 0.9.5."""

from __future__ import annotations

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
