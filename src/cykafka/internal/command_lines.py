"""Runs command lines built with cyclopts."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["pairs", "run_app", "run_command"]

# Errors from a write to a full disk, beyond a quota or a limit, or to a closed output.
_OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def run_app(module: str, argv: Sequence[str] | None, *, extra: str) -> int:
    """Run a command line and return its exit status.

    Parameters
    ----------
    module : str
        The name of the module whose `app` is a ``cyclopts.App``. The app's commands return their
        exit status.
    argv : sequence of str, optional
        The arguments. None uses the arguments of the process.
    extra : str
        The package extra that installs the module's libraries.

    Returns
    -------
    int
        2, after printing an error, if the arguments are wrong or a library is missing. 141, as
        after SIGPIPE, if the reader of the output closed the pipe.
    """
    try:
        app = importlib.import_module(module).app
        from cyclopts import (
            CycloptsError,
            RepeatArgumentError,
            UnknownOptionError,
            UnusedCliTokensError,
        )
        from rich.console import Console
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cykafka"):
            raise
        print(f"{error}: pip install 'cykafka[{extra}]'", file=sys.stderr)
        return 2

    class PipedConsole(Console):
        """A console that raises BrokenPipeError if the reader has closed the pipe."""

        def on_broken_pipe(self) -> None:  # Rich's own exits with status 1
            raise BrokenPipeError

    arguments = sys.argv[1:] if argv is None else list(argv)
    name = app.name[0]

    def run() -> int:
        try:
            _, apps, rest = app.parse_commands(arguments)
            if not rest and apps[-1].default_command is None:  # a group without a command
                app.help_print(arguments, console=PipedConsole(stderr=True))
                return 2
            status: int | None = app(
                arguments,
                console=PipedConsole(),
                print_error=False,
                exit_on_error=False,
                result_action="return_value",
            )
        except CycloptsError as error:
            text = str(error)
            if isinstance(error, UnusedCliTokensError):
                # Tokens may be secrets: `--kafka sasl.password x` instead of sasl.password=x.
                text = f"{len(error.unused_tokens or ())} arguments too many: an option takes one"
            elif isinstance(error, UnknownOptionError):
                # The value may be a secret: `--sasl.password=x` instead of -X sasl.password=x.
                option = error.token.value
                text = text.replace(option, option.partition("=")[0])
            elif isinstance(error, RepeatArgumentError):
                text = f"{text} Give one value, or several values separated by commas."
            command = " ".join((name, *(error.command_chain or ())))
            print(f"{command}: {text}\n(see {command} --help)", file=sys.stderr)
            return 2
        return status or 0  # --help and --version return None

    return run_command(run, name)


def pairs(settings: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names and values from texts such as ``NAME=VALUE``.

    Raises
    ------
    ValueError
        A text has another form. It may be a secret, so the message does not repeat it.
    """
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not name.strip() or not separator:
            raise ValueError("expected NAME=VALUE")
        yield name.strip(), value


def run_command(work: Callable[[], int], name: str) -> int:
    """Run a command and return its exit status: 141 if the reader closed the output pipe.

    Parameters
    ----------
    work : callable
        The command, which returns its exit status.
    name : str
        The program's name, for error messages.
    """
    _open_standard_streams()
    try:
        try:
            return work()
        finally:
            print(end="", flush=True)  # flush now: at exit Python would report the broken pipe
    except BrokenPipeError:
        # The reader has closed the output pipe.
        _drop_output()
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _OUTPUT_ERRORS:
            raise
        _drop_output()
        print(f"{name}: cannot write the output: {error.strerror}", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """Keep Python from writing to standard output again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Open the standard streams that the process inherited as closed.

    Otherwise a socket could get the stream's file descriptor. The opened streams reject input and
    output, except standard error, which drops messages.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest free number, which is this one
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
