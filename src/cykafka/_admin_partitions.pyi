from typing_extensions import disjoint_base

from cykafka._admin_request import Request
from cykafka._partition import TopicPartition

@disjoint_base
class ListOffsets(Request):
    def __init__(self, partitions: list[TopicPartition]) -> None: ...

@disjoint_base
class DeleteRecords(Request):
    def __init__(self, partitions: list[TopicPartition]) -> None: ...

@disjoint_base
class ElectLeaders(Request):
    def __init__(self, election_type: int, partitions: list[TopicPartition] | None) -> None: ...
