"""Prometheus metrics of a job, from the same counts as its summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from cykafka.spark.batch_metrics import BatchMetrics
from cykafka.spark.jobs.health import Health
from cykafka.spark.jobs.report import Summary
from cykafka.spark.offsets import Offsets

__all__ = ["JobMetrics"]

_TOTALS = {
    "records": "Records that the job has read and committed.",
    "bytes": "Bytes of their keys and values.",
    "bad": "Records that could not be decoded or did not match the schema.",
    "batches": "Micro-batches, or steps of a replay.",
    "without_record": "Offsets without a record.",
    "warnings": "Different warnings of the source, the sink and the job.",
}
_NAMES = {"bad": "bad_records", "without_record": "offsets_without_record"}


class JobMetrics(Collector):
    """The metrics of a job, in a registry of their own.

    A scrape may come at any time, in another thread. So it reads a copy of the summary, whose
    numbers belong together.

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

    def take(self, summary: Summary) -> None:
        """Copy the counts of the job so far."""
        self._summary = replace(
            summary, counts=dict(summary.counts), warnings=list(summary.warnings)
        )

    def take_batch(self, report: Mapping[str, Any]) -> None:
        """Add Spark's report of a micro-batch."""
        self._batches.take(self._name, report)

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
        for each, help in _TOTALS.items():
            value = getattr(summary, each)
            family = CounterMetricFamily(
                f"cykafka_job_{_NAMES.get(each, each)}", help, labels=["name"]
            )
            family.add_metric([name], len(value) if isinstance(value, list) else value)
            yield family
        outcomes = CounterMetricFamily(
            "cykafka_job_outcome_records",
            "Records by what became of them: sent, skipped, ...",
            labels=["name", "outcome"],
        )
        for outcome, count in summary.counts.items():
            outcomes.add_metric([name, outcome], count)
        yield outcomes
        done, total = self._tasks
        for each, help, value in (
            ("ready", "1 if /ready answers 200, otherwise 0.", self._health.ready() is None),
            ("tasks", "Tasks of the Spark jobs that run now, of a batch job.", total),
            ("completed_tasks", "Those of them that are done.", done),
        ):
            gauge = GaugeMetricFamily(f"cykafka_job_{each}", help, labels=["name"])
            gauge.add_metric([name], float(value))
            yield gauge
