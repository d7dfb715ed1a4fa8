from typing_extensions import disjoint_base

from cykafka._admin_request import Request
from cykafka._model.topic import NewPartitions, NewTopic

class CreateTopics(Request):
    def __init__(self, new_topics: list[NewTopic]) -> None: ...

class DeleteTopics(Request):
    def __init__(self, topics: list[str]) -> None: ...

class CreatePartitions(Request):
    def __init__(self, new_partitions: list[NewPartitions]) -> None: ...

@disjoint_base
class DescribeTopics(Request):
    def __init__(self, topic_names: list[str]) -> None: ...
