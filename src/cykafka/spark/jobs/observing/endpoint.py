"""A job's HTTP server: ``/metrics`` for Prometheus, ``/health`` and ``/ready`` for a scheduler.

The metrics use the same counts as the job's summary.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cykafka import __version__, libversion
from cykafka.spark.jobs.observing.report import Health, Summary
from cykafka.spark.jobs.problems import wrong_value
from cykafka.spark.metrics import BatchMetrics
from cykafka.spark.source.offsets import Offsets

if TYPE_CHECKING:
    from cykafka.spark.jobs.config.models import JobConfig

__all__ = ["Endpoint", "JobMetrics", "listen"]


# -- metrics

_TOTALS = {
    "records": "Records that the job has read and committed.",
    "bytes": "Key and value bytes of these records.",
    "bad": "Records that could not be decoded or did not match the schema.",
    "batches": "Micro-batches, or steps of a replay.",
    "without_record": "Offsets without a record.",
    "warnings": "Different warnings from the source, the sink and the job.",
}
_NAMES = {"bad": "bad_records", "without_record": "offsets_without_record"}


class JobMetrics(Collector):
    """A job's metrics, in their own registry.

    A scrape may come at any time, in another thread. So it reads a consistent copy of the summary.

    Parameters
    ----------
    name : str
        The label ``name``. Prometheus sets a label ``job`` itself.
    health : Health
    info : mapping
        The further labels of ``cykafka_job_info``.
    """

    def __init__(self, name: str, health: Health, info: Mapping[str, str]) -> None:
        self.registry = CollectorRegistry()
        self._name = name
        self._health = health
        self._info = info
        self._summary = Summary(name)
        self._tasks = (0, 0)
        self._batches = BatchMetrics("cykafka_job", "name", self.registry)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def set_summary(self, summary: Summary) -> None:
        """Copy the counts of the job so far."""
        self._summary = replace(
            summary, counts=dict(summary.counts), warnings=list(summary.warnings)
        )

    def add_batch(self, report: Mapping[str, Any]) -> None:
        """Add Spark's report of a micro-batch."""
        self._batches.add_batch(self._name, report)

    def set_lag(self, lag: Offsets) -> None:
        """Replace the lag: offsets by topic and partition."""
        self._batches.set_lag(self._name, lag)

    def set_tasks(self, done: int, total: int) -> None:
        """Set the number of tasks of the Spark jobs that run now."""
        self._tasks = done, total

    def collect(self) -> Iterator[Metric]:
        """The metrics, for the registry."""
        summary, name = self._summary, self._name
        yield InfoMetricFamily(
            "cykafka_job", "The job and its versions.", value={"name": name, **self._info}
        )
        for attribute, help in _TOTALS.items():
            value = getattr(summary, attribute)
            family = CounterMetricFamily(
                f"cykafka_job_{_NAMES.get(attribute, attribute)}", help, labels=["name"]
            )
            family.add_metric([name], len(value) if isinstance(value, list) else value)
            yield family
        outcomes = CounterMetricFamily(
            "cykafka_job_outcome_records",
            "Records by outcome: sent, skipped, ...",
            labels=["name", "outcome"],
        )
        for outcome, count in summary.counts.items():
            outcomes.add_metric([name, outcome], count)
        yield outcomes
        done, total = self._tasks
        ready = self._health.readiness_problem() is None
        for metric, help, value in (
            ("ready", "1 if /ready responds with 200, otherwise 0.", ready),
            ("tasks", "Tasks of the running Spark jobs, in a batch job.", total),
            ("completed_tasks", "Finished tasks of the running Spark jobs, in a batch job.", done),
        ):
            gauge = GaugeMetricFamily(f"cykafka_job_{metric}", help, labels=["name"])
            gauge.add_metric([name], float(value))
            yield gauge


# -- the server

_SILENCE_S = 10.0


class _RequestHandler(WSGIRequestHandler):
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
        The server's base URL, with the actual port.

    Raises
    ------
    OSError
        The server cannot listen on the address.
    """

    def __init__(self, address: str, job: str, metrics: JobMetrics, health: Health) -> None:
        self.metrics = metrics
        self._job = job
        self._scrape: Any = make_wsgi_app(metrics.registry)
        self._checks = {"/health": health.liveness_problem, "/ready": health.readiness_problem}
        host, _, port = address.rpartition(":")
        kind = _Server6 if host.startswith("[") else _Server
        self._server = make_server(host.strip("[]"), int(port), self._app, kind, _RequestHandler)
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


def listen(config: JobConfig, health: Health) -> Endpoint:
    """Start the server for a job with the key ``metrics``, with new metrics.

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
