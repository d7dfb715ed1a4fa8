"""Watermarks and lag of many partitions at once."""
from collections import namedtuple

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport (
    CK_CALL_METADATA,
    ck_call_leave,
    ck_call_t,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_OFFSET_BEGINNING,
    RD_KAFKA_OFFSET_END,
    RD_KAFKA_OFFSET_INVALID,
    RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH,
    RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
    RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
    RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH,
    RD_KAFKA_RESP_ERR__NOENT,
    RD_KAFKA_RESP_ERR__TIMED_OUT,
    RD_KAFKA_RESP_ERR__TRANSPORT,
    rd_kafka_queue_destroy,
    rd_kafka_queue_new,
    rd_kafka_queue_t,
    rd_kafka_resp_err_t,
    rd_kafka_t,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
    rd_kafka_topic_partition_t,
)
from cykafka._core.clib.librdkafka_admin cimport (
    RD_KAFKA_ADMIN_OP_LISTOFFSETS,
    RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED,
    rd_kafka_AdminOptions_destroy,
    rd_kafka_AdminOptions_new,
    rd_kafka_AdminOptions_set_isolation_level,
    rd_kafka_AdminOptions_set_opaque,
    rd_kafka_AdminOptions_set_request_timeout,
    rd_kafka_AdminOptions_t,
    rd_kafka_ListOffsets,
    rd_kafka_ListOffsetsResultInfo_t,
    rd_kafka_ListOffsetsResultInfo_topic_partition,
    rd_kafka_ListOffsets_result_infos,
    rd_kafka_event_destroy,
    rd_kafka_event_error,
    rd_kafka_event_error_string,
    rd_kafka_event_opaque,
    rd_kafka_event_t,
    rd_kafka_queue_poll,
)
from cykafka._core.client.call cimport run
from cykafka._core.client.handle cimport Handle, copied, new_call
from cykafka._core.common.arguments cimport MAX_REQUEST_MS, SLICE
from cykafka._core.common.config cimport property_of
from cykafka._core.common.errors cimport check_doing, check_error, error_from
from cykafka._core.common.partition cimport TopicPartition, c_name, partitions_to
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.offsets cimport assignment, positions

from cykafka._core.common.naming import public
from cykafka._core.consume.offsets import committed


cdef enum:
    LEADERS_S = 5

# The errors of partitions that may have a leader by now.
_NO_LEADER = (<int>RD_KAFKA_RESP_ERR__NOENT, <int>RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
              <int>RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
              <int>RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH,
              <int>RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH)


@public("cykafka")
class Watermarks(namedtuple("Watermarks", ("low", "high"))):
    """The ends of a partition: its first offset, and the offset after its last."""

    __slots__ = ()


cdef dict watermarks(Handle handle, object partitions, int64_t deadline):
    """The first offsets of partitions (None: the assigned ones), and those after their last."""
    if partitions is None:
        partitions = assignment(handle)
    # Check the partitions, and take each once.
    rd_kafka_topic_partition_list_destroy(partitions_to(partitions, "partitions"))
    keys = [TopicPartition(each.topic, each.partition) for each in dict.fromkeys(partitions)]
    if not keys:
        return {}
    found = _ask_watermarks(handle, keys, deadline)
    leaderless = {key.topic for key in keys if key.error in _NO_LEADER}
    if leaderless:
        # librdkafka caches metadata for minutes, for example that a new topic has no leaders
        # yet.
        for topic in leaderless:
            left = LEADERS_S
            if deadline >= 0:
                left = min(LEADERS_S, (deadline - ck_runtime_now_ms()) / 1e3)
            if left <= 0:
                return found
            if _refresh(handle, topic, <int64_t>(left * 1e3)):
                return found  # no broker answers: return the known watermarks
        found = _ask_watermarks(handle, keys, deadline)
    return found


cdef int _refresh(Handle handle, str topic, int64_t ms) except -1:
    """Request a topic's metadata, which librdkafka then caches. Returns whether that failed."""
    cdef ck_call_t *call = new_call(CK_CALL_METADATA)
    try:
        call.topic = copied(c_name(topic))
        handle.ask(call, ms)
        return 1 if call.err else 0
    finally:
        ck_call_leave(call)


cdef dict _ask_watermarks(Handle handle, list keys, int64_t deadline):
    cdef TopicPartition key
    first, last = _list_offsets(handle, keys, deadline)
    # librdkafka fails the whole request if no partition has a leader.
    unknown = None, error_from(RD_KAFKA_RESP_ERR__NOENT, "No broker leads this partition")
    ends = {}
    for key in keys:
        low, key.error = first.get(key, unknown)
        high, error = last.get(key, unknown)
        if key.error is None:
            key.error = error
        if key.error is None and (low < 0 or high < 0):
            # If a broker's connection breaks, librdkafka omits its partitions from the result.
            key.error = error_from(RD_KAFKA_RESP_ERR__TRANSPORT, "No answer from the leader")
        if key.error is not None:
            low = high = <int64_t>RD_KAFKA_OFFSET_INVALID
        ends[key] = Watermarks(low, high)
    return ends


