from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self, TypeAlias, final

from typing_extensions import Buffer, disjoint_base

from cykafka._core.arrow.read import _ArrowData
from cykafka._core.client.call import Call
from cykafka._core.client.handle import Handle
from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka._core.common.partition import TopicPartition
from cykafka._core.consume.consumer import Consumer
from cykafka._core.produce.delivery import Delivery
from cykafka._core.produce.transaction import Transactions

_Data: TypeAlias = bytes | str | Buffer
_Headers: TypeAlias = Mapping[str, _Data | None] | Sequence[tuple[str, _Data | None]]
_OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]

class _NumpyArray(Protocol):  # numpy's own stubs make it a Buffer only from Python 3.12 on
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_Column: TypeAlias = Sequence[_Data | None] | Buffer | _NumpyArray | _ArrowData
_ColumnOfHeaders: TypeAlias = (
    Sequence[_Headers | None] | Mapping[str, bytes | str | _Column | None] | _ArrowData
)
_Numbers: TypeAlias = int | Sequence[int | None] | Buffer | _NumpyArray | _ArrowData

@disjoint_base
class Producer(Handle):
    def __init__(self, config: dict[str, Any] = ..., /, **kwargs: Any) -> None: ...
    def produce(
        self,
        topic: str,
        value: _Data | None = None,
        key: _Data | None = None,
        partition: int = -1,
        callback: _OnDelivery | None = None,
        on_delivery: _OnDelivery | None = None,
        timestamp: int = 0,
        headers: _Headers | None = None,
        timeout: float | None = 0,
    ) -> None: ...
    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: _OnDelivery | None = None,
        on_delivery: _OnDelivery | None = None,
    ) -> int: ...
    def publish(
        self,
        topic: str | Sequence[str],
        values: _Column | None,
        *,
        keys: _Column | None = None,
        headers: _ColumnOfHeaders | None = None,
        timestamps: _Numbers | None = None,
        partitions: _Numbers | None = None,
        timeout: float | None = None,
    ) -> Delivery: ...
    def publish_arrow(
        self,
        topic: str | None,
        data: _ArrowData,
        *,
        key: str | None = None,
        value: str | None = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
        timeout: float | None = None,
        registry: Any = None,
        schema: Any = None,
        subject: str | None = None,
    ) -> Delivery: ...
    def poll(self, timeout: float | None = None) -> int: ...
    def flush(self, timeout: float | None = None) -> int: ...
    def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None: ...
    def init_transactions(self, timeout: float | None = None) -> None: ...
    def transaction(
        self, consumer: Consumer | None = None, timeout: float | None = None
    ) -> AbstractContextManager[Self, None]: ...
    def begin_transaction(self) -> None: ...
    def send_offsets_to_transaction(
        self,
        positions: list[TopicPartition] | tuple[TopicPartition, ...],
        group_metadata: bytes | str,
        timeout: float | None = None,
    ) -> None: ...
    def commit_transaction(self, timeout: float | None = None) -> None: ...
    def abort_transaction(self, timeout: float | None = None) -> None: ...
    def close(self, timeout: float | None = None) -> bool: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...

def delivery_callback(producer: Producer) -> _OnDelivery | None: ...

@final
class Publication:
    @property
    def delivery(self) -> Delivery: ...
    def step(self) -> bool | None: ...
    def end(self, raised: BaseException | None = None) -> None: ...

def publication(
    producer: Producer,
    topic: str | Sequence[str],
    values: _Column | None,
    *,
    keys: _Column | None = None,
    headers: _ColumnOfHeaders | None = None,
    timestamps: _Numbers | None = None,
    partitions: _Numbers | None = None,
) -> Publication: ...
def arrow_publication(
    producer: Producer,
    topic: str | None,
    data: _ArrowData,
    *,
    key: str | None = None,
    value: str | None = "value",
    headers: str | None = None,
    timestamp: str | None = None,
    partition: str | None = None,
) -> Publication: ...
def transactions_of(producer: Producer) -> Transactions: ...
def flush(producer: Producer, timeout: float | None) -> Generator[Call, None, int]: ...
def end_transaction(producer: Producer, timeout: float | None) -> Generator[Call, None, bool]: ...
def is_inherited(producer: Producer) -> bool: ...
def undelivered(producer: Producer) -> int: ...
def close_now(producer: Producer) -> bool: ...
