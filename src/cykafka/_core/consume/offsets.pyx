"""The assignment, positions, the brokers' offsets, and commits."""
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport int32_t, int64_t

from cykafka._core.batch cimport MessageBatch
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.call cimport Call, new_step
from cykafka._core.client.event_loop cimport Watch
from cykafka._core.client.handle cimport Handle, closed_error
from cykafka._core.client.requests cimport copied
from cykafka._core.common.arguments cimport slice_left, timeout_ms
from cykafka._core.common.errors cimport check_doing, check_error
from cykafka._core.common.message cimport Message
from cykafka._core.common.partition cimport (
    TopicPartition,
    c_name,
    partitions_from,
    partitions_to,
)
from cykafka._core.consume.backlog cimport Backlog

from cykafka._core.common.errors import KafkaError, KafkaException


cdef enum:
    # The timeout of a seek, ms. librdkafka's thread responds at once, unless the partition is
    # gone.
    SEEK_MS = 5000


cdef int on_list(Handle handle, list_call_t call, rd_kafka_topic_partition_list_t *rktparlist,
                 str doing) except -1:
    """Call a librdkafka function with a list, which the caller still owns. An exception begins
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
    """As on_list(), for functions whose error texts are complete."""
    cdef rd_kafka_error_t *error
    rk = handle.enter()
    with nogil:
        error = call(rk, rktparlist)
    handle.leave()
    check_error(error)
    return 0


cdef list get_list(Handle handle, get_list_t call, str doing):
    """Return a copy of the list that a librdkafka function returns. An exception begins with the
    text `doing`."""
    cdef rd_kafka_topic_partition_list_t *rktparlist = NULL
    cdef rd_kafka_resp_err_t err
    rk = handle.enter()
    with nogil:
        err = call(rk, &rktparlist)
    handle.leave()
    check_doing(err, doing)
    try:
        return partitions_from(rktparlist)
    finally:
        rd_kafka_topic_partition_list_destroy(rktparlist)


cdef list assignment(Handle handle):
    """Return the assigned partitions."""
    return get_list(handle, rd_kafka_assignment, "Failed to get assignment")


cdef list positions(Handle handle, Backlog backlog, object partitions):
    """Return the offsets after the last returned messages, as new TopicPartitions."""
    cdef int i
    c_partitions = partitions_to(partitions, "partitions")
    try:
        on_list(handle, rd_kafka_position, c_partitions, "Failed to get position")
        # librdkafka's positions include collected messages that the consumer has not returned yet.
        for i in range(c_partitions.cnt):
            backlog.before_gathered(&c_partitions.elems[i])
        return partitions_from(c_partitions)
    finally:
        rd_kafka_topic_partition_list_destroy(c_partitions)


def committed(Handle handle not None, partitions, timeout):
    """An operation: the group's committed offsets, list of TopicPartition; timeout in s."""
    return ask_offsets(handle, CK_CALL_COMMITTED, partitions, timeout,
                       "Failed to get committed offsets")


def offsets_for_times(Handle handle not None, partitions, timeout):
    """An operation: the first offsets at or after the times in the list; timeout in s."""
    return ask_offsets(handle, CK_CALL_TIMES, partitions, timeout, "Failed to get offsets")


cdef object ask_offsets(Handle handle, ck_call_kind_t kind, object partitions, object timeout,
                        str doing):
    cdef Call call = new_step(handle, kind, timeout_ms(timeout, "timeout"))
    call.c.partitions = partitions_to(partitions, "partitions")
    return _answer_of(call, doing)


def _answer_of(Call call, str doing):
    yield call
    check_doing(call.c.err, doing)
    return partitions_from(call.c.partitions)


cdef tuple cached_watermark_offsets(Handle handle, object partition):
    """Return one partition's low and high, as far as the consumer knows them."""
    cdef int64_t low = 0, high = 0
    cdef rd_kafka_resp_err_t err
    cdef const char *topic
    cdef int32_t number
    check_partition(partition)
    name = (<TopicPartition>partition).topic  # keep it: without the GIL the attribute may change
    topic = c_name(name)
    number = (<TopicPartition>partition).partition
    rk = handle.enter()
    with nogil:
        err = rd_kafka_get_watermark_offsets(rk, topic, number, &low, &high)
    handle.leave()
    check_doing(err, "Failed to get watermark offsets")
    return (low, high)


