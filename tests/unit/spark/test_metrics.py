"""Prometheus metrics of streaming queries, from recorded reports."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from progress_reports import ID, first_report, second_report
from prometheus_client import CollectorRegistry

from cykafka.spark.source.offsets import lag_of

pytest.importorskip("pyspark", reason="the group spark is not installed")

from cykafka.spark.metrics import QueryMetrics


class Exported:
    """Metrics, and their values in the registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics: Any = QueryMetrics(registry=self.registry)

    def progress(self, report: dict[str, Any]) -> None:
        event = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(report)))
        self.metrics.onQueryProgress(event)

    def __call__(self, name: str, query: str = "mine", **labels: str) -> float | None:
        return self.registry.get_sample_value(f"cykafka_query_{name}", {"query": query, **labels})


@pytest.fixture
def exported() -> Exported:
    return Exported()


def test_reports_of_micro_batches_add_up(exported: Exported) -> None:
    exported.progress(first_report())
    exported.progress(second_report())

    assert exported("records_total") == exported("output_records_total") == 9
    assert exported("batch_seconds_count") == 2
    assert exported("batch_seconds_sum") == pytest.approx(24.066 + 1.992)
    assert exported("batch_seconds_bucket", le="2.5") == 1
    assert exported("last_batch_phase_seconds", phase="addBatch") == 1.366
    assert exported("last_batch_phase_seconds", phase="triggerExecution") is None
    # The start of the micro-batch and its duration.
    ended = 1795702360.261 + 1.992
    assert exported("last_batch_timestamp_seconds") == pytest.approx(ended, abs=0.001)
    assert exported("lag_records", topic="t", partition="0") == 0
    assert exported("lag_records", topic="t", partition="1") == 1
    assert exported("observed", observation="cykafka", metric="bytes") == 30


def test_sink_that_does_not_count_its_rows_has_no_output(exported: Exported) -> None:
    report = first_report()
    report["sink"]["numOutputRows"] = -1

    exported.progress(report)

    assert (exported("records_total"), exported("output_records_total")) == (6, 0)


def test_query_without_a_name_has_its_id(exported: Exported) -> None:
    exported.progress(first_report(name=None))

    assert exported("records_total", ID) == 6


def test_query_is_followed_from_its_start_to_its_failure(exported: Exported) -> None:
    exported.metrics.onQueryStarted(SimpleNamespace(id=ID, name="mine"))
    assert (exported("active"), exported("records_total"), exported("failures_total")) == (1, 0, 0)

    exported.progress(first_report())
    reported = exported("last_report_timestamp_seconds")
    exported.metrics.onQueryIdle(SimpleNamespace(id=ID))
    assert exported("last_report_timestamp_seconds") > reported

    exported.metrics.onQueryTerminated(SimpleNamespace(id=ID, exception="it fails"))
    assert (exported("active"), exported("records_total"), exported("failures_total")) == (0, 6, 1)
    # The lag of a query that has ended grows, but Spark no longer reports it.
    assert exported("lag_records", topic="t", partition="0") is None


def test_idle_query_that_is_not_known_yet_is_no_series(exported: Exported) -> None:
    exported.metrics.onQueryIdle(SimpleNamespace(id=ID))

    assert not [sample for family in exported.registry.collect() for sample in family.samples]


def test_lag_of_a_deleted_topic_vanishes(exported: Exported) -> None:
    exported.progress(first_report())
    report = second_report()
    for offsets in ("startOffset", "endOffset", "latestOffset"):
        report["sources"][0][offsets] = {"other": {"0": 7}}
    exported.progress(report)

    assert exported("lag_records", topic="t", partition="0") is None
    assert exported("lag_records", topic="other", partition="0") == 0


@pytest.mark.parametrize("offset", [None, 5, "5", '{"logOffset": 3}', [1], {"a": 1}, "latest"])
def test_offsets_of_other_sources_have_no_lag(offset: Any) -> None:
    report = first_report()
    report["sources"].insert(0, {"latestOffset": offset, "endOffset": offset})

    assert lag_of(report) == {("t", 0): 2, ("t", 1): 2}


def test_partition_of_two_sources_has_the_larger_lag() -> None:
    report = first_report()
    report["sources"].append({**report["sources"][0], "endOffset": {"t": {"0": 1, "1": 5}}})

    assert lag_of(report) == {("t", 0): 4, ("t", 1): 2}


def test_lag_is_known_from_offsets_that_are_texts() -> None:
    # Spark's own Kafka connector writes them so.
    report = {"sources": [{"latestOffset": '{"t":{"0":9}}', "endOffset": '{"t":{"0":4}}'}]}

    assert lag_of(report) == {("t", 0): 5}
