from collections.abc import Generator
from typing import TypeAlias, TypeVar, final

from cykafka._core.client.event_loop import Watch
from cykafka._core.client.handle import Handle
from cykafka._core.common.metadata import ClusterMetadata

_T = TypeVar("_T")
_Steps: TypeAlias = Generator[Call, None, _T]

@final
class Call:
    @property
    def watch(self) -> Watch: ...
    @property
    def is_short(self) -> bool: ...
    @property
    def pause_s(self) -> float | None: ...
    @property
    def wait_s(self) -> float | None: ...
    def start(self) -> None: ...
    def is_done(self) -> bool: ...

def list_topics(
    handle: Handle, topic: str | None, timeout: float | None
) -> _Steps[ClusterMetadata]: ...
