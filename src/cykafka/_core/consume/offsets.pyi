from typing import Any, Literal, TypeAlias, overload

from cykafka._core.batch.message_batch import MessageBatch
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.batches import Batches

_Partitions: TypeAlias = list[TopicPartition] | tuple[TopicPartition, ...]

class Offsets(Batches):
    def position(self, partitions: _Partitions) -> list[TopicPartition]: ...
    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float | None = None, cached: bool = False
    ) -> tuple[int, int]: ...
    def offsets_for_times(
        self, partitions: _Partitions, timeout: float | None = None
    ) -> list[TopicPartition]: ...
    def store_offsets(
        self, message: Message | MessageBatch | None = None, offsets: _Partitions | None = None
    ) -> None: ...
    @overload
    def commit(
        self,
        message: Message | MessageBatch | None = None,
        offsets: _Partitions | None = None,
        asynchronous: Literal[True] = True,
        **kwargs: Any,
    ) -> None: ...
    @overload
    def commit(
        self,
        message: Message | MessageBatch | None = None,
        offsets: _Partitions | None = None,
        *,
        asynchronous: Literal[False],
    ) -> list[TopicPartition]: ...
    @overload
    def commit(
        self,
        message: Message | MessageBatch | None = None,
        offsets: _Partitions | None = None,
        asynchronous: bool = True,
        **kwargs: Any,
    ) -> list[TopicPartition] | None: ...
    def _commit_within(
        self, offsets: _Partitions, timeout: float | None
    ) -> list[TopicPartition] | None: ...
    def committed(
        self, partitions: _Partitions, timeout: float | None = None
    ) -> list[TopicPartition]: ...
