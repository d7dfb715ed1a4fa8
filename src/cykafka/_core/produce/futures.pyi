from asyncio import Future
from collections import deque
from typing import final

from typing_extensions import disjoint_base

from cykafka._core.common.message import Message
from cykafka._core.produce.producer import Producer, _Data, _Headers
from cykafka._core.produce.publisher import Receiver

@final
class Outcomes(Receiver): ...

@final
class Futures:
    @property
    def waiting(self) -> deque[tuple[Future[Message], tuple[object, ...]]]: ...
    def __new__(cls, producer: Producer) -> Futures: ...
    def expect_abort(self, expected: bool) -> None: ...
    def queue_waiting(self) -> None: ...
    def refuse_waiting(self, code: int) -> None: ...

@disjoint_base
class RecordSender:
    _futures: Futures
    _is_closing: bool
    def produce(
        self,
        topic: str,
        value: _Data | None = None,
        key: _Data | None = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: _Headers | None = None,
    ) -> Future[Message]: ...
