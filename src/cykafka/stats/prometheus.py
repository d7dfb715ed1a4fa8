"""librdkafka's statistics as Prometheus metrics.

.. code-block:: python

    from cykafka import Consumer
    from cykafka.stats.prometheus import StatisticsCollector

    collector = StatisticsCollector()
    consumer = Consumer(collector.instrument({"group.id": "billing", ...}))
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple, TypeVar

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: pip install 'cykafka[metrics]'") from error

from cykafka._core.common.coroutines import is_coroutine
from cykafka.stats import Broker, Partition, Statistics, Topic, Window, parse
from cykafka.stats._metrics import (
    OF_BROKER,
    OF_CLIENT,
    OF_PARTITION,
    OF_TOPIC,
    QUANTILES,
    TOTAL_OF_TOPIC,
    WINDOWS,
    TopicTotals,
    ValueOf,
)

__all__ = ["StatisticsCollector"]

_log = logging.getLogger("cykafka")

_INTERVAL_MS = 5_000
_STALE_INTERVALS = 3
_STALE_S = 60.0
_T = TypeVar("_T")

_NEW = Partition()
_CLIENT = ["client", "client_id", "type", "group"]


class _Observations(NamedTuple):
    """The sum over all windows."""

    number: int = 0
    sum: int = 0


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """A client's newest statistics, and the totals up to them.

    A topic's or broker's totals grow as long as the client uses the topic or broker.
    """

    statistics: Statistics
    group: str
    arrived_s: float
    """on a monotonic clock"""
    interval_s: float
    """seconds between the two newest statistics"""
    topics: dict[str, TopicTotals] = field(default_factory=dict)
    windows: dict[tuple[str, str], _Observations] = field(default_factory=dict)
    """by the window's attribute and the name of the topic or broker"""


