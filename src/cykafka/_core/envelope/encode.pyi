from typing import final

from cykafka._core.common.message import Message

class EnvelopeError(ValueError):
    message: Message | None
    def __init__(self, text: str, message: Message | None = None) -> None: ...

@final
class Kept: ...

@final
class Gathered: ...
