from typing import final

from typing_extensions import disjoint_base

from cykafka._core.client.event_loop import Watch
from cykafka._core.client.handle import Handle
from cykafka._core.client.role import Role

@disjoint_base
class Member(Role): ...

@final
class Leaving:
    def __new__(cls, consumer: Handle, watch: Watch) -> Leaving: ...
    def step(self) -> bool: ...
    def note(self, raised: BaseException) -> None: ...
    def finish(self) -> bool: ...
