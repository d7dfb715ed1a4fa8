from collections.abc import Generator
from types import TracebackType
from typing import TypeAlias, TypeVar, final

from cykafka._core.client.call import Call
from cykafka._core.client.handle import Handle
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer

_T = TypeVar("_T")
_Steps: TypeAlias = Generator[Call, None, _T]

@final
class Transactions:
    def send_offsets(
        self,
        handle: Handle,
        positions: list[TopicPartition],
        group_metadata: bytes | str,
        ms: int,
    ) -> _Steps[KafkaError | None]: ...
    def repeat(
        self, handle: Handle, call: int, deadline: int, in_thread: bool
    ) -> _Steps[KafkaError | None]: ...
    def make_in_slices(
        self, handle: Handle, call: int, deadline: int, in_thread: bool
    ) -> _Steps[KafkaError | None]: ...
    def note_others(self, handle: Handle) -> _Steps[None]: ...
    def settle(self, handle: Handle, deadline: int) -> _Steps[KafkaError | None]: ...
    def finish_pending(
        self, handle: Handle, deadline: int, in_thread: bool
    ) -> _Steps[KafkaError | None]: ...
    def end_open(
        self, handle: Handle, deadline: int, in_thread: bool, failures: dict[str, KafkaError]
    ) -> _Steps[bool]: ...
    def init(self, handle: Handle, ms: int, in_thread: bool) -> _Steps[None]: ...
    def commit(self, handle: Handle, ms: int, in_thread: bool) -> _Steps[None]: ...
    def abort(self, handle: Handle, ms: int, in_thread: bool) -> _Steps[None]: ...

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