class StatisticsCollector(Collector):
    """Exports the statistics of this process's clients to Prometheus.

    Any thread may call any method. In a forked child the collector begins without the parent's
    clients.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        The registry that the collector joins, by default Prometheus's own. None: it joins none.
    partitions : bool
        Whether to export series per partition, ten for each partition that a client uses. The
        default is False.
    stale_after : float, optional
        Seconds without new statistics after which the collector drops a client's series, because
        the client was closed or the program does not call ``poll()``. The default is three of the
        client's statistics intervals, and at least 60 s.

    Raises
    ------
    ValueError
        `stale_after` is not positive, or the registry already has such a collector.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry | None = REGISTRY,
        partitions: bool = False,
        stale_after: float | None = None,
    ) -> None:
        if stale_after is not None and not stale_after > 0:
            raise ValueError(f"stale_after: expected seconds above 0, got {stale_after}")
        self._partitions = partitions
        self._stale_after = stale_after
        self._begin()
        if registry is not None:
            registry.register(self)

    def _begin(self) -> None:
        self._process = os.getpid()
        # A finalizer or a signal handler may close another client, whose statistics then arrive
        # in a thread that holds the lock.
        self._lock = threading.RLock()
        self._clients: dict[str, _Snapshot] = {}
        self._unreadable = 0

    def _locked(self) -> threading.RLock:
        """The lock; new in a forked child, because a thread of the parent may hold the old one."""
        if self._process != os.getpid():
            self._begin()
        return self._lock

    def instrument(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a client's configuration with this collector added.

        Parameters
        ----------
        config : mapping
            A client's configuration. Its ``group.id`` becomes the ``group`` label. The collector
            calls the configuration's own ``stats_cb`` after itself; for a :mod:`cykafka.aio`
            client this may be a coroutine function.

        Returns
        -------
        dict
            A copy with ``stats_cb``, and with ``statistics.interval.ms`` 5000 unless `config` sets
            it.

        Raises
        ------
        TypeError
            The configuration's ``stats_cb`` is not callable.
        """
        group = str(config.get("group.id", ""))
        own: Any = config.get("stats_cb")
        if own is not None and not callable(own):
            raise TypeError(f"stats_cb: expected a callable, got {type(own).__name__}")

        def feed(json: str) -> None:
            self._take(json, group)
            if own is not None:
                own(json)

        async def feed_and_await(json: str) -> None:
            self._take(json, group)
            await own(json)

        callback = feed_and_await if is_coroutine(own) else feed
        return {"statistics.interval.ms": _INTERVAL_MS, **config, "stats_cb": callback}

    def __call__(self, json: str) -> None:
        """Take a client's statistics; a ``stats_cb``. The ``group`` label stays empty.

        Parameters
        ----------
        json : str
            The collector logs unreadable statistics, and counts them as
            ``cykafka_unreadable_statistics_total``.
        """
        self._take(json, "")

    def _take(self, json: str, group: str) -> None:
        try:
            statistics = parse(json)
        except ValueError as error:
            with self._locked():
                self._unreadable += 1
            _log.warning("cannot export statistics: %s", error)
            return
        with self._locked():
            before = self._clients.get(statistics.name)
            if before is None:
                self._live()  # forgets closed clients even if Prometheus does not scrape
            self._clients[statistics.name] = _next_snapshot(before, statistics, group, monotonic())

    def describe(self) -> Iterator[Metric]:
        """Return the metrics without values, with which a registry finds duplicates."""
        return self._metrics([], 0)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of all clients, for the registry."""
        with self._locked():
            clients, unreadable = self._live(), self._unreadable
        return self._metrics(clients, unreadable)

    def _metrics(self, clients: list[_Snapshot], unreadable: int) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "cykafka_unreadable_statistics", "Statistics that were skipped.", unreadable
        )
        yield from _families(OF_CLIENT, [], lambda of: [([], of.statistics)], clients)
        yield from _states(clients)
        yield from _families(OF_BROKER, ["broker"], _brokers, clients)
        yield from _families(
            TOTAL_OF_TOPIC,
            ["topic"],
            lambda of: [([topic], total) for topic, total in of.topics.items()],
            clients,
        )
        yield from _families(
            OF_TOPIC,
            ["topic"],
            lambda of: [([name], topic) for name, topic in of.statistics.topics.items()],
            clients,
        )
        yield from _summaries(clients)
        if self._partitions:
            yield from _families(
                OF_PARTITION, ["topic", "partition"], _numbered_partitions, clients
            )

    def _live(self) -> list[_Snapshot]:
        """Return the clients whose statistics still arrive; forget the rest. Needs the lock."""
        now = monotonic()
        for name, client in list(self._clients.items()):
            limit = self._stale_after or max(_STALE_S, _STALE_INTERVALS * client.interval_s)
            if now - client.arrived_s > limit:
                self._clients.pop(name, None)
        return list(self._clients.values())


def _next_snapshot(
    before: _Snapshot | None, statistics: Statistics, group: str, arrived_s: float
) -> _Snapshot:
    """Return the snapshot after these statistics."""
    earlier = before.statistics if before else Statistics()
    topics = {}
    for name, topic in statistics.topics.items():
        total = before.topics.get(name, TopicTotals()) if before else TopicTotals()
        topics[name] = _add(total, topic, earlier.topics.get(name, Topic()))
    windows = {}
    for key, window in _windows_of(statistics):
        seen = before.windows.get(key, _Observations()) if before else _Observations()
        windows[key] = _Observations(seen.number + window.count, seen.sum + window.sum)
    # The first statistics arrive one interval after the client's creation.
    interval_us = statistics.clock_us - earlier.clock_us if before else statistics.age_us
    return _Snapshot(statistics, group, arrived_s, max(0, interval_us) / 1e6, topics, windows)


def _windows_of(statistics: Statistics) -> Iterator[tuple[tuple[str, str], Window]]:
    """Yield every window, with its attribute's name and the name of its topic or broker."""
    for attribute, summary in WINDOWS.items():
        by_name: Mapping[str, Broker | Topic] = (
            statistics.brokers if summary.label == "broker" else statistics.topics
        )
        for name, counted in by_name.items():
            yield (attribute, name), getattr(counted, attribute)


