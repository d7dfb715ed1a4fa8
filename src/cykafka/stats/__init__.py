"""librdkafka's statistics as typed objects, and as Prometheus metrics.

librdkafka passes the statistics as JSON to ``stats_cb``, every ``statistics.interval.ms``.
:func:`parse` returns them as :class:`Statistics`; :mod:`cykafka.stats.prometheus` exports them.
Attributes that end in ``_us``, ``_ms`` or ``_s`` are microseconds, milliseconds or seconds; sizes
are bytes. Parsing skips unknown fields and sets missing fields to their defaults.

The module needs the ``metrics`` extra: ``pip install 'cykafka[metrics]'``.
"""

from __future__ import annotations

import re
from json import dumps

try:
    import msgspec
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: pip install 'cykafka[metrics]'") from error

__all__ = [
    "Broker",
    "BrokerPartition",
    "ConsumerGroup",
    "FatalError",
    "Partition",
    "ProducerId",
    "Statistics",
    "Topic",
    "Window",
    "parse",
]


class Window(msgspec.Struct, frozen=True):
    """Measurements since the previous statistics.

    The attribute determines the unit: microseconds for `Broker.rtt_us`, milliseconds for
    `Broker.throttle_ms`, bytes for `Topic.batch_size`, records for `Topic.batch_count`. Without
    measurements all values are 0.
    """

    min: int = 0
    max: int = 0
    mean: int = msgspec.field(name="avg", default=0)
    sum: int = 0
    count: int = msgspec.field(name="cnt", default=0)
    """number of measurements"""
    stddev: int = 0
    p50: int = 0
    p75: int = 0
    p90: int = 0
    p95: int = 0
    p99: int = 0
    p99_99: int = 0
    out_of_range: int = msgspec.field(name="outofrange", default=0)
    """number of measurements that the histogram could not count"""
    histogram_bytes: int = msgspec.field(name="hdrsize", default=0)


class BrokerPartition(msgspec.Struct, frozen=True):
    """A partition that a broker serves."""

    topic: str = ""
    partition: int = -1


class Broker(msgspec.Struct, frozen=True):
    """A connection to a broker. The counters begin at 0 with the client."""

    name: str = ""
    """host, port and id, as in ``kafka-2:9092/2``; or ``GroupCoordinator`` and the like"""
    id: int = msgspec.field(name="nodeid", default=-1)
    """-1 for a bootstrap server"""
    address: str = msgspec.field(name="nodename", default="")
    """host and port; empty for a coordinator that is not known yet"""
    source: str = ""
    """``configured``, ``learned``, ``internal`` or ``logical`` (a coordinator)"""
    state: str = ""
    """``INIT``, ``DOWN``, ``CONNECT``, ``AUTH...``, ``APIVERSION_QUERY`` or ``UP``, for example"""
    state_age_us: int = msgspec.field(name="stateage", default=0)
    """microseconds since the state changed"""
    outbuf_requests: int = msgspec.field(name="outbuf_cnt", default=0)
    """requests that the client has not sent yet"""
    outbuf_records: int = msgspec.field(name="outbuf_msg_cnt", default=0)
    """records in those requests"""
    in_flight_requests: int = msgspec.field(name="waitresp_cnt", default=0)
    """requests that wait for their response"""
    in_flight_records: int = msgspec.field(name="waitresp_msg_cnt", default=0)
    """records in those requests"""
    requests_sent: int = msgspec.field(name="tx", default=0)
    bytes_sent: int = msgspec.field(name="txbytes", default=0)
    send_errors: int = msgspec.field(name="txerrs", default=0)
    retries: int = msgspec.field(name="txretries", default=0)
    """requests that librdkafka sent again"""
    send_idle_us: int = msgspec.field(name="txidle", default=-1)
    """microseconds since the last send on this connection; -1 without a send"""
    request_timeouts: int = msgspec.field(name="req_timeouts", default=0)
    responses_received: int = msgspec.field(name="rx", default=0)
    bytes_received: int = msgspec.field(name="rxbytes", default=0)
    receive_errors: int = msgspec.field(name="rxerrs", default=0)
    unmatched_responses: int = msgspec.field(name="rxcorriderrs", default=0)
    """responses without a request, mostly because the request had timed out"""
    partial_responses: int = msgspec.field(name="rxpartial", default=0)
    """fetch responses that ended within a batch of records"""
    receive_idle_us: int = msgspec.field(name="rxidle", default=-1)
    """microseconds since the last receive on this connection; -1 without a receive"""
    requests: dict[str, int] = msgspec.field(name="req", default_factory=dict)
    """requests sent, by request name"""
    decompression_growths: int = msgspec.field(name="zbuf_grow", default=0)
    """how often a decompression buffer was too small"""
    wakeups: int = 0
    """wake-ups of the thread that serves this broker"""
    connects: int = 0
    """connection attempts, including failed attempts"""
    disconnects: int = 0
    queue_latency_us: Window = msgspec.field(name="int_latency", default_factory=Window)
    """microseconds that records wait in the producer's queue until librdkafka builds a request"""
    outbuf_latency_us: Window = msgspec.field(name="outbuf_latency", default_factory=Window)
    """microseconds that requests wait until librdkafka writes them to the socket"""
    rtt_us: Window = msgspec.field(name="rtt", default_factory=Window)
    """microseconds from a request to its response"""
    throttle_ms: Window = msgspec.field(name="throttle", default_factory=Window)
    """milliseconds that the broker told the client to wait"""
    partitions: dict[str, BrokerPartition] = msgspec.field(name="toppars", default_factory=dict)
    """by ``topic-partition``"""


