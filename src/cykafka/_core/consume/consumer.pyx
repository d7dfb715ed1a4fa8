"""Consumer: subscriptions and assignments, messages, offsets and lag, and close().

Most of this file documents the methods. Membership follows the group, Backlog keeps fetched
messages, Fetcher collects and returns them, and Progress tracks the offsets that a transaction
must commit.
"""
import logging

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from cykafka._core.batch cimport MessageBatch
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
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
    text_conf,
)
from cykafka._core.common.errors cimport check_doing, check_error
from cykafka._core.common.partition cimport (
    TopicPartition,
    partitions_from,
    partitions_to,
    subscription_fault,
    topics_to,
)
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.fetcher cimport Fetcher, Ranges
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

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException
from cykafka._core.common.naming import public
from cykafka._core.consume.lag import lag, watermarks
from cykafka._core.consume.offsets import (
    committed,
    offsets_for_times,
    seek,
    settle_seeks,
    watermark_offsets,
)

_log = logging.getLogger("cykafka")

cdef enum:
    # The most messages and the most bytes per call.
    MAX_MESSAGES = 1_000_000
    MAX_BYTES = 2_000_000_000
    # How long librdkafka pauses a partition's fetches after its queue was full, ms. With
    # librdkafka's 1000, a fast reader empties the queue early and waits for the rest of the
    # second.
    FULL_QUEUE_MS = 20
    # How long seek() waits until librdkafka fetches an assigned partition, and the pause between
    # its attempts, ms.
    FETCH_MS = 5000
    FETCH_PAUSE_MS = 10


