"""Consumer: subscriptions and assignments. Messages are in _fetcher, offsets in _offsets and _lag."""
from cpython.bytes cimport PyBytes_FromStringAndSize

from cykafka._errors cimport check_doing, check_error
from cykafka._librdkafka cimport (
    RD_KAFKA_RESP_ERR__INVALID_ARG,
    rd_kafka_assign,
    rd_kafka_assignment,
    rd_kafka_consumer_group_metadata,
    rd_kafka_consumer_group_metadata_destroy,
    rd_kafka_consumer_group_metadata_t,
    rd_kafka_consumer_group_metadata_write,
    rd_kafka_error_t,
    rd_kafka_incremental_assign,
    rd_kafka_incremental_unassign,
    rd_kafka_mem_free,
    rd_kafka_memberid,
    rd_kafka_pause_partitions,
    rd_kafka_resp_err_t,
    rd_kafka_resume_partitions,
    rd_kafka_seek_partitions,
    rd_kafka_subscribe,
    rd_kafka_subscription,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
    rd_kafka_unsubscribe,
)
from cykafka._lag cimport Lag
from cykafka._member cimport list_call_t
from cykafka._partition cimport (
    TopicPartition,
    partitions_from,
    partitions_to,
    subscription_fault,
    topics_to,
)

from cykafka._errors import KafkaError, KafkaException

from cykafka._errors import KafkaError, KafkaException


cdef enum:
    # librdkafka's own thread answers a seek at once, unless it has forgotten the partition; ms.
    SEEK_MS = 5000


