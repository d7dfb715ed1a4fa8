from typing import Any

class TokenSource:
    def __new__(cls, callback: Any) -> TokenSource: ...
