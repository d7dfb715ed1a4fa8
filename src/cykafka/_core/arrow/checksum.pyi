from typing import Any

def checksum(
    data: Any,
    *,
    value: str | None = "value",
    key: str | None = None,
    topic: str | None = None,
    partition: str | None = None,
    headers: str | None = None,
    timestamp: str | None = None,
) -> tuple[int, int]: ...
