from typing_extensions import disjoint_base

from cykafka._admin_request import Request
from cykafka._partition import TopicPartition

class ListConsumerGroups(Request):
    def __init__(self) -> None: ...

@disjoint_base
class DescribeConsumerGroups(Request):
    def __init__(self, group_ids: list[str]) -> None: ...

class DeleteConsumerGroups(Request):
    def __init__(self, group_ids: list[str]) -> None: ...

@disjoint_base
class ListConsumerGroupOffsets(Request):
    def __init__(self, group_id: str, partitions: list[TopicPartition] | None) -> None: ...

@disjoint_base
class AlterConsumerGroupOffsets(Request):
    def __init__(self, group_id: str, partitions: list[TopicPartition] | None) -> None: ...

@disjoint_base
class DeleteConsumerGroupOffsets(Request):
    def __init__(self, group_id: str, partitions: list[TopicPartition] | None) -> None: ...
