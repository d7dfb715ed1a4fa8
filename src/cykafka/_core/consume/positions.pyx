"""Positions: the assignment, where reading is, and the offsets that brokers tell."""
from libc.stdint cimport int32_t, int64_t

from cykafka._core.clib.csrc cimport (
    CK_CALL_COMMITTED,
    CK_CALL_SEEK,
    CK_CALL_WATERMARKS,
    ck_batch_t,
    ck_call_kind_t,
    ck_call_leave,
    ck_call_t,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport (
    rd_kafka_assignment,
    rd_kafka_error_t,
    rd_kafka_get_watermark_offsets,
    rd_kafka_position,
    rd_kafka_resp_err_t,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
)
from cykafka._core.client.handle cimport Handle, copied, new_call
from cykafka._core.common.arguments cimport timeout_ms
from cykafka._core.common.errors cimport check_doing, check_error
from cykafka._core.common.partition cimport (
    TopicPartition,
    c_name,
    partitions_from,
    partitions_to,
)
from cykafka._core.consume.backlog cimport Backlog

cdef enum:
    # librdkafka's own thread answers a seek at once, unless it has forgotten the partition; ms.
    SEEK_MS = 5000


cdef int on_list(Handle handle, list_call_t call, rd_kafka_topic_partition_list_t *rktparlist,
                 str doing) except -1:
    """Call a librdkafka function with a list, which stays the caller's. An exception begins
    with the text `doing`."""
    cdef rd_kafka_resp_err_t err
    rk = handle.enter()
    with nogil:
        err = call(rk, rktparlist)
    handle.leave()
    check_doing(err, doing)
    return 0


cdef int on_list_error(Handle handle, list_error_call_t call,
                       const rd_kafka_topic_partition_list_t *rktparlist) except -1:
    """As on_list, for calls that say themselves what they could not do."""
    cdef rd_kafka_error_t *error
    rk = handle.enter()
    with nogil:
        error = call(rk, rktparlist)
    handle.leave()
    check_error(error)
    return 0


cdef list assignment(Handle handle):
    """The partitions assigned now."""
    cdef rd_kafka_topic_partition_list_t *c_partitions = NULL
    cdef rd_kafka_resp_err_t err
    rk = handle.enter()
    with nogil:
        err = rd_kafka_assignment(rk, &c_partitions)
    handle.leave()
    check_doing(err, "Failed to get assignment")
    return taken(c_partitions)


cdef list positions(Handle handle, Backlog backlog, object partitions):
    """The offsets behind the last messages handed over: new TopicPartitions."""
    cdef int i
    c_partitions = partitions_to(partitions, "partitions")
    try:
        on_list(handle, rd_kafka_position, c_partitions, "Failed to get position")
        # librdkafka counts what was gathered, and will be handed over, already.
        for i in range(c_partitions.cnt):
            backlog.before_gathered(&c_partitions.elems[i])
        return partitions_from(c_partitions)
    finally:
        rd_kafka_topic_partition_list_destroy(c_partitions)


cdef list ask_offsets(Handle handle, ck_call_kind_t kind, object partitions, object timeout,
                      str doing):
    """Let the brokers fill in the offsets of a list; returns a new list of TopicPartition."""
    cdef int64_t ms = timeout_ms(timeout, "timeout")
    cdef ck_call_t *call = new_call(kind)
    try:
        call.partitions = partitions_to(partitions, "partitions")
        handle.ask(call, ms)
        check_doing(call.err, doing)
        return partitions_from(call.partitions)
    finally:
        ck_call_leave(call)


cdef list committed(Handle handle, object partitions, object timeout):
    """The group's committed offsets."""
    return ask_offsets(handle, CK_CALL_COMMITTED, partitions, timeout,
                       "Failed to get committed offsets")


cdef tuple watermark_offsets(Handle handle, object partition, object timeout, bint cached):
    """Low and high of one partition."""
    cdef int64_t low = 0, high = 0
    cdef rd_kafka_resp_err_t err
    cdef const char *topic
    cdef int32_t number
    cdef ck_call_t *call
    cdef int64_t ms = timeout_ms(timeout, "timeout")
    if not isinstance(partition, TopicPartition):
        raise TypeError(
            f"partition: expected a TopicPartition, got {type(partition).__name__}")
    name = (<TopicPartition>partition).topic  # held here: without the GIL it may get another
    topic = c_name(name)
    number = (<TopicPartition>partition).partition
    if cached:
        rk = handle.enter()
        with nogil:
            err = rd_kafka_get_watermark_offsets(rk, topic, number, &low, &high)
        handle.leave()
        check_doing(err, "Failed to get watermark offsets")
        return (low, high)
    call = new_call(CK_CALL_WATERMARKS)
    try:
        call.topic = copied(topic)
        call.partition = number
        handle.ask(call, ms)
        check_doing(call.err, "Failed to get watermark offsets")
        return (call.low, call.high)
    finally:
        ck_call_leave(call)


cdef list seek(Handle handle, Backlog backlog, list partitions):
    """Seek to the offsets of the partitions. Returns a KafkaError or None for each."""
    cdef rd_kafka_error_t *error
    cdef ck_batch_t *aside = NULL
    cdef bint started = False
    cdef ck_call_t *call = new_call(CK_CALL_SEEK)
    try:
        call.partitions = partitions_to(partitions, "partition")
        # What is gathered now was fetched before the seek. What another thread gathers
        # meanwhile may come after it.
        aside = backlog.new_batch(1)
        backlog.take_out(call.partitions, aside)
        handle.start_call(call, SEEK_MS)
        started = True
        handle.await_call(call)
        error = call.error
        call.error = NULL
        check_error(error)
        outcomes = partitions_from(call.partitions)
        c_done = partitions_to([each for each in outcomes if each.error is None], "partition")
        backlog.forget(aside, c_done)
        rd_kafka_topic_partition_list_destroy(c_done)
        return [each.error for each in outcomes]
    except:
        # librdkafka still seeks. In a child that a signal handler has forked the messages are
        # the parent's.
        if started and handle._generation == ck_runtime_generation:
            backlog.forget(aside, call.partitions)
        raise
    finally:
        # What was fetched of a partition where the seek failed is still to be handed over.
        if aside is not NULL:
            backlog.end_batch(handle, aside)
        ck_call_leave(call)


cdef list taken(rd_kafka_topic_partition_list_t *c_partitions):
    """A copy of librdkafka's list, which is destroyed."""
    try:
        return partitions_from(c_partitions)
    finally:
        rd_kafka_topic_partition_list_destroy(c_partitions)
