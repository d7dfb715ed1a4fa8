"""Consumer: subscriptions, assignments and offsets. Messages and rebalances are in _fetcher."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t

from cykafka._errors cimport check_doing, check_error
from cykafka._fetcher cimport Fetcher
from cykafka._handle cimport int_ms, timeout_ms
from cykafka._librdkafka cimport (
    RD_KAFKA_RESP_ERR__INVALID_ARG,
    RD_KAFKA_RESP_ERR__TIMED_OUT,
    rd_kafka_assign,
    rd_kafka_assignment,
    rd_kafka_commit,
    rd_kafka_commit_queue,
    rd_kafka_committed,
    rd_kafka_consumer_group_metadata,
    rd_kafka_consumer_group_metadata_destroy,
    rd_kafka_consumer_group_metadata_t,
    rd_kafka_consumer_group_metadata_write,
    rd_kafka_error_t,
    rd_kafka_event_destroy,
    rd_kafka_event_error,
    rd_kafka_event_t,
    rd_kafka_event_topic_partition_list,
    rd_kafka_get_watermark_offsets,
    rd_kafka_incremental_assign,
    rd_kafka_incremental_unassign,
    rd_kafka_mem_free,
    rd_kafka_memberid,
    rd_kafka_offsets_for_times,
    rd_kafka_offsets_store,
    rd_kafka_pause_partitions,
    rd_kafka_position,
    rd_kafka_query_watermark_offsets,
    rd_kafka_queue_destroy,
    rd_kafka_queue_new,
    rd_kafka_queue_poll,
    rd_kafka_queue_t,
    rd_kafka_resp_err_t,
    rd_kafka_resume_partitions,
    rd_kafka_seek_partitions,
    rd_kafka_subscribe,
    rd_kafka_t,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
    rd_kafka_unsubscribe,
)
from cykafka._message cimport Message
from cykafka._partition cimport TopicPartition, c_name, partitions_from, partitions_to, topics_to

from cykafka._errors import KafkaError, KafkaException


cdef enum:
    # How long a wait that nothing can wake may last, ms.
    SLICE = 100


cdef class Consumer(Fetcher):
    """Reads records, as a member of a group or from partitions it is given.

    Parameters
    ----------
    config : dict
        librdkafka's properties, ``group.id`` among them; values are str, bool, int, float or None (the
        default). And, all optional:

        ``on_commit(KafkaError or None, list of TopicPartition)``
            Called when an asynchronous or automatic commit is over.
        ``error_cb(KafkaError)``, ``throttle_cb(ThrottleEvent)``, ``stats_cb(json: str)``
            ``stats_cb`` needs ``statistics.interval.ms``.
        ``logger``
            A logging.Logger or logging.Handler for librdkafka's log.
        ``oauth_cb(config: str)``
            Returns (token, expiry in s since the epoch[, principal[, extensions]]). Runs on
            librdkafka's thread; the constructor waits up to 10 s for the first token.
        ``default.topic.config``
            A dict of topic properties.

    Raises
    ------
    KafkaException
        For a property that does not exist or does not take the value; it names the property.
    ValueError
        There is no ``group.id``.

    Notes
    -----
    All callbacks but ``oauth_cb`` run in the calls that wait for messages, and in ``close``. What they
    raise, these calls raise. The consumer is a context manager; leaving the block closes it.
    """

    # -- subscription and assignment

    def subscribe(self, topics, on_assign=None, on_revoke=None, on_lost=None):
        """Subscribe to topics; replaces the subscription before.

        Parameters
        ----------
        topics : list of str
            Names, or regular expressions: these begin with ``^``.
        on_assign, on_revoke, on_lost : callable, optional
            ``callback(consumer, partitions)``: partitions have been assigned, are about to be revoked
            (commit now), or were lost (too late to commit; ``on_revoke`` if there is no ``on_lost``).
            A callback may call ``assign`` and ``unassign``, or with a cooperative assignor
            ``incremental_assign`` and ``incremental_unassign``; unless it does, it is done after it.

        Raises
        ------
        KafkaException
        """
        cdef rd_kafka_resp_err_t err
        for argument, callback in (("on_assign", on_assign), ("on_revoke", on_revoke),
                                   ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{argument}: expected a callable or None, "
                                f"got {type(callback).__name__}")
        c_topics = topics_to(topics)
        try:
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_subscribe(rk, c_topics)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(c_topics)
        check_doing(err, "Failed to set subscription")
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost

    def unsubscribe(self):
        """Give the subscription up; the group takes the partitions back."""
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        try:
            with nogil:
                err = rd_kafka_unsubscribe(rk)
        finally:
            self.leave()
        check_doing(err, "Failed to remove subscription")

    def assign(self, partitions):
        """Read these partitions and no others, each from its offset.

        Parameters
        ----------
        partitions : list of TopicPartition
            ``OFFSET_INVALID`` (the default) and ``OFFSET_STORED`` start at the committed offset.
        """
        cdef rd_kafka_resp_err_t err
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            self._assigned = True
            self.drop(NULL)
            try:
                with nogil:
                    err = rd_kafka_assign(rk, c_partitions)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        check_doing(err, "Failed to set assignment")

    def unassign(self):
        """Read no partition any more."""
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        self._assigned = True
        self.drop(NULL)
        try:
            with nogil:
                err = rd_kafka_assign(rk, NULL)
        finally:
            self.leave()
        check_doing(err, "Failed to remove assignment")

    def incremental_assign(self, partitions):
        """Read these partitions too (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            None of them assigned yet.
        """
        cdef rd_kafka_error_t *error
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            self._assigned = True
            try:
                with nogil:
                    error = rd_kafka_incremental_assign(rk, c_partitions)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        check_error(error)

    def incremental_unassign(self, partitions):
        """Read these partitions no more (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            All of them assigned.
        """
        cdef rd_kafka_error_t *error
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            self._assigned = True
            self.drop(c_partitions)
            try:
                with nogil:
                    error = rd_kafka_incremental_unassign(rk, c_partitions)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        check_error(error)

    def assignment(self):
        """The partitions assigned now, a list of TopicPartition."""
        cdef rd_kafka_topic_partition_list_t *c_partitions = NULL
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        try:
            with nogil:
                err = rd_kafka_assignment(rk, &c_partitions)
        finally:
            self.leave()
        check_doing(err, "Failed to get assignment")
        return taken(c_partitions)

    # -- where reading goes on

    def pause(self, partitions):
        """Fetch no more of these partitions; the assignment stays.

        Parameters
        ----------
        partitions : list of TopicPartition
        """
        cdef rd_kafka_resp_err_t err
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_pause_partitions(rk, c_partitions)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        check_doing(err, "Failed to pause partitions")

    def resume(self, partitions):
        """Fetch these partitions again.

        Parameters
        ----------
        partitions : list of TopicPartition
        """
        cdef rd_kafka_resp_err_t err
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_resume_partitions(rk, c_partitions)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        check_doing(err, "Failed to resume partitions")

    def seek(self, partition):
        """Go on at another offset of an assigned partition.

        Parameters
        ----------
        partition : TopicPartition
            Its ``offset`` is an offset or ``OFFSET_BEGINNING`` or ``OFFSET_END``.

        Raises
        ------
        KafkaException
            ``_STATE`` if the partition is not being read.
        """
        cdef rd_kafka_error_t *error
        cdef rd_kafka_resp_err_t err
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"partition: expected a TopicPartition, got {type(partition).__name__}")
        c_partitions = partitions_to([partition], "partition")
        try:
            rk = self.enter()
            self.drop(c_partitions)
            try:
                with nogil:
                    error = rd_kafka_seek_partitions(rk, c_partitions, -1)
            finally:
                self.leave()
            err = c_partitions.elems[0].err
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        check_error(error)
        check_doing(err, "Failed to seek")

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
        cdef rd_kafka_resp_err_t err
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_position(rk, c_partitions)
            finally:
                self.leave()
            check_doing(err, "Failed to get position")
            return partitions_from(c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def get_watermark_offsets(self, partition, timeout=None, cached=False):
        """The first offset of a partition and the one behind its last.

        Parameters
        ----------
        partition : TopicPartition
        timeout : float, optional
            Seconds to wait for the broker; forever by default. Cannot be interrupted by Ctrl-C.
        cached : bool
            What the client knows without asking: high comes with every fetch, low with
            ``statistics.interval.ms``.

        Returns
        -------
        tuple of (int, int) or None
            Low and high; ``OFFSET_INVALID`` for what is not known. None when the broker did not
            answer in time.
        """
        cdef int64_t low = 0, high = 0
        cdef rd_kafka_resp_err_t err
        cdef const char *topic
        cdef int32_t number
        cdef int ms = int_ms(timeout_ms(timeout, "timeout"))
        cdef bint from_cache = cached
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"partition: expected a TopicPartition, got {type(partition).__name__}")
        topic = c_name((<TopicPartition>partition).topic)
        number = (<TopicPartition>partition).partition
        rk = self.enter()
        try:
            with nogil:
                if from_cache:
                    err = rd_kafka_get_watermark_offsets(rk, topic, number, &low, &high)
                else:
                    err = rd_kafka_query_watermark_offsets(rk, topic, number, &low, &high, ms)
        finally:
            self.leave()
        if err == RD_KAFKA_RESP_ERR__TIMED_OUT:
            return None
        check_doing(err, "Failed to get watermark offsets")
        return (low, high)

    def offsets_for_times(self, partitions, timeout=None):
        """The first offsets at or after a time (KIP-79).

        Parameters
        ----------
        partitions : list of TopicPartition
            Their ``offset`` is a timestamp, ms since the epoch.
        timeout : float, optional
            Seconds; forever by default. Cannot be interrupted by Ctrl-C.

        Returns
        -------
        list of TopicPartition
            -1 (``OFFSET_END``) where no message is as late; ``error`` where it failed.
        """
        cdef rd_kafka_resp_err_t err
        cdef int ms = int_ms(timeout_ms(timeout, "timeout"))
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_offsets_for_times(rk, c_partitions, ms)
            finally:
                self.leave()
            check_doing(err, "Failed to get offsets")
            return partitions_from(c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    # -- offsets of the group

    def store_offsets(self, message=None, offsets=None):
        """Mark offsets for the next automatic or argument-less commit.

        Parameters
        ----------
        message : Message, optional
            Its offset + 1.
        offsets : list of TopicPartition, optional
            Instead of a message.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` unless ``enable.auto.offset.store`` is false; ``_STATE`` for a partition that is
            not assigned.
        """
        cdef rd_kafka_resp_err_t err
        if self._stores and self._open_in:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                'StoreOffsets failed: "enable.auto.offset.store" must be set to false to use it'))
        c_offsets = offsets_to(message, offsets, True)
        try:
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_offsets_store(rk, c_offsets)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(c_offsets)
        check_doing(err, "StoreOffsets failed")

    def commit(self, message=None, offsets=None, asynchronous=True, **kwargs):
        """Commit offsets to the group.

        Parameters
        ----------
        message : Message, optional
            Commit its offset + 1.
        offsets : list of TopicPartition, optional
            Commit these. Without message and offsets, commit what is stored.
        asynchronous : bool
            Return at once; ``on_commit`` hears of the outcome. Its older name ``async`` works as
            well, as ``commit(**{"async": False})``.

        Returns
        -------
        None, or list of TopicPartition when not asynchronous
            The offsets committed, each with its ``error``. Ctrl-C is noticed within 0.1 s; the commit
            goes on.

        Raises
        ------
        KafkaException
            ``_NO_OFFSET`` when nothing is stored.
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
            if not asynchronous:
                return self._commit_and_wait(c_offsets)
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_commit(rk, c_offsets, 1)
            finally:
                self.leave()
        finally:
            if c_offsets is not NULL:
                rd_kafka_topic_partition_list_destroy(c_offsets)
        check_doing(err, "Commit failed")

    cdef object _commit_and_wait(self, rd_kafka_topic_partition_list_t *c_offsets):
        cdef rd_kafka_event_t *event = NULL
        cdef rd_kafka_queue_t *replies
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        try:
            with nogil:
                replies = rd_kafka_queue_new(rk)
                err = rd_kafka_commit_queue(rk, c_offsets, replies, NULL, NULL)
            try:
                check_doing(err, "Commit failed")
                while event is NULL:
                    with nogil:
                        event = rd_kafka_queue_poll(replies, SLICE)
                    PyErr_CheckSignals()
                check_doing(rd_kafka_event_error(event), "Commit failed")
                return partitions_from(rd_kafka_event_topic_partition_list(event))
            finally:
                with nogil:
                    if event is not NULL:
                        rd_kafka_event_destroy(event)
                    rd_kafka_queue_destroy(replies)
        finally:
            self.leave()

    def committed(self, partitions, timeout=None):
        """The group's committed offsets.

        Parameters
        ----------
        partitions : list of TopicPartition
        timeout : float, optional
            Seconds; forever by default. Cannot be interrupted by Ctrl-C.

        Returns
        -------
        list of TopicPartition
            ``OFFSET_INVALID`` where nothing is committed; ``error`` where it failed.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` or the coordinator's error.
        """
        cdef rd_kafka_resp_err_t err
        cdef int ms = int_ms(timeout_ms(timeout, "timeout"))
        c_partitions = partitions_to(partitions, "partitions")
        try:
            rk = self.enter()
            try:
                with nogil:
                    err = rd_kafka_committed(rk, c_partitions, ms)
            finally:
                self.leave()
            check_doing(err, "Failed to get committed offsets")
            return partitions_from(c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    # -- the group

    def memberid(self):
        """The id the group's coordinator gave this member, str, or None before it joined."""
        cdef char *c_id
        rk = self.enter()
        try:
            with nogil:
                c_id = rd_kafka_memberid(rk)
            if c_id is NULL:
                return None
            memberid = c_id.decode()
            rd_kafka_mem_free(rk, c_id)
        finally:
            self.leave()
        return memberid or None

    def consumer_group_metadata(self):
        """The group's state for ``Producer.send_offsets_to_transaction``: an opaque object."""
        cdef rd_kafka_consumer_group_metadata_t *metadata
        cdef void *buffer = NULL
        cdef size_t size = 0
        rk = self.enter()
        try:
            with nogil:
                metadata = rd_kafka_consumer_group_metadata(rk)
            if metadata is NULL:
                raise RuntimeError("consumer_group_metadata: the consumer has no group")
            error = rd_kafka_consumer_group_metadata_write(metadata, &buffer, &size)
            rd_kafka_consumer_group_metadata_destroy(metadata)
            check_error(error)
            try:
                return PyBytes_FromStringAndSize(<char *>buffer, size)
            finally:
                rd_kafka_mem_free(rk, buffer)
        finally:
            self.leave()


cdef list taken(rd_kafka_topic_partition_list_t *c_partitions):
    """A copy of librdkafka's list, which is destroyed."""
    try:
        return partitions_from(c_partitions)
    finally:
        rd_kafka_topic_partition_list_destroy(c_partitions)


cdef rd_kafka_topic_partition_list_t *offsets_to(message, offsets, bint required) except NULL:
    """librdkafka's list, which the caller destroys, of what a message or a list says."""
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if offsets is not None:
        return partitions_to(offsets, "offsets")
    if message is None:
        raise ValueError("expected either message or offsets")
    if not isinstance(message, Message):
        raise TypeError(f"message: expected a Message, got {type(message).__name__}")
    error = message.error()
    if error is not None:
        raise KafkaException(KafkaError(
            <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
            f"Cannot commit offsets for message with error: '{error.str()}'"))
    if message.topic() is None or message.partition() is None or message.offset() is None:
        raise ValueError("message: it has no topic, partition or offset")
    return partitions_to([TopicPartition(message.topic(), message.partition(),
                                         message.offset() + 1,
                                         leader_epoch=message.leader_epoch())], "message")
