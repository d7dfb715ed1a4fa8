"""Logs of a connection: librdkafka's lines, and errors with a limited rate."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from pip_services4_components.refer import Descriptor, IReferences
from pip_services4_observability.log import CompositeLogger, ILogger

_python = logging.getLogger("cykafka")

# Every client of a connection gets all of options.kafka. librdkafka warns of each property that
# belongs to another kind of client.
_OF_OTHERS = "property and will be ignored by this"

# Lines about unreachable brokers: the same errors come through error_cb.
_REPORTED = ("FAIL [", "ERROR [")

# The shortest time between two log lines for the same kind of error, s.
QUIET_S = 10.0


class ClientLog:
    """The ``logger`` of cykafka's clients, a stand-in for logging.Logger.

    It logs to the loggers of pip-services. Without any, it logs to Python's logger "cykafka".

    Parameters
    ----------
    logger : CompositeLogger
    scrub : callable
        Removes the secrets from a text.
    """

    def __init__(self, logger: CompositeLogger, scrub: Callable[[str], str]) -> None:
        self._logger = logger
        self._scrub = scrub
        self._has_loggers = False

    def set_references(self, references: IReferences) -> None:
        """Find out whether there are loggers; CompositeLogger has no method for that."""
        found = references.get_optional(Descriptor(None, "logger", None, None, None))
        self._has_loggers = any(isinstance(logger, ILogger) for logger in found or ())

    def scrub(self, text: str) -> str:
        """The text without the connection's secrets."""
        return self._scrub(text)

    def has_secrets(self, text: str) -> bool:
        """Whether a text has a secret of the connection."""
        return self._scrub(text) != text

    def has_loggers(self) -> bool:
        """Whether the references contain a logger of pip-services."""
        return self._has_loggers

    def log(self, level: int, text: str, *args: Any) -> None:
        """Log a line at a level of Python's logging. Never raises, as clients call it."""
        try:
            line = self._scrub(text % args if args else text)
            if _OF_OTHERS in line:
                return
            if line.startswith(_REPORTED):
                level = logging.DEBUG
            if not self._has_loggers:
                _python.log(level, "%s", line)
            elif level >= logging.ERROR:
                self._logger.error(None, None, line)
            elif level >= logging.WARNING:
                self._logger.warn(None, line)
            elif level >= logging.INFO:
                self._logger.info(None, line)
            else:
                self._logger.debug(None, line)
        except Exception:  # a logger's own exception cannot be logged there
            _python.debug("a logger raised", exc_info=True)


class RareLog:
    """Logs each kind of error once per time span. Thread-safe.

    A line has the number of errors that were left out before it.

    Parameters
    ----------
    logger : CompositeLogger
    lines : ClientLog
        Knows whether there are loggers. Without any, errors go to Python's logger.
    """

    def __init__(self, logger: CompositeLogger, lines: ClientLog) -> None:
        self._logger = logger
        self._lines = lines
        self._lock = threading.RLock()  # a signal handler may log in the thread that has it
        self._told: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def warn(self, text: str) -> None:
        """Log a warning."""
        self._lines.log(logging.WARNING, "%s", text)

    def error(
        self, kind: Hashable, error: BaseException | None, text: str, quiet: float = QUIET_S
    ) -> None:
        """Log an error, unless one of the same kind was logged within `quiet` s. Never raises."""
        now = time.monotonic()
        with self._lock:
            if now - self._told.get(kind, -quiet) < quiet:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._told[kind] = now
            more = self._left_out.pop(kind, 0)
        try:
            message = f"{text} ({more} times more)" if more else text
            if error is not None and self._lines.has_secrets(str(error)):
                message, error = f"{message}: {error}", None
            if self._lines.has_loggers():
                self._logger.error(None, error, self._lines.scrub(message))
            else:
                self._lines.log(
                    logging.ERROR, "%s", message if error is None else f"{message}: {error}"
                )
        except Exception:  # a logger's own exception cannot be logged there
            _python.debug("a logger raised", exc_info=True)
