from typing_extensions import disjoint_base

__version__: str

class ThrottleEvent:
    broker_name: str
    broker_id: int
    throttle_time: float
    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None: ...

def live_handles() -> dict[str, int]: ...

@disjoint_base
class Handle: ...
