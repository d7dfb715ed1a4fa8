from typing_extensions import disjoint_base

from cykafka._member import Member
from cykafka._message import Message

@disjoint_base
class Fetcher(Member):
    def poll(self, timeout: float | None = None) -> Message | None: ...
    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]: ...
