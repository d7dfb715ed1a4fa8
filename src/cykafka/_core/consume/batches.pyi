from collections.abc import Iterator
from typing import Self, final

from cykafka._core.batch.message_batch import MessageBatch
from cykafka._core.consume.fetcher import Fetcher
from cykafka._core.consume.ranges import Ranges

class Batches(Fetcher):
    def consume_batch(
        self, max_messages: int = 10_000, timeout: float | None = None
    ) -> MessageBatch: ...
    def batches(
        self, max_messages: int = 10_000, timeout: float | None = 1.0
    ) -> Iterator[MessageBatch]: ...
    def _consume_ranges(
        self,
        ranges: Ranges,
        max_messages: int = 10_000,
        max_bytes: int = 16_777_216,
        timeout: float | None = None,
    ) -> MessageBatch: ...

@final
class BatchIterator:
    def __iter__(self) -> Self: ...
    def __next__(self) -> MessageBatch: ...
