from collections.abc import Callable
from typing import final

from typing_extensions import disjoint_base

from cykafka._core.client.leaving import Member
from cykafka._core.common.partition import TopicPartition

@final
class Membership(Member): ...

@final
class Rebalance:
    @property
    def partitions(self) -> list[TopicPartition]: ...
    def finish(self) -> None: ...

@disjoint_base
class Later:
    def __new__(cls, take: Callable[[Rebalance], None]) -> Later: ...
    def __call__(self, *args: object) -> None: ...
