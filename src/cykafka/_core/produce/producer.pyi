from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from typing_extensions import disjoint_base

from cykafka._core.common.errors import KafkaError
from cykafka._core.common.message import Message
from cykafka._core.produce.publisher import Publisher

_Data: TypeAlias = bytes | str | bytearray | memoryview
_Headers: TypeAlias = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]
_OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]

@disjoint_base
class Producer(Publisher):
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
    def poll(self, timeout: float | None = None) -> int: ...
    def flush(self, timeout: float | None = None) -> int: ...
    def purge(
        self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True
    ) -> None: ...
    def close(self, timeout: float | None = None) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
