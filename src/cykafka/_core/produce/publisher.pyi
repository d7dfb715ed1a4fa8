from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from typing_extensions import Buffer, disjoint_base

from cykafka._core.produce.delivery import Delivery
from cykafka._core.produce.transaction import Transactional

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

class _NumpyArray(Protocol):  # which numpy's own stubs call a Buffer from Python 3.12 on only
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_ArrowData: TypeAlias = _ArrowArray | _ArrowStream
_Data: TypeAlias = bytes | str | Buffer
_Column: TypeAlias = Sequence[_Data | None] | Buffer | _NumpyArray | _ArrowData
_RecordHeaders: TypeAlias = Mapping[str, _Data | None] | Sequence[tuple[str, _Data | None]]
_Headers: TypeAlias = (
    Sequence[_RecordHeaders | None] | Mapping[str, bytes | str | _Column | None] | _ArrowData
)
_Numbers: TypeAlias = int | Sequence[int | None] | Buffer | _NumpyArray | _ArrowData

@disjoint_base
class Publisher(Transactional):
    def publish(
        self,
        topic: str | Sequence[str],
        values: _Column | None,
        *,
        keys: _Column | None = None,
        headers: _Headers | None = None,
        timestamps: _Numbers | None = None,
        partitions: _Numbers | None = None,
        timeout: float | None = None,
    ) -> Delivery: ...
    def publish_arrow(
        self,
        topic: str | None,
        data: _ArrowData,
        *,
        key: str | None = None,
        value: str | None = "value",
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
        timeout: float | None = None,
    ) -> Delivery: ...
