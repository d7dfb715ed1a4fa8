from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

def public(module: str) -> Callable[[_T], _T]: ...