class Partition(msgspec.Struct, frozen=True):
    """A partition. An unknown offset is -1001, an unknown leader epoch is -1."""

    partition: int = -1
    """-1 holds records whose partition is not chosen yet, because the topic is unknown"""
    broker: int = -1
    """id of the broker that serves it"""
    leader: int = -1
    """id of the leader"""
    desired: bool = False
    """whether the application requested it"""
    unknown: bool = False
    """whether the cluster's metadata lacks it"""
    queued_records: int = msgspec.field(name="msgq_cnt", default=0)
    """records that wait in the producer's queue"""
    queued_bytes: int = msgspec.field(name="msgq_bytes", default=0)
    transmit_records: int = msgspec.field(name="xmit_msgq_cnt", default=0)
    """records ready to be sent; librdkafka 2 always reports 0"""
    transmit_bytes: int = msgspec.field(name="xmit_msgq_bytes", default=0)
    fetched_records: int = msgspec.field(name="fetchq_cnt", default=0)
    """records that the consumer has fetched and the application has not read"""
    fetched_bytes: int = msgspec.field(name="fetchq_size", default=0)
    fetch_state: str = ""
    """``none``, ``stopping``, ``stopped``, ``offset-query``, ``offset-wait`` or ``active``, ..."""
    query_offset: int = -1001
    """the logical offset that the client requested, such as -1 for the end"""
    next_offset: int = -1001
    """the next offset to fetch"""
    app_offset: int = -1001
    """the offset after the last record that the application read"""
    stored_offset: int = -1001
    """the offset to commit next"""
    stored_leader_epoch: int = -1
    committed_offset: int = -1001
    committed_leader_epoch: int = -1
    eof_offset: int = -1001
    """the partition end that was last reported"""
    low_watermark: int = msgspec.field(name="lo_offset", default=-1001)
    high_watermark: int = msgspec.field(name="hi_offset", default=-1001)
    last_stable_offset: int = msgspec.field(name="ls_offset", default=-1001)
    lag: int = msgspec.field(name="consumer_lag", default=-1)
    """records after the committed offset, up to the high watermark, or with
    ``isolation.level=read_committed`` up to the last stable offset; -1 if unknown"""
    stored_lag: int = msgspec.field(name="consumer_lag_stored", default=-1)
    """the lag after the stored offset: records the application has not read; -1 if unknown"""
    leader_epoch: int = -1
    records_sent: int = msgspec.field(name="txmsgs", default=0)
    bytes_sent: int = msgspec.field(name="txbytes", default=0)
    records_received: int = msgspec.field(name="rxmsgs", default=0)
    bytes_received: int = msgspec.field(name="rxbytes", default=0)
    records: int = msgspec.field(name="msgs", default=0)
    """records that the application produced (including unsent records) or received"""
    outdated_records: int = msgspec.field(name="rx_ver_drops", default=0)
    """fetched records that a seek or a rebalance made useless"""
    in_flight_records: int = msgspec.field(name="msgs_inflight", default=0)
    """records on their way to or from the broker"""
    next_ack_sequence: int = msgspec.field(name="next_ack_seq", default=0)
    """the next sequence number that the broker acknowledges; for idempotent producers"""
    next_error_sequence: int = msgspec.field(name="next_err_seq", default=0)
    acked_record_id: int = msgspec.field(name="acked_msgid", default=0)


class Topic(msgspec.Struct, frozen=True):
    """A topic that the client uses."""

    topic: str = ""
    age_ms: int = msgspec.field(name="age", default=0)
    """milliseconds since the client first used it"""
    metadata_age_ms: int = msgspec.field(name="metadata_age", default=0)
    """milliseconds since its metadata arrived"""
    batch_size: Window = msgspec.field(name="batchsize", default_factory=Window)
    """bytes per sent batch"""
    batch_count: Window = msgspec.field(name="batchcnt", default_factory=Window)
    """records per sent batch"""
    partitions: dict[int, Partition] = msgspec.field(default_factory=dict)


class ConsumerGroup(msgspec.Struct, frozen=True):
    """The consumer's side of its group. The statistics lack the group's name."""

    state: str = ""
    """``init``, ``wait-coord`` or ``up``, for example"""
    state_age_ms: int = msgspec.field(name="stateage", default=0)
    join_state: str = ""
    """``init``, ``wait-join``, ``wait-assign-call`` or ``steady``, for example"""
    rebalance_age_ms: int = msgspec.field(name="rebalance_age", default=0)
    """milliseconds since the last rebalance; 0 before the first"""
    rebalances: int = msgspec.field(name="rebalance_cnt", default=0)
    """assignments and revocations since the client's creation"""
    rebalance_reason: str = ""
    assigned_partitions: int = msgspec.field(name="assignment_size", default=0)


