from types import TracebackType
from typing import Any, Self, overload

from typing_extensions import disjoint_base

from cykafka._core.client.client import Client

@disjoint_base
class Member(Client):
    def __init__(self, config: dict[str, Any] = ..., /, **kwargs: Any) -> None: ...
    def configuration(self) -> dict[str, str | None]: ...
    @overload
    def close(self, timeout: None = None) -> None: ...
    @overload
    def close(self, timeout: float) -> bool | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None: ...
