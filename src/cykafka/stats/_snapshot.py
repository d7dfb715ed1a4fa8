"""What is known of a client after its newest statistics, with totals that never decrease."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from cykafka.stats._model import Broker, Partition, Statistics, Topic, Window

__all__ = ["Observations", "Snapshot", "TopicTotals", "next_snapshot", "windows_of"]

_NEW = Partition()


class TopicTotals(NamedTuple):
    """Totals of a topic, over all its partitions."""

    records_sent: int = 0
    bytes_sent: int = 0
    records_received: int = 0
    bytes_received: int = 0
    outdated_records: int = 0


class Observations(NamedTuple):
    """The measurements of all windows together."""

    number: int = 0
    sum: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A client's newest statistics, and the totals that they lead to.

    The totals of a topic or broker go on as long as the client uses it.
    """

    statistics: Statistics
    group: str
    arrived_s: float
    """time of a monotonic clock"""
    interval_s: float
    """seconds between the two newest statistics"""
    topics: dict[str, TopicTotals] = field(default_factory=dict)
    windows: dict[tuple[str, str], Observations] = field(default_factory=dict)
    """by the name of the window's attribute and the name of the topic or broker"""


def next_snapshot(
    before: Snapshot | None, statistics: Statistics, group: str, arrived_s: float
) -> Snapshot:
    """The snapshot after these statistics."""
    earlier = before.statistics if before else Statistics()
    topics = {}
    for name, topic in statistics.topics.items():
        total = before.topics.get(name, TopicTotals()) if before else TopicTotals()
        topics[name] = _add(total, topic, earlier.topics.get(name, Topic()))
    windows = {}
    for key, window in windows_of(statistics):
        seen = before.windows.get(key, Observations()) if before else Observations()
        windows[key] = Observations(seen.number + window.count, seen.sum + window.sum)
    # The first statistics come one interval after the client was made.
    interval_us = statistics.clock_us - earlier.clock_us if before else statistics.age_us
    return Snapshot(statistics, group, arrived_s, max(0, interval_us) / 1e6, topics, windows)


def windows_of(statistics: Statistics) -> Iterator[tuple[tuple[str, str], Window]]:
    """Every window, with the name of its attribute and the name of its topic or broker."""
    objects: tuple[tuple[tuple[str, ...], dict[str, Broker] | dict[str, Topic]], ...] = (
        (("queue_latency_us", "outbuf_latency_us", "rtt_us", "throttle_ms"), statistics.brokers),
        (("batch_size", "batch_count"), statistics.topics),
    )
    for attributes, by_name in objects:
        for name, each in by_name.items():
            for attribute in attributes:
                yield (attribute, name), getattr(each, attribute)


def _add(total: TopicTotals, topic: Topic, earlier: Topic) -> TopicTotals:
    """Add what came since the earlier statistics, partition by partition.

    A sum of the partitions would decrease when librdkafka forgets one of them, and Prometheus
    would take that for a restart.
    """
    sent = sent_bytes = received = received_bytes = outdated = 0
    for number, now in topic.partitions.items():
        then = earlier.partitions.get(number, _NEW)
        if (
            then.records > now.records
            or then.records_sent > now.records_sent
            or then.records_received > now.records_received
        ):
            then = _NEW  # librdkafka forgot the partition and counts from 0 again
        sent += now.records_sent - then.records_sent
        sent_bytes += now.bytes_sent - then.bytes_sent
        received += now.records_received - then.records_received
        received_bytes += now.bytes_received - then.bytes_received
        outdated += now.outdated_records - then.outdated_records
    return TopicTotals(
        total.records_sent + sent,
        total.bytes_sent + sent_bytes,
        total.records_received + received,
        total.bytes_received + received_bytes,
        total.outdated_records + outdated,
    )
