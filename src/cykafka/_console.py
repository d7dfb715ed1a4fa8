"""What the command lines have in common."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

__all__ = ["run_command"]


def run_command(work: Callable[[], int]) -> int:
    """The exit status of a command, also when nobody reads its output to the end.

    Parameters
    ----------
    work : callable
        The command; it returns its exit status.
    """
    try:
        try:
            return work()
        finally:
            print(end="", flush=True)  # now, or Python complains of it at its end
    except BrokenPipeError:
        # Whoever read our output wants no more of it; nor must Python try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
