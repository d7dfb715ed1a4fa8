"""Commits: the offsets that a group goes on from."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from cykafka._core.batch.message_batch cimport MessageBatch
from cykafka._core.clib.csrc cimport (
    ck_answer_t,
    ck_callback_answer,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_RESP_ERR__INVALID_ARG,
    RD_KAFKA_RESP_ERR__TIMED_OUT,
    RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
    rd_kafka_commit,
    rd_kafka_commit_queue,
    rd_kafka_offsets_store,
    rd_kafka_queue_destroy,
    rd_kafka_queue_new,
    rd_kafka_queue_poll_callback,
    rd_kafka_queue_t,
    rd_kafka_resp_err_t,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
)
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport SLICE
from cykafka._core.common.errors cimport check_doing
from cykafka._core.common.message cimport Message
from cykafka._core.common.partition cimport TopicPartition, partitions_from, partitions_to
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.membership cimport Membership
from cykafka._core.consume.positions cimport on_list

from cykafka._core.common.errors import KafkaError, KafkaException


cdef int store_offsets(Handle handle, Backlog backlog, object message, object offsets) except -1:
    """Mark offsets for the next automatic or argument-less commit."""
    cdef rd_kafka_topic_partition_list_t *c_offsets = offsets_to(message, offsets, True)
    try:
        if backlog.stores and handle._open_in:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                "StoreOffsets failed: Local: Invalid argument or configuration: "
                '"enable.auto.offset.store" must be set to false to use it'))
        if message is not None and c_offsets.cnt == 1 and c_offsets.elems[0].offset < 0:
            # librdkafka would clear the stored offset.
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
                "StoreOffsets failed: Local: Unknown partition: the message has no "
                "topic, partition or offset"))
        on_list(handle, rd_kafka_offsets_store, c_offsets, "StoreOffsets failed")
    finally:
        rd_kafka_topic_partition_list_destroy(c_offsets)
    return 0


cdef object commit(Handle handle, Membership membership, object message, object offsets,
                   bint asynchronous):
    """Commit these offsets, or what is stored. Returns the committed offsets unless
    asynchronous."""
    cdef rd_kafka_topic_partition_list_t *c_offsets = NULL
    cdef rd_kafka_resp_err_t err
    if message is not None or offsets is not None:
        c_offsets = offsets_to(message, offsets, False)
    try:
        if isinstance(message, MessageBatch) and c_offsets.cnt == 0:
            handle.enter()  # closed?
            handle.leave()
            return None if asynchronous else []
        if not asynchronous:
            return commit_and_wait(handle, membership, c_offsets, -1)
        rk = handle.enter()
        with nogil:
            err = rd_kafka_commit(rk, c_offsets, 1)
        handle.leave()
    finally:
        if c_offsets is not NULL:
            rd_kafka_topic_partition_list_destroy(c_offsets)
    check_doing(err, "Commit failed")


cdef list commit_and_wait(Handle handle, Membership membership,
                          rd_kafka_topic_partition_list_t *c_offsets, int64_t deadline):
    """Commit, and wait for the answer until the deadline (-1: forever)."""
    cdef rd_kafka_queue_t *replies
    cdef rd_kafka_resp_err_t err
    cdef ck_answer_t answer
    cdef int ms = SLICE
    cdef bint closing = membership.closes_later
    answer.given = False
    answer.err = <rd_kafka_resp_err_t>0
    answer.partitions = NULL
    rk = handle.enter()
    try:
        # A signal handler may run in here, and close.
        membership.go_inside()
        with nogil:
            replies = rd_kafka_queue_new(rk)
            err = rd_kafka_commit_queue(rk, c_offsets, replies, ck_callback_answer, &answer)
        try:
            check_doing(err, "Commit failed")
            while not answer.given:
                if deadline >= 0:
                    ms = <int>max(0, min(SLICE, deadline - ck_runtime_now_ms()))
                with nogil:
                    rd_kafka_queue_poll_callback(replies, ms)
                PyErr_CheckSignals()
                # A close() by another thread, or by the signal handler, must not wait for the
                # broker.
                if handle._open_in != ck_runtime_generation:
                    handle.refuse()
                if membership.closes_later and not closing:
                    return None  # after_call() closes, and says so
                if ms == 0 and not answer.given:
                    check_doing(RD_KAFKA_RESP_ERR__TIMED_OUT, "Commit failed")
            check_doing(answer.err, "Commit failed")
            return partitions_from(answer.partitions)
        finally:
            # Destroyed, the queue takes an answer that is still to come with it. In a child
            # that a signal handler has forked, it may be locked.
            if handle._generation == ck_runtime_generation:
                with nogil:
                    rd_kafka_queue_destroy(replies)
            if answer.partitions is not NULL:
                rd_kafka_topic_partition_list_destroy(answer.partitions)
            membership.come_out()
    finally:
        handle.leave()
        if membership.closes_later and not closing:
            membership.after_call(handle)


cdef rd_kafka_topic_partition_list_t *offsets_to(message, offsets, bint storing) except NULL:
    """librdkafka's list, which the caller destroys, of what a message or a list says."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if offsets is not None:
        return partitions_to(offsets, "offsets")
    if message is None:
        raise ValueError("expected either message or offsets")
    if isinstance(message, MessageBatch):
        return (<MessageBatch>message).c_positions()
    if not isinstance(message, Message):
        raise TypeError("message: expected a Message or a MessageBatch, "
                        f"got {type(message).__name__}")
    error = message.error()
    if error is not None:
        raise KafkaException(KafkaError(
            <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
            f"Cannot {'store' if storing else 'commit'} offsets for message with error: "
            f"'{error.str()}'"))
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        # The application made this message: let librdkafka report the fault.
        return partitions_to([TopicPartition(topic or "")], "message")
    return partitions_to([TopicPartition(topic, partition, offset + 1,
                                         leader_epoch=message.leader_epoch())], "message")
