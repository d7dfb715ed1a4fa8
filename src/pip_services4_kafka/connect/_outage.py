"""Outages: no broker answers any client of a connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cykafka import KafkaError, KafkaException

from .._errors import codes, typed
from ._logs import RareLog

# Errors of a client that cannot reach a broker.
_UNREACHABLE = codes("_TRANSPORT _ALL_BROKERS_DOWN _RESOLVE _TIMED_OUT")
# How long the cluster has to answer before an outage is logged, and the interval of questions in
# an outage, s. An answer comes as soon as a broker is back.
_FIRST_S, _NEXT_S = 1.0, 60.0
# How often an unreachable broker of a cluster that answers is logged, s.
_ONE_BROKER_S = 600.0


class Outage:
    """Logs the begin and the end of an outage once, for all clients. Thread-safe.

    Clients report errors here. One that concerns the connection to a broker makes this ask the
    cluster. If the cluster answers, only that broker is unreachable, or it closed an idle
    connection. Other errors are logged as they are.

    Parameters
    ----------
    log : RareLog
    """

    def __init__(self, log: RareLog) -> None:
        self._log = log
        self._lock = threading.RLock()  # reentrant for signal handlers
        self._brokers = ""
        self._ask: Callable[[float], object] | None = None
        self._reason: KafkaError | None = None  # while the cluster is asked
        self._logged = False
        self._closed = False

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
            self._brokers, self._ask, self._closed = brokers, ask, False
            self._reason, self._logged = None, False

    def end(self) -> None:
        """The connection is being closed: unreachable brokers are no matter any more."""
        with self._lock:
            self._ask, self._closed, self._logged = None, True, False

    def __bool__(self) -> bool:
        """Whether there is an outage."""
        return self._logged

    def report(self, error: KafkaError, text: str) -> None:
        """A client met an error; `text` names the client."""
        if error.code() in _UNREACHABLE and self._closed:
            return
        if error.code() not in _UNREACHABLE or self._ask is None:
            self._log.error((text, error.code()), typed(error, "Kafka"), text)
            return
        with self._lock:
            known, ask = self._reason, self._ask
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
                        text = (
                            f"No Kafka broker answers ({self._brokers}); its clients keep trying"
                        )
                        self._log.error("outage", typed(self._reason or error, "Kafka"), text, 0)
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
            seconds = time.monotonic() - began
            self._log.warn(f"Kafka answers again ({self._brokers}), after {seconds:.0f} s")
        elif reason is not None and reason.code() != KafkaError._ALL_BROKERS_DOWN:
            broker = reason.str().partition(": ")[0]
            text = "A Kafka broker cannot be reached; others answer"
            self._log.error(("broker", broker), typed(reason, "Kafka"), text, _ONE_BROKER_S)
