from collections.abc import Generator
from typing import NamedTuple

from cykafka._core.client.call import Call
from cykafka._core.client.handle import Handle
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.backlog import Backlog

class Watermarks(NamedTuple):
    low: int
    high: int

def watermarks(
    handle: Handle, partitions: list[TopicPartition] | None, timeout: float | None
) -> Generator[Call, None, dict[TopicPartition, Watermarks]]: ...
def lag(
    handle: Handle,
    backlog: Backlog,
    partitions: list[TopicPartition] | None,
    timeout: float | None,
) -> Generator[Call, None, dict[TopicPartition, int | None]]: ...
