"""Consumer: subscriptions, assignments. Messages are in _fetcher, offsets in _offsets and _lag.

Longer than 500 lines, a third of them the documentation of the methods.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport (
    CK_CALL_SEEK,
    ck_batch_compact,
    ck_batch_drop,
    ck_batch_t,
    ck_call_leave,
    ck_call_t,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_OFFSET_BEGINNING,
    RD_KAFKA_OFFSET_END,
    RD_KAFKA_OFFSET_TAIL_BASE,
    RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST,
    RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS,
    RD_KAFKA_RESP_ERR__INVALID_ARG,
    RD_KAFKA_RESP_ERR__RETRY,
    RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS,
    RD_KAFKA_RESP_ERR__STATE,
    RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
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
    rd_kafka_subscribe,
    rd_kafka_subscription,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
    rd_kafka_unsubscribe,
)
from cykafka._core.client.client cimport new_call
from cykafka._core.common.config cimport property_of
from cykafka._core.common.errors cimport check_doing, check_error
from cykafka._core.common.partition cimport (
    TopicPartition,
    partitions_from,
    partitions_to,
    subscription_fault,
    topics_to,
)
from cykafka._core.consume.lag cimport Lag
from cykafka._core.consume.member cimport list_call_t

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException
from cykafka._core.common.naming import public


cdef enum:
    # librdkafka's own thread answers a seek at once, unless it has forgotten the partition; ms.
    SEEK_MS = 5000


cdef class Consumer(Lag):
    """Reads records, as a member of a group or from partitions it is given.

    Parameters
    ----------
    config : dict
        librdkafka's properties, ``group.id`` among them; values are str, bool, int, float or None
        (the default). In addition, all optional:

        ``on_commit(KafkaError or None, list of TopicPartition)``
            Called when an asynchronous or automatic commit has finished.
        ``error_cb(KafkaError)``, ``throttle_cb(ThrottleEvent)``, ``stats_cb(json: str)``
            ``stats_cb`` needs ``statistics.interval.ms``.
        ``logger``
            A logging.Logger or logging.Handler for librdkafka's log.
        ``oauth_cb(config: str)``
            Returns (token, expiry in s since the epoch[, principal[, extensions]]). Runs on
            librdkafka's thread; the constructor waits up to 10 s for the first token.
        ``default.topic.config``
            A dict of topic properties; they override the same properties of ``config``.
        ``fetch.queue.backoff.ms``
            20 by default instead of librdkafka's 1000. With 1000 a consumer that has emptied its
            queue of fetched records waits for the rest of the second. 20 costs 0.3 % of a core
            while the queue of 64 partitions is full.

    Raises
    ------
    KafkaException
        A property does not exist or does not accept the value; the error names it.
    ValueError
        There is no ``group.id``.

    Notes
    -----
    All callbacks except ``oauth_cb`` run in the calls that wait for messages, and in ``close``.
    These calls raise the exceptions of the callbacks. The consumer is a context manager; leaving
    the block closes it.
    """

    def __cinit__(self, *args, **kwargs):
        self._suitable = -1
        self._marks = {}
        self._given_up = {}
        self._unread = set()
        self._starts = {}

    # -- subscription and assignment

    def subscribe(self, topics, on_assign=None, on_revoke=None, on_lost=None):
        """Subscribe to topics; replaces the previous subscription.

        Parameters
        ----------
        topics : list of str
            Names, or regular expressions: these begin with ``^``.
        on_assign, on_revoke, on_lost : callable, optional
            ``callback(consumer, partitions)``: partitions have been assigned, are about to be
            revoked (commit now), or were lost (too late to commit; ``on_revoke`` if there is no
            ``on_lost``). A callback may call ``assign`` and ``unassign``, or with a cooperative
            assignor ``incremental_assign`` and ``incremental_unassign``. If it does not, the
            consumer does so afterwards. The callback runs inside of librdkafka: a child process
            that it forks must end with ``os._exit`` or exec.

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

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` if a partition is given twice. The assignment then stays as it was.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            # librdkafka would refuse them when it has removed the assignment.
            refuse_duplicates(c_partitions, "Failed to set assignment")
            self.give_up(None, RD_KAFKA_RESP_ERR__STATE, "assign() has replaced it")
            self._unread.clear()
            self.on_list(<list_call_t>rd_kafka_assign, c_partitions, "Failed to set assignment")
            self._assigned = True
            self.begin_reading(partitions_from(c_partitions))
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        self.drop(NULL)

    def unassign(self):
        """Read no partition any more."""
        self.give_up(None, RD_KAFKA_RESP_ERR__STATE, "unassign() has removed it")
        self._unread.clear()
        self._starting = False
        self.on_list(<list_call_t>rd_kafka_assign, NULL, "Failed to remove assignment")
        self._assigned = True
        self.drop(NULL)

    def incremental_assign(self, partitions):
        """Read these partitions too (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            None of them assigned yet.

        Raises
        ------
        KafkaException
            ``_CONFLICT`` if one is assigned already, ``_INVALID_ARG`` if one is given twice,
            ``_STATE`` in ``on_assign`` if the group's protocol is eager.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            self.on_list_error(rd_kafka_incremental_assign, c_partitions)
            self._assigned = True
            self.begin_reading(partitions_from(c_partitions))
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def incremental_unassign(self, partitions):
        """Read these partitions no more (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            All of them assigned, each given once.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` if one is not assigned or is given twice.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            refuse_duplicates(c_partitions, "partitions")
            self.give_up(partitions_from(c_partitions), RD_KAFKA_RESP_ERR__STATE,
                         "incremental_unassign() has removed it")
            self.on_list_error(rd_kafka_incremental_unassign, c_partitions)
            self._assigned = True
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

    # -- positions

    def pause(self, partitions):
        """Stop fetching and returning messages of these partitions; they stay assigned.

        Messages that an earlier call has fetched but not returned (because a callback raised, for
        example) are held back and come first after ``resume()``. A call in another thread that is
        about to return may still return some of them.

        Parameters
        ----------
        partitions : list of TopicPartition
            Assigned ones; others are ignored, so pause new ones in ``on_assign``. They stay paused
            until ``resume()``, even if they are revoked and assigned again.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            self.on_list(rd_kafka_pause_partitions, c_partitions, "Failed to pause partitions")
            self.hold(c_partitions)
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
            # Before resuming: otherwise another thread might fetch the messages after these.
            self.let_go(c_partitions)
            self.on_list(rd_kafka_resume_partitions, c_partitions, "Failed to resume partitions")
            self.wake_reader()
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def seek(self, partition):
        """Continue at another offset of an assigned partition.

        Messages that were fetched before are dropped. If another thread is in a call that reads,
        that call may still return some of them.

        Parameters
        ----------
        partition : TopicPartition
            Its ``offset`` is an offset, ``OFFSET_BEGINNING``, ``OFFSET_END``, or -2000 - n for the
            last n records.

        Raises
        ------
        ValueError
            The offset is none of the above.
        KafkaException
            ``_STATE`` or ``_UNKNOWN_PARTITION`` if the partition is not being fetched;
            ``_TIMED_OUT`` if there was no answer within 5 s. Ctrl-C is noticed within 0.1 s.
        """
        if not isinstance(partition, TopicPartition):
            raise TypeError(
                f"partition: expected a TopicPartition, got {type(partition).__name__}")
        check_seekable(partition.offset)
        if self._open_in != ck_runtime_generation:
            self.refuse()
        self.give_up([partition], RD_KAFKA_RESP_ERR__STATE, "seek() has moved it")
        self.begin_reading([partition])
        error, = self.seek_to([partition])
        if error is not None:
            doing = (f"Failed to seek {partition.topic} [{partition.partition}] to offset "
                     f"{partition.offset}")
            if error in (<int>RD_KAFKA_RESP_ERR__STATE, <int>RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION):
                doing += " (assign the partition first)"
            check_doing(<rd_kafka_resp_err_t><int>error.code(), doing)

    cdef list seek_to(self, list partitions):
        """Seek to the offsets of the partitions. Returns a KafkaError or None for each."""
        cdef rd_kafka_error_t *error
        cdef ck_batch_t *aside = NULL
        cdef bint started = False
        cdef ck_call_t *call = new_call(CK_CALL_SEEK)
        try:
            call.partitions = partitions_to(partitions, "partition")
            # What is gathered now was fetched before the seek. What another thread gathers
            # meanwhile may come after it.
            aside = self.new_batch(1)
            self.take_out(call.partitions, aside)
            self.start_call(call, SEEK_MS)
            started = True
            self.await_call(call)
            error = call.error
            call.error = NULL
            check_error(error)
            outcomes = partitions_from(call.partitions)
            c_done = partitions_to([each for each in outcomes if each.error is None], "partition")
            self.forget(aside, c_done)
            rd_kafka_topic_partition_list_destroy(c_done)
            return [each.error for each in outcomes]
        except:
            # librdkafka still seeks. In a child that a signal handler has forked the messages are
            # the parent's.
            if started and self._generation == ck_runtime_generation:
                self.forget(aside, call.partitions)
            raise
        finally:
            # What was fetched of a partition where the seek failed is still to be handed over.
            if aside is not NULL:
                self.end_batch(aside)
            ck_call_leave(call)

    cdef void forget(self, ck_batch_t *aside,
                     const rd_kafka_topic_partition_list_t *partitions) noexcept:
        """Drop the messages of these partitions that were put aside or held back."""
        ck_batch_drop(aside, partitions)
        ck_batch_compact(aside)
        if self._held is not NULL:
            ck_batch_drop(self._held, partitions)
            ck_batch_compact(self._held)

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

    # -- transactions, for Producer.transaction()

    def _check_suitable(self):
        """Raise unless a transaction may commit this consumer's offsets."""
        if self._open_in != ck_runtime_generation:
            self.refuse()
        for name, value, why in (
                ("enable.auto.commit", "false",
                 "offsets are committed with the transaction alone"),
                ("isolation.level", "read_committed",
                 "messages of open transactions may yet be aborted")):
            if self.property(name) != value:
                raise ValueError(f"consumer: expected {name}={value}: {why}")

    def _prepare_transaction(self, timeout):
        """Prepare for a transaction with this consumer's offsets.

        Raises, retriable, if messages were handed over that it cannot commit. The consumer has
        then gone back, and hands them over again.
        """
        if not self._behind and not self._given_up:
            return
        given_up = dict(self._given_up)
        again = self._behind and len(self._uncommitted(self.assignment())) > 0
        self._rewind(timeout)
        for error in given_up.values():
            raise KafkaException(KafkaError(
                error.code(), f"{error.str()}; no transaction was begun, and the consumer has "
                "gone back: read again", retriable=True))
        if again:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__RETRY,
                "The last transaction failed, and the consumer could not go back before it handed "
                "over more messages; no transaction was begun, and the consumer has gone back "
                "now: read again", retriable=True))

    def _transaction_offsets(self):
        """The positions and the group's metadata; raises if they do not cover all messages that
        were handed over."""
        metadata = self.consumer_group_metadata()
        read = self._read_positions()
        for error in self._given_up.values():
            raise KafkaException(KafkaError(error.code(), error.str(), txn_requires_abort=True))
        return read, metadata

    def _note_committed(self, positions):
        """A transaction has committed these positions."""
        self._marks = {(each.topic, each.partition): each.offset for each in positions}
        self._starts.update(self._marks)

    def _note_failed_transaction(self):
        """From now on no message that is handed over may be committed before _rewind()."""
        self._behind = True
        self._marks = {}
        try:
            self._marks = {(each.topic, each.partition): each.offset
                           for each in self._read_positions()}
        except (KafkaException, ClosedError):
            pass  # without marks, all messages count as handed over since

    def _rewind(self, timeout):
        """Seek to the committed offsets, or to where reading began if none is committed.

        No transaction begins until that has succeeded.
        """
        self._behind = True
        read = self._handed_over(self.assignment())
        read += [each for each in self.assignment()
                 if each not in read and (each.topic, each.partition) in self._given_up]
        if read:
            targets = []
            for each in self.committed(read, timeout):
                if each.error is not None:
                    raise KafkaException(each.error)
                offset = each.offset
                if offset < 0:
                    offset = self._starts.get((each.topic, each.partition),
                                              RD_KAFKA_OFFSET_BEGINNING)
                targets.append(TopicPartition(each.topic, each.partition, offset))
            # If only some of the seeks succeed, messages may come twice.
            self._marks = {}
            for each, error in zip(targets, self.seek_to(targets)):
                if error is not None and each in self.assignment():
                    raise KafkaException(error)
        self._marks = {}
        self._given_up = {}
        self._behind = False

    cdef bint suits(self) except -1:
        """Whether a transaction may commit this consumer's offsets."""
        if self._suitable < 0 and self._ptr is not NULL:
            self._suitable = (property_of(self._ptr, "enable.auto.commit") == "false"
                              and property_of(self._ptr, "isolation.level") == "read_committed")
        return self._suitable > 0

    cdef list _read_positions(self):
        """The positions of the assigned partitions of which messages were returned."""
        return [partition for partition in self.position(self.assignment())
                if partition.offset >= 0]

    cdef list _uncommitted(self, list partitions):
        """Those of the partitions of which messages were handed over since the last transaction.
        """
        return [each for each in self._handed_over(partitions)
                if self._marks.get((each.topic, each.partition)) != each.offset]

    cdef list _handed_over(self, list partitions):
        """Those of the partitions of which messages were handed over, with their positions.

        Messages that are gathered, when a callback has raised, change the position, too.
        """
        return [each for each in self.position(partitions)
                if each.offset >= 0 and (each.topic, each.partition) not in self._unread]

    cdef int give_up(self, list partitions, rd_kafka_resp_err_t err, str words) except -1:
        """The positions of these partitions are about to go, or those of all (None).

        The next transaction cannot commit the offsets of what was handed over of them.
        """
        if not self.suits():
            return 0
        if partitions is None:
            partitions = [TopicPartition(*key) for key in self._starts]
        try:
            lost = {(each.topic, each.partition) for each in self._uncommitted(partitions)}
        except ClosedError:  # another thread closes; it may yet give up
            lost = {(each.topic, each.partition) for each in partitions}
        for each in partitions:
            key = each.topic, each.partition
            self._marks.pop(key, None)
            if key in lost:
                self._given_up.setdefault(key, KafkaError(
                    <int>err, f"The transaction cannot commit the offsets of {each.topic} "
                    f"[{each.partition}], of which messages were read: {words}"))
            elif key not in self._given_up:
                self._starts.pop(key, None)
            self._unread.discard(key)
        self._starting = len(self._unread) > 0
        return 0

    cdef int begin_reading(self, list partitions) except -1:
        """The next message of each of these partitions is its first one."""
        if self.suits():
            self._unread.update([(each.topic, each.partition) for each in partitions])
            self._starting = len(self._unread) > 0
            self._noted_topic = None
        return 0

    cdef int rebalance(self, rd_kafka_resp_err_t err,
                       rd_kafka_topic_partition_list_t *partitions) except -1:
        try:
            if err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
                self.give_up(partitions_from(partitions), RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST,
                             "the group has taken it away")
            elif err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
                self.begin_reading(partitions_from(partitions))
        finally:
            Lag.rebalance(self, err, partitions)
        return 0