def watermark_offsets(Handle handle not None, partition, timeout):
    """An operation: request one partition's low and high from the broker; timeout in s."""
    cdef Call call = new_step(handle, CK_CALL_WATERMARKS, timeout_ms(timeout, "timeout"))
    check_partition(partition)
    call.c.topic = copied(c_name((<TopicPartition>partition).topic))
    call.c.partition = (<TopicPartition>partition).partition
    yield call
    check_doing(call.c.err, "Failed to get watermark offsets")
    return (call.c.low, call.c.high)


cdef int check_partition(object partition) except -1:
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"partition: expected a TopicPartition, got {type(partition).__name__}")
    return 0


def settle_seeks(Backlog backlog not None):
    """An operation: wait for the seeks whose callers have left (Ctrl-C, a cancelled task). They
    may begin late, and would then undo what follows."""
    while backlog.seeks:
        earlier = backlog.seeks[0]
        yield earlier
        if earlier in backlog.seeks:  # no other thread or task has removed it
            backlog.seeks.remove(earlier)


def seek(Handle handle not None, Backlog backlog not None, list partitions not None):
    """An operation: seek each partition to its offset. The result is a list with one KafkaError or
    None per partition."""
    cdef rd_kafka_error_t *error
    cdef rd_kafka_topic_partition_list_t *c_done
    cdef ck_batch_t *aside = NULL
    cdef Call call = new_step(handle, CK_CALL_SEEK, SEEK_MS)
    yield from settle_seeks(backlog)
    try:
        call.c.partitions = partitions_to(partitions, "partition")
        # librdkafka fetched the gathered messages before the seek. Messages that another thread
        # gathers during this call may be from after the seek.
        aside = backlog.new_batch(1)
        backlog.take_out(call.c.partitions, aside)
        yield call
        error = call.c.error
        call.c.error = NULL
        check_error(error)
        outcomes = partitions_from(call.c.partitions)
        c_done = partitions_to([item for item in outcomes if item.error is None], "partition")
        backlog.forget(aside, c_done)
        rd_kafka_topic_partition_list_destroy(c_done)
        return [item.error for item in outcomes]
    except:
        # librdkafka still seeks. In a child that a signal handler has forked, the messages belong
        # to the parent.
        if call.is_started() and handle._generation == ck_runtime_generation:
            backlog.seeks.append(call)
            backlog.forget(aside, call.c.partitions)
        raise
    finally:
        # Where the seek failed, the consumer still returns the fetched messages.
        if aside is not NULL:
            backlog.end_batch(handle, aside)


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


cdef object commit(Handle handle, object message, object offsets, bint asynchronous):
    """Commit these offsets, or the stored ones. Returns the committed offsets unless
    asynchronous."""
    cdef rd_kafka_topic_partition_list_t *c_offsets = NULL
    cdef rd_kafka_resp_err_t err
    if message is not None or offsets is not None:
        c_offsets = offsets_to(message, offsets, False)
    try:
        if isinstance(message, MessageBatch) and c_offsets.cnt == 0:
            handle.check_open()
            return None if asynchronous else []
        if not asynchronous:
            return commit_and_wait(handle, c_offsets, -1)
        rk = handle.enter()
        with nogil:
            err = rd_kafka_commit(rk, c_offsets, 1)
        handle.leave()
    finally:
        if c_offsets is not NULL:
            rd_kafka_topic_partition_list_destroy(c_offsets)
    check_doing(err, "Commit failed")


cdef list commit_and_wait(Handle handle,
                          rd_kafka_topic_partition_list_t *c_offsets, int64_t deadline):
    """Commit, and wait for the response until the deadline (-1: forever)."""
    cdef rd_kafka_queue_t *replies
    cdef rd_kafka_resp_err_t err
    cdef ck_commit_result_t answer
    cdef int ms
    cdef bint closing = handle._role.closes_later
    answer.given = False
    answer.err = <rd_kafka_resp_err_t>0
    answer.partitions = NULL
    rk = handle.enter()
    try:
        # A signal handler may run here and close the consumer.
        handle._role.enter_callback()
        with nogil:
            replies = rd_kafka_queue_new(rk)
            err = rd_kafka_commit_queue(rk, c_offsets, replies, ck_callback_commit_result, &answer)
        try:
            check_doing(err, "Commit failed")
            while not answer.given:
                ms = slice_left(deadline)
                with nogil:
                    rd_kafka_queue_poll_callback(replies, ms)
                PyErr_CheckSignals()
                # A close() in another thread, or in the signal handler, must not wait for the
                # broker.
                handle.check_open()
                if not answer.given and handle.is_closing() and rd_kafka_consumer_closed(rk):
                    # This is a callback of close(): the group has ended and never responds.
                    raise closed_error(handle._closed_words,
                                       "its group has ended, so it can no longer commit")
                if handle._role.closes_later and not closing:
                    return None  # after_call() closes, and raises
                if ms == 0 and not answer.given:
                    check_doing(RD_KAFKA_RESP_ERR__TIMED_OUT, "Commit failed")
            check_doing(answer.err, "Commit failed")
            return partitions_from(answer.partitions)
        finally:
            # Destroying the queue drops a response that has not arrived yet. In a child that a
            # signal handler has forked, the queue may be locked.
            if handle._generation == ck_runtime_generation:
                with nogil:
                    rd_kafka_queue_destroy(replies)
            if answer.partitions is not NULL:
                rd_kafka_topic_partition_list_destroy(answer.partitions)
            handle._role.leave_callback()
    finally:
        handle.leave()
        if handle._role.closes_later and not closing:
            handle.after_call()


