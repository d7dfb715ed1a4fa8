from collections.abc import Sequence
from typing import Any, final

from cykafka._core.batch import MessageBatch
from cykafka._core.common.message import Message
from cykafka._core.produce.delivery import Delivery
from cykafka._core.produce.producer import Producer

class EnvelopeError(ValueError):
    message: Message | None
    def __init__(self, text: str, message: Message | None = None) -> None: ...

@final
class Kept: ...

@final
class EnvelopeColumns: ...

@final
class EnvelopeRows: ...

__all__ = ["EnvelopeCodec", "EnvelopeError"]

@final
class EnvelopeCodec:
    def __init__(self, envelope_type: type) -> None: ...
    def publish(
        self,
        producer: Producer,
        topic: str | Sequence[str],
        envelopes: Sequence[Any],
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Delivery: ...
    def to_record(self, envelope: Any, *, timestamp_ms: int | None = None) -> dict[str, Any]: ...
    def decode(self, batch: MessageBatch) -> list[Any]: ...
    def to_envelope(self, message: Message) -> Any: ...
