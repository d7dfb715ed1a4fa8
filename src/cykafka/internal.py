"""Names for cykafka's own layers above the client; applications do not need them.

``cykafka.spark`` and ``pip_services4_kafka`` import these names from here. They may change in any
release.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence

from cykafka._core.arrow.checksum import checksum
from cykafka._core.common.config import OWN_KEYS, known_properties
from cykafka._core.common.near_miss import did_you_mean
from cykafka._core.consume.consumer import commit_within, consume_ranges
from cykafka._core.consume.ranges import Range, Ranges
from cykafka._core.envelope import EnvelopeCodec, EnvelopeError

__all__ = [
    "OWN_KEYS",
    "EnvelopeCodec",
    "EnvelopeError",
    "Range",
    "Ranges",
    "checksum",
    "commit_within",
    "consume_ranges",
    "did_you_mean",
    "known_properties",
    "run_app",
    "run_command",
]


def run_app(module: str, argv: Sequence[str] | None, *, extra: str) -> int:
    """Run a command line and return its exit status.

    Parameters
    ----------
    module : str
        The name of the module whose `app` is a ``cyclopts.App``; its commands return their exit
        status.
    argv : sequence of str, optional
        The arguments; those of the process if None.
    extra : str
        The extra of the package that installs the libraries of the module.

    Returns
    -------
    int
        2 if the arguments are wrong or a library is missing, after printing an error; 141, as
        after SIGPIPE, if the reader of the output closed the pipe.
    """
    try:
        app = importlib.import_module(module).app
        from rich.console import Console
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cykafka"):
            raise
        print(f"{error}: pip install 'cykafka[{extra}]'", file=sys.stderr)
        return 2

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:  # instead of exiting with status 1
            raise BrokenPipeError

    arguments = sys.argv[1:] if argv is None else list(argv)

    def run() -> int:
        if not arguments:
            app.help_print([], console=PipedConsole(stderr=True))
            return 2
        try:
            status: int | None = app(
                arguments, console=PipedConsole(), result_action="return_value"
            )
        except SystemExit as stop:  # cyclopts has printed an error
            return int(stop.code or 0)
        return status or 0  # --help and --version return None

    return run_command(run)


def run_command(work: Callable[[], int]) -> int:
    """Run a command and return its exit status: 141 if the reader closed the pipe of the output.

    Parameters
    ----------
    work : callable
        The command; it returns its exit status.
    """
    try:
        try:
            return work()
        finally:
            print(end="", flush=True)  # flush now: at exit Python would report the broken pipe
    except BrokenPipeError:
        # The reader of our output has closed the pipe. At exit Python must not write to it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
