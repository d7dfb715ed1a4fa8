from typing import NamedTuple, TypeAlias

from cykafka._offsets import Offsets
from cykafka._partition import TopicPartition

_Partitions: TypeAlias = list[TopicPartition] | tuple[TopicPartition, ...]

class Watermarks(NamedTuple):
    low: int
    high: int

class Lag(Offsets):
    def watermarks(
        self, partitions: _Partitions | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, Watermarks]: ...
    def lag(
        self, partitions: _Partitions | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]: ...
