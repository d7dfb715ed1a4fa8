from collections.abc import Generator
from typing import TypeAlias, TypeVar, final

from cykafka._core.batch import MessageBatch
from cykafka._core.client.call import Call
from cykafka._core.client.event_loop import Watch
from cykafka._core.client.handle import Handle
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.backlog import Backlog

_T = TypeVar("_T")
_Steps: TypeAlias = Generator[Call, None, _T]

def committed(
    handle: Handle, partitions: list[TopicPartition], timeout: float | None
) -> _Steps[list[TopicPartition]]: ...
def offsets_for_times(
    handle: Handle, partitions: list[TopicPartition], timeout: float | None
) -> _Steps[list[TopicPartition]]: ...
def watermark_offsets(
    handle: Handle, partition: TopicPartition, timeout: float | None
) -> _Steps[tuple[int, int]]: ...
def settle_seeks(backlog: Backlog) -> _Steps[None]: ...
def seek(
    handle: Handle, backlog: Backlog, partitions: list[TopicPartition]
) -> _Steps[list[KafkaError | None]]: ...

@final
class Commit:
    def __new__(
        cls,
        handle: Handle,
        message: Message | MessageBatch | None,
        offsets: list[TopicPartition] | None,
        watch: Watch,
    ) -> Commit: ...
    def is_done(self) -> bool: ...
    def result(self) -> list[TopicPartition]: ...
    def end(self) -> None: ...
