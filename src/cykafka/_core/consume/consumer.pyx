"""Consumer: subscriptions and assignments, messages, offsets and lag, and close().

Most of this file is the documentation of the methods. The parts do the work: Membership follows
the group, Backlog keeps the messages, Fetcher gathers them and hands them over, and Progress
tracks the offsets that a transaction must commit.
"""
import logging

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport INT64_MAX, int64_t

from cykafka._core.batch cimport MessageBatch
from cykafka._core.clib.csrc cimport (
    ck_assign,
    ck_callback_consume,
    ck_incremental_assign,
    ck_queue_is_empty,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_CONSUMER,
    RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE,
    RD_KAFKA_OFFSET_BEGINNING,
    RD_KAFKA_OFFSET_END,
    RD_KAFKA_OFFSET_TAIL_BASE,
    RD_KAFKA_RESP_ERR__INVALID_ARG,
    RD_KAFKA_RESP_ERR__PARTITION_EOF,
    RD_KAFKA_RESP_ERR__STATE,
    RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
    rd_kafka_consumer_group_metadata,
    rd_kafka_consumer_group_metadata_destroy,
    rd_kafka_consumer_group_metadata_t,
    rd_kafka_consumer_group_metadata_write,
    rd_kafka_consumer_poll,
    rd_kafka_error_t,
    rd_kafka_incremental_unassign,
    rd_kafka_mem_free,
    rd_kafka_memberid,
    rd_kafka_message_t,
    rd_kafka_pause_partitions,
    rd_kafka_queue_t,
    rd_kafka_resp_err_t,
    rd_kafka_resume_partitions,
    rd_kafka_subscribe,
    rd_kafka_subscription,
    rd_kafka_t,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
    rd_kafka_unsubscribe,
)
from cykafka._core.client.call cimport idle, run
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport (
    deadline_after,
    int_argument,
    slice_left,
    timeout_ms,
)
from cykafka._core.common.config cimport (
    merged_config,
    set_default,
    take_bool,
    take_callable,
)
from cykafka._core.common.errors cimport chain, check_doing, check_error
from cykafka._core.common.partition cimport (
    TopicPartition,
    partitions_from,
    partitions_to,
    subscription_fault,
    topics_to,
)
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.fetcher cimport Fetcher
from cykafka._core.consume.membership cimport Membership
from cykafka._core.consume.offsets cimport (
    assignment,
    cached_watermark_offsets,
    commit,
    commit_and_wait,
    get_list,
    list_call_t,
    on_list,
    on_list_error,
    positions,
    store_offsets,
)
from cykafka._core.consume.progress cimport Progress
from cykafka._core.consume.ranges cimport Ranges

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException
from cykafka._core.common.naming import public
from cykafka._core.common.near_miss import near_miss
from cykafka._core.consume.lag import lag, watermarks
from cykafka._core.consume.offsets import (
    committed,
    offsets_for_times,
    seek,
    watermark_offsets,
)

_log = logging.getLogger("cykafka")

cdef enum:
    # The most messages of a call, and the most bytes.
    MAX_MESSAGES = 1_000_000
    MAX_BYTES = 2_000_000_000
    # The pause of a partition's fetches after the queue of fetched messages was full, ms. With
    # librdkafka's 1000 a fast reader empties the queue long before, and waits for the rest of the
    # second.
    FULL_QUEUE_MS = 20
    # How long seek() waits for the fetch of an assigned partition, and its pauses meanwhile, ms.
    FETCH_MS = 5000
    FETCH_PAUSE_MS = 10


