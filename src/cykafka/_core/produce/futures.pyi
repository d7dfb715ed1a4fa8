from asyncio import Future
from collections import deque
from typing import Any, final

from typing_extensions import disjoint_base

from cykafka._core.common.message import Message
from cykafka._core.produce.producer import Producer
from cykafka._core.produce.publisher import Receiver

@final
class RecordFuture(Receiver, Future[Message]):  # type: ignore[misc]
    def __next__(self) -> Message: ...
    def send(self, _: Any) -> Message: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> None: ...

@final
class Callback:
    def __init__(self, fn: Any, future: RecordFuture) -> None: ...
    def __call__(self, _: Any) -> None: ...

@final
class Loops: ...

@final
class Awaits: ...

@final
class Futures:
    @property
    def waiting(self) -> deque[tuple[RecordFuture, tuple[Any, ...]]]: ...
    def __new__(cls, producer: Producer) -> Futures: ...
    def expect_abort(self, expected: bool) -> None: ...
    def unsettled(self) -> int: ...
    def queue_waiting(self) -> None: ...
    def refuse_waiting(self, code: int) -> None: ...

@disjoint_base
class RecordSender:
    _futures: Futures
    _is_closing: bool
    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> Future[Message]: ...
