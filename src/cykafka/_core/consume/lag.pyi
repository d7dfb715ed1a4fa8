from typing import NamedTuple

class Watermarks(NamedTuple):
    low: int
    high: int
