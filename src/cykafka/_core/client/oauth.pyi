from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class TokenSource:
    def __new__(cls, callback: Any) -> TokenSource: ...