@cython.no_gc_clear
cdef class Consumer(Handle):
    """Consumer(config=..., /, **kwargs)\n--\n
    Reads records, as a group member or from assigned partitions.

    Parameters
    ----------
    config : dict
        librdkafka's properties, including ``group.id``. Values are str, bool, int, float or None
        (keep the default). cykafka adds these optional keys:

        ``on_commit(KafkaError or None, list of TopicPartition)``
            Called when an asynchronous or automatic commit finishes.
        ``error_cb(KafkaError)``, ``throttle_cb(ThrottleEvent)``, ``stats_cb(json: str)``
            ``stats_cb`` needs ``statistics.interval.ms``.
        ``logger``
            A logging.Logger or logging.Handler that receives librdkafka's log.
        ``oauth_cb(config: str)``
            Returns (token, expiry in s since the epoch[, principal[, extensions]]). Runs on
            librdkafka's thread. The constructor waits up to 10 s for the first token.
        ``default.topic.config``
            A dict of topic properties, which override the same properties in ``config``.
        ``fetch.queue.backoff.ms``
            The default is 20 instead of librdkafka's 1000. With 1000, a consumer that empties its
            queue of fetched records waits for the rest of the second. 20 costs 0.3 % of a core
            while the queue of 64 partitions is full.

    Raises
    ------
    KafkaException
        A property does not exist or rejects the value. The error names the property.
    ValueError
        ``group.id`` is missing or blank.

    Notes
    -----
    All callbacks except ``oauth_cb`` run in the calls that wait for messages, and in ``close``.
    If a callback raises, the call raises the callback's exception. The consumer is a context
    manager; leaving the block closes the consumer.
    """

    def __cinit__(self, *args, **kwargs):
        self._backlog = Backlog.__new__(Backlog)
        self._progress = Progress(self._backlog)
        self._membership = Membership(self._backlog, self._progress)
        self._fetcher = Fetcher(self._membership, self._backlog, self._progress)
        self._role = self._membership
        self._closed_words = "Consumer closed"

    @cython.embedsignature(False)
    def __init__(self, *args, **kwargs):
        """__init__($self, config=..., /, **kwargs)\n--\n
        Create the client and start librdkafka's threads, without waiting for a broker.

        The class describes `config`. Keyword arguments override properties in `config`.
        """
        self.check_new()
        try:
            config = merged_config(args, kwargs, type(self).__name__)
            self._membership.listeners["on_commit"] = take_callable(config, "on_commit")
            # Old configurations may set it here, because it was a topic property of librdkafka.
            topic_config = config.get("default.topic.config")
            stores = take_bool(config, "enable.auto.offset.store", True)
            if isinstance(topic_config, dict) and "enable.auto.offset.store" in topic_config:
                topic_config = config["default.topic.config"] = dict(topic_config)
                stores = take_bool(topic_config, "enable.auto.offset.store", stores)
            config["enable.auto.offset.store"] = False
            self._backlog.stores = stores
            set_default(config, "fetch.queue.backoff.ms", FULL_QUEUE_MS)
            conf = self.new_conf(config)
            try:
                # Without a group, librdkafka does not create a consumer queue.
                if not text_conf(conf, "group.id"):
                    raise ValueError("Failed to create consumer: group.id must be set")
                self._membership.register(self, conf)
            except:
                rd_kafka_conf_destroy(conf)
                raise
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
        """Subscribe to topics, replacing the previous subscription.

        Parameters
        ----------
        topics : list of str
            Names, or regular expressions that begin with ``^``.
        on_assign, on_revoke, on_lost : callable, optional
            ``callback(consumer, partitions)``. The group has assigned the partitions, is about to
            revoke them (commit now), or the consumer has lost them (too late to commit). Without
            ``on_lost``, ``on_revoke`` runs for lost partitions.

            A callback may call ``assign`` and ``unassign``, or with a cooperative assignor
            ``incremental_assign`` and ``incremental_unassign``. If it does not, the consumer does
            so afterwards. The callback runs inside librdkafka: a child process that it forks must
            end with ``os._exit`` or exec.

        Raises
        ------
        KafkaException
            ``_DESTROY`` in a callback of ``close()``.
        RuntimeError
            The consumer is closed.
        """
        for argument, callback in (("on_assign", on_assign), ("on_revoke", on_revoke),
                                   ("on_lost", on_lost)):
            if callback is not None and not callable(callback):
                raise TypeError(f"{argument}: expected a callable or None, "
                                f"got {type(callback).__name__}")
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
        """Return the subscribed topic names and regular expressions, a list of str."""
        return [item.topic for item in get_list(self, rd_kafka_subscription,
                                                "Failed to get subscription")]

    def unsubscribe(self):
        """End the subscription. The group revokes the partitions."""
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        with nogil:
            err = rd_kafka_unsubscribe(rk)
        self.leave()
        check_doing(err, "Failed to remove subscription")

    def assign(self, partitions):
        """Read only these partitions, each from its offset.

        Parameters
        ----------
        partitions : list of TopicPartition
            ``OFFSET_INVALID`` (the default) and ``OFFSET_STORED`` start at the committed offset.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` if the list contains a partition twice. The assignment then stays
            unchanged.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            # librdkafka refuses duplicates only after it has removed the old assignment.
            refuse_duplicates(c_partitions, "Failed to set assignment")
            run(settle_seeks(self._backlog))
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
            ``_CONFLICT`` if a partition is already assigned; ``_INVALID_ARG`` if the list contains
            a partition twice; ``_STATE`` in ``on_assign`` if the group uses the eager protocol.
        """
        c_partitions = partitions_to(partitions, "partitions")
        try:
            run(settle_seeks(self._backlog))
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
            Assigned partitions, without duplicates.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` if a partition is not assigned, or is in the list twice.
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
        """Stop fetching and returning messages from these partitions, which stay assigned.

        The consumer holds back messages that it has fetched but not returned (because a callback
        raised, for example), and returns them first after ``resume()``. A call in another thread
        that is about to return may still return some of them.

        Parameters
        ----------
        partitions : list of TopicPartition
            Assigned partitions; the call ignores others. To pause new partitions in ``on_assign``,
            call ``assign()`` or ``incremental_assign()`` there first. Partitions stay paused until
            ``resume()``, even if the group revokes and reassigns them.
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
            # Release first, then resume: otherwise another thread might read later messages first.
            self._backlog.let_go(c_partitions)
            on_list(self, rd_kafka_resume_partitions, c_partitions, "Failed to resume partitions")
            self._backlog.wake_reader(self)
        finally:
            rd_kafka_topic_partition_list_destroy(c_partitions)

    def seek(self, partition):
        """Continue reading an assigned partition at another offset.

        The consumer drops messages that it has already fetched. A reading call in another thread
        may still return some of them.

        Parameters
        ----------
        partition : TopicPartition
            Its ``offset`` is an offset, ``OFFSET_BEGINNING``, ``OFFSET_END``, -2000 - n for the
            last n records, or ``OFFSET_INVALID`` for the start that ``auto.offset.reset`` selects.
            So ``seek()`` accepts what ``committed()`` returns.

        Raises
        ------
        ValueError
            The offset is invalid.
        KafkaException
            ``_STATE`` or ``_UNKNOWN_PARTITION`` if the partition is not assigned, if librdkafka
            does not begin to fetch it within 5 s (in a rebalance callback: at once), or if an
            error such as ``_AUTO_OFFSET_RESET`` has ended its fetches. ``_TIMED_OUT`` if
            librdkafka does not respond within 5 s. Ctrl-C interrupts the wait within 0.1 s.
        """
        run(seek_partition(self, partition))

    # -- messages

    def poll(self, timeout=None):
        """Wait for one message. Callbacks run in this call.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever; 0 does not wait. Ctrl-C
            interrupts the wait within 0.1 s.

        Returns
        -------
        Message or None
            None if the timeout expires. Check ``message.error()`` first: events (such as
            ``_PARTITION_EOF``) and errors also arrive as messages.

        Raises
        ------
        RuntimeError
            The consumer is closed, or another thread closed it during the call.
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
            self.after_call()
            kept = self._fetcher.hand_over_kept()
            if kept is not None:
                return kept
        while True:
            rk = self.enter()
            # First try without waiting and with the GIL: usually a message is available.
            if ms == 0:
                rkmessage = rd_kafka_consumer_poll(rk, 0)
            else:
                with nogil:
                    rkmessage = ck_callback_consume(rk, ms)
            self.leave()
            if (not ck_queue_is_empty(self._events) or self._callbacks.raised is not None
                    or self._membership.closes_later
                    or (self._callbacks.tokens is not None
                        and self._callbacks.tokens._raised is not None)
                    or self._backlog.has_kept()
                    or self._open_in != ck_runtime_generation):
                # A callback may raise or close the consumer. The message must survive an
                # exception, but not a close. Messages that another thread has released with
                # resume() come first.
                if rkmessage is not NULL:
                    self._backlog.keep(rkmessage)
                self.after_call()
                if self._backlog.has_kept():
                    kept = self._fetcher.hand_over_kept()
                    if kept is not None:
                        return kept
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
        A ``close(timeout=)`` in another thread ends it even if that close then times out and
        leaves the consumer open. The iteration skips ends of partitions (``_PARTITION_EOF``).

        Raises
        ------
        KafkaException
            Another event or an error arrived instead of a record. You can continue the iteration
            after the exception.
        """
        cdef int64_t stops = self._stops
        while True:
            try:
                message = self.poll()
            except ClosedError:
                if self._open_in == ck_runtime_generation and self._stops == stops:
                    raise  # a callback used another closed handle
                raise StopIteration from None
            if message is None:
                continue
            error = message.error()
            if error is None:
                return message
            if error.code() != RD_KAFKA_RESP_ERR__PARTITION_EOF:
                raise KafkaException(error)

    def consume(self, num_messages=1, timeout=None):
        """Wait for up to ``num_messages`` messages. Callbacks run in this call.

        If Ctrl-C or a callback's exception ends the call, the next call returns the messages
        collected so far.

        Parameters
        ----------
        num_messages : int
            At most 1,000,000.
        timeout : float, optional
            Seconds to wait. None or a negative value waits for all messages. Ctrl-C interrupts the
            wait within 0.1 s.

        Returns
        -------
        list of Message
            Fewer messages than requested, or none, if the timeout expires. If the group revokes a
            partition during the call, the call drops its messages.

        Raises
        ------
        ValueError
            ``num_messages`` is out of range.
        RuntimeError
            The consumer is closed, or another thread closed it during the call.
        """
        cdef int64_t want = message_count(num_messages)
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if want == 0:
            self.check_open()
            return []
        return self._fetcher.messages(self, want, deadline)

    def consume_batch(self, max_messages=10_000, timeout=None):
        """Wait for up to ``max_messages`` messages, without creating Message objects.

        Callbacks run in this call. If Ctrl-C or a callback's exception ends the call, the next
        call returns the messages collected so far.

        Parameters
        ----------
        max_messages : int
            1 to 1,000,000.
        timeout : float, optional
            Seconds to wait. None or a negative value waits for all messages. Ctrl-C interrupts the
            wait within 0.1 s.

        Returns
        -------
        MessageBatch
            Fewer records than requested, or none, if the timeout expires. If the group revokes a
            partition during the call, the call drops its records. Events and errors are in
            ``batch.errors``. With ``enable.auto.offset.store`` (the default), the consumer stores
            the offsets of the whole batch now. Otherwise call ``store_offsets(batch)`` or
            ``commit(batch)`` after you have processed the batch.

        Raises
        ------
        ValueError
            ``max_messages`` is out of range.
        RuntimeError
            The consumer is closed, or another thread closed it during the call.
        """
        cdef int64_t want = int_argument(max_messages, "max_messages", 1, MAX_MESSAGES)
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        return self._fetcher.batch(self, want, deadline, False, "consume_batch")

    def batches(self, max_messages=10_000, timeout=1.0):
        """Iterate over batches until the loop's body, a callback or another thread closes the
        consumer.

        A ``close(timeout=)`` in another thread ends the iteration even if that close then times
        out and leaves the consumer open.

        Parameters
        ----------
        max_messages : int
            The maximum number of records per batch, 1 to 1,000,000.
        timeout : float, optional
            Maximum seconds to fill a batch. None or a negative value returns only full batches. If
            a topic has little traffic, a record may wait this long before the consumer returns it.

        Returns
        -------
        iterator of MessageBatch
            Batches always contain records and never contain errors. For an event or error, the
            iterator first returns the records before it, then raises KafkaException. You can
            continue the iteration after the exception. The iterator skips ends of partitions
            (``_PARTITION_EOF``).

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
        """Return the offsets after the last messages that the consumer returned.

        Parameters
        ----------
        partitions : list of TopicPartition

        Returns
        -------
        list of TopicPartition
            ``OFFSET_INVALID`` if the consumer has not returned a message yet; ``error`` if the
            request failed.
        """
        return positions(self, self._backlog, partitions)

    def get_watermark_offsets(self, partition, timeout=None, cached=False):
        """Return the first offset of a partition and the offset after its last.

        Parameters
        ----------
        partition : TopicPartition
        timeout : float, optional
            Seconds to wait for the broker; forever by default. Ctrl-C interrupts the wait within
            0.1 s.
        cached : bool
            Return cached values. Every fetch updates high; low is updated every
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
            Seconds; forever by default. Ctrl-C interrupts the wait within 0.1 s.

        Returns
        -------
        list of TopicPartition
            -1 (``OFFSET_END``) if all messages are older; ``error`` if the request failed.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` or ``_ALL_BROKERS_DOWN`` if no broker responded.
        """
        return run(offsets_for_times(self, partitions, timeout))

    def store_offsets(self, message=None, offsets=None):
        """Mark offsets for the next automatic or argument-less commit.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Store its offset + 1; for a batch, the last record's offset + 1 in each partition. An
            empty batch stores nothing.
        offsets : list of TopicPartition, optional
            Store these offsets, instead of a message's.

        Raises
        ------
        KafkaException
            ``_INVALID_ARG`` unless ``enable.auto.offset.store`` is false; ``_STATE`` if all
            partitions are unassigned. If only some are unassigned, the call skips them.
        """
        store_offsets(self, self._backlog, message, offsets)

    def commit(self, message=None, offsets=None, asynchronous=True, **kwargs):
        """Commit offsets to the group.

        Parameters
        ----------
        message : Message or MessageBatch, optional
            Commit its offset + 1; for a batch, the last record's offset + 1 in each partition. An
            empty batch commits nothing.
        offsets : list of TopicPartition, optional
            Commit these offsets. Without message and offsets, commit the stored offsets.
        asynchronous : bool
            Return at once; ``on_commit`` gets the outcome. The older name ``async`` also works,
            as in ``commit(**{"async": False})``.

        Returns
        -------
        None, or list of TopicPartition when not asynchronous
            The committed offsets, each with its ``error``. Ctrl-C interrupts the wait within
            0.1 s; the commit continues.

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
        """Return the group's committed offsets.

        Parameters
        ----------
        partitions : list of TopicPartition
        timeout : float, optional
            Seconds; forever by default. Ctrl-C interrupts the wait within 0.1 s.

        Returns
        -------
        list of TopicPartition
            ``OFFSET_INVALID`` if the group has not committed an offset; ``error`` if the request
            failed.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` or the coordinator's error.
        """
        return run(committed(self, partitions, timeout))

    def watermarks(self, partitions=None, timeout=None):
        """Return each partition's first offset and the offset after its last.

        This call sends two requests per broker, whatever the number of partitions;
        ``get_watermark_offsets`` sends two per partition.

        Parameters
        ----------
        partitions : list of TopicPartition, optional
            Any partitions; by default the assigned ones.
        timeout : float, optional
            Seconds; an hour by default. Ctrl-C interrupts the wait within 0.1 s.

        Returns
        -------
        dict of TopicPartition to Watermarks
            ``low`` and ``high`` per partition. High is the last stable offset, unless
            ``isolation.level`` is ``read_uncommitted``. If the request failed, both are
            ``OFFSET_INVALID`` and the key's ``error`` has the reason.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT``, or the reason why all brokers were unreachable.
        """
        return run(watermarks(self, partitions, timeout))

    def lag(self, partitions=None, timeout=None):
        """Return the number of offsets between the next offset to read and the end.

        Parameters
        ----------
        partitions : list of TopicPartition, optional
            Any partitions; by default the assigned ones.
        timeout : float, optional
            Seconds for the whole call; an hour by default. Ctrl-C interrupts the wait for the
            watermarks.

        Returns
        -------
        dict of TopicPartition to (int or None)
            ``high - next``, with high as in :meth:`watermarks`. Next is the position after the
            last returned message, or else the group's committed offset, or else the start that
            ``auto.offset.reset`` selects. Next is at least ``low``, because the consumer cannot
            read deleted records. None if next is unknown: the key's ``error`` says why, or
            ``auto.offset.reset`` is ``error``.

        Raises
        ------
        KafkaException
            As ``watermarks`` and ``committed``.

        Notes
        -----
        The lag counts offsets, not records, so it includes transaction markers and compacted
        records.
        """
        return run(lag_of(self, partitions, timeout))

    # -- the group

    def memberid(self):
        """Return the member id from the group's coordinator, a str, or None before the join."""
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

        ``close()`` first runs ``on_revoke`` and, with ``enable.auto.commit``, commits the stored
        offsets. Closing again does nothing. A ``poll()`` or ``consume()`` in another thread raises
        RuntimeError.

        If a rebalance callback calls ``close()``, the call returns None, and the consumer closes
        after the callback. If callbacks raise, ``close()`` raises their exceptions at its end,
        each as the ``__context__`` of the next.

        Ctrl-C ends the wait like the timeout: the consumer is closed, and a thread completes the
        rest. At exit, the interpreter waits at most a second for such threads.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; by default without limit. That wait may take ``session.timeout.ms``
            without a coordinator, and the rest of ``socket.timeout.ms`` for an earlier commit. The
            timeout does not interrupt callbacks.

        Returns
        -------
        bool or None
            None without a timeout. With a timeout, whether the consumer left its group in time;
            librdkafka's threads may end later.

            If False, the consumer is closed anyway and logs a warning. A thread completes the
            leave, but ``on_revoke`` may not have run. If the process ends first, the group notices
            only after the session timeout. Stored offsets may then stay uncommitted, so the group
            reads their messages again.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if a call in another thread (such as a rebalance callback) did not end
            in time. The consumer then stays open, but other calls that waited during ``close()``
            raise RuntimeError, and iterations end.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if self._state and self._membership.is_in_callback():
            self._membership.closes_later = True
            self._membership.close_timeout = timeout
            return None
        if self.begin_close(deadline):
            self._membership.close(self, deadline)
        return None if deadline < 0 else not self._membership.overdue


