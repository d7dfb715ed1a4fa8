"""Counters, gauges and logs of a queue. They run once per batch and never stop a message."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pip_services4_components.context import IContext
from pip_services4_components.refer import Descriptor, IReferences
from pip_services4_messaging.queues import MessageEnvelope
from pip_services4_observability.count import CompositeCounters
from pip_services4_observability.log import CompositeLogger, ILogger, LogLevel

from .._context import to_context

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

    def __str__(self) -> str:
        return f"Queue {self._name()}"

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

    def gauges(self, values: Callable[[], dict[str, float]], now: bool = False) -> None:
        """Write gauges, at most once a second; `values` computes all but ``errors``."""
        moment = time.monotonic()
        if not now and moment - self._written < _GAUGES_S:
            return
        self._written = moment
        try:
            for gauge, value in {**values(), "errors": self._errors}.items():
                self._counters.last(f"queue.{self._name()}.{gauge}", value)
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
                f"{self}: its counters failed: {error!r} (logged only once)",
            )

    # Logs

    def traces(self) -> bool:
        """Whether a logger accepts lines at debug level."""
        try:
            return any(logger.get_level() >= LogLevel.Debug for logger in self._loggers)
        except Exception:  # foreign code must not stop messages
            return False

    def debug(self, context: IContext | None, text: str, *args: Any) -> None:
        """Log at debug level. Formats the arguments only if a logger accepts that level."""
        if self.traces():
            self._log(logging.DEBUG, context, None, text % args)

    def each(self, verb: str, envelopes: Iterable[Any]) -> None:
        """Log every message at debug level, with its own trace id; without its body."""
        if self.traces():
            for envelope in envelopes:
                if isinstance(envelope, MessageEnvelope):
                    text = f"{verb} message {envelope.message_id} via {self}"
                    trace = envelope.trace_id
                    known = to_context(trace) if isinstance(trace, str) else None
                    self._log(logging.DEBUG, known, None, text)

    def info(self, context: IContext | None, text: str) -> None:
        """Log for information."""
        self._log(logging.INFO, context, None, text)

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
