"""Counters, gauges and logs of a queue: once per batch, and never in the way of a message."""

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
    """What a queue tells of itself. Counters and loggers that raise change nothing.

    Parameters
    ----------
    name : callable
        The queue's present name.
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
        self._lock = threading.RLock()  # signal handlers count, too
        self._errors = 0
        self._written = 0.0
        self._told = False

    def set_references(self, references: IReferences) -> None:
        """Find the loggers, which a CompositeLogger does not show."""
        found = references.get_optional(Descriptor(None, "logger", None, None, None))
        self._loggers = [logger for logger in found or () if isinstance(logger, ILogger)]

    # Counters

    def sent(self, count: int) -> None:
        """So many messages are stored."""
        self._increment("sent_messages", count)

    def received(self, count: int) -> None:
        """So many messages came."""
        self._increment("received_messages", count)

    def failed(self, count: int = 1) -> None:
        """A receiver raised, or a message could not be read."""
        with self._lock:
            self._errors += count
        self._increment("failed_messages", count)

    def dead(self, count: int = 1) -> None:
        """So many messages were moved to the dead letter topic."""
        self._increment("dead_letter_messages", count)

    def error(self) -> None:
        """The consumer met an error."""
        with self._lock:
            self._errors += 1

    def gauges(self, values: Callable[[], tuple[int | None, int]], now: bool = False) -> None:
        """Write lag, messages in flight and errors, once a second at most.

        `values` gives the first two.
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
        except Exception as error:  # counters are an application's, messages go on
            self._tell(error)

    def _increment(self, counter: str, count: int) -> None:
        try:
            self._counters.increment(f"queue.{self._name()}.{counter}", count)
        except Exception as error:  # counters are an application's, messages go on
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            self.warn(
                None, f"Counters of queue {self._name()} failed, which is told once: {error!r}"
            )

    # Logs

    def traces(self, level: LogLevel = LogLevel.Debug) -> bool:
        """Whether some logger wants lines of this level."""
        try:
            return any(logger.get_level() >= level for logger in self._loggers)
        except Exception:  # loggers are an application's, messages go on
            return False

    def debug(self, context: IContext | None, text: str, *args: Any) -> None:
        """A line for those who debug; the arguments are formatted only for them."""
        if self.traces():
            self._log(logging.DEBUG, context, None, text % args)

    def warn(self, context: IContext | None, text: str) -> None:
        """A line about what somebody should look at."""
        self._log(logging.WARNING, context, None, text)

    def fail(self, context: IContext | None, error: BaseException | None, text: str) -> None:
        """A line about an error."""
        self._log(logging.ERROR, context, error, text)

    def _log(
        self, level: int, context: IContext | None, error: BaseException | None, text: str
    ) -> None:
        # A logger formats its arguments with %: the text goes as an argument-free message.
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
        except Exception:  # there is nobody left to tell
            _python.debug("a logger raised", exc_info=True)
