"""A queue's counters, gauges and logs. They run once per batch and never stop a message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pip_services4_messaging.queues import MessageEnvelope
from pip_services4_observability.count import CompositeCounters

from .._context import to_context
from .._log import Log

# How often the gauges are written, in seconds.
_GAUGES_S = 1.0


class Measures:
    """Writes a queue's counters and gauges. Its str is the queue's name in log lines.

    Exceptions of counters do not propagate.

    Parameters
    ----------
    name : callable
        Returns the queue's current name.
    counters : CompositeCounters
    log : Log
        The queue's log.
    """

    def __init__(self, name: Callable[[], str], counters: CompositeCounters, log: Log) -> None:
        self.log = log
        self._name = name
        self._counters = counters
        self._lock = threading.RLock()  # reentrant: signal handlers also count
        self._errors = 0
        self._written = 0.0
        self._warned = False

    def __str__(self) -> str:
        return f"Queue {self._name()}"

    def count(self, counter: str, count: int = 1) -> None:
        """Increment a counter, such as ``sent_messages``."""
        try:
            self._counters.increment(f"queue.{self._name()}.{counter}", count)
        except Exception as error:  # foreign code must not stop messages
            self._warn_once(error)

    def failed(self, count: int = 1) -> None:
        """Count messages whose receiver raised, and unreadable messages."""
        self.error(count)
        self.count("failed_messages", count)

    def error(self, count: int = 1) -> None:
        """Count errors for the gauge ``errors``."""
        with self._lock:
            self._errors += count

    def gauges(self, values: Callable[[], dict[str, float]], now: bool = False) -> None:
        """Write the gauges, at most once a second. `values` computes all but ``errors``."""
        moment = time.monotonic()
        if not now and moment - self._written < _GAUGES_S:
            return
        self._written = moment
        try:
            for gauge, value in {**values(), "errors": self._errors}.items():
                self._counters.last(f"queue.{self._name()}.{gauge}", value)
        except Exception as error:  # foreign code must not stop messages
            self._warn_once(error)

    def _warn_once(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            self.log.warn(f"{self}: a counter raised {error!r} (logged only once)")

    def log_messages(self, verb: str, envelopes: Iterable[Any]) -> None:
        """Log every message at debug level, with its own trace id, without its body."""
        if self.log.accepts_debug():
            for envelope in envelopes:
                if isinstance(envelope, MessageEnvelope):
                    trace = envelope.trace_id
                    known = to_context(trace) if isinstance(trace, str) else None
                    text = "%s message %s via %s"
                    self.log.debug(text, verb, envelope.message_id, self, context=known)
