"""Exit statuses of the commands, and the exceptions that end a command with one of them.

======  ==================================================================
status  meaning
======  ==================================================================
0       success
1       a record, a request or a broker failed, or the output device is full
2       wrong arguments, or a configuration that the client rejects
130     Ctrl-C or SIGTERM
141     the reader of the output closed the pipe, as after SIGPIPE
======  ==================================================================
"""

from __future__ import annotations

from enum import IntEnum

from cykafka import KafkaError
from cykafka.internal import kafka_error

__all__ = ["EXIT_STATUS_HELP", "Failed", "Status", "UsageError", "reason"]

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
    """Return an exception's text for the user. For a KafkaError this is only its description."""
    cause = kafka_error(error)
    if cause is None:
        return str(error)
    hint = "; --timeout waits longer" if cause.code() == KafkaError._TIMED_OUT else ""
    return f"{cause.str()}{hint}"
