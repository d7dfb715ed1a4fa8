from types import TracebackType
from typing import Generic, Self, TypeVar, final

from typing_extensions import disjoint_base

from cykafka._core.client.client import Client
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer

_P = TypeVar("_P")

class Transaction(Generic[_P]):
    def __init__(self, producer: _P, consumer: Consumer | None, limit: float | None) -> None: ...
    def __enter__(self) -> _P: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None: ...

@final
class Sending: ...

@disjoint_base
class Transactional(Client):
    def init_transactions(self, timeout: float | None = None) -> None: ...
    def transaction(
        self, consumer: Consumer | None = None, timeout: float | None = None
    ) -> Transaction[Self]: ...
    def begin_transaction(self) -> None: ...
    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition] | tuple[TopicPartition, ...],
        group_metadata: bytes | str,
        timeout: float | None = None,
    ) -> None: ...
    def commit_transaction(self, timeout: float | None = None) -> None: ...
    def abort_transaction(self, timeout: float | None = None) -> None: ...
