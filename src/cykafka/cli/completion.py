"""``cykafka completion``: the script by which a shell completes the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cyclopts import App

__all__ = ["add_completion"]

Shell = Literal["bash", "zsh", "fish"]


def add_completion(app: App) -> None:
    """Add ``--install-completion`` and the command ``completion`` to a command line.

    Parameters
    ----------
    app : App
        It has all its commands when the script is printed, also those that are added later.
    """
    app.register_install_completion_command()
    app.command(_completion(app), name="completion")


def _completion(app: App) -> Callable[[Shell], int]:
    def completion(shell: Shell, /) -> int:
        """Print the script by which a shell completes commands and options.

        cykafka --install-completion writes it to the right place for your shell.

        Parameters
        ----------
        shell : str
            bash, zsh or fish
        """
        print(app.generate_completion(shell=shell), end="")
        return 0

    return completion