class ProducerId(msgspec.Struct, frozen=True):
    """The state of an idempotent or transactional producer."""

    idempotence_state: str = msgspec.field(name="idemp_state", default="")
    """``Init``, ``WaitPID`` or ``Assigned``, for example"""
    idempotence_state_age_ms: int = msgspec.field(name="idemp_stateage", default=0)
    transaction_state: str = msgspec.field(name="txn_state", default="")
    """``Init``, ``Ready``, ``InTransaction``, ``CommittingTransaction`` or ``FatalError``, ..."""
    transaction_state_age_ms: int = msgspec.field(name="txn_stateage", default=0)
    may_produce: bool = msgspec.field(name="txn_may_enq", default=False)
    """whether a transaction is open"""
    producer_id: int = -1
    """-1 before the broker assigns one"""
    producer_epoch: int = -1
    assignments: int = msgspec.field(name="epoch_cnt", default=0)
    """number of producer ids that the broker has assigned to this client"""


class FatalError(msgspec.Struct, frozen=True):
    """The error that made the client unusable."""

    error: str = ""
    reason: str = ""
    count: int = msgspec.field(name="cnt", default=0)


class Statistics(msgspec.Struct, frozen=True):
    """A client's statistics. The counters begin at 0 with the client."""

    name: str = ""
    """``client.id``, kind and number, as in ``orders#producer-1``; unique in a process"""
    client_id: str = ""
    type: str = ""
    """``producer`` or ``consumer``"""
    clock_us: int = msgspec.field(name="ts", default=0)
    """microseconds on a monotonic clock when librdkafka created the statistics"""
    time_s: int = msgspec.field(name="time", default=0)
    """seconds since the epoch"""
    age_us: int = msgspec.field(name="age", default=0)
    """microseconds since the client's creation"""
    waiting_callbacks: int = msgspec.field(name="replyq", default=0)
    """callbacks and events that wait for ``poll()``"""
    queued_records: int = msgspec.field(name="msg_cnt", default=0)
    """records in the producer's queues and in flight"""
    queued_bytes: int = msgspec.field(name="msg_size", default=0)
    max_queued_records: int = msgspec.field(name="msg_max", default=0)
    """``queue.buffering.max.messages``"""
    max_queued_bytes: int = msgspec.field(name="msg_size_max", default=0)
    """``queue.buffering.max.kbytes``, in bytes"""
    requests_sent: int = msgspec.field(name="tx", default=0)
    bytes_sent: int = msgspec.field(name="tx_bytes", default=0)
    responses_received: int = msgspec.field(name="rx", default=0)
    bytes_received: int = msgspec.field(name="rx_bytes", default=0)
    records_sent: int = msgspec.field(name="txmsgs", default=0)
    record_bytes_sent: int = msgspec.field(name="txmsg_bytes", default=0)
    """bytes of those records, including framing"""
    records_received: int = msgspec.field(name="rxmsgs", default=0)
    record_bytes_received: int = msgspec.field(name="rxmsg_bytes", default=0)
    metadata_topics: int = msgspec.field(name="metadata_cache_cnt", default=0)
    """topics in the metadata cache"""
    brokers: dict[str, Broker] = msgspec.field(default_factory=dict)
    """by name"""
    topics: dict[str, Topic] = msgspec.field(default_factory=dict)
    """by name"""
    group: ConsumerGroup | None = msgspec.field(name="cgrp", default=None)
    """None for a producer, and for a consumer without ``group.id``"""
    producer_id: ProducerId | None = msgspec.field(name="eos", default=None)
    """None unless the producer is idempotent or transactional"""
    fatal: FatalError | None = None


_decoder = msgspec.json.Decoder(Statistics)
# librdkafka does not escape these texts: client.id and error texts.
_RAW_TEXT = re.compile(
    r'("(?:name|client_id|rebalance_reason|error|reason)": ")(.*?)'
    r'(?=", "(?:client_id|type|assignment_size|reason|cnt)": )',
    re.DOTALL,
)


def parse(json: str | bytes) -> Statistics:
    """Parse the statistics that ``stats_cb`` receives.

    Parameters
    ----------
    json : str or bytes
        librdkafka's JSON. Unknown fields are skipped. librdkafka does not escape quotation marks
        in ``client.id`` and in error texts; this function still reads them.

    Returns
    -------
    Statistics

    Raises
    ------
    ValueError
        The text is not JSON, or a field has the wrong type; the error names the field.
    """
    try:
        return _decoder.decode(json)
    except msgspec.MsgspecError as error:
        try:
            return _decoder.decode(_escaped(json))
        except msgspec.MsgspecError:
            raise ValueError(f"these are not librdkafka's statistics: {error}") from error


def _escaped(json: str | bytes) -> str:
    text = json if isinstance(json, str) else json.decode("utf-8", "replace")
    return _RAW_TEXT.sub(lambda found: found[1] + dumps(found[2])[1:-1], text)