def seek_partition(Consumer consumer not None, partition):
    """The operation behind Consumer.seek()."""
    if not isinstance(partition, TopicPartition):
        raise TypeError(f"partition: expected a TopicPartition, got {type(partition).__name__}")
    consumer.check_open()
    # A copy: a subclass may have a topic whose __eq__ and __hash__ run any code.
    c_partitions = partitions_to([partition], "partition")
    try:
        partition, = partitions_from(c_partitions)
    finally:
        rd_kafka_topic_partition_list_destroy(c_partitions)
    check_seekable(partition.offset)
    consumer._progress.give_up(consumer, [partition], RD_KAFKA_RESP_ERR__STATE,
                               "seek() has moved the position")
    consumer._progress.begin_reading(consumer, [partition])
    deadline = deadline_after(FETCH_MS)
    while True:
        error, = yield from seek(consumer, consumer._backlog, [partition])
        # librdkafka does not fetch an assigned partition before it knows the committed offset.
        if (error is None or error.code() != <int>RD_KAFKA_RESP_ERR__STATE
                or slice_left(deadline) == 0 or consumer._membership.is_in_callback()
                or partition not in assignment(consumer)):
            break
        yield idle(consumer, FETCH_PAUSE_MS)
    if error is not None:
        doing = (f"Failed to seek {partition.topic} [{partition.partition}] to offset "
                 f"{partition.offset}")
        if error in (<int>RD_KAFKA_RESP_ERR__STATE, <int>RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION):
            if consumer._membership.is_in_callback():
                doing += " (in a rebalance callback, give the offset to assign())"
            elif partition in assignment(consumer):
                doing += " (reading has ended with an error; give the offset to assign())"
            else:
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
        if consumer is None:  # created without batches(), or cleared by the garbage collector
            raise StopIteration
        stops = consumer._stops
        while True:
            try:
                batch = consumer._fetcher.batch(consumer, self._want,
                                                deadline_after(self._timeout), True, "batches")
            except ClosedError:
                if consumer._open_in == ck_runtime_generation and consumer._stops == stops:
                    raise  # a callback used another closed handle
                raise StopIteration from None
            if batch._cnt:
                return batch
            PyErr_CheckSignals()

    def take(self):
        """For cykafka.aio: return the available part of the next batch, which may be empty.
        Raises like __next__(), but raises ClosedError at the end."""
        cdef Consumer consumer = self._consumer
        if consumer is None:
            raise ClosedError("made without batches()")
        return consumer._fetcher.batch(consumer, self._want, ck_runtime_now_ms(), True, "batches")


