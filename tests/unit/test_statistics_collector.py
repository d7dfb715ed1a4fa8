"""StatisticsCollector: statistics as Prometheus metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from machine import WAIT_S
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cykafka.stats.prometheus import StatisticsCollector

Series = dict[str, float]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def collector(registry: CollectorRegistry) -> StatisticsCollector:
    return StatisticsCollector(registry=registry)


@pytest.fixture
def series(registry: CollectorRegistry) -> Callable[..., dict[Any, float]]:
    """The values of a metric in the exposition, by the values of some labels."""

    def series(name: str, *labels: str) -> dict[Any, float]:
        found: dict[Any, float] = {}
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                if sample.name == name:
                    key = tuple(sample.labels[label] for label in labels)
                    assert key not in found
                    found[key[0] if len(key) == 1 else key] = sample.value
        return found

    return series


def statistics(name: str = "a#producer-1", **fields: Any) -> str:
    client, _, kind = name.partition("#")
    base = {"name": name, "client_id": client, "type": kind.rpartition("-")[0]}
    return json.dumps({**base, **fields})


def partitions(topic: str = "orders", **numbered: dict[str, Any]) -> dict[str, Any]:
    """Topics with the partitions p0, p1, ..."""
    return {topic: {"partitions": {number[1:]: item for number, item in numbered.items()}}}


def sent(count: int) -> dict[str, int]:
    return {"txmsgs": count, "txbytes": 10 * count, "msgs": count}


def test_counters_do_not_decrease_when_a_partition_is_forgotten(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    totals = []
    for numbered in (
        {"p0": sent(5), "p1": sent(7)},
        {"p0": sent(6)},  # p1 is forgotten
        {"p0": sent(6), "p1": sent(2)},  # and counts anew
        {"p0": sent(1), "p1": sent(3)},  # p0 began anew
    ):
        collector(statistics(topics=partitions(**numbered)))
        totals += series("cykafka_topic_sent_records_total", "topic").items()

    assert totals == [("orders", 12), ("orders", 13), ("orders", 15), ("orders", 17)]


def test_counters_do_not_decrease_when_a_new_partition_has_queued_as_many(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    collector(statistics(topics=partitions(p0=sent(5))))
    collector(statistics(topics=partitions(p0={**sent(2), "msgs": 5})))

    assert series("cykafka_topic_sent_records_total", "topic") == {"orders": 7}


def test_topic_that_is_gone_has_no_series(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    collector(statistics(topics=partitions(p0=sent(5))))
    collector(statistics(topics=partitions("payments", p0=sent(1))))

    assert series("cykafka_topic_sent_records_total", "topic") == {"payments": 1}


def test_two_clients_of_one_client_id_have_their_own_series(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    collector(statistics("a#producer-1", msg_cnt=3))
    collector(statistics("a#producer-2", msg_cnt=4))

    assert series("cykafka_queue_records", "client", "client_id") == {
        ("a#producer-1", "a"): 3,
        ("a#producer-2", "a"): 4,
    }


def test_windows_become_summaries_that_add_up(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    def broker(**window: int) -> dict[str, Any]:
        throttle = {"cnt": 1, "sum": 250, "p99": 250}
        return {"b:1/1": {"source": "learned", "rtt": window, "throttle": throttle}}

    collector(statistics(brokers=broker(cnt=3, sum=3000, p50=1000, p99_99=2000)))
    collector(statistics(brokers=broker(cnt=1, sum=500_000, p50=500_000, p99_99=500_000)))

    assert series("cykafka_broker_rtt_seconds_count", "broker") == {"b:1/1": 4}
    assert series("cykafka_broker_rtt_seconds_sum", "broker") == {"b:1/1": 0.503}
    quantiles = series("cykafka_broker_rtt_seconds", "quantile")
    assert list(quantiles) == ["0.5", "0.75", "0.9", "0.95", "0.99", "0.9999"]
    assert quantiles["0.5"] == quantiles["0.9999"] == 0.5
    assert series("cykafka_broker_throttle_seconds", "quantile")["0.99"] == 0.25


def test_quantiles_without_a_measurement_are_nan(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    collector(statistics(brokers={"b:1/1": {"rtt": {"cnt": 0, "p50": 0}}}))

    value = series("cykafka_broker_rtt_seconds", "quantile")["0.5"]
    assert value != value


def test_internal_broker_has_no_series(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    collector(
        statistics(
            brokers={
                ":0/internal": {"source": "internal", "state": "UP"},
                "b:1/1": {"source": "configured", "state": "DOWN"},
            }
        )
    )

    assert series("cykafka_broker_up", "broker") == {"b:1/1": 0}
    assert series("cykafka_broker_rtt_seconds_count", "broker") == {"b:1/1": 0}


def test_lag_counts_only_assigned_partitions(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    def lag(state: str, lag: int) -> dict[str, Any]:
        return {"fetch_state": state, "consumer_lag": lag, "consumer_lag_stored": lag + 1}

    topics = partitions(p0=lag("active", 5), p1=lag("offset-query", 2), p2=lag("none", 100))
    topics |= partitions("unknown", p0=lag("active", -1))
    collector(statistics("a#consumer-1", topics=topics))

    assert series("cykafka_topic_lag_records", "topic") == {"orders": 7}
    assert series("cykafka_topic_stored_lag_records", "topic")["orders"] == 9


def test_partitions_have_series_only_if_asked_for(
    collector: StatisticsCollector, series: Callable[..., Series], registry: CollectorRegistry
) -> None:
    text = statistics(topics=partitions(**{"p-1": sent(9), "p0": sent(1), "p12": sent(2)}))
    collector(text)
    assert series("cykafka_partition_sent_records_total") == {}

    registry.unregister(collector)
    detailed = StatisticsCollector(registry=registry, partitions=True)
    detailed(text)
    assert series("cykafka_partition_sent_records_total", "topic", "partition") == {
        ("orders", "0"): 1,
        ("orders", "12"): 2,
    }


def test_states_show_the_present_one_only(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    for state in ("Ready", "InTransaction"):
        collector(statistics(eos={"txn_state": state, "txn_stateage": 1500, "epoch_cnt": 1}))
    collector(statistics("a#consumer-1", cgrp={"state": "up", "join_state": "steady"}))

    assert series("cykafka_transaction_state", "state") == {"InTransaction": 1}
    assert series("cykafka_transaction_state_age_seconds", "type") == {"producer": 1.5}
    assert series("cykafka_group_state", "state", "join_state") == {("up", "steady"): 1}


def test_instrument_adds_the_group_and_calls_the_clients_own_callback(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    own: list[str] = []
    config = {"group.id": "billing", "stats_cb": own.append}
    instrumented = collector.instrument(config)

    text = statistics("a#consumer-1", cgrp={"rebalance_cnt": 3})
    instrumented["stats_cb"](text)

    assert own == [text]
    assert series("cykafka_group_rebalances_total", "group", "type") == {
        ("billing", "consumer"): 3
    }
    assert instrumented["statistics.interval.ms"] == 5_000
    assert collector.instrument({"statistics.interval.ms": 7})["statistics.interval.ms"] == 7
    assert config == {"group.id": "billing", "stats_cb": own.append}


def test_instrument_awaits_a_coroutine_and_refuses_what_cannot_be_called(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    own: list[str] = []

    async def stats_cb(json: str) -> None:
        own.append(json)

    text = statistics(msg_cnt=3)
    asyncio.run(collector.instrument({"stats_cb": stats_cb})["stats_cb"](text))

    assert own == [text]
    assert series("cykafka_queue_records", "client_id") == {"a": 3}
    with pytest.raises(TypeError, match="stats_cb: expected a callable, got int"):
        collector.instrument({"stats_cb": 5})


def test_unreadable_statistics_are_counted_and_logged(
    collector: StatisticsCollector,
    series: Callable[..., Series],
    caplog: pytest.LogCaptureFixture,
) -> None:
    own: list[str] = []
    broken = '{"name": "orders#producer-1", "ts": many}'
    with caplog.at_level(logging.WARNING, "cykafka"):
        collector.instrument({"stats_cb": own.append})["stats_cb"](broken)

    assert own == [broken]
    assert series("cykafka_unreadable_statistics_total") == {(): 1}
    assert "cannot export statistics" in caplog.text


def test_series_of_a_silent_client_vanish(
    registry: CollectorRegistry,
    series: Callable[..., Series],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("cykafka.stats.prometheus.monotonic", lambda: now)
    collector = StatisticsCollector(registry=registry)
    collector(statistics("fast#producer-1", age=5_000_000))
    collector(statistics("slow#producer-2", age=100_000_000))

    alive = []
    for later in (1059.0, 1061.0, 1299.0, 1301.0):
        now = later
        alive.append(len(series("cykafka_queue_records", "client")))

    # 60 s after the last statistics, or three intervals.
    assert alive == [2, 1, 1, 0]


def test_closed_clients_are_forgotten_though_nothing_scrapes(
    collector: StatisticsCollector, series: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("cykafka.stats.prometheus.monotonic", lambda: now)
    collector(statistics("a#producer-1"))
    now = 1061.0
    collector(statistics("a#producer-2"))

    now = 1001.0  # the first one would be there again
    assert list(series("cykafka_queue_records", "client")) == ["a#producer-2"]


def test_statistics_may_come_while_others_are_taken_in_the_same_thread(
    collector: StatisticsCollector, series: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As from a finalizer or a signal handler that closes another client.
    def interrupted() -> float:
        monkeypatch.setattr("cykafka.stats.prometheus.monotonic", lambda: 0.0)
        collector(statistics("a#producer-2"))
        return 0.0

    monkeypatch.setattr("cykafka.stats.prometheus.monotonic", interrupted)
    collector(statistics("a#producer-1"))

    assert set(series("cykafka_queue_records", "client")) == {"a#producer-1", "a#producer-2"}


def test_forked_child_has_its_own_clients_and_lock(
    collector: StatisticsCollector, series: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    collector(statistics("a#producer-1"))
    taken, leave = threading.Event(), threading.Event()

    def wait_with_the_lock() -> float:
        if threading.current_thread() is thread:
            taken.set()
            leave.wait(WAIT_S)
        return 0.0

    monkeypatch.setattr("cykafka.stats.prometheus.monotonic", wait_with_the_lock)
    thread = threading.Thread(target=collector, args=(statistics("a#producer-2"),))
    thread.start()
    assert taken.wait(WAIT_S)
    child = os.fork()
    if not child:
        failed = True
        try:
            signal.alarm(int(WAIT_S))
            collector(statistics("a#producer-3"))
            failed = list(series("cykafka_queue_records", "client")) != ["a#producer-3"]
        finally:
            os._exit(failed)
    leave.set()
    thread.join()

    assert os.waitpid(child, 0)[1] == 0
    assert set(series("cykafka_queue_records", "client")) == {"a#producer-1", "a#producer-2"}


def test_interval_follows_the_clock_of_the_statistics(
    collector: StatisticsCollector, series: Callable[..., Series], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("cykafka.stats.prometheus.monotonic", lambda: now)
    collector(statistics(age=1, ts=1_000_000))
    collector(statistics(age=2, ts=101_000_000))

    now = 1250.0
    assert series("cykafka_queue_records", "client")
    now = 1350.0
    assert not series("cykafka_queue_records", "client")


def test_second_collector_of_a_registry_is_refused(
    collector: StatisticsCollector, registry: CollectorRegistry
) -> None:
    with pytest.raises(ValueError, match="Duplicated"):
        StatisticsCollector(registry=registry)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_stale_after_must_be_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match="stale_after"):
        StatisticsCollector(registry=None, stale_after=seconds)


def test_label_values_may_be_anything(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    odd = 'back\\slash "quote"\nline'
    collector(statistics(f"{odd}#producer-1", msg_cnt=1))

    assert series("cykafka_queue_records", "client_id") == {odd: 1}


def test_scrapes_and_statistics_may_come_at_the_same_time(
    collector: StatisticsCollector, series: Callable[..., Series]
) -> None:
    rounds = 200

    def feed(number: int) -> None:
        for count in range(1, rounds + 1):
            topics = partitions(p0=sent(count))
            collector(statistics(f"a#producer-{number}", topics=topics))

    threads = [threading.Thread(target=feed, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    before: Series = {}
    while any(thread.is_alive() for thread in threads):
        after = series("cykafka_topic_sent_records_total", "client")
        assert all(after[client] >= value for client, value in before.items())
        before = after
    for thread in threads:
        thread.join()

    after = series("cykafka_topic_sent_records_total", "client")
    assert set(after.values()) == {rounds}