cdef list _list_offsets(Handle handle, list partitions, int64_t deadline):
    """Two dicts by partition: of (first offset, error), and of (last offset, error)."""
    cdef rd_kafka_topic_partition_list_t *c_partitions
    cdef rd_kafka_AdminOptions_t *options
    cdef rd_kafka_queue_t *replies
    cdef rd_kafka_t *rk
    cdef char errstr[256]
    cdef int64_t specs[2]
    cdef int which, i, ms
    cdef list found = [None, None]
    cdef bint closing = handle._role.closes_later
    specs[0] = RD_KAFKA_OFFSET_BEGINNING
    specs[1] = RD_KAFKA_OFFSET_END
    rk = handle.enter()
    try:
        # A signal handler may run here and close the consumer.
        handle._role.go_inside()
        with nogil:
            replies = rd_kafka_queue_new(rk)
        try:
            ms = MAX_REQUEST_MS if deadline < 0 else <int>max(
                0, min(deadline - ck_runtime_now_ms(), MAX_REQUEST_MS))
            for which in range(2):
                c_partitions = partitions_to(partitions, "partitions")
                for i in range(c_partitions.cnt):
                    c_partitions.elems[i].offset = specs[which]
                options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_LISTOFFSETS)
                try:
                    rd_kafka_AdminOptions_set_opaque(options, <void *><size_t>which)
                    rd_kafka_AdminOptions_set_request_timeout(options, ms, errstr, sizeof(errstr))
                    if property_of(rk, "isolation.level") == "read_committed":
                        check_error(rd_kafka_AdminOptions_set_isolation_level(
                            options, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED))
                    with nogil:
                        rd_kafka_ListOffsets(rk, c_partitions, options, replies)
                finally:
                    rd_kafka_AdminOptions_destroy(options)
                    rd_kafka_topic_partition_list_destroy(c_partitions)
            _await_offsets(handle, replies, found, deadline, closing)
        finally:
            # As in commit_and_wait().
            if handle._generation == ck_runtime_generation:
                with nogil:
                    rd_kafka_queue_destroy(replies)
            handle._role.come_out()
    finally:
        handle.leave()
        if handle._role.closes_later and not closing:
            handle._role.after_call(handle)
    return found


cdef int _await_offsets(Handle handle, rd_kafka_queue_t *replies,
                        list found, int64_t deadline, bint closing) except -1:
    cdef rd_kafka_event_t *event
    cdef const rd_kafka_ListOffsetsResultInfo_t **infos
    cdef const rd_kafka_topic_partition_t *rktpar
    cdef rd_kafka_resp_err_t err
    cdef size_t cnt = 0, i, which
    cdef int ms
    while None in found:
        ms = SLICE
        if deadline >= 0:
            ms = <int>min(deadline - ck_runtime_now_ms(), SLICE)
            if ms < 0:
                check_doing(RD_KAFKA_RESP_ERR__TIMED_OUT, "Failed to get watermarks")
        with nogil:
            event = rd_kafka_queue_poll(replies, ms)
        try:
            PyErr_CheckSignals()
            if handle._role.closes_later and not closing:
                return 0  # closed by a signal handler: after_call() closes, and raises
            handle.check_open()  # another thread closes: it must not wait for the broker
            if event is NULL:
                continue
            which = <size_t>rd_kafka_event_opaque(event)
            err = rd_kafka_event_error(event)
            if err == RD_KAFKA_RESP_ERR__NOENT:
                found[which] = {}
                continue
            if err:
                words = (<bytes>rd_kafka_event_error_string(event)).decode("utf-8", "replace")
                check_doing(err, f"Failed to get watermarks: {words}")
            infos = rd_kafka_ListOffsets_result_infos(event, &cnt)
            offsets = {}
            for i in range(cnt):
                rktpar = rd_kafka_ListOffsetsResultInfo_topic_partition(infos[i])
                offsets[TopicPartition(rktpar.topic.decode(), rktpar.partition)] = (
                    rktpar.offset, error_from(rktpar.err, NULL) if rktpar.err else None)
            found[which] = offsets
        finally:
            with nogil:
                rd_kafka_event_destroy(event)
    return 0


cdef dict lag(Handle handle, Backlog backlog, object partitions, int64_t deadline):
    """The number of offsets between the next offset to read and the end, by partition."""
    cdef TopicPartition key, tp
    cdef dict ends = watermarks(handle, partitions, deadline)
    if not ends:
        return {}
    following = positions(handle, backlog, list(ends))
    rest = [each for each in following if each.offset < 0]
    if rest:
        left = None if deadline < 0 else max(deadline - ck_runtime_now_ms(), 0) / 1e3
        following.extend(run(committed(handle, rest, left)))
    reset = handle.property("auto.offset.reset")
    result = {}
    # The committed offsets come later in the list, and replace missing positions.
    offsets = {(each.topic, each.partition): each for each in following}
    for key, (low, high) in ends.items():
        tp = offsets[key.topic, key.partition]
        if key.error is None and tp.offset < 0:
            key.error = tp.error
        if key.error is not None:
            result[key] = None
        elif tp.offset >= 0:
            result[key] = max(high - max(tp.offset, low), 0)
        elif reset in ("smallest", "earliest", "beginning"):
            result[key] = high - low
        else:
            result[key] = 0 if reset in ("largest", "latest", "end") else None
    return result
