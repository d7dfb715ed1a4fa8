from collections.abc import Callable

from typing_extensions import disjoint_base

@disjoint_base
class TokenSource:
    def __new__(cls, callback: Callable[[str], object]) -> TokenSource: ...
