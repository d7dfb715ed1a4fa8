from collections.abc import Callable
from typing import final

from typing_extensions import disjoint_base

class ThrottleEvent:
    broker_name: str
    broker_id: int
    throttle_time: float
    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None: ...

@final
class Callbacks: ...

@disjoint_base
class TokenSource:
    def __new__(cls, callback: Callable[[str], object]) -> TokenSource: ...
