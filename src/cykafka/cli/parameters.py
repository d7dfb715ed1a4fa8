"""How the commands declare their options."""

from __future__ import annotations

from cyclopts import Group, Parameter

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
    )
