"""The metrics that cykafka exports from statistics: their names, help and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from cykafka.stats import Broker, Partition, Statistics, Topic

_T = TypeVar("_T")

# The window's attribute -> the label.
QUANTILES = {
    "p50": "0.5",
    "p75": "0.75",
    "p90": "0.9",
    "p95": "0.95",
    "p99": "0.99",
    "p99_99": "0.9999",
}
# In these states a partition is not assigned, so its offsets are outdated.
_NOT_FETCHED = ("none", "stopping", "stopped")


class ValueOf(NamedTuple, Generic[_T]):
    """A metric of an object in the statistics. A counter's name ends in ``_total``."""

    name: str
    help: str
    value: str | Callable[[_T], float | None]
    """the object's attribute, or a function that returns None if the metric does not apply"""

    def of(self, counted: _T) -> float | None:
        """Return the object's value, or None if the metric does not apply."""
        if isinstance(self.value, str):
            return getattr(counted, self.value)  # type: ignore[no-any-return]
        return self.value(counted)


def _producer(value: Callable[[Statistics], float]) -> Callable[[Statistics], float | None]:
    return lambda statistics: value(statistics) if statistics.type == "producer" else None


def _sum(value: Callable[[Partition], float]) -> Callable[[Topic], float]:
    return lambda topic: sum(map(value, topic.partitions.values()))


def _lag(lag: int, partition: Partition) -> int | None:
    return None if lag < 0 or partition.fetch_state in _NOT_FETCHED else lag


def _lags(value: Callable[[Partition], int | None]) -> Callable[[Topic], float | None]:
    def total(topic: Topic) -> float | None:
        known = [
            lag for partition in topic.partitions.values() if (lag := value(partition)) is not None
        ]
        return sum(known) if known else None

    return total


def _committed_lag(partition: Partition) -> int | None:
    return _lag(partition.lag, partition)


def _stored_lag(partition: Partition) -> int | None:
    return _lag(partition.stored_lag, partition)


def _known(offset: int) -> int | None:
    return offset if offset >= 0 else None


def _leaderless(partition: Partition) -> bool:
    return partition.partition >= 0 and (partition.unknown or partition.leader < 0)


OF_CLIENT: tuple[ValueOf[Statistics], ...] = (
    ValueOf(
        "cykafka_queue_records",
        "Records in the producer's queues and in flight.",
        _producer(lambda client: client.queued_records),
    ),
    ValueOf(
        "cykafka_queue_bytes",
        "Bytes in the producer's queues and in flight.",
        _producer(lambda client: client.queued_bytes),
    ),
    ValueOf(
        "cykafka_queue_limit_records",
        "Records that fit into the producer's queues (queue.buffering.max.messages).",
        _producer(lambda client: client.max_queued_records),
    ),
    ValueOf(
        "cykafka_queue_limit_bytes",
        "Bytes that fit into the producer's queues (queue.buffering.max.kbytes).",
        _producer(lambda client: client.max_queued_bytes),
    ),
    ValueOf(
        "cykafka_waiting_callbacks",
        "Callbacks and events that wait for poll().",
        "waiting_callbacks",
    ),
    ValueOf(
        "cykafka_fatal_error",
        "1 if a fatal error has ended the client, otherwise 0.",
        lambda client: client.fatal is not None,
    ),
    ValueOf(
        "cykafka_group_rebalances_total",
        "Assignments and revocations of partitions.",
        lambda client: client.group.rebalances if client.group else None,
    ),
    ValueOf(
        "cykafka_group_assigned_partitions",
        "Partitions that are assigned to the consumer.",
        lambda client: client.group.assigned_partitions if client.group else None,
    ),
    ValueOf(
        "cykafka_producer_id_assignments_total",
        "Producer ids that the broker has given to an idempotent producer.",
        lambda client: client.producer_id.assignments if client.producer_id else None,
    ),
    ValueOf(
        "cykafka_transaction_state_age_seconds",
        "Time since the state of the transaction changed.",
        lambda client: (
            client.producer_id.transaction_state_age_ms / 1e3 if client.producer_id else None
        ),
    ),
)

OF_BROKER: tuple[ValueOf[Broker], ...] = (
    ValueOf("cykafka_broker_up", "1 if connected.", lambda broker: broker.state == "UP"),
    ValueOf("cykafka_broker_requests_total", "Requests sent to the broker.", "requests_sent"),
    ValueOf("cykafka_broker_sent_bytes_total", "Bytes sent to the broker.", "bytes_sent"),
    ValueOf(
        "cykafka_broker_responses_total",
        "Responses received from the broker.",
        "responses_received",
    ),
    ValueOf(
        "cykafka_broker_received_bytes_total", "Bytes received from the broker.", "bytes_received"
    ),
    ValueOf("cykafka_broker_send_errors_total", "Requests that could not be sent.", "send_errors"),
    ValueOf(
        "cykafka_broker_receive_errors_total",
        "Responses that could not be received.",
        "receive_errors",
    ),
    ValueOf(
        "cykafka_broker_request_timeouts_total", "Requests that timed out.", "request_timeouts"
    ),
    ValueOf("cykafka_broker_retries_total", "Requests that were sent again.", "retries"),
    ValueOf(
        "cykafka_broker_connects_total",
        "Attempts to connect, including failed attempts.",
        "connects",
    ),
    ValueOf("cykafka_broker_disconnects_total", "Connections that ended.", "disconnects"),
    ValueOf("cykafka_broker_outbuf_requests", "Requests that wait to be sent.", "outbuf_requests"),
    ValueOf(
        "cykafka_broker_in_flight_requests",
        "Requests that wait for their response.",
        "in_flight_requests",
    ),
)


