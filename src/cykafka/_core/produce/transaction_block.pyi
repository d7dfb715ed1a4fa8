from collections.abc import Generator
from types import TracebackType
from typing import final

from cykafka._core.client.call import Call
from cykafka._core.client.handle import Handle
from cykafka._core.consume.consumer import Consumer
from cykafka._core.produce.transaction import Transactions

@final
class Transaction:
    def __new__(
        cls,
        producer: Handle,
        transactions: Transactions,
        consumer: Consumer | None,
        limit: float | None,
    ) -> Transaction: ...
    def begin(self, in_thread: bool) -> Generator[Call]: ...
    def end(self, exc_value: BaseException | None, in_thread: bool) -> Generator[Call]: ...
    def __enter__(self) -> Handle: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None: ...
