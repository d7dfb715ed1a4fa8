"""Watermarks and lag for many partitions at once."""
from collections import namedtuple

from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.call cimport Call, new_step
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.requests cimport copied
from cykafka._core.common.arguments cimport MAX_REQUEST_MS, deadline_after, timeout_ms
from cykafka._core.common.errors cimport check_error, error_from
from cykafka._core.common.partition cimport (
    TopicPartition,
    c_name,
    partitions_from,
    partitions_to,
)
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.offsets cimport assignment, positions

from cykafka._core.common.naming import public
from cykafka._core.consume.offsets import committed


cdef enum:
    # The longest wait for a topic's metadata, ms.
    LEADERS_MS = 5000

# The errors of partitions that may have a leader by now.
_NO_LEADER = (<int>RD_KAFKA_RESP_ERR__NOENT, <int>RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
              <int>RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
              <int>RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH,
              <int>RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH)


@public("cykafka")
class Watermarks(namedtuple("Watermarks", ("low", "high"))):
    """A partition's first offset, and the offset after its last."""

    __slots__ = ()


def watermarks(Handle handle not None, partitions, timeout):
    """An operation: each partition's Watermarks (None: those of the assigned partitions);
    timeout in s."""
    cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
    if partitions is None:
        partitions = assignment(handle)
    # Check the partitions, and drop duplicates.
    rd_kafka_topic_partition_list_destroy(partitions_to(partitions, "partitions"))
    keys = [TopicPartition(item.topic, item.partition) for item in dict.fromkeys(partitions)]
    return _watermarks(handle, keys, deadline)


def _watermarks(Handle handle, list keys, int64_t deadline):
    cdef Call call
    if not keys:
        return {}
    call = _ends(handle, keys, deadline)
    yield call
    found = _found(call, keys)
    leaderless = {key.topic for key in keys if key.error in _NO_LEADER}
    if not leaderless:
        return found
    # librdkafka caches metadata for minutes, for example that a new topic has no leaders yet.
    for topic in leaderless:
        call = new_step(handle, CK_CALL_METADATA, _left_ms(deadline, LEADERS_MS))
        if call._ms == 0:
            return found
        call.c.topic = copied(c_name(topic))
        yield call
        if call.c.err:
            return found  # no broker responds: return the known watermarks
    call = _ends(handle, keys, deadline)
    yield call
    return _found(call, keys)


cdef Call _ends(Handle handle, list keys, int64_t deadline):
    """Return the call that requests both ends of the partitions."""
    cdef Call call = new_step(handle, CK_CALL_ENDS, _left_ms(deadline, MAX_REQUEST_MS))
    call.c.partitions = partitions_to(keys, "partitions")
    call.c.committed_only = handle.property("isolation.level") == "read_committed"
    return call


cdef int64_t _left_ms(int64_t deadline, int64_t most) noexcept:
    return most if deadline < 0 else max(0, min(most, deadline - ck_runtime_now_ms()))


cdef dict _found(Call call, list keys):
    """Return the Watermarks by key, and set the keys' errors."""
    cdef TopicPartition key
    cdef rd_kafka_error_t *failed = call.c.error
    call.c.error = NULL
    check_error(failed)
    cdef dict first = _by_partition(call.c.ends[0])
    cdef dict last = _by_partition(call.c.ends[1])
    # librdkafka fails the whole request if no partition has a leader.
    unknown = (RD_KAFKA_OFFSET_INVALID,
               error_from(RD_KAFKA_RESP_ERR__NOENT, "No broker leads this partition"))
    ends = {}
    for key in keys:
        low, key.error = first.get((key.topic, key.partition), unknown)
        high, error = last.get((key.topic, key.partition), unknown)
        if key.error is None:
            key.error = error
        if key.error is None and (low < 0 or high < 0):
            # If a broker's connection breaks, librdkafka omits its partitions from the result.
            key.error = error_from(RD_KAFKA_RESP_ERR__TRANSPORT, "No response from the leader")
        if key.error is not None:
            low = high = <int64_t>RD_KAFKA_OFFSET_INVALID
        ends[key] = Watermarks(low, high)
    return ends


cdef dict _by_partition(const rd_kafka_topic_partition_list_t *ends):
    """Return each partition's offset and error."""
    return {(item.topic, item.partition): (item.offset, item.error)
            for item in partitions_from(ends)}


def lag(Handle handle not None, Backlog backlog not None, partitions, timeout):
    """An operation: the number of offsets between the next offset to read and the end, by
    partition; timeout in s."""
    cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
    cdef TopicPartition key, tp
    ends = yield from watermarks(handle, partitions, timeout)
    if not ends:
        return {}
    following = positions(handle, backlog, list(ends))
    rest = [item for item in following if item.offset < 0]
    if rest:
        left = None if deadline < 0 else max(deadline - ck_runtime_now_ms(), 0) / 1e3
        following.extend((yield from committed(handle, rest, left)))
    reset = handle.property("auto.offset.reset")
    result = {}
    # The committed offsets come later in the list, and replace missing positions.
    offsets = {(item.topic, item.partition): item for item in following}
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
