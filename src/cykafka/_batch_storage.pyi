from typing import final

@final
class Storage: ...

@final
class Payloads:
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Column:
    def __buffer__(self, flags: int, /) -> memoryview: ...
