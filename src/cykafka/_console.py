"""Rich's console for command lines."""

from __future__ import annotations

from rich.console import Console

__all__ = ["PipedConsole"]


class PipedConsole(Console):
    """A console that raises BrokenPipeError if the reader of its output has closed the pipe."""

    def on_broken_pipe(self) -> None:  # Rich's own exits with status 1
        raise BrokenPipeError
