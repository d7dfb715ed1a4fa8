from typing import final

class ThrottleEvent:
    broker_name: str
    broker_id: int
    throttle_time: float
    def __init__(self, broker_name: str, broker_id: int, throttle_time: float) -> None: ...

@final
class Callbacks: ...
