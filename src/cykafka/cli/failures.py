"""Exit statuses of the commands, and the exceptions that end a command with one of them.

======  ==================================================================
status  meaning
======  ==================================================================
0       success
1       a record, a request or a broker failed, or the output has no room
2       wrong arguments, or a configuration that the client refuses
130     Ctrl-C or SIGTERM
141     the reader of the output closed the pipe, as after SIGPIPE
======  ==================================================================
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum

from cykafka import KafkaError, KafkaException
from cykafka.cli.printable import printable

__all__ = ["EXIT_STATUS_HELP", "Failed", "Status", "UsageError", "reason", "run_reporting"]

EXIT_STATUS_HELP = (
    "exit status: 0 success; 1 a record, a request or a broker failed; 2 wrong arguments or "
    "configuration; 130 Ctrl-C or SIGTERM; 141 the reader of the output closed the pipe"
)


class Status(IntEnum):
    """The exit statuses of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Failed(Exception):
    """The command failed; the message is for the user."""

    status = Status.FAILED


class UsageError(Failed):
    """The arguments or the configuration are wrong; the message is for the user."""

    status = Status.USAGE


def reason(error: BaseException) -> str:
    """The text of an exception for the user; a KafkaError shows its description alone."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(cause, KafkaError):
        return str(cause)
    hint = "; --timeout waits longer" if cause.code() == KafkaError._TIMED_OUT else ""
    return f"{cause.str()}{hint}"


def run_reporting(work: Callable[[], int]) -> int:
    """Run a command; print its failure and the notes of it, a line each; return the exit status.

    Parameters
    ----------
    work : callable
        The command; it returns its exit status. It may raise Failed, UsageError, KafkaException
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
        # The argument may be a secret: do not show it.
        print("cykafka: an argument is not UTF-8", file=sys.stderr)
        return Status.USAGE
