from types import TracebackType
from typing import Self

from typing_extensions import disjoint_base

from cykafka._core.common.metadata import ClusterMetadata

@disjoint_base
class Handle:
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None: ...
    def list_topics(
        self, topic: str | None = None, timeout: float | None = None
    ) -> ClusterMetadata: ...
    def cluster_id(self, timeout: float | None = None) -> str: ...
    def configuration(self) -> dict[str, str | None]: ...
    def set_sasl_credentials(self, username: str, password: str) -> None: ...
