"""Logs of a connection: librdkafka's lines, and repeated errors, told once in a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from pip_services4_components.refer import Descriptor, IReferences
from pip_services4_observability.log import CompositeLogger, ILogger

_python = logging.getLogger("cykafka")

# All clients of a connection get all of options.kafka, and librdkafka warns of what is another's.
_OF_OTHERS = "property and will be ignored by this"

# How long the same error is not told again, s.
QUIET_S = 10.0


class ClientLog:
    """Takes the place of a logging.Logger for cykafka's clients.

    Lines go to the loggers of pip-services or, without one, to Python's logger "cykafka".

    Parameters
    ----------
    logger : CompositeLogger
    scrub : callable
        Takes the secrets out of a text.
    """

    def __init__(self, logger: CompositeLogger, scrub: Callable[[str], str]) -> None:
        self._logger = logger
        self._scrub = scrub
        self._has_loggers = False

    def set_references(self, references: IReferences) -> None:
        """See whether there are loggers; CompositeLogger does not tell."""
        found = references.get_optional(Descriptor(None, "logger", None, None, None))
        self._has_loggers = any(isinstance(logger, ILogger) for logger in found or ())

    def has_loggers(self) -> bool:
        """Whether there are loggers of pip-services."""
        return self._has_loggers

    def log(self, level: int, text: str, *args: Any) -> None:
        """Log a line; `level` is one of Python's. Never raises: it is called from deep below."""
        try:
            line = self._scrub(text % args if args else text)
            if _OF_OTHERS in line:
                return
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
        except Exception:  # there is nobody left to tell
            _python.debug("a logger raised", exc_info=True)


class RareLog:
    """Logs each kind of error once in QUIET_S, with the number of those left out. Thread-safe.

    Parameters
    ----------
    logger : CompositeLogger
    lines : ClientLog
        Knows whether there are loggers; without them lines go where its lines go.
    """

    def __init__(self, logger: CompositeLogger, lines: ClientLog) -> None:
        self._logger = logger
        self._lines = lines
        self._lock = threading.Lock()
        self._told: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def error(self, kind: Hashable, error: Exception | None, text: str) -> None:
        """Log an error unless one of its kind was logged just now. Never raises."""
        now = time.monotonic()
        with self._lock:
            if now - self._told.get(kind, -QUIET_S) < QUIET_S:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._told[kind] = now
            more = self._left_out.pop(kind, 0)
        try:
            told = f"{text} ({more} times more)" if more else text
            if self._lines.has_loggers():
                self._logger.error(None, error, told)
            else:
                self._lines.log(logging.ERROR, "%s", told if error is None else f"{told}: {error}")
        except Exception:  # there is nobody left to tell
            _python.debug("a logger raised", exc_info=True)