cdef class Consumer(Lag):
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
            A dict of topic properties; they win over the same ones given beside it.
        ``fetch.queue.backoff.ms``
            20 by default, not librdkafka's 1000, which stops a reader that has emptied its queue of fetched
            records for the rest of a second. Costs a core 0.3 % while the queue of 64 partitions is full.

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
            It runs inside of librdkafka: a child that it forks must end by ``os._exit``, or exec.

        Raises
        ------
        KafkaException
        """
        for argument, callback in (("on_assign", on_assign), ("on_revoke", on_revoke),
                                   ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{argument}: expected a callable or None, "
                                f"got {type(callback).__name__}")
        c_topics = topics_to(topics)
        try:
            self.on_list(<list_call_t>rd_kafka_subscribe, c_topics, "Failed to set subscription")
        except KafkaException as exception:
            fault = subscription_fault(topics)
            if fault is None or exception.args[0] != <int>RD_KAFKA_RESP_ERR__INVALID_ARG:
                raise
            raise KafkaException(KafkaError(<int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                                            f"Failed to set subscription: {fault}")) from None
        finally:
            rd_kafka_topic_partition_list_destroy(c_topics)
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost

    def subscription(self):
        """What the consumer is subscribed to: a list of str, names and regular expressions."""
        cdef rd_kafka_topic_partition_list_t *c_topics = NULL
        cdef rd_kafka_resp_err_t err
        cdef int i
        rk = self.enter()
        with nogil:
            err = rd_kafka_subscription(rk, &c_topics)
        self.leave()
        check_doing(err, "Failed to get subscription")
        try:
            return [c_topics.elems[i].topic.decode() for i in range(c_topics.cnt)]
        finally:
            rd_kafka_topic_partition_list_destroy(c_topics)

    def unsubscribe(self):
        """Give the subscription up; the group takes the partitions back."""
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        with nogil:
            err = rd_kafka_unsubscribe(rk)
        self.leave()
        check_doing(err, "Failed to remove subscription")

    def assign(self, partitions):
        """Read these partitions and no others, each from its offset.

        Parameters
        ----------
        partitions : list of TopicPartition
            ``OFFSET_INVALID`` (the default) and ``OFFSET_STORED`` start at the committed offset.
        """
        c_partitions = partitions_to(partitions, "partitions")
        self._assigned = True
        try:
            self.on_list(<list_call_t>rd_kafka_assign, c_partitions, "Failed to set assignment")
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        self.drop(NULL)

    def unassign(self):
        """Read no partition any more."""
        self._assigned = True
        self.on_list(<list_call_t>rd_kafka_assign, NULL, "Failed to remove assignment")
        self.drop(NULL)

    def incremental_assign(self, partitions):
        """Read these partitions too (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            None of them assigned yet.
        """
        c_partitions = partitions_to(partitions, "partitions")
        self._assigned = True
        try:
            self.on_list_error(rd_kafka_incremental_assign, c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def incremental_unassign(self, partitions):
        """Read these partitions no more (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            All of them assigned, each given once.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            refuse_duplicates(c_partitions)
            self._assigned = True
            self.on_list_error(rd_kafka_incremental_unassign, c_partitions)
            self.drop(c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def assignment(self):
        """The partitions assigned now, a list of TopicPartition."""
        cdef rd_kafka_topic_partition_list_t *c_partitions = NULL
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        with nogil:
            err = rd_kafka_assignment(rk, &c_partitions)
        self.leave()
        check_doing(err, "Failed to get assignment")
        return taken(c_partitions)

    # -- where reading goes on

    def pause(self, partitions):
        """Fetch no more of these partitions; the assignment stays.

        Parameters
        ----------
        partitions : list of TopicPartition
            Assigned ones: they are paused until ``resume()`` or until they are taken from the assignment.
            One that is not assigned may stay paused when it is later.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            self.on_list(rd_kafka_pause_partitions, c_partitions, "Failed to pause partitions")
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def resume(self, partitions):
        """Fetch these partitions again.

        Parameters
        ----------
        partitions : list of TopicPartition
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            self.on_list(rd_kafka_resume_partitions, c_partitions, "Failed to resume partitions")
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def seek(self, partition):
        """Go on at another offset of an assigned partition.

        Parameters
        ----------
        partition : TopicPartition
            Its ``offset`` is an offset or ``OFFSET_BEGINNING`` or ``OFFSET_END``.

        Raises
        ------
        KafkaException
            ``_STATE`` or ``_UNKNOWN_PARTITION`` if the partition is not being read; ``_TIMED_OUT`` if there
            was no answer within 5 s.
        """
        cdef rd_kafka_error_t *error
        cdef rd_kafka_resp_err_t err
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"partition: expected a TopicPartition, got {type(partition).__name__}")
        c_partitions = partitions_to([partition], "partition")
        try:
            rk = self.enter()
            with nogil:
                error = rd_kafka_seek_partitions(rk, c_partitions, SEEK_MS)
            self.leave()
            err = c_partitions.elems[0].err
            if error is NULL and not err:
                self.drop(c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        check_error(error)
        check_doing(err, "Failed to seek")

    # -- the group

    def memberid(self):
        """The id the group's coordinator gave this member, str, or None before it joined."""
        cdef char *c_id
        rk = self.enter()
        with nogil:
            c_id = rd_kafka_memberid(rk)
        self.leave()
        if c_id is NULL:
            return None
        try:
            return c_id.decode() or None
        finally:
            rd_kafka_mem_free(NULL, c_id)

    def consumer_group_metadata(self):
        """The group's state for ``Producer.send_offsets_to_transaction``: an opaque object."""
        cdef rd_kafka_consumer_group_metadata_t *metadata
        cdef rd_kafka_error_t *error = NULL
        cdef void *buffer = NULL
        cdef size_t size = 0
        rk = self.enter()
        with nogil:
            metadata = rd_kafka_consumer_group_metadata(rk)
            if metadata is not NULL:
                error = rd_kafka_consumer_group_metadata_write(metadata, &buffer, &size)
                rd_kafka_consumer_group_metadata_destroy(metadata)
        self.leave()
        check_error(error)
        if metadata is NULL:
            raise RuntimeError("consumer_group_metadata: the consumer has no group")
        try:
            return PyBytes_FromStringAndSize(<char *>buffer, size)
        finally:
            rd_kafka_mem_free(NULL, buffer)


cdef int refuse_duplicates(const rd_kafka_topic_partition_list_t *c_partitions) except -1:
    """librdkafka checks what is assigned; a partition taken away twice makes it abort the process."""
    cdef int i
    seen = set()
    for i in range(c_partitions.cnt):
        topic = <bytes>c_partitions.elems[i].topic
        number = c_partitions.elems[i].partition
        if (topic, number) in seen:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                f"partitions: {topic.decode()} [{number}] is in the list twice"))
        seen.add((topic, number))
    return 0


cdef list taken(rd_kafka_topic_partition_list_t *c_partitions):
    """A copy of librdkafka's list, which is destroyed."""
    try:
        return partitions_from(c_partitions)
    finally:
        rd_kafka_topic_partition_list_destroy(c_partitions)
