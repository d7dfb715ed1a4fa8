from collections.abc import Generator
from typing import final

from cykafka._core.client.call import Call
from cykafka._core.client.handle import Handle

@final
class Progress:
    def prepare(self, handle: Handle, timeout: float | None) -> Generator[Call]: ...
    def rewind(self, handle: Handle, timeout: float | None) -> Generator[Call]: ...
