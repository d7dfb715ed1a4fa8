"""Counters, gauges and logs of a queue. They run once per batch and never stop a message."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pip_services4_components.context import IContext
from pip_services4_components.refer import Descriptor, IReferences
from pip_services4_observability.count import CompositeCounters
from pip_services4_observability.log import CompositeLogger, ILogger, LogLevel

_python = logging.getLogger("cykafka")

# How often the gauges are written, s.
_GAUGES_S = 1.0


class Measures:
    """Writes a queue's counters, gauges and log lines.

    Exceptions of counters and loggers do not propagate.

    Parameters
    ----------
    name : callable
        Returns the queue's current name.
    counters : CompositeCounters
    logger : CompositeLogger
    """

    def __init__(
        self, name: Callable[[], str], counters: CompositeCounters, logger: CompositeLogger
    ) -> None:
        self._name = name
        self._counters = counters
        self._logger = logger
        self._loggers: list[ILogger] = []
        self._lock = threading.RLock()  # reentrant: signal handlers may count as well
        self._errors = 0
        self._written = 0.0
        self._told = False

    def set_references(self, references: IReferences) -> None:
        """Find the loggers; CompositeLogger does not expose them."""
        found = references.get_optional(Descriptor(None, "logger", None, None, None))
        self._loggers = [logger for logger in found or () if isinstance(logger, ILogger)]

    # Counters

    def sent(self, count: int) -> None:
        """Count sent messages."""
        self._increment("sent_messages", count)

    def received(self, count: int) -> None:
        """Count received messages."""
        self._increment("received_messages", count)

    def failed(self, count: int = 1) -> None:
        """Count messages whose receiver raised, and unreadable messages."""
        with self._lock:
            self._errors += count
        self._increment("failed_messages", count)

    def dead(self, count: int = 1) -> None:
        """Count dead letters."""
        self._increment("dead_letter_messages", count)

    def error(self) -> None:
        """Count an error of the consumer."""
        with self._lock:
            self._errors += 1

    def gauges(self, values: Callable[[], tuple[int | None, int]], now: bool = False) -> None:
        """Write the gauges lag, in_flight and errors, at most once a second.

        `values` returns the first two.
        """
        moment = time.monotonic()
        if not now and moment - self._written < _GAUGES_S:
            return
        self._written = moment
        try:
            if not getattr(self._counters, "_counters", True):
                return
            lag, in_flight = values()
            if lag is not None:
                self._counters.last(f"queue.{self._name()}.lag", lag)
            self._counters.last(f"queue.{self._name()}.in_flight", in_flight)
            self._counters.last(f"queue.{self._name()}.errors", self._errors)
        except Exception as error:  # foreign code must not stop messages
            self._tell(error)

    def _increment(self, counter: str, count: int) -> None:
        try:
            self._counters.increment(f"queue.{self._name()}.{counter}", count)
        except Exception as error:  # foreign code must not stop messages
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            self.warn(
                None,
                f"Counters of queue {self._name()} failed: {error!r} (logged only once)",
            )

    # Logs

    def traces(self, level: LogLevel = LogLevel.Debug) -> bool:
        """Whether a logger accepts lines of this level."""
        try:
            return any(logger.get_level() >= level for logger in self._loggers)
        except Exception:  # foreign code must not stop messages
            return False

    def debug(self, context: IContext | None, text: str, *args: Any) -> None:
        """Log at debug level. Formats the arguments only if a logger accepts that level."""
        if self.traces():
            self._log(logging.DEBUG, context, None, text % args)

    def warn(self, context: IContext | None, text: str) -> None:
        """Log a warning."""
        self._log(logging.WARNING, context, None, text)

    def fail(self, context: IContext | None, error: BaseException | None, text: str) -> None:
        """Log an error."""
        self._log(logging.ERROR, context, error, text)

    def _log(
        self, level: int, context: IContext | None, error: BaseException | None, text: str
    ) -> None:
        # Loggers format with %: without arguments they leave a "%" in the text alone.
        try:
            if not self._loggers:
                _python.log(level, "%s", text, exc_info=error)
            elif level >= logging.ERROR:
                self._logger.error(context, error, text)
            elif level >= logging.WARNING:
                self._logger.warn(context, text)
            elif level >= logging.INFO:
                self._logger.info(context, text)
            else:
                self._logger.debug(context, text)
        except Exception:  # a logger's own exception cannot be logged there
            _python.debug("a logger raised", exc_info=True)
