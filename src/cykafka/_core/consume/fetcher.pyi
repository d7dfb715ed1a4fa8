from collections.abc import Iterable
from typing import NamedTuple, final

@final
class Fetcher: ...

class Range(NamedTuple):
    topic: str
    partition: int
    next: int
    end: int
    eof: int

@final
class Ranges:
    def __init__(self, ranges: Iterable[tuple[str, int, int, int]]) -> None: ...
    def __len__(self) -> int: ...
    def left(self) -> list[Range]: ...
    def skip(self, topic: str, partition: int, offset: int) -> None: ...