cdef int refuse_duplicates(const rd_kafka_topic_partition_list_t *c_partitions,
                           str doing) except -1:
    """Raise for duplicates, with a text that begins with `doing`: unassigning a partition twice
    would abort the process."""
    cdef int i
    seen = set()
    for i in range(c_partitions.cnt):
        topic = <bytes>c_partitions.elems[i].topic
        number = c_partitions.elems[i].partition
        if (topic, number) in seen:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                f"{doing}: {topic.decode()} [{number}] is in the list twice"))
        seen.add((topic, number))
    return 0


cdef int check_seekable(int64_t offset) except -1:
    if (offset >= 0 or offset in (RD_KAFKA_OFFSET_BEGINNING, RD_KAFKA_OFFSET_END)
            or offset < RD_KAFKA_OFFSET_TAIL_BASE):
        return 0
    raise ValueError(f"partition: cannot seek to offset {offset}; expected 0 or more, "
                     "OFFSET_BEGINNING "
                     "(-2), OFFSET_END (-1), or -2000 - n for the last n records")


cdef list taken(rd_kafka_topic_partition_list_t *c_partitions):
    """A copy of librdkafka's list, which is destroyed."""
    try:
        return partitions_from(c_partitions)
    finally:
        rd_kafka_topic_partition_list_destroy(c_partitions)


public("cykafka")(Consumer)
