"""A job's HTTP server: ``/metrics`` for Prometheus, ``/health`` and ``/ready`` for a scheduler."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

from cykafka import __version__, libversion
from cykafka.spark.jobs.metrics import JobMetrics
from cykafka.spark.jobs.problems import wrong_value

if TYPE_CHECKING:
    from types import TracebackType

    from cykafka.spark.jobs.config import JobConfig
    from cykafka.spark.jobs.health import Health

__all__ = ["Endpoint", "listen"]

_SILENCE_S = 10.0


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE_S  # the end of connections without a request

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # not a connection that ended early
            super().handle_error(request, client_address)


class _Server6(_Server):
    address_family = socket.AF_INET6


class Endpoint:
    """The server, which runs in a thread from its creation until `close`.

    Parameters
    ----------
    address : str
        ``HOST:PORT``; port 0 takes a free one.
    job : str
    metrics : JobMetrics
    health : Health

    Attributes
    ----------
    metrics : JobMetrics
    url : str
        The beginning of its addresses, with the port that it has taken.

    Raises
    ------
    OSError
        The server cannot listen on the address.
    """

    def __init__(self, address: str, job: str, metrics: JobMetrics, health: Health) -> None:
        self.metrics = metrics
        self._job = job
        self._scrape: Any = make_wsgi_app(metrics.registry)
        self._checks = {"/health": health.live, "/ready": health.ready}
        host, _, port = address.rpartition(":")
        kind = _Server6 if host.startswith("[") else _Server
        self._server = make_server(host.strip("[]"), int(port), self._app, kind, _Handler)
        self.url = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="cykafka-endpoint", daemon=True
        )
        self._thread.start()

    def _app(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            answer: Iterable[bytes] = self._scrape(environ, start_response)
            return answer
        check = self._checks.get(path)
        status, body = HTTPStatus.OK, {"job": self._job, "status": "ok"}
        if check is None:
            status = HTTPStatus.NOT_FOUND
            body = {"error": f"expected {', '.join(['/metrics', *self._checks])}"}
        elif reason := check():
            status = HTTPStatus.SERVICE_UNAVAILABLE
            body = {"job": self._job, "status": "unavailable", "reason": reason}
        start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
        return [json.dumps(body).encode() + b"\n"]

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def listen(config: JobConfig, health: Health) -> Endpoint:
    """The server of a job whose configuration has the key ``metrics``; its metrics are new.

    Raises
    ------
    ConfigError
        The server cannot listen on the address.
    """
    from pyspark import __version__ as pyspark

    versions = {"version": __version__, "librdkafka": libversion()[0], "pyspark": pyspark}
    name, address = config.app_name or config.job, config.metrics or ""
    metrics = JobMetrics(name, health, {"kind": config.job, **versions})
    try:
        return Endpoint(address, config.job, metrics, health)
    except OSError as error:
        words = f"cannot listen there: {error.strerror}"
        raise wrong_value("metrics", address, words) from None
