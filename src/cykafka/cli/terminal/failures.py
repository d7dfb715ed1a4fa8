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

from collections.abc import Callable
from enum import IntEnum

from cykafka import KafkaError
from cykafka.internal import kafka_error

__all__ = ["EXIT_STATUS_HELP", "BadRecords", "Failed", "Status", "UsageError", "reason"]

_SHOWN = 5

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


class Failed(Exception):
    """The command failed; the message is for the user."""

    status = Status.FAILED


class UsageError(Failed):
    """The arguments or the configuration are wrong; the message is for the user."""

    status = Status.USAGE


class BadRecords:
    """Counts lines that are not records, and records that the command cannot decode.

    Or ends the work at the first one.

    Parameters
    ----------
    skip : bool
        Whether to continue after bad records.
    report : callable
        Called with a text about each of the first five bad records.
    hint : str
        The error's hint about skipping.
    """

    def __init__(self, skip: bool, report: Callable[[str], None], hint: str) -> None:
        self.skip = skip
        self.count = 0
        self.report = report
        self._hint = hint

    def add(self, place: str, why: str) -> Failed | None:
        """Note a bad record. Return the exception that ends the work, unless `skip` is True.

        Parameters
        ----------
        place : str
            Such as ``orders.txt, line 7``, or ``orders[3] at offset 7``.
        why : str
        """
        text = f"{place}: {why}"
        if not self.skip:
            return Failed(text + self._hint)
        self.count += 1
        if self.count <= _SHOWN:
            self.report(f"skipped {text}")
        return None


def reason(error: BaseException) -> str:
    """Return an exception's text for the user. For a KafkaError this is only its description."""
    cause = kafka_error(error)
    if cause is None:
        return str(error)
    hint = "; --timeout waits longer" if cause.code() == KafkaError._TIMED_OUT else ""
    return f"{cause.str()}{hint}"
