"""Variables of the environment in the values of a configuration: ``${NAME}`` and ``env:NAME``."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationInfo

__all__ = ["fill", "has_variable"]

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(r"\$(\$?)\{(" + _NAME + r")\}")
_WHOLE = re.compile(r"env:(" + _NAME + r")")


def has_variable(value: Any) -> bool:
    """Whether a text, or a text in a list, names a variable."""
    parts = value if isinstance(value, list) else [value]
    return any(
        isinstance(part, str) and (_WHOLE.fullmatch(part) or _VARIABLE.search(part))
        for part in parts
    )


def fill(value: Any, info: ValidationInfo) -> Any:
    """`value` with the variables that its texts name: a validator of pydantic.

    ``info.context`` has the variables. ``$${NAME}`` becomes ``${NAME}``.

    Raises
    ------
    ValueError
        There is no such variable.
    """
    if isinstance(value, list):
        return [fill(part, info) for part in value]
    if not isinstance(value, str):
        return value

    def look_up(name: str) -> str:
        found: str | None = (info.context or {}).get(name)
        if found is None:
            raise ValueError(f"the environment has no variable {name}")
        return found

    whole = _WHOLE.fullmatch(value)
    if whole:
        return look_up(whole[1])
    return _VARIABLE.sub(lambda m: f"${{{m[2]}}}" if m[1] else look_up(m[2]), value)
