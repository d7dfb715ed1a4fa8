from typing import Self

from typing_extensions import disjoint_base

from cykafka._core.admin.request import Request
from cykafka._core.common.partition import TopicPartition

@disjoint_base
class ListOffsets(Request):
    def __new__(cls, partitions: list[TopicPartition]) -> Self: ...

@disjoint_base
class DeleteRecords(Request):
    def __new__(cls, partitions: list[TopicPartition]) -> Self: ...

@disjoint_base
class ElectLeaders(Request):
    def __new__(cls, election_type: int, partitions: list[TopicPartition] | None) -> Self: ...
