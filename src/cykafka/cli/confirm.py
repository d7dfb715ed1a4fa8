"""The question before a command removes something."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from cykafka.cli.failures import Failed, UsageError
from cykafka.cli.printable import printable

__all__ = ["confirm", "need_consent"]


def need_consent(action: str, *, yes: bool) -> None:
    """Refuse an action that removes something, unless a user can be asked or has agreed.

    Parameters
    ----------
    action : str
        Such as ``"delete topics"``.
    yes : bool
        Whether the command line has ``--yes``.

    Raises
    ------
    UsageError
        There is no terminal, and no ``--yes``.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"refused to {action}: there is no terminal to ask on; --yes does it without asking"
        )


def confirm(action: str, losses: Iterable[str], *, yes: bool) -> None:
    """Show the losses on standard error and ask, unless the command line has ``--yes``.

    Parameters
    ----------
    action : str
        Such as ``"delete 2 topics"``.
    losses : iterable of str
        A line for each thing that will be lost; not read with ``--yes``.
    yes : bool
        Whether the command line has ``--yes``.

    Raises
    ------
    UsageError
        There is no terminal, and no ``--yes``.
    Failed
        The user does not agree.
    """
    need_consent(action, yes=yes)
    if yes:
        return
    console = Console(stderr=True, highlight=False)
    for line in losses:
        console.print(Text(printable(line)), soft_wrap=True)
    question = Text(printable(action[:1].upper() + action[1:] + "?"))
    try:
        agreed = Confirm.ask(question, console=console, default=False)
    except EOFError:
        agreed = False
    except KeyboardInterrupt:
        print("\ncykafka: nothing was changed", file=sys.stderr)
        raise
    if not agreed:
        raise Failed("nothing was changed")
