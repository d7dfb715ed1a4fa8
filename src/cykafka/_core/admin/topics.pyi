from typing import Self

from typing_extensions import disjoint_base

from cykafka._core.admin.request import Request
from cykafka._core.common.partition import TopicPartition
from cykafka._core.model.topic import NewPartitions, NewTopic

class CreateTopics(Request):
    def __new__(cls, new_topics: list[NewTopic]) -> Self: ...

class DeleteTopics(Request):
    def __new__(cls, topics: list[str]) -> Self: ...

class CreatePartitions(Request):
    def __new__(cls, new_partitions: list[NewPartitions]) -> Self: ...

@disjoint_base
class DescribeTopics(Request):
    def __new__(cls, topic_names: list[str]) -> Self: ...

@disjoint_base
class ListOffsets(Request):
    def __new__(cls, partitions: list[TopicPartition]) -> Self: ...

@disjoint_base
class DeleteRecords(Request):
    def __new__(cls, partitions: list[TopicPartition]) -> Self: ...

@disjoint_base
class ElectLeaders(Request):
    def __new__(cls, election_type: int, partitions: list[TopicPartition] | None) -> Self: ...
