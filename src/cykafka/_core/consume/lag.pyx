"""Lag: where partitions begin and end, and how far reading is behind, for many of them at once."""
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
    RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
    RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
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
from cykafka._core.client.client cimport copied, new_call
from cykafka._core.common.arguments cimport (
    MAX_REQUEST_MS,
    MIN_LEADERS_MS,
    SLICE,
    deadline_after,
    timeout_ms,
)
from cykafka._core.common.config cimport property_of
from cykafka._core.common.errors cimport check_doing, check_error, error_from, raise_err
from cykafka._core.common.partition cimport TopicPartition, c_name, partitions_to
from cykafka._core.consume.offsets cimport Offsets

from cykafka._core.common.naming import public


cdef enum:
    LEADERS_S = 5

# Of partitions that may have a leader by now.
_NO_LEADER = (<int>RD_KAFKA_RESP_ERR__NOENT, <int>RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
              <int>RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION)


@public("cykafka")
class Watermarks(namedtuple("Watermarks", ("low", "high"))):
    """The ends of a partition: its first offset, and the one behind its last."""

    __slots__ = ()


cdef class Lag(Offsets):
    """The part of a consumer that knows how far it is behind."""

    def watermarks(self, partitions=None, timeout=None):
        """The first offsets of partitions, and the offsets after their last.

        Makes two requests per broker, whatever the number of partitions; ``get_watermark_offsets``
        makes two per partition.

        Parameters
        ----------
        partitions : list of TopicPartition, optional
            Assigned or not; those assigned by default.
        timeout : float, optional
            Seconds; an hour by default. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        dict of TopicPartition to Watermarks
            ``low`` and ``high`` of each. High is the last stable offset, unless
            ``isolation.level`` is ``read_uncommitted``. If the request failed, the key's ``error``
            says why and both are ``OFFSET_INVALID``.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT``, or why no broker could be reached.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if partitions is None:
            partitions = self.assignment()
        # Checked, and each of them once.
        rd_kafka_topic_partition_list_destroy(partitions_to(partitions, "partitions"))
        keys = [TopicPartition(each.topic, each.partition)
                for each in dict.fromkeys(partitions)]
        if not keys:
            return {}
        watermarks = self._ask_watermarks(keys, deadline)
        leaderless = {key.topic for key in keys if key.error in _NO_LEADER}
        if leaderless:
            # librdkafka caches metadata for minutes, for example that a new topic has no leaders
            # yet.
            for topic in leaderless:
                left = LEADERS_S
                if deadline >= 0:
                    left = min(LEADERS_S, (deadline - ck_runtime_now_ms()) / 1e3)
                if left <= 0:
                    return watermarks
                if self._refresh(topic, <int64_t>(left * 1e3)):
                    return watermarks  # no broker answers: what is known must do
            watermarks = self._ask_watermarks(keys, deadline)
        return watermarks

    cdef int _refresh(self, str topic, int64_t ms) except -1:
        """Ask for a topic's metadata, which librdkafka then knows. Returns whether that failed."""
        cdef ck_call_t *call = new_call(CK_CALL_METADATA)
        try:
            call.topic = copied(c_name(topic))
            self.ask(call, ms)
            return 1 if call.err else 0
        finally:
            ck_call_leave(call)

    cdef dict _ask_watermarks(self, list keys, int64_t deadline):
        cdef TopicPartition key
        first, last = self._list_offsets(keys, deadline)
        # librdkafka gives up when no partition of all has a leader.
        unknown = None, error_from(RD_KAFKA_RESP_ERR__NOENT, "No broker leads this partition")
        watermarks = {}
        for key in keys:
            low, key.error = first.get(key, unknown)
            high, error = last.get(key, unknown)
            if key.error is None:
                key.error = error
            if key.error is None and (low < 0 or high < 0):
                # librdkafka leaves out what a broker does not answer whose connection breaks.
                key.error = error_from(RD_KAFKA_RESP_ERR__TRANSPORT, "No answer from the leader")
            if key.error is not None:
                low = high = <int64_t>RD_KAFKA_OFFSET_INVALID
            watermarks[key] = Watermarks(low, high)
        return watermarks

    cdef list _list_offsets(self, list partitions, int64_t deadline):
        """Two dicts by partition, of (first offset, error) and of (last one, error)."""
        cdef rd_kafka_topic_partition_list_t *c_partitions
        cdef rd_kafka_AdminOptions_t *options
        cdef rd_kafka_queue_t *replies
        cdef rd_kafka_t *rk
        cdef char errstr[256]
        cdef int64_t specs[2]
        cdef int which, i, ms
        cdef list found = [None, None]
        cdef bint closing = self._close_after
        specs[0] = RD_KAFKA_OFFSET_BEGINNING
        specs[1] = RD_KAFKA_OFFSET_END
        rk = self.enter()
        try:
            # A signal handler may run in here, and close.
            self.go_inside()
            with nogil:
                replies = rd_kafka_queue_new(rk)
            try:
                ms = MAX_REQUEST_MS if deadline < 0 else <int>max(
                    MIN_LEADERS_MS, min(deadline - ck_runtime_now_ms(), MAX_REQUEST_MS))
                for which in range(2):
                    c_partitions = partitions_to(partitions, "partitions")
                    for i in range(c_partitions.cnt):
                        c_partitions.elems[i].offset = specs[which]
                    options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_LISTOFFSETS)
                    try:
                        rd_kafka_AdminOptions_set_opaque(options, <void *><size_t>which)
                        rd_kafka_AdminOptions_set_request_timeout(options, ms, errstr,
                                                                  sizeof(errstr))
                        if property_of(rk, "isolation.level") == "read_committed":
                            check_error(rd_kafka_AdminOptions_set_isolation_level(
                                options, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED))
                        with nogil:
                            rd_kafka_ListOffsets(rk, c_partitions, options, replies)
                    finally:
                        rd_kafka_AdminOptions_destroy(options)
                        rd_kafka_topic_partition_list_destroy(c_partitions)
                self._await_offsets(replies, found, deadline, closing)
            finally:
                # As in _commit_and_wait().
                if self._generation == ck_runtime_generation:
                    with nogil:
                        rd_kafka_queue_destroy(replies)
                self.come_out()
        finally:
            self.leave()
            if self._close_after and not closing:
                self.after_call()
        return found

    cdef int _await_offsets(self, rd_kafka_queue_t *replies, list found, int64_t deadline,
                            bint closing) except -1:
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
                if self._close_after and not closing:
                    return 0  # by the signal's handler: after_call() closes, and says so
                if self._open_in != ck_runtime_generation:
                    self.refuse()  # another thread closes: it is not to wait for the broker
                if event is NULL:
                    continue
                which = <size_t>rd_kafka_event_opaque(event)
                err = rd_kafka_event_error(event)
                if err == RD_KAFKA_RESP_ERR__NOENT:
                    found[which] = {}
                    continue
                if err:
                    words = (<bytes>rd_kafka_event_error_string(event)).decode("utf-8", "replace")
                    raise_err(err, f"Failed to get watermarks: {words}")
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

    def lag(self, partitions=None, timeout=None):
        """The number of offsets between the next one to read and the end.

        Parameters
        ----------
        partitions : list of TopicPartition, optional
            Assigned or not; those assigned by default.
        timeout : float, optional
            Seconds for the whole call; an hour by default. Ctrl-C is noticed while waiting for the
            watermarks.

        Returns
        -------
        dict of TopicPartition to (int or None)
            ``high - next``, with high as in :meth:`watermarks`. Next is the position after the
            last message handed over, or else the group's committed offset, or else the offset
            where ``auto.offset.reset`` begins. Next is at least ``low``, because deleted records
            cannot be read. None if next is unknown: the key's ``error`` says why, or
            ``auto.offset.reset`` is ``error``.

        Raises
        ------
        KafkaException
            Those of ``watermarks`` and ``committed``.

        Notes
        -----
        Offsets are counted, not records: transaction markers and compacted records count as well.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef TopicPartition key, tp
        watermarks = self.watermarks(partitions, timeout)
        if not watermarks:
            return {}
        following = self.position(list(watermarks))
        rest = [each for each in following if each.offset < 0]
        if rest:
            left = None if deadline < 0 else max(deadline - ck_runtime_now_ms(), 0) / 1e3
            following.extend(self.committed(rest, left))
        reset = self.property("auto.offset.reset")
        lag = {}
        # Of two, the later one: the committed offset, where there was no position.
        offsets = {(each.topic, each.partition): each for each in following}
        for key, (low, high) in watermarks.items():
            tp = offsets[key.topic, key.partition]
            if key.error is None and tp.offset < 0:
                key.error = tp.error
            if key.error is not None:
                lag[key] = None
            elif tp.offset >= 0:
                lag[key] = max(high - max(tp.offset, low), 0)
            elif reset in ("smallest", "earliest", "beginning"):
                lag[key] = high - low
            else:
                lag[key] = 0 if reset in ("largest", "latest", "end") else None
        return lag