@cython.final
@cython.no_gc_clear
cdef class Commit:
    """A commit whose response an event loop awaits. The caller must call end(), which does not
    stop the commit.

    Parameters
    ----------
    handle : Handle
        The consumer.
    message : Message or MessageBatch, optional
    offsets : list of TopicPartition, optional
        Instead of a message. Without both, the consumer commits the stored offsets.
    watch : Watch
        Its loop serves the consumer when the response arrives.
    """

    cdef Handle _handle
    cdef ck_loans_t *_loans
    cdef rd_kafka_queue_t *_replies
    cdef ck_commit_result_t _answer
    cdef Watch _watch
    cdef object _generation

    def __cinit__(self, Handle handle not None, message, offsets, Watch watch not None):
        cdef rd_kafka_topic_partition_list_t *c_offsets = NULL
        cdef rd_kafka_resp_err_t err
        self._watch = watch
        self._handle = handle
        self._generation = ck_runtime_generation
        if message is not None or offsets is not None:
            c_offsets = offsets_to(message, offsets, False)
        try:
            if isinstance(message, MessageBatch) and c_offsets.cnt == 0:
                handle.check_open()
                self._answer.given = True
                return
            handle.check_open()  # in a forked child the watch's lock may stay locked
            pipe = watch.pipe()
            rk = handle.enter()
            # The rd_kafka_t must not be destroyed before the queue.
            self._loans = handle._loans
            ck_loans_add(self._loans)
            ck_loans_pin(self._loans)
            self._replies = rd_kafka_queue_new(rk)
            rd_kafka_queue_io_event_enable(self._replies, ck_pipe_writer(pipe), b"1", 1)
            with nogil:
                err = rd_kafka_commit_queue(rk, c_offsets, self._replies,
                                            ck_callback_commit_result, &self._answer)
            handle.leave()
        finally:
            if c_offsets is not NULL:
                rd_kafka_topic_partition_list_destroy(c_offsets)
        check_doing(err, "Commit failed")

    def __dealloc__(self):
        self.end()

    def is_done(self):
        """Whether the response has arrived. Raises if the consumer is closed during the commit."""
        if not self._answer.given and self._replies is not NULL:
            self._handle.check_open()
            rd_kafka_queue_poll_callback(self._replies, 0)
        return self._answer.given

    def result(self):
        """The committed offsets, list of TopicPartition, each with its ``error``."""
        check_doing(self._answer.err, "Commit failed")
        return [] if self._answer.partitions is NULL else partitions_from(self._answer.partitions)

    def end(self):
        """Free the queue, and drop a response that has not arrived yet."""
        cdef rd_kafka_queue_t *replies = self._replies
        self._replies = NULL
        # In a forked child the queue belongs to the parent, and may be locked.
        if replies is not NULL and self._generation == ck_runtime_generation:
            rd_kafka_queue_io_event_enable(replies, -1, NULL, 0)
            rd_kafka_queue_destroy(replies)
            ck_loans_unpin(self._loans)
            ck_loans_sub(self._loans)
        if self._answer.partitions is not NULL:
            rd_kafka_topic_partition_list_destroy(self._answer.partitions)
            self._answer.partitions = NULL


cdef rd_kafka_topic_partition_list_t *offsets_to(message, offsets, bint storing) except NULL:
    """Convert a message or a list to librdkafka's list of offsets, which the caller destroys."""
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
        # The application created this incomplete message: let librdkafka report the fault.
        return partitions_to([TopicPartition(topic or "")], "message")
    return partitions_to([TopicPartition(topic, partition, offset + 1,
                                         leader_epoch=message.leader_epoch())], "message")
