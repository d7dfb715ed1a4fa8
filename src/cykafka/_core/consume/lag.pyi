from typing import NamedTuple, TypeAlias

from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.offsets import Offsets

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
