"""AsyncWith: an object that ``async with`` closes."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class AsyncWith:
    """An asynchronous context manager that closes the client when the block ends."""

    async def close(self) -> object:
        """Close the client."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        await self.close()
