"""Prometheus metrics of streaming queries.

.. code-block:: python

    from cykafka.spark.metrics import QueryMetrics
    from prometheus_client import start_http_server

    spark.streams.addListener(QueryMetrics())
    start_http_server(9464)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge
    from pyspark.sql.streaming.listener import StreamingQueryListener
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: pip install 'cykafka[spark]'") from error

from cykafka.spark.batch_metrics import BatchMetrics
from cykafka.spark.progress import lag_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["QueryMetrics"]


class QueryMetrics(StreamingQueryListener):
    """Exports the progress of all streaming queries of a session to Prometheus.

    The label ``query`` is the query's name (``queryName()``), or its id if it has none. The
    metrics are those of any query; the lag is known of those that read Kafka, by this source or by
    Spark's connector.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        Where the metrics are registered. Default: Prometheus's own registry.

    Raises
    ------
    ValueError
        The registry has such metrics already.
    """

    def __init__(self, *, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__()
        query = ["query"]
        self._batches = BatchMetrics("cykafka_query", "query", registry)
        self._records = Counter(
            "cykafka_query_records", "Rows that the query has read.", query, registry=registry
        )
        self._written = Counter(
            "cykafka_query_output_records",
            "Rows that the query has written, if its sink counts them.",
            query,
            registry=registry,
        )
        self._active = Gauge(
            "cykafka_query_active", "1 while the query runs.", query, registry=registry
        )
        self._reported = Gauge(
            "cykafka_query_last_report_timestamp_seconds",
            "When Spark reported last on the query: after a micro-batch, or while it waits for "
            "records.",
            query,
            registry=registry,
        )
        self._failures = Counter(
            "cykafka_query_failures", "Ends of the query by an error.", query, registry=registry
        )
        self._observed = Gauge(
            "cykafka_query_observed",
            "Numbers that observe() has counted in the last micro-batch.",
            [*query, "observation", "metric"],
            registry=registry,
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
        # The event has no name. A query that began before this listener has none so far.
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
        # -1: the sink does not count them.
        self._written.labels(name).inc(max(0, (report.get("sink") or {}).get("numOutputRows", -1)))
        self._batches.take(name, report)
        self._batches.set_lag(name, lag_of(report))
        for observation, values in (report.get("observedMetrics") or {}).items():
            for metric, value in values.items():
                if isinstance(value, int | float):
                    self._observed.labels(name, observation, metric).set(value)

    def _name(self, query_id: str, name: str | None) -> str:
        return self._names.setdefault(query_id, name or query_id)
