"""Prometheus metrics of streaming queries.

.. code-block:: python

    from cykafka.spark.metrics import QueryMetrics
    from prometheus_client import start_http_server

    spark.streams.addListener(QueryMetrics())
    start_http_server(9464)

`BatchMetrics` are the metrics that queries and jobs share.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from pyspark.sql.streaming.listener import StreamingQueryListener
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: pip install 'cykafka[spark]'") from error

from cykafka.spark.source.offsets import Offsets, lag_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["BatchMetrics", "QueryMetrics"]

_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class BatchMetrics:
    """Micro-batch durations and lag, for one or more queries.

    Parameters
    ----------
    prefix : str
        The prefix of the metric names.
    label : str
        The label with the query's name.
    registry : CollectorRegistry
    """

    def __init__(self, prefix: str, label: str, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            f"{prefix}_batch_seconds",
            "Time of micro-batches.",
            [label],
            registry=registry,
            buckets=_BUCKETS_S,
        )
        self._phases = Gauge(
            f"{prefix}_last_batch_phase_seconds",
            "Time of the last micro-batch by its phases, as Spark names them (durationMs).",
            [label, "phase"],
            registry=registry,
        )
        self._ended = Gauge(
            f"{prefix}_last_batch_timestamp_seconds",
            "When the last micro-batch ended, since 1970.",
            [label],
            registry=registry,
        )
        self._lag = Gauge(
            f"{prefix}_lag_records",
            "Offsets that the query has not read, at its last report.",
            [label, "topic", "partition"],
            registry=registry,
        )
        self._places: dict[str, Offsets] = {}

    def add_batch(self, name: str, report: Mapping[str, Any]) -> None:
        """Add a finished micro-batch's report."""
        # The first micro-batch's report lacks the phase triggerExecution, but has a duration.
        total = report.get("batchDuration", 0) / 1000
        self._seconds.labels(name).observe(total)
        for phase, ms in (report.get("durationMs") or {}).items():
            if phase != "triggerExecution":
                self._phases.labels(name, phase).set(ms / 1000)
        began = datetime.fromisoformat(report["timestamp"]).timestamp()
        self._ended.labels(name).set(began + total)

    def set_lag(self, name: str, lag: Offsets) -> None:
        """Replace a query's lag: offsets by topic and partition."""
        for place in self._places.get(name, {}).keys() - lag.keys():
            self._lag.remove(name, *place)
        for (topic, partition), offsets in lag.items():
            self._lag.labels(name, topic, partition).set(offsets)
        self._places[name] = dict(lag)


class QueryMetrics(StreamingQueryListener):
    """Exports the progress of all streaming queries in a session to Prometheus.

    The label ``query`` is the query's name (``queryName()``), or the query's id without a name.
    The listener reports the lag only for queries that read Kafka, through this source or Spark's
    own connector.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        Where to register the metrics. Default: Prometheus's global registry.

    Raises
    ------
    ValueError
        The registry already contains these metrics.
    """

    def __init__(self, *, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        self._batches = BatchMetrics("cykafka_query", "query", registry)
        counter = partial(Counter, labelnames=["query"], registry=registry)
        gauge = partial(Gauge, labelnames=["query"], registry=registry)
        self._records = counter("cykafka_query_records", "Rows that the query has read.")
        self._written = counter(
            "cykafka_query_output_records",
            "Rows that the query has written, if its sink counts them.",
        )
        self._active = gauge("cykafka_query_active", "1 while the query runs.")
        self._reported = gauge(
            "cykafka_query_last_report_timestamp_seconds",
            "When Spark reported last on the query: after a micro-batch, or while it waits for "
            "records.",
        )
        self._failures = counter(
            "cykafka_query_failures", "Times that the query ended with an error."
        )
        self._observed = gauge(
            "cykafka_query_observed",
            "Numbers that observe() has counted in the last micro-batch.",
            labelnames=["query", "observation", "metric"],
        )
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        name = self._name(str(event.id), event.name)
        self._active.labels(name).set(1)
        self._reported.labels(name).set_to_current_time()
        # Counters begin at 0, so that rates see the first records and failures.
        self._records.labels(name)
        self._written.labels(name)
        self._failures.labels(name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.take(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        # The event lacks the name. The name of a query older than this listener is not known yet.
        name = self._names.get(str(event.id))
        if name is not None:
            self._reported.labels(name).set_to_current_time()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        name = self._names.pop(str(event.id), str(event.id))
        self._active.labels(name).set(0)
        self._batches.set_lag(name, {})
        if event.exception is not None:
            self._failures.labels(name).inc()

    def take(self, report: Mapping[str, Any]) -> None:
        """Count a micro-batch.

        Parameters
        ----------
        report : mapping
            The JSON of a `StreamingQueryProgress`.
        """
        name = self._name(report["id"], report.get("name"))
        self._active.labels(name).set(1)
        self._reported.labels(name).set_to_current_time()
        self._records.labels(name).inc(report.get("numInputRows") or 0)
        # -1: the sink does not count the rows.
        self._written.labels(name).inc(max(0, (report.get("sink") or {}).get("numOutputRows", -1)))
        self._batches.add_batch(name, report)
        self._batches.set_lag(name, lag_of(report))
        for observation, values in (report.get("observedMetrics") or {}).items():
            for metric, value in values.items():
                if isinstance(value, int | float):
                    self._observed.labels(name, observation, metric).set(value)

    def _name(self, query_id: str, name: str | None) -> str:
        return self._names.setdefault(query_id, name or query_id)