def _add(total: TopicTotals, topic: Topic, earlier: Topic) -> TopicTotals:
    """Add the growth since the earlier statistics, partition by partition.

    A sum over the partitions would decrease when librdkafka forgets one of them, and Prometheus
    would mistake that for a restart.
    """
    sums = list(total)
    for number, now in topic.partitions.items():
        then = earlier.partitions.get(number, _NEW)
        if (
            then.records > now.records
            or then.records_sent > now.records_sent
            or then.records_received > now.records_received
        ):
            then = _NEW  # librdkafka forgot the partition and counts from 0 again
        for at, name in enumerate(TopicTotals._fields):
            sums[at] += getattr(now, name) - getattr(then, name)
    return TopicTotals(*sums)


def _labels(client: _Snapshot) -> list[str]:
    statistics = client.statistics
    return [statistics.name, statistics.client_id, statistics.type, client.group]


def _brokers(client: _Snapshot) -> list[tuple[list[str], Broker]]:
    # The internal entry is not a broker: librdkafka keeps partitions without a leader there.
    return [
        ([name], broker)
        for name, broker in client.statistics.brokers.items()
        if broker.source != "internal"
    ]


def _numbered_partitions(client: _Snapshot) -> list[tuple[list[str], Partition]]:
    return [
        ([name, str(number)], partition)
        for name, topic in client.statistics.topics.items()
        for number, partition in topic.partitions.items()
        if number >= 0
    ]


def _families(
    metrics: tuple[ValueOf[_T], ...],
    labels: list[str],
    objects: Callable[[_Snapshot], list[tuple[list[str], _T]]],
    clients: list[_Snapshot],
) -> Iterator[Metric]:
    found = [
        ([*_labels(client), *names], counted)
        for client in clients
        for names, counted in objects(client)
    ]
    for metric in metrics:
        kind = CounterMetricFamily if metric.name.endswith("_total") else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=[*_CLIENT, *labels])
        for names, counted in found:
            value = metric.of(counted)
            if value is not None:
                family.add_metric(names, float(value))
        yield family


def _states(clients: list[_Snapshot]) -> Iterator[Metric]:
    """Yield the states by name: each client's current state has a series with the value 1."""
    group = GaugeMetricFamily(
        "cykafka_group_state",
        "The consumer's state in its group, in the labels.",
        labels=[*_CLIENT, "state", "join_state"],
    )
    transaction = GaugeMetricFamily(
        "cykafka_transaction_state",
        "The state of the producer's transaction, in the label.",
        labels=[*_CLIENT, "state"],
    )
    for client in clients:
        membership, producer_id = client.statistics.group, client.statistics.producer_id
        if membership is not None:
            states = [membership.state, membership.join_state]
            group.add_metric([*_labels(client), *states], 1)
        if producer_id is not None:
            transaction.add_metric([*_labels(client), producer_id.transaction_state], 1)
    yield group
    yield transaction


def _summaries(clients: list[_Snapshot]) -> Iterator[Metric]:
    families = {
        attribute: SummaryMetricFamily(window.name, window.help, labels=[*_CLIENT, window.label])
        for attribute, window in WINDOWS.items()
    }
    for client in clients:
        brokers = {name for (name,), _ in _brokers(client)}
        for (attribute, name), window in _windows_of(client.statistics):
            summary, family = WINDOWS[attribute], families[attribute]
            if summary.label == "broker" and name not in brokers:
                continue
            labels = [*_labels(client), name]
            total = client.windows[attribute, name]
            family.add_metric(labels, total.number, total.sum / summary.units)
            named = dict(zip([*_CLIENT, summary.label], labels, strict=True))
            for quantile, label in QUANTILES.items():
                value = _quantile(window, quantile) / summary.units
                family.add_sample(summary.name, {**named, "quantile": label}, value)
    yield from families.values()


def _quantile(window: Window, name: str) -> float:
    """Return NaN without a measurement, like other Prometheus summaries."""
    return float(getattr(window, name)) if window.count else float("nan")