def consume_ranges(Consumer consumer not None, ranges, max_messages=10_000, max_bytes=16_777_216,
                   timeout=None):
    """Wait for the records of offset ranges. Callbacks run in this call.

    The caller must first assign the partitions at the ranges' first offsets, and must set
    ``enable.partition.eof`` to true. Without it, a range never ends if its last offsets hold no
    records.

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
        Seconds to wait. None or a negative value waits until a limit or the end of all ranges.
        Ctrl-C interrupts the wait within 0.1 s. After Ctrl-C or a callback's exception, the next
        call returns the messages collected so far.

    Returns
    -------
    MessageBatch
        Only records within the ranges, each once. ``errors`` contains events and errors, except
        ends of partitions. The call returns at the first event or error.

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
    """The operation behind Consumer.lag()."""
    return lag(consumer, consumer._backlog, partitions, timeout)


def available(Consumer consumer not None, num_messages):
    """Return how many messages, at most ``num_messages``, the next ``consume()`` can return at
    once. The consumer collects them without storing their offsets."""
    return consumer._fetcher.available(consumer, message_count(num_messages))


cdef int64_t message_count(num_messages) except -1:
    """Check consume()'s argument, with confluent_kafka's error."""
    cdef int64_t count = int_argument(num_messages, "num_messages", INT64_MIN, INT64_MAX)
    if not 0 <= count <= MAX_MESSAGES:
        raise ValueError("num_messages must be between 0 and 1000000 (1M)")
    return count


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
    """Raise if the list has duplicates, with a text that begins with `doing`. Unassigning a
    partition twice would abort the process."""
    cdef int i
    seen = set()
    for i in range(c_partitions.cnt):
        topic = <bytes>c_partitions.elems[i].topic
        number = c_partitions.elems[i].partition
        if (topic, number) in seen:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                f"{doing}: {topic.decode()} [{number}] appears twice in the list"))
        seen.add((topic, number))
    return 0


cdef int check_seekable(int64_t offset) except -1:
    if (offset >= 0 or offset < RD_KAFKA_OFFSET_TAIL_BASE or offset in (
            RD_KAFKA_OFFSET_BEGINNING, RD_KAFKA_OFFSET_END, RD_KAFKA_OFFSET_INVALID)):
        return 0
    raise ValueError(f"partition: cannot seek to offset {offset}; expected 0 or more, "
                     "OFFSET_BEGINNING (-2), OFFSET_END (-1), OFFSET_INVALID (-1001) for "
                     "auto.offset.reset, or -2000 - n for the last n records")


public("cykafka")(Consumer)
