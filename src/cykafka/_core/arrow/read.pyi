from typing import Any, Protocol, TypeAlias, final

# The Arrow PyCapsule interface as protocols. It does not specify the type of the schema argument.
class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...

_ArrowData: TypeAlias = _ArrowArray | _ArrowStream

@final
class ArrowData:
    cnt: int
    length: int
    def __new__(cls, data: _ArrowData, argument: str = "data") -> ArrowData: ...
    def read_column(self, name: str | None = None) -> list[bytes | None]: ...
    def read_numbers(
        self, name: str | None = None, *, times: bool = False, missing: int = -1
    ) -> list[int]: ...
    def read_headers(self, name: str | None = None) -> list[list[tuple[bytes, bytes | None]]]: ...
