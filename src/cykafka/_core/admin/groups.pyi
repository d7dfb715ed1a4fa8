from typing import Self

from typing_extensions import disjoint_base

from cykafka._core.admin.request import Request
from cykafka._core.common.partition import TopicPartition

class ListConsumerGroups(Request):
    def __new__(cls) -> Self: ...

@disjoint_base
class DescribeConsumerGroups(Request):
    def __new__(cls, group_ids: list[str]) -> Self: ...

class DeleteConsumerGroups(Request):
    def __new__(cls, group_ids: list[str]) -> Self: ...

@disjoint_base
class ListConsumerGroupOffsets(Request):
    def __new__(cls, group_id: str, partitions: list[TopicPartition] | None) -> Self: ...

@disjoint_base
class AlterConsumerGroupOffsets(Request):
    def __new__(cls, group_id: str, partitions: list[TopicPartition] | None) -> Self: ...

@disjoint_base
class DeleteConsumerGroupOffsets(Request):
    def __new__(cls, group_id: str, partitions: list[TopicPartition] | None) -> Self: ...
