from typing import Any, final

@final
class ArrowData:
    cnt: int
    length: int
    def __new__(cls, data: Any, argument: str = "data") -> ArrowData: ...
    def read_column(self, name: str | None = None) -> list[bytes | None]: ...
    def read_numbers(
        self, name: str | None = None, *, times: bool = False, missing: int = -1
    ) -> list[int]: ...
    def read_headers(
        self, name: str | None = None
    ) -> list[list[tuple[bytes, bytes | None]] | None]: ...
