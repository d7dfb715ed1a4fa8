"""Prometheus metrics of micro-batches, from Spark's reports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, Histogram

from cykafka.spark.offsets import Offsets

__all__ = ["BatchMetrics"]

_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class BatchMetrics:
    """The time of micro-batches and the lag, of one query or of several.

    Parameters
    ----------
    prefix : str
        The beginning of the metrics' names.
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

    def take(self, name: str, report: Mapping[str, Any]) -> None:
        """Add the report of a finished micro-batch."""
        # The first micro-batch has no triggerExecution among the phases, but it has a duration.
        total = report.get("batchDuration", 0) / 1000
        self._seconds.labels(name).observe(total)
        for phase, ms in (report.get("durationMs") or {}).items():
            if phase != "triggerExecution":
                self._phases.labels(name, phase).set(ms / 1000)
        began = datetime.fromisoformat(report["timestamp"]).timestamp()
        self._ended.labels(name).set(began + total)

    def set_lag(self, name: str, lag: Offsets) -> None:
        """Replace the lag of a query: offsets by topic and partition."""
        for place in self._places.get(name, {}).keys() - lag.keys():
            self._lag.remove(name, *place)
        for (topic, partition), offsets in lag.items():
            self._lag.labels(name, topic, partition).set(offsets)
        self._places[name] = dict(lag)
