"""Outages: no broker answers any client of a connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cykafka import KafkaError, KafkaException

from .._errors import codes, typed
from .._log import Log

# Errors of a client that cannot reach a broker.
_UNREACHABLE = codes("_TRANSPORT _ALL_BROKERS_DOWN _RESOLVE _TIMED_OUT")
# How long the cluster has to answer before an outage is logged, and the interval of questions in
# an outage, s. An answer comes as soon as a broker is back. A question outlives its client.
_FIRST_S, _NEXT_S = 1.0, 5.0
# How often an unreachable broker of a cluster that answers is logged, s.
_ONE_BROKER_S = 600.0
# A busy client reports what it met in an outage up to this time after the end of the outage, s.
_LATE_S = 10.0


class Outage:
    """Logs the begin and the end of an outage once, for all clients. Thread-safe.

    Clients report errors here. One that concerns the connection to a broker makes this ask the
    cluster. If the cluster answers, only that broker is unreachable, or it closed an idle
    connection. Other errors are logged as they are.

    Parameters
    ----------
    log : Log
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.RLock()  # reentrant for signal handlers
        self._brokers = ""
        self._ask: Callable[[float], object] | None = None  # while the connection is open
        self._reason: KafkaError | None = None  # while the cluster is asked
        self._logged = False
        self._ended = -_LATE_S  # when the last outage ended

    def watch(self, brokers: str, ask: Callable[[float], object]) -> None:
        """Begin with a new connection.

        Parameters
        ----------
        brokers : str
            The cluster's name in log lines.
        ask : callable
            Returns when a broker has answered. Raises KafkaException if none has within the given
            time (s), RuntimeError after the connection was closed.
        """
        with self._lock:
            self._brokers, self._ask = brokers, ask
            self._reason, self._logged = None, False  # a forked child may have its parent's
            self._ended = -_LATE_S

    def end(self) -> None:
        """The connection is being closed: unreachable brokers are no matter any more."""
        with self._lock:
            self._ask, self._logged = None, False

    def __bool__(self) -> bool:
        """Whether there is an outage."""
        return self._logged

    def is_recent(self) -> bool:
        """Whether there is an outage, or its consequences may still be reported."""
        return self._logged or time.monotonic() - self._ended < _LATE_S

    def report(self, error: KafkaError, text: str) -> None:
        """A client met an error; `text` names the client."""
        if error.code() not in _UNREACHABLE:
            self._log.rare_error((text, error.code()), text, typed(error, "Kafka"))
            return
        with self._lock:
            known, ask = self._reason, self._ask
            if ask is None or time.monotonic() - self._ended < _LATE_S:
                return
            if known is None or known.code() == KafkaError._ALL_BROKERS_DOWN:
                self._reason = error  # the other errors name a broker and the cause
        if known is None:
            thread = threading.Thread(
                target=self._await_answer, args=(ask,), name="kafka-outage", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # too many threads: the next error tries again
                self._reason = None

    def _await_answer(self, ask: Callable[[float], object]) -> None:
        began, timeout = time.monotonic(), _FIRST_S
        while True:
            asked = time.monotonic()
            try:
                ask(timeout)
                break
            except KafkaException as error:
                with self._lock:
                    if ask is not self._ask:  # closed
                        return
                    if not self._logged:
                        self._logged = True
                        text = f"No Kafka broker answers ({self._brokers})"
                        failure = typed(self._reason or error, "Kafka")
                        self._log.error(f"{text}; its clients keep trying", failure)
                timeout = _NEXT_S
                time.sleep(max(0, _FIRST_S - (time.monotonic() - asked)))
            except RuntimeError:  # closed
                return
        with self._lock:
            if ask is not self._ask:
                return
            reason, self._reason = self._reason, None
            ended, self._logged = self._logged, False
            if ended:
                self._ended = time.monotonic()
        if ended:
            seconds = time.monotonic() - began
            self._log.warn(f"Kafka answers again ({self._brokers}), after {seconds:.0f} s")
        elif reason is not None and reason.code() != KafkaError._ALL_BROKERS_DOWN:
            broker = reason.str().partition(": ")[0]
            text = "A Kafka broker cannot be reached; others answer"
            self._log.rare_error(("broker", broker), text, typed(reason, "Kafka"), _ONE_BROKER_S)
