"""The entry point of the ``cykafka`` command, and ``cykafka version``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence

from cykafka import KafkaException
from cykafka.cli.terminal.failures import Failed, Status, reason
from cykafka.cli.terminal.texts import printable
from cykafka.internal.command_lines import run_app, run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments. None uses the arguments of the process.

    Returns
    -------
    int
        The exit status.
    """
    if argv is None:
        argv = sys.argv[1:]
        # So commands remove a topic or directory that they created, as after Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = list(argv)
    if arguments == ["version"]:  # bug reports need it, even without the extra
        return run_command(version, "cykafka")
    # A file named - is standard input; cyclopts mistakes a single - for an option.
    if arguments[:1] != ["broker"]:  # its arguments belong to another command
        arguments = ["/dev/stdin" if argument == "-" else argument for argument in arguments]
    return run_reporting(lambda: run_app("cykafka.cli.app", arguments, extra="cli"))


def run_reporting(work: Callable[[], int]) -> int:
    """Run a command and return its exit status. Print a failure and its notes, one per line.

    Parameters
    ----------
    work : callable
        The command, which returns its exit status. It may raise Failed, UsageError, KafkaException
        or KeyboardInterrupt.
    """
    try:
        return work()
    except (Failed, KafkaException) as error:
        for line in (reason(error), *getattr(error, "__notes__", ())):
            print(f"cykafka: {printable(line)}", file=sys.stderr)
        return error.status if isinstance(error, Failed) else Status.FAILED
    except KeyboardInterrupt:
        print("cykafka: interrupted", file=sys.stderr)
        return Status.INTERRUPTED
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":  # an output with another encoding
            raise
        # The argument may be a secret, so the message does not repeat it.
        print("cykafka: an argument is not UTF-8", file=sys.stderr)
        return Status.USAGE


def version() -> int:
    """Print what this build is made of: versions, library, patches, features."""
    from cykafka import build_info

    for name, value in build_info().items():
        print(name, (" ".join(value) if isinstance(value, list) else value) or "none")
    return 0
