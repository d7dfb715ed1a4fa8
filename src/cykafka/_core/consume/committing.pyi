from typing import final

from cykafka._core.batch import MessageBatch
from cykafka._core.client.event_loop import Watch
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer

@final
class Commit:
    def __new__(
        cls,
        consumer: Consumer,
        message: Message | MessageBatch | None,
        offsets: list[TopicPartition] | None,
        watch: Watch,
    ) -> Commit: ...
    def is_done(self) -> bool: ...
    def result(self) -> list[TopicPartition]: ...
    def end(self) -> None: ...