@cython.no_gc_clear
cdef class Consumer(Handle):
    """Reads records, as a member of a group or from assigned partitions.

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
        self._backlog = Backlog.__new__(Backlog)
        self._progress = Progress(self._backlog)
        self._membership = Membership(self._backlog, self._progress)
        self._fetcher = Fetcher(self._membership, self._backlog, self._progress)
        self._role = self._membership
        self._closed_words = "Consumer closed"

    def __init__(self, *args, **kwargs):
        self.check_new()
        try:
            config = merged_config(args, kwargs, type(self).__name__)
            group_id = config.get("group.id")
            if group_id is None or group_id == "":
                close = near_miss("group.id", [key for key in config if key != "group.id"])
                hint = f'; "{close}" may be a misspelling of it' if close else ""
                raise ValueError(f"Failed to create consumer: group.id must be set{hint}")
            self._membership.listeners["on_commit"] = take_callable(config, "on_commit")
            # Old configurations may have it here, because it was a topic property in librdkafka.
            topic_config = config.get("default.topic.config")
            stores = take_bool(config, "enable.auto.offset.store", True)
            if isinstance(topic_config, dict) and "enable.auto.offset.store" in topic_config:
                topic_config = config["default.topic.config"] = dict(topic_config)
                stores = take_bool(topic_config, "enable.auto.offset.store", stores)
            config["enable.auto.offset.store"] = False
            self._backlog.stores = stores
            set_default(config, "fetch.queue.backoff.ms", FULL_QUEUE_MS)
            conf = self.new_conf(config)
            self._membership.register(self, conf)
            self.start(RD_KAFKA_CONSUMER, conf)
        finally:
            self._opening = False

    def configuration(self):
        values = Handle.configuration(self)
        # librdkafka's property is always false, because the fetcher stores offsets.
        values["enable.auto.offset.store"] = "true" if self._backlog.stores else "false"
        return values

    # -- subscription and assignment

    def subscribe(self, topics, on_assign=None, on_revoke=None, on_lost=None):
        """Subscribe to topics; replaces the previous subscription.

        Parameters
        ----------
        topics : list of str
            Names, or regular expressions, which begin with ``^``.
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
        RuntimeError
            The consumer is closed, or this is a callback of close().
        """
        for argument, callback in (("on_assign", on_assign), ("on_revoke", on_revoke),
                                   ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{argument}: expected a callable or None, "
                                f"got {type(callback).__name__}")
        if self.is_closing():
            # librdkafka would accept it, and then abort the process: the group that ends must have
            # no subscription.
            raise ClosedError(f"{self._closed_words}: a callback of close() cannot subscribe")
        c_topics = topics_to(topics)
        try:
            on_list(self, <list_call_t>rd_kafka_subscribe, c_topics, "Failed to set subscription")
        except KafkaException as exception:
            fault = subscription_fault(topics)
            if fault is None or exception.args[0] != <int>RD_KAFKA_RESP_ERR__INVALID_ARG:
                raise
            raise KafkaException(KafkaError(<int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                                            f"Failed to set subscription: {fault}")) from None
        finally:
            rd_kafka_topic_partition_list_destroy(c_topics)
        self._membership.listeners.update(on_assign=on_assign, on_revoke=on_revoke,
                                          on_lost=on_lost)

    def subscription(self):
        """Return the subscription: a list of str, names and regular expressions."""
        return [each.topic for each in get_list(self, rd_kafka_subscription,
                                                "Failed to get subscription")]

    def unsubscribe(self):
        """End the subscription; the group revokes the partitions."""
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
            ``_INVALID_ARG`` if a partition is given twice. The assignment then stays unchanged.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            # librdkafka would refuse duplicates only after it has removed the assignment.
            refuse_duplicates(c_partitions, "Failed to set assignment")
            self._progress.give_up(self, None, RD_KAFKA_RESP_ERR__STATE,
                                   "assign() has replaced the assignment")
            self._progress.begin_anew()
            on_list(self, <list_call_t>ck_assign, c_partitions, "Failed to set assignment")
            self._membership.assigned = True
            self._progress.begin_reading(self, partitions_from(c_partitions))
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)
        self._backlog.drop(NULL)

    def unassign(self):
        """Remove all partitions from the assignment."""
        self._progress.give_up(self, None, RD_KAFKA_RESP_ERR__STATE,
                               "unassign() has removed the partition")
        self._progress.begin_anew()
        on_list(self, <list_call_t>ck_assign, NULL, "Failed to remove assignment")
        self._membership.assigned = self._membership.unassigned = True
        self._backlog.drop(NULL)

    def incremental_assign(self, partitions):
        """Add partitions to the assignment (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            Partitions that are not assigned yet.

        Raises
        ------
        KafkaException
            ``_CONFLICT`` if one is assigned already, ``_INVALID_ARG`` if one is given twice,
            ``_STATE`` in ``on_assign`` if the group's protocol is eager.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            on_list_error(self, ck_incremental_assign, c_partitions)
            self._membership.assigned = True
            self._progress.begin_reading(self, partitions_from(c_partitions))
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def incremental_unassign(self, partitions):
        """Remove partitions from the assignment (KIP-429).

        Parameters
        ----------
        partitions : list of TopicPartition
            Assigned partitions, each given once.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` if one is not assigned or is given twice.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            refuse_duplicates(c_partitions, "partitions")
            self._progress.give_up(self, partitions_from(c_partitions), RD_KAFKA_RESP_ERR__STATE,
                                   "incremental_unassign() has removed the partition")
            on_list_error(self, rd_kafka_incremental_unassign, c_partitions)
            self._membership.assigned = self._membership.unassigned = True
            self._backlog.drop(c_partitions)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def assignment(self):
        """Return the assigned partitions, a list of TopicPartition."""
        return assignment(self)

    # -- positions

    def pause(self, partitions):
        """Stop fetching and returning messages of these partitions; they stay assigned.

        Messages that an earlier call has fetched but not returned (because a callback raised, for
        example) are held back and come first after ``resume()``. A call in another thread that is
        about to return may still return some of them.

        Parameters
        ----------
        partitions : list of TopicPartition
            Assigned partitions; others are ignored. To pause new ones in ``on_assign``, call
            ``assign()`` or ``incremental_assign()`` there first. Partitions stay paused until
            ``resume()``, even if they are revoked and assigned again.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            on_list(self, rd_kafka_pause_partitions, c_partitions, "Failed to pause partitions")
            self._backlog.hold(c_partitions)
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
            # Do this before resuming: otherwise another thread might first fetch later messages.
            self._backlog.let_go(c_partitions)
            on_list(self, rd_kafka_resume_partitions, c_partitions, "Failed to resume partitions")
            self._backlog.wake_reader(self)
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
            The offset is invalid.
        KafkaException
            ``_STATE`` or ``_UNKNOWN_PARTITION`` if the partition is not assigned, or if it is not
            fetched within 5 s after its assignment (in a rebalance callback: at once);
            ``_TIMED_OUT`` if there was no answer within 5 s. Ctrl-C is noticed within 0.1 s.
        """
        run(seek_partition(self, partition))

    # -- messages

    def poll(self, timeout=None):
        """Wait for one message, running callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: forever. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        Message or None
            None if no message arrived in time. Check ``message.error()`` first: an event (such as
            ``_PARTITION_EOF``) or an error is also returned as a message.

        Raises
        ------
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t limit = timeout_ms(timeout, "timeout")
        cdef int64_t deadline = -2  # set when the first wait begins
        cdef rd_kafka_message_t *rkmessage
        cdef rd_kafka_t *rk
        cdef int ms = 0
        if self._open_in != ck_runtime_generation:
            self.refuse()
        self._membership.refuse_inside("poll")
        if self._backlog.has_kept():
            self._membership.after_call(self)
            kept = self._fetcher.hand_over(self._backlog.carry, 1)
            if kept:
                return kept[0]
        while True:
            rk = self.enter()
            # First try without a wait and with the GIL: usually a message is available.
            if ms == 0:
                rkmessage = rd_kafka_consumer_poll(rk, 0)
            else:
                with nogil:
                    rkmessage = ck_callback_consume(rk, ms)
            self.leave()
            if (not ck_queue_is_empty(self._events) or self._raised is not None
                    or self._membership.closes_later
                    or (self._tokens is not None and self._tokens._raised is not None)
                    or self._backlog.has_kept()
                    or self._open_in != ck_runtime_generation):
                # A callback may raise or close the consumer. The message must survive an
                # exception, but not a close. It follows the messages that another thread has
                # released with resume().
                if rkmessage is not NULL:
                    self._backlog.keep(rkmessage)
                self._membership.after_call(self)
                if self._backlog.has_kept():
                    kept = self._fetcher.hand_over(self._backlog.carry, 1)
                    if kept:
                        return kept[0]
            elif rkmessage is not NULL:
                return self._fetcher.hand_over_one(rkmessage)
            if deadline == -2:
                deadline = deadline_after(limit)
            ms = self.slice_ms(deadline)
            if ms == 0:
                self._backlog.catch_up(self, ck_runtime_now_ms())
                return None
            PyErr_CheckSignals()

    def __iter__(self):
        """Iterate over the messages; see :meth:`__next__`."""
        self.check_open()
        return self

    def __next__(self):
        """Wait for the next record, as ``poll()`` does.

        The iteration ends when the loop's body, a callback or another thread closes the consumer.
        A ``close(timeout=)`` of another thread ends it even if it then runs out of time and leaves
        the consumer open.
        Ends of partitions (``_PARTITION_EOF``) are skipped.

        Raises
        ------
        KafkaException
            Another event or an error came instead of a record. The iteration can continue after
            it.
        """
        cdef int64_t stops = self._stops
        while True:
            try:
                message = self.poll()
            except ClosedError:
                if self._open_in == ck_runtime_generation and self._stops == stops:
                    raise  # it was about another handle, in a callback
                raise StopIteration from None
            if message is None:
                continue
            error = message.error()
            if error is None:
                return message
            if error.code() != RD_KAFKA_RESP_ERR__PARTITION_EOF:
                raise KafkaException(error)

    def consume(self, num_messages=1, timeout=None):
        """Wait for up to ``num_messages`` messages, running callbacks meanwhile.

        Parameters
        ----------
        num_messages : int
            At most 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: until all are there. Ctrl-C is noticed within 0.1 s.
            The next call returns the messages gathered by then, or before a callback raised.

        Returns
        -------
        list of Message
            Fewer than requested, or none, at the end of the timeout. No message of a partition
            that was revoked meanwhile.

        Raises
        ------
        ValueError
            ``num_messages`` is out of range.
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t want = int_argument(num_messages, "num_messages", 0, MAX_MESSAGES)
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if want == 0:
            self.check_open()
            return []
        return self._fetcher.messages(self, want, deadline)

    def consume_batch(self, max_messages=10_000, timeout=None):
        """Wait for up to ``max_messages`` messages, running callbacks meanwhile. Like
        ``consume()``, but makes no Message objects.

        Parameters
        ----------
        max_messages : int
            1 to 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: until all are there. Ctrl-C is noticed within 0.1 s.
            The next call returns the messages gathered by then, or before a callback raised.

        Returns
        -------
        MessageBatch
            The records: fewer than requested, or none, at the end of the timeout; none of a
            partition that was revoked meanwhile. Events and errors are in ``batch.errors``. With
            ``enable.auto.offset.store`` (the default) the whole batch counts as read now.
            Otherwise call ``store_offsets(batch)`` or ``commit(batch)`` after processing it.

        Raises
        ------
        ValueError
            ``max_messages`` is out of range.
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t want = int_argument(max_messages, "max_messages", 1, MAX_MESSAGES)
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        return self._fetcher.batch(self, want, deadline, False, "consume_batch")

    def batches(self, max_messages=10_000, timeout=1.0):
        """Iterate over batches until the loop's body, a callback or another thread closes the
        consumer.

        A ``close(timeout=)`` of another thread ends the iteration even if it then runs out of time
        and leaves the consumer open.

        Parameters
        ----------
        max_messages : int
            The most records of a batch, 1 to 1,000,000.
        timeout : float, optional
            The longest time to fill a batch, s; None or less than 0: only full batches. In a
            topic of little traffic, a record may wait this long before it is handed over.

        Returns
        -------
        iterator of MessageBatch
            No batch is empty or has errors. Raises KafkaException for an event or error, once
            the records before it are handed over; the iteration can then continue after it. Ends
            of partitions (``_PARTITION_EOF``) are skipped.

        Raises
        ------
        ValueError
            ``max_messages`` is out of range.
        RuntimeError
            The consumer is closed.
        """
        cdef BatchIterator iterator = BatchIterator.__new__(BatchIterator)
        iterator._want = int_argument(max_messages, "max_messages", 1, MAX_MESSAGES)
        iterator._timeout = timeout_ms(timeout, "timeout")
        iterator._consumer = self
        self.check_open()
        return iterator

    # -- offsets

    def position(self, partitions):
        """Return the offsets after the last messages handed over.

        Parameters
        ----------
        partitions : list of TopicPartition

        Returns
        -------
        list of TopicPartition
            ``OFFSET_INVALID`` if no message was handed over yet; ``error`` if the request failed.
        """
        return positions(self, self._backlog, partitions)

    def get_watermark_offsets(self, partition, timeout=None, cached=False):
        """Return the first offset of a partition and the offset after its last.

        Parameters
        ----------
        partition : TopicPartition
        timeout : float, optional
            Seconds to wait for the broker; forever by default. Ctrl-C is noticed within 0.1 s.
        cached : bool
            Return cached values: every fetch updates high, and low is updated with
            ``statistics.interval.ms``.

        Returns
        -------
        tuple of (int, int)
            Low and high; ``OFFSET_INVALID`` for an unknown offset.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT``, or the broker's error.
        """
        if cached:
            return cached_watermark_offsets(self, partition)
        return run(watermark_offsets(self, partition, timeout))

    def offsets_for_times(self, partitions, timeout=None):
        """Return the first offsets at or after a time (KIP-79).

        Parameters
        ----------
        partitions : list of TopicPartition
            Their ``offset`` is a timestamp, ms since the epoch.
        timeout : float, optional
            Seconds; forever by default. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        list of TopicPartition
            -1 (``OFFSET_END``) if all messages are older; ``error`` if the request failed.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` or ``_ALL_BROKERS_DOWN`` if no broker answered.
        """
        return run(offsets_for_times(self, partitions, timeout))

    def store_offsets(self, message=None, offsets=None):
        """Mark offsets for the next automatic or argument-less commit.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Its offset + 1; for a batch, that of the last record of each partition. An empty batch
            stores nothing.
        offsets : list of TopicPartition, optional
            Instead of a message.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` unless ``enable.auto.offset.store`` is false; ``_STATE`` if none of
            the partitions is assigned. If only some are not assigned, they are skipped.
        """
        store_offsets(self, self._backlog, message, offsets)

    def commit(self, message=None, offsets=None, asynchronous=True, **kwargs):
        """Commit offsets to the group.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Commit its offset + 1; for a batch, that of the last record of each partition. An empty
            batch commits nothing.
        offsets : list of TopicPartition, optional
            Commit these offsets. Without message and offsets, commit the stored offsets.
        asynchronous : bool
            Return at once; ``on_commit`` gets the outcome. The older name ``async`` also works,
            as in ``commit(**{"async": False})``.

        Returns
        -------
        None, or list of TopicPartition when not asynchronous
            The committed offsets, each with its ``error``. Ctrl-C is noticed within 0.1 s; the
            commit continues.

        Raises
        ------
        KafkaException
            ``_NO_OFFSET`` if no offset is stored.
        """
        if "async" in kwargs:
            asynchronous = kwargs.pop("async")
        if kwargs:
            raise TypeError(f"commit() got an unexpected keyword argument {next(iter(kwargs))!r}")
        return commit(self, message, offsets, asynchronous)

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
            ``OFFSET_INVALID`` if no offset is committed; ``error`` if the request failed.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` or the coordinator's error.
        """
        return run(committed(self, partitions, timeout))

    def watermarks(self, partitions=None, timeout=None):
        """Return the first offsets of partitions, and the offsets after their last.

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
            ``low`` and ``high`` of each partition. High is the last stable offset, unless
            ``isolation.level`` is ``read_uncommitted``. If the request failed, the key's ``error``
            has the reason and both are ``OFFSET_INVALID``.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT``, or the reason why no broker could be reached.
        """
        return run(watermarks(self, partitions, timeout))

    def lag(self, partitions=None, timeout=None):
        """Return the number of offsets between the next offset to read and the end.

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
            As ``watermarks`` and ``committed``.

        Notes
        -----
        Offsets are counted, not records: transaction markers and compacted records count as well.
        """
        return run(lag_of(self, partitions, timeout))

    # -- the group

    def memberid(self):
        """Return the member id from the group's coordinator, str, or None before the join."""
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
        """Return the group's state for ``Producer.send_offsets_to_transaction``: opaque bytes."""
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

    # -- closing

    def close(self, timeout=None):
        """Leave the group and free the consumer.

        Runs ``on_revoke`` and, with ``enable.auto.commit``, commits the stored offsets first.
        Closing again does nothing. A ``poll()`` or ``consume()`` in another thread raises
        RuntimeError. In a rebalance callback the consumer is closed after the callback, and the
        call returns None. Exceptions of callbacks are raised when the consumer is closed, each as
        the ``__context__`` of the next.

        Ctrl-C ends the wait as the end of the timeout does: the consumer is closed, and a thread
        completes the rest. The interpreter's end waits for such threads for at most a second.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; by default without limit, which may mean ``session.timeout.ms`` if
            there is no coordinator, and the rest of ``socket.timeout.ms`` of a commit before the
            close. Callbacks are not interrupted.

        Returns
        -------
        bool or None
            None without a timeout. With one, whether the consumer left its group in time;
            librdkafka's threads may end later. If not, it is closed anyway and logs a
            warning. A thread completes the leave, but ``on_revoke`` may not have run. If the
            process ends before that, the group notices only after the session timeout, and stored
            offsets may not be committed, so their messages are read again.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if a call in another thread (a rebalance callback, say) did not end in
            time. The consumer then stays open, but other calls that waited meanwhile raise
            RuntimeError, and iterations end.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if self._state and self._membership.is_inside():
            self._membership.closes_later = True
            self._membership.close_timeout = timeout
            return None
        if self.begin_close(deadline):
            self._close(deadline)
        return None if deadline < 0 else not self._membership.overdue

    cdef int _close(self, int64_t deadline) except -1:
        # The close cannot be undone any more: finish it, then raise.
        raised = self.begin_leave()
        raised = self._membership.leave(self, deadline, raised)
        raised = self.end_leave(deadline, raised)
        if raised is not None:
            raise raised
        return 0

    cdef object begin_leave(self):
        """Stop reading, and begin to leave the group. Returns an exception to raise at the end, or
        None."""
        raised = None
        try:
            self._backlog.catch_up(self, INT64_MAX)
        except BaseException as exception:
            raised = exception
        self._backlog.release()
        try:
            self._membership.begin_leave(self)
        except BaseException as exception:
            raised = chain(raised, exception)
        return raised

    cdef object end_leave(self, int64_t deadline, object raised):
        """Free the consumer; a thread completes the leave. Returns the exception to raise."""
        cdef rd_kafka_queue_t *closing = self._membership.end_leave(self)
        if closing is not NULL:
            self._membership.overdue = True
            _log.warning("%s: closed without waiting for the group any longer: stored offsets "
                         "may not be committed, and their messages are read again", self._label)
        return self.finish_close(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE, closing, deadline, raised)


def seek_partition(Consumer consumer not None, partition):
    """An operation: Consumer.seek()."""
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"partition: expected a TopicPartition, got {type(partition).__name__}")
    check_seekable(partition.offset)
    consumer.check_open()
    consumer._progress.give_up(consumer, [partition], RD_KAFKA_RESP_ERR__STATE,
                               "seek() has moved the position")
    consumer._progress.begin_reading(consumer, [partition])
    deadline = deadline_after(FETCH_MS)
    while True:
        error, = yield from seek(consumer, consumer._backlog, [partition])
        # librdkafka does not fetch an assigned partition before it knows the committed offset.
        if (error is None or error.code() != <int>RD_KAFKA_RESP_ERR__STATE
                or slice_left(deadline) == 0 or consumer._membership.is_inside()
                or partition not in assignment(consumer)):
            break
        yield idle(consumer, FETCH_PAUSE_MS)
    if error is not None:
        doing = (f"Failed to seek {partition.topic} [{partition.partition}] to offset "
                 f"{partition.offset}")
        if error in (<int>RD_KAFKA_RESP_ERR__STATE, <int>RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION):
            doing += " (assign the partition first)"
        check_doing(<rd_kafka_resp_err_t><int>error.code(), doing)


@cython.final
cdef class BatchIterator:
    """The iterator of ``Consumer.batches()``."""

    cdef Consumer _consumer
    cdef int64_t _want
    cdef int64_t _timeout

    def __iter__(self):
        return self

    def __next__(self):
        cdef Consumer consumer = self._consumer
        cdef MessageBatch batch
        cdef int64_t stops
        if consumer is None:  # made without batches(), or cleared by the collector
            raise StopIteration
        stops = consumer._stops
        while True:
            try:
                batch = consumer._fetcher.batch(consumer, self._want,
                                                deadline_after(self._timeout), True, "batches")
            except ClosedError:
                if consumer._open_in == ck_runtime_generation and consumer._stops == stops:
                    raise  # it was about another handle, in a callback
                raise StopIteration from None
            if batch._cnt:
                return batch
            PyErr_CheckSignals()


def consume_ranges(Consumer consumer not None, ranges, max_messages=10_000, max_bytes=16_777_216,
                   timeout=None):
    """Wait for records of ranges of offsets, running callbacks meanwhile.

    The caller has assigned the partitions, with the first offsets of the ranges, and has set
    ``enable.partition.eof`` to true. Without it, a range whose last offsets hold no records
    never ends.

    Parameters
    ----------
    consumer : Consumer
    ranges : Ranges
        The ranges and their progress, which this call advances.
    max_messages : int
        1 to 1,000,000.
    max_bytes : int
        Bytes of keys and values; approximate, because a record's size is known only on arrival.
    timeout : float, optional
        Seconds; None or less than 0: until one of the limits or the end of all ranges is
        reached. Ctrl-C is noticed within 0.1 s. The next call returns the messages
        gathered by then, or before a callback raised.

    Returns
    -------
    MessageBatch
        Only records within the ranges, each once. ``errors`` has events and errors,
        except ends of partitions; the call returns at the first.

    Raises
    ------
    ValueError
        ``max_messages`` or ``max_bytes`` is out of range.
    RuntimeError
        The consumer is closed, or another thread reads these ranges.
    """
    cdef int64_t want = int_argument(max_messages, "max_messages", 1, MAX_MESSAGES)
    cdef int64_t room = int_argument(max_bytes, "max_bytes", 1, MAX_BYTES)
    cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
    if not isinstance(ranges, Ranges):
        raise TypeError(f"ranges: expected Ranges, got {type(ranges).__name__}")
    return consumer._fetcher.ranges(consumer, ranges, want, room, deadline)


def lag_of(Consumer consumer not None, partitions, timeout):
    """An operation: Consumer.lag()."""
    return lag(consumer, consumer._backlog, partitions, timeout)


def available(Consumer consumer not None, num_messages):
    """The number of messages, at most ``num_messages``, that the next ``consume()`` need not wait
    for. They are gathered, but do not count as read."""
    return consumer._fetcher.available(
        consumer, int_argument(num_messages, "num_messages", 1, MAX_MESSAGES))


def commit_within(Consumer consumer not None, offsets, timeout):
    """Like ``consumer.commit(offsets=offsets, asynchronous=False)``, but raises ``_TIMED_OUT``
    after ``timeout`` seconds.

    The commit may still succeed later: librdkafka waits for a coordinator without limit.
    """
    cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
    cdef rd_kafka_topic_partition_list_t *c_offsets = partitions_to(offsets, "offsets")
    try:
        return commit_and_wait(consumer, c_offsets, deadline)
    finally:
        rd_kafka_topic_partition_list_destroy(c_offsets)


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
                     "OFFSET_BEGINNING (-2), OFFSET_END (-1), or -2000 - n for the last n "
                     "records")


public("cykafka")(Consumer)