class TopicTotals(NamedTuple):
    """A topic's totals of the partitions' attributes with these names."""

    records_sent: int = 0
    bytes_sent: int = 0
    records_received: int = 0
    bytes_received: int = 0
    outdated_records: int = 0


TOTAL_OF_TOPIC: tuple[ValueOf[TopicTotals], ...] = (
    ValueOf("cykafka_topic_sent_records_total", "Records sent.", "records_sent"),
    ValueOf("cykafka_topic_sent_bytes_total", "Bytes sent.", "bytes_sent"),
    ValueOf("cykafka_topic_received_records_total", "Records received.", "records_received"),
    ValueOf("cykafka_topic_received_bytes_total", "Bytes received.", "bytes_received"),
    ValueOf(
        "cykafka_topic_outdated_records_total",
        "Fetched records that a seek or a rebalance made useless.",
        "outdated_records",
    ),
)

OF_TOPIC: tuple[ValueOf[Topic], ...] = (
    ValueOf(
        "cykafka_topic_queue_records",
        "Records that wait in the producer's queue.",
        _sum(lambda partition: partition.queued_records),
    ),
    ValueOf(
        "cykafka_topic_queue_bytes",
        "Bytes that wait in the producer's queue.",
        _sum(lambda partition: partition.queued_bytes),
    ),
    ValueOf(
        "cykafka_topic_in_flight_records",
        "Records on their way to the broker.",
        _sum(lambda partition: partition.in_flight_records),
    ),
    ValueOf(
        "cykafka_topic_fetched_records",
        "Records that the consumer has fetched and the application has not read.",
        _sum(lambda partition: partition.fetched_records),
    ),
    ValueOf(
        "cykafka_topic_fetched_bytes",
        "Bytes that the consumer has fetched and the application has not read.",
        _sum(lambda partition: partition.fetched_bytes),
    ),
    ValueOf(
        "cykafka_topic_leaderless_partitions",
        "Partitions without a leader, or that the cluster does not know.",
        _sum(_leaderless),
    ),
    ValueOf(
        "cykafka_topic_lag_records",
        "Records after the committed offsets of the assigned partitions.",
        _lags(_committed_lag),
    ),
    ValueOf(
        "cykafka_topic_stored_lag_records",
        "Records that the application has not read, in the assigned partitions.",
        _lags(_stored_lag),
    ),
)

OF_PARTITION: tuple[ValueOf[Partition], ...] = (
    ValueOf("cykafka_partition_sent_records_total", "Records sent.", "records_sent"),
    ValueOf("cykafka_partition_sent_bytes_total", "Bytes sent.", "bytes_sent"),
    ValueOf("cykafka_partition_received_records_total", "Records received.", "records_received"),
    ValueOf("cykafka_partition_received_bytes_total", "Bytes received.", "bytes_received"),
    ValueOf(
        "cykafka_partition_queue_records",
        "Records that wait in the producer's queue.",
        "queued_records",
    ),
    ValueOf(
        "cykafka_partition_fetched_records",
        "Records that the consumer has fetched and the application has not read.",
        "fetched_records",
    ),
    ValueOf(
        "cykafka_partition_lag_records", "Records after the committed offset.", _committed_lag
    ),
    ValueOf(
        "cykafka_partition_stored_lag_records",
        "Records that the application has not read.",
        _stored_lag,
    ),
    ValueOf(
        "cykafka_partition_committed_offset",
        "The committed offset.",
        lambda it: _known(it.committed_offset),
    ),
    ValueOf(
        "cykafka_partition_high_watermark",
        "The offset after the last record of the partition.",
        lambda it: _known(it.high_watermark),
    ),
)


class WindowSummary(NamedTuple):
    """A metric of a window in the statistics."""

    name: str
    help: str
    label: str
    """what the window belongs to: ``broker`` or ``topic``"""
    units: float
    """window units per metric unit"""


# The window's attribute -> the metric.
WINDOWS = {
    "queue_latency_us": WindowSummary(
        "cykafka_broker_queue_latency_seconds",
        "Time that records wait in the producer's queue.",
        "broker",
        1e6,
    ),
    "outbuf_latency_us": WindowSummary(
        "cykafka_broker_outbuf_latency_seconds",
        "Time that requests wait to be written to the socket.",
        "broker",
        1e6,
    ),
    "rtt_us": WindowSummary(
        "cykafka_broker_rtt_seconds",
        "Time from a request to its response.",
        "broker",
        1e6,
    ),
    "throttle_ms": WindowSummary(
        "cykafka_broker_throttle_seconds",
        "Time that the broker asked the client to wait.",
        "broker",
        1e3,
    ),
    "batch_size": WindowSummary(
        "cykafka_topic_batch_bytes", "Bytes of the batches that were sent.", "topic", 1
    ),
    "batch_count": WindowSummary(
        "cykafka_topic_batch_records", "Records in the batches that were sent.", "topic", 1
    ),
}
