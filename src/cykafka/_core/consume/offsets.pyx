"""Offsets: what a consumer has read, and what its group has committed."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t

from cykafka._core.batch.message_batch cimport MessageBatch
from cykafka._core.clib.csrc cimport (
    CK_CALL_COMMITTED,
    CK_CALL_TIMES,
    CK_CALL_WATERMARKS,
    ck_answer_t,
    ck_batch_first_offset,
    ck_batch_t,
    ck_call_kind_t,
    ck_call_leave,
    ck_call_t,
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
    rd_kafka_get_watermark_offsets,
    rd_kafka_offsets_store,
    rd_kafka_position,
    rd_kafka_queue_destroy,
    rd_kafka_queue_new,
    rd_kafka_queue_poll_callback,
    rd_kafka_queue_t,
    rd_kafka_resp_err_t,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
    rd_kafka_topic_partition_t,
)
from cykafka._core.client.client cimport copied, new_call
from cykafka._core.common.arguments cimport SLICE, deadline_after, timeout_ms
from cykafka._core.common.errors cimport check_doing
from cykafka._core.common.message cimport Message
from cykafka._core.common.partition cimport (
    TopicPartition,
    c_name,
    partitions_from,
    partitions_to,
)
from cykafka._core.consume.batches cimport Batches

from cykafka._core.common.errors import KafkaError, KafkaException


cdef class Offsets(Batches):
    """The part of a consumer that knows where reading is and where it goes on after a restart."""

    def position(self, partitions):
        """The offsets behind the last messages handed over.

        Parameters
        ----------
        partitions : list of TopicPartition

        Returns
        -------
        list of TopicPartition
            ``OFFSET_INVALID`` where nothing was handed over yet; ``error`` where it failed.
        """
        cdef int i
        c_partitions = partitions_to(partitions, "partitions")
        try:
            self.on_list(rd_kafka_position, c_partitions, "Failed to get position")
            # librdkafka counts what was gathered, and will be handed over, already.
            for i in range(c_partitions.cnt):
                self._before_gathered(&c_partitions.elems[i])
            return partitions_from(c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    cdef int _before_gathered(self, rd_kafka_topic_partition_t *rktpar) except -1:
        cdef ck_batch_t *batch = self._batches
        while batch is not NULL:
            _not_behind(batch, rktpar)
            batch = batch.next
        _not_behind(self._carry, rktpar)
        _not_behind(self._held, rktpar)
        return 0

    def get_watermark_offsets(self, partition, timeout=None, cached=False):
        """The first offset of a partition and the offset after its last.

        Parameters
        ----------
        partition : TopicPartition
        timeout : float, optional
            Seconds to wait for the broker; forever by default. Ctrl-C is noticed within 0.1 s.
        cached : bool
            Return the values that the client has cached: high comes with every fetch, low with
            ``statistics.interval.ms``.

        Returns
        -------
        tuple of (int, int)
            Low and high; ``OFFSET_INVALID`` for an unknown one.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT``, or the broker's error.
        """
        cdef int64_t low = 0, high = 0
        cdef rd_kafka_resp_err_t err
        cdef const char *topic
        cdef int32_t number
        cdef ck_call_t *call
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        cdef bint from_cache = cached
        if not isinstance(partition, TopicPartition):
            raise TypeError(
                f"partition: expected a TopicPartition, got {type(partition).__name__}")
        name = (<TopicPartition>partition).topic  # held here: without the GIL it may get another
        topic = c_name(name)
        number = (<TopicPartition>partition).partition
        if from_cache:
            rk = self.enter()
            with nogil:
                err = rd_kafka_get_watermark_offsets(rk, topic, number, &low, &high)
            self.leave()
            check_doing(err, "Failed to get watermark offsets")
            return (low, high)
        call = new_call(CK_CALL_WATERMARKS)
        try:
            call.topic = copied(topic)
            call.partition = number
            self.ask(call, ms)
            check_doing(call.err, "Failed to get watermark offsets")
            return (call.low, call.high)
        finally:
            ck_call_leave(call)

    def offsets_for_times(self, partitions, timeout=None):
        """The first offsets at or after a time (KIP-79).

        Parameters
        ----------
        partitions : list of TopicPartition
            Their ``offset`` is a timestamp, ms since the epoch.
        timeout : float, optional
            Seconds; forever by default. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        list of TopicPartition
            -1 (``OFFSET_END``) if no message is as late; ``error`` if the request failed.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` or ``_ALL_BROKERS_DOWN`` if no broker answered.
        """
        return self.ask_offsets(CK_CALL_TIMES, partitions, timeout, "Failed to get offsets")

    cdef list ask_offsets(self, ck_call_kind_t kind, object partitions, object timeout, str doing):
        """Let the brokers fill in the offsets of a list; returns a new list of TopicPartition."""
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        cdef ck_call_t *call = new_call(kind)
        try:
            call.partitions = partitions_to(partitions, "partitions")
            self.ask(call, ms)
            check_doing(call.err, doing)
            return partitions_from(call.partitions)
        finally:
            ck_call_leave(call)

    # -- offsets of the group

    def store_offsets(self, message=None, offsets=None):
        """Mark offsets for the next automatic or argument-less commit.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Its offset + 1; for a batch, that of the last record of each partition. An empty batch
            marks nothing.
        offsets : list of TopicPartition, optional
            Instead of a message.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` unless ``enable.auto.offset.store`` is false; ``_STATE`` if none of
            the partitions is assigned. If only some are not assigned, they are skipped.
        """
        cdef rd_kafka_topic_partition_list_t *c_offsets = offsets_to(message, offsets, True)
        try:
            if self._stores and self._open_in:
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
            self.on_list(rd_kafka_offsets_store, c_offsets, "StoreOffsets failed")
        finally:
            rd_kafka_topic_partition_list_destroy(c_offsets)

    def commit(self, message=None, offsets=None, asynchronous=True, **kwargs):
        """Commit offsets to the group.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Commit its offset + 1; for a batch, that of the last record of each partition. An empty
            batch commits nothing.
        offsets : list of TopicPartition, optional
            Commit these. Without message and offsets, commit what is stored.
        asynchronous : bool
            Return at once; ``on_commit`` gets the outcome. The older name ``async`` works as well,
            as in ``commit(**{"async": False})``.

        Returns
        -------
        None, or list of TopicPartition when not asynchronous
            The committed offsets, each with its ``error``. Ctrl-C is noticed within 0.1 s; the
            commit continues.

        Raises
        ------
        KafkaException
            ``_NO_OFFSET`` if nothing is stored.
        """
        cdef rd_kafka_topic_partition_list_t *c_offsets = NULL
        cdef rd_kafka_resp_err_t err
        if "async" in kwargs:
            asynchronous = kwargs.pop("async")
        if kwargs:
            raise TypeError(f"commit() got an unexpected keyword argument {next(iter(kwargs))!r}")
        if message is not None or offsets is not None:
            c_offsets = offsets_to(message, offsets, False)
        try:
            if isinstance(message, MessageBatch) and c_offsets.cnt == 0:
                self.enter()  # closed?
                self.leave()
                return None if asynchronous else []
            if not asynchronous:
                return self._commit_and_wait(c_offsets, -1)
            rk = self.enter()
            with nogil:
                err = rd_kafka_commit(rk, c_offsets, 1)
            self.leave()
        finally:
            if c_offsets is not NULL:
                rd_kafka_topic_partition_list_destroy(c_offsets)
        check_doing(err, "Commit failed")

    def _commit_within(self, offsets, timeout):
        """Like ``commit(offsets=offsets, asynchronous=False)``, but raises ``_TIMED_OUT`` after
        ``timeout`` seconds.

        The commit may still succeed later: librdkafka waits for a coordinator without limit.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef rd_kafka_topic_partition_list_t *c_offsets = partitions_to(offsets, "offsets")
        try:
            return self._commit_and_wait(c_offsets, deadline)
        finally:
            rd_kafka_topic_partition_list_destroy(c_offsets)

    cdef object _commit_and_wait(self, rd_kafka_topic_partition_list_t *c_offsets,
                                 int64_t deadline):
        cdef rd_kafka_queue_t *replies
        cdef rd_kafka_resp_err_t err
        cdef ck_answer_t answer
        cdef int ms = SLICE
        cdef bint closing = self._close_after
        answer.given = False
        answer.err = <rd_kafka_resp_err_t>0
        answer.partitions = NULL
        rk = self.enter()
        try:
            # A signal handler may run in here, and close.
            self.go_inside()
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
                    if self._open_in != ck_runtime_generation:
                        self.refuse()
                    if self._close_after and not closing:
                        return None  # after_call() closes, and says so
                    if ms == 0 and not answer.given:
                        check_doing(RD_KAFKA_RESP_ERR__TIMED_OUT, "Commit failed")
                check_doing(answer.err, "Commit failed")
                return partitions_from(answer.partitions)
            finally:
                # Destroyed, the queue takes an answer that is still to come with it. In a child
                # that a signal handler has forked, it may be locked.
                if self._generation == ck_runtime_generation:
                    with nogil:
                        rd_kafka_queue_destroy(replies)
                if answer.partitions is not NULL:
                    rd_kafka_topic_partition_list_destroy(answer.partitions)
                self.come_out()
        finally:
            self.leave()
            if self._close_after and not closing:
                self.after_call()

    def committed(self, partitions, timeout=None):
        """The group's committed offsets.

        Parameters
        ----------
        partitions : list of TopicPartition
        timeout : float, optional
            Seconds; forever by default. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        list of TopicPartition
            ``OFFSET_INVALID`` if nothing is committed; ``error`` if the request failed.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` or the coordinator's error.
        """
        return self.ask_offsets(CK_CALL_COMMITTED, partitions, timeout,
                                "Failed to get committed offsets")


cdef void _not_behind(const ck_batch_t *batch, rd_kafka_topic_partition_t *rktpar) noexcept:
    """Move a position back to the first message in the batch that was not handed over."""
    cdef int64_t first
    if batch is NULL:
        return
    first = ck_batch_first_offset(batch, rktpar.topic, rktpar.partition)
    if 0 <= first < rktpar.offset:
        rktpar.offset = first


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
