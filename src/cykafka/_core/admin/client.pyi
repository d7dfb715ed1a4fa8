from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, TypeVar, overload

from typing_extensions import disjoint_base

from cykafka._core.admin.request import Request
from cykafka._core.client.event_loop import Watch
from cykafka._core.client.handle import Handle
from cykafka._core.model.group import GroupMetadata

_K = TypeVar("_K")

@disjoint_base
class Admin(Handle):
    def __init__(self, config: dict[str, Any] = ..., /, **kwargs: Any) -> None: ...
    @overload
    def _send(self, request: Request, keys: None, **options: Any) -> Future[Any]: ...
    @overload
    def _send(
        self, request: Request, keys: Iterable[_K], **options: Any
    ) -> dict[_K, Future[Any]]: ...
    def _serve_in_loop(self, watch: Watch) -> None: ...
    def poll(self, timeout: float | None = None) -> int: ...
    def list_groups(
        self, group: str | None = None, timeout: float | None = -1
    ) -> list[GroupMetadata]: ...
    def close(self, timeout: float | None = None) -> bool: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
