"""Outages: no broker responds to any client of a connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from cykafka import KafkaError, KafkaException

from .._errors import codes, convert
from .._log import Log

# Errors that mean: a client cannot reach a broker.
_UNREACHABLE = codes("_TRANSPORT _ALL_BROKERS_DOWN _RESOLVE _TIMED_OUT")
# How long the first request and later requests to the cluster wait, in seconds. The first timeout
# begins an outage. A request returns as soon as a broker is reachable again, and may outlive its
# client.
_FIRST_S, _NEXT_S = 1.0, 5.0
# If other brokers respond, an unreachable broker is logged this often, in seconds.
_ONE_BROKER_S = 600.0
# For this long after an outage, in seconds, busy clients still report errors that it caused.
_LATE_S = 10.0


class Outage:
    """Logs once, for all clients, that an outage begins and ends. Thread-safe.

    Clients report errors here. If a client cannot reach a broker, a thread sends a request to the
    cluster. If the cluster responds, only that broker is unreachable, or it closed an idle
    connection. Other errors go to the log unchanged.

    Parameters
    ----------
    log : Log
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.RLock()  # reentrant for signal handlers
        self._brokers = ""
        self._request: Callable[[float], object] | None = None  # while the connection is open
        self._reason: KafkaError | None = None  # while a request runs
        self._logged = False
        self._ended = -_LATE_S  # when the last outage ended

    def watch(self, brokers: str, request: Callable[[float], object]) -> None:
        """Start for a new connection.

        Parameters
        ----------
        brokers : str
            The cluster's name in log lines.
        request : callable
            Returns when a broker responds. Raises KafkaException if none does within the given
            number of seconds, and RuntimeError after the connection closed.
        """
        with self._lock:
            self._brokers, self._request = brokers, request
            self._reason, self._logged = None, False  # a forked child inherits them
            self._ended = -_LATE_S

    def end(self) -> None:
        """Stop, because the connection closes: unreachable brokers no longer matter."""
        with self._lock:
            self._request, self._logged = None, False

    def __bool__(self) -> bool:
        """Whether there is an outage."""
        return self._logged

    def is_recent(self) -> bool:
        """Whether there is an outage, or clients may still report errors that it caused."""
        return self._logged or time.monotonic() - self._ended < _LATE_S

    def report(self, error: KafkaError, text: str) -> None:
        """Handle a client's error. `text` names the client."""
        if error.code() not in _UNREACHABLE:
            self._log.rare_error((text, error.code()), text, convert(error, "Kafka"))
            return
        with self._lock:
            known, request = self._reason, self._request
            if request is None or time.monotonic() - self._ended < _LATE_S:
                return
            if known is None or known.code() == KafkaError._ALL_BROKERS_DOWN:
                self._reason = error  # the other errors name a broker and the cause
        if known is None:
            thread = threading.Thread(
                target=self._wait_for_response, args=(request,), name="kafka-outage", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # too many threads: the next error retries
                self._reason = None

    def _wait_for_response(self, request: Callable[[float], object]) -> None:
        began, timeout = time.monotonic(), _FIRST_S
        while True:
            sent = time.monotonic()
            try:
                request(timeout)
                break
            except KafkaException as error:
                with self._lock:
                    if request is not self._request:  # closed
                        return
                    if not self._logged:
                        self._logged = True
                        text = f"No Kafka broker responds ({self._brokers})"
                        failure = convert(self._reason or error, "Kafka")
                        self._log.error(f"{text}; the clients keep retrying", failure)
                timeout = _NEXT_S
                time.sleep(max(0, _FIRST_S - (time.monotonic() - sent)))
            except RuntimeError:  # closed
                return
        with self._lock:
            if request is not self._request:
                return
            reason, self._reason = self._reason, None
            ended, self._logged = self._logged, False
            if ended:
                self._ended = time.monotonic()
        if ended:
            seconds = time.monotonic() - began
            self._log.warn(f"Kafka responds again ({self._brokers}) after {seconds:.0f} s")
        elif reason is not None and reason.code() != KafkaError._ALL_BROKERS_DOWN:
            broker = reason.str().partition(": ")[0]
            text = "A Kafka broker is unreachable; other brokers respond"
            self._log.rare_error(("broker", broker), text, convert(reason, "Kafka"), _ONE_BROKER_S)
