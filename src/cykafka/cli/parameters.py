"""How the commands declare their options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cyclopts import Group, Parameter, Token, convert

__all__ = ["flag", "option"]


def flag(*names: str, group: Group) -> Parameter:
    """An option without a value."""
    return Parameter(name=names, group=group, negative=(), show_default=False)


def option(*names: str, group: Group, metavar: str) -> Parameter:
    """An option with a text, which may begin with a hyphen."""
    return Parameter(
        name=names,
        group=group,
        metavar=metavar,
        negative=(),
        show_default=False,
        allow_leading_hyphen=True,
        converter=_converted,
    )


def _converted(kind: Any, tokens: Sequence[Token]) -> Any:
    # main() has replaced each single hyphen; only among the files it is standard input.
    return convert(kind, ["-" if each.value == "/dev/stdin" else each.value for each in tokens])
