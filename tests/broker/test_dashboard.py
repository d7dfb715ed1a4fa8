"""The Grafana dashboards ask only for metrics and labels that clients and jobs export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pytest
from fixture_types import MakeConsumer, MakeProducer, WaitUntil
from machine import WAIT_S
from progress_reports import ID, second_report
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cykafka.stats.prometheus import StatisticsCollector

OFTEN = {"statistics.interval.ms": 50}
SELECTOR = re.compile(r"(cykafka_\w+)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)=~?"([^"]*)"')
GROUPED = re.compile(r"(?:sum|min|max|count) by \(([\w, ]+)\) ")
VARIABLE = re.compile(r"label_values\((\w+), (\w+)\)")
IN_LEGEND = re.compile(r"\{\{(\w+)\}\}")


@pytest.fixture(params=["clients", "spark"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dashboard(kind: str) -> Any:
    name = {"clients": "grafana-dashboard.json", "spark": "grafana-spark-dashboard.json"}[kind]
    file = resources.files("cykafka.stats") / name
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture
def exported(kind: str, request: pytest.FixtureRequest) -> dict[str, list[dict[str, str]]]:
    """The labels of each series, by metric."""
    found: dict[str, list[dict[str, str]]] = request.getfixturevalue(f"of_{kind}")
    return found


def series(*registries: CollectorRegistry) -> dict[str, list[dict[str, str]]]:
    """The labels of each series, by metric. Prometheus adds the label ``instance``."""
    found: dict[str, list[dict[str, str]]] = {}
    for registry in registries:
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                labels = {**sample.labels, "instance": "here"}
                found.setdefault(sample.name, []).append(labels)
    return found


@pytest.fixture
def of_spark() -> dict[str, list[dict[str, str]]]:
    """The series of a job and of a query, from reports of Spark."""
    pytest.importorskip("pyspark", reason="the group spark is not installed")
    from cykafka.spark.jobs.config.load import load
    from cykafka.spark.jobs.config.models import JOBS
    from cykafka.spark.jobs.observing.endpoint import listen
    from cykafka.spark.jobs.observing.report import Health, Summary
    from cykafka.spark.jobs.run.streams import Tally
    from cykafka.spark.metrics import QueryMetrics

    given = {"kafka.bootstrap.servers": "a:1", "topics": "a", "metrics": 0}
    registry, summary = CollectorRegistry(), Summary("profile")
    queries: Any = QueryMetrics(registry=registry)
    with closing(listen(load(JOBS["profile"], None, given, {}), Health())) as server:
        Tally(summary, metrics=server.metrics).add_reports([second_report()])
        server.metrics.set_summary(summary)
        queries.onQueryStarted(SimpleNamespace(id=ID, name="mine"))
        queries.take(second_report())
        return series(server.metrics.registry, registry)


@pytest.fixture
def of_clients(
    make_transactional: MakeProducer,
    make_consumer: MakeConsumer,
    topic: str,
    wait_until: WaitUntil,
) -> dict[str, list[dict[str, str]]]:
    """The series of a transactional producer and a consumer."""
    registry = CollectorRegistry()
    collector = StatisticsCollector(registry=registry)
    producer = make_transactional(**collector.instrument({**OFTEN, "client.id": "writer"}))
    producer.init_transactions(WAIT_S)
    with producer.transaction():
        producer.produce(topic, "x")
    consumer = make_consumer(
        collector.instrument({**OFTEN, "client.id": "reader", "group.id": f"of-{topic}"})
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1))
    consumer.commit(asynchronous=False)
    found: dict[str, list[dict[str, str]]] = {}

    def serve() -> None:
        producer.poll(0.05)
        consumer.poll(0.05)
        found.clear()
        found.update(series(registry))

    wait_until(
        lambda: found.get("cykafka_topic_lag_records") and found.get("cykafka_transaction_state"),
        serve,
    )
    return found


def targets(dashboard: Any) -> Iterator[tuple[str, dict[str, str]]]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


def test_every_query_finds_series(
    kind: str, dashboard: Any, exported: dict[str, list[dict[str, str]]]
) -> None:
    variables = {item["name"] for item in dashboard["templating"]["list"]}
    asked = set()
    for title, target in targets(dashboard):
        expression = target["expr"]
        selectors = SELECTOR.findall(expression)
        # Every metric stands in a selector, so the test sees all of them.
        assert len(selectors) == expression.count("cykafka_") > 0, title
        kept = {name for names in GROUPED.findall(expression) for name in names.split(", ")}
        assert set(IN_LEGEND.findall(target["legendFormat"])) <= kept, title
        for metric, matchers in selectors:
            asked.add(metric)
            wanted = dict(MATCHER.findall(matchers))
            assert {text[1:] for text in wanted.values() if text[0] == "$"} <= variables, title
            fixed = {name: text for name, text in wanted.items() if text[0] != "$"}
            assert [
                labels
                for labels in exported.get(metric, ())
                if labels.keys() >= {*wanted, *kept} and fixed.items() <= labels.items()
            ], f"{title}: no series for {metric} with {sorted({*wanted, *kept})} and {fixed}"
    assert len(asked) > (25 if kind == "clients" else 20)


def test_every_variable_has_values(
    dashboard: Any, exported: dict[str, list[dict[str, str]]]
) -> None:
    queries = [
        item["query"]["query"]
        for item in dashboard["templating"]["list"]
        if item["type"] == "query"
    ]
    assert len(queries) >= 2
    for query in queries:
        match = VARIABLE.fullmatch(query)
        assert match is not None, query
        assert {labels[match[2]] for labels in exported[match[1]]} - {""}, query


def test_counters_are_read_as_rates(dashboard: Any) -> None:
    for title, target in targets(dashboard):
        for metric, _ in SELECTOR.findall(target["expr"]):
            counter = metric.endswith(("_total", "_sum", "_count", "_bucket"))
            rated = re.search(rf"(rate|increase)\({metric}\{{", target["expr"])
            assert counter == bool(rated), f"{title}: {metric}"


def test_panels_do_not_overlap(dashboard: Any) -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard["panels"]]
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len(set(ids)) == len(ids)
