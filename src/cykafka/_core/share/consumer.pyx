"""ShareConsumer: a member of a share group (KIP-932). Most of this file documents the methods."""
import logging

from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t
from libc.stdlib cimport free, malloc

from cykafka._core.batch cimport MessageBatch, empty_batch, fill_batch
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.call cimport Call, new_step, run
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport (
    NOW,
    SLICE,
    deadline_after,
    int_argument,
    timeout_ms,
)
from cykafka._core.common.config cimport merged_config, text_conf
from cykafka._core.common.errors cimport chain, check_doing, take_error
from cykafka._core.common.message cimport Message, message_from
from cykafka._core.common.partition cimport (
    TopicPartition,
    c_name,
    subscription_fault,
    topics_to,
)
from cykafka._core.share.membership cimport ShareMembership

from cykafka._core.common.errors import (
    ClosedError,
    ConcurrentModificationException,
    IllegalStateException,
    KafkaError,
    KafkaException,
)
from cykafka._core.common.naming import public
from cykafka._core.model import Messages

_log = logging.getLogger("cykafka")

# The properties of share groups, which AdminClient sets.
cdef frozenset OF_GROUPS = frozenset((
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
))


@cython.no_gc_clear
cdef class ShareConsumer(Handle):
    """ShareConsumer(config=..., /, **kwargs)\n--\n
    Reads records as a member of a share group (KIP-932), as from a queue.

    Many members read the same partition. A member *acquires* records for a limited time
    (``share.record.lock.duration.ms`` of the group, 30 s by default) and acknowledges each
    one. Records that it does not acknowledge in time are delivered again, perhaps to another
    member. Share groups need Kafka 4.2 or later. librdkafka calls its share consumer a preview.

    Parameters
    ----------
    config : dict
        librdkafka's properties, including ``group.id``, and the callbacks and the ``logger`` of
        :class:`Consumer`. Properties that only consumer groups have are refused, for example
        ``session.timeout.ms``: the brokers configure share groups (``share.*``). Two
        properties belong to share consumers:

        ``share.acknowledgement.mode``
            ``implicit`` (the default): the next poll or commit accepts all records of the last
            poll. ``explicit``: the program acknowledges each record before the next poll.
        ``max.poll.records``
            The number of records per poll, 500 by default. The brokers return whole batches of
            the producers, and so may return more.

    Raises
    ------
    KafkaException
        A property does not exist or rejects the value. The error names the property.
    ValueError
        ``group.id`` is missing or blank, or a property is not for share consumers.

    Notes
    -----
    Only one thread may use a share consumer at a time, except for ``close()``. Another call raises
    ConcurrentModificationException. All callbacks except ``oauth_cb`` run in the consumer's calls.
    The consumer is a context manager; leaving the block closes the consumer.
    """

    def __cinit__(self, *args, **kwargs):
        self._membership = ShareMembership.__new__(ShareMembership)
        self._role = self._membership
        self._closed_words = "Share consumer closed"

    @cython.embedsignature(False)
    def __init__(self, *args, **kwargs):
        """__init__($self, config=..., /, **kwargs)\n--\n
        Create the client and start librdkafka's threads, without waiting for a broker.

        The class describes `config`. Keyword arguments override properties in `config`.
        """
        cdef rd_kafka_conf_t *conf
        self.check_new()
        try:
            config = merged_config(args, kwargs, type(self).__name__)
            _check_config(config)
            conf = self.new_conf(config)
            try:
                if not text_conf(conf, "group.id"):
                    raise ValueError("Failed to create share consumer: group.id must be set")
                # librdkafka accepts any text, and then has neither mode.
                mode = text_conf(conf, "share.acknowledgement.mode")
                if mode not in ("implicit", "explicit"):
                    raise ValueError("share.acknowledgement.mode: expected implicit or explicit, "
                                     f"got {mode!r}")
            except:
                rd_kafka_conf_destroy(conf)
                raise
            try:
                self.start(RD_KAFKA_CONSUMER, conf)
            except KafkaException as exception:
                if self._generation:  # created, but without a first token
                    raise
                words = exception.args[0].str().partition(": ")[2]
                raise ValueError(f"Failed to create share consumer: {words}") from None
        finally:
            self._opening = False

    cdef rd_kafka_t *new_client(self, rd_kafka_type_t kind, rd_kafka_conf_t *conf, char *errstr,
                                size_t size) noexcept nogil:
        cdef rd_kafka_t *rk = NULL
        self._share = ck_share_new(conf, &rk, errstr, size)
        return NULL if self._share is NULL else rk

    cdef int check_handle(self) except -1:
        return self.check_open()

    # -- subscription

    def subscribe(self, topics):
        """Subscribe to topics, replacing the previous subscription.

        Parameters
        ----------
        topics : list of str
            Names. Share groups have no patterns. An empty list ends the subscription.

        Raises
        ------
        ValueError
            A name is empty or appears twice.
        IllegalStateException
            The consumer is closed.
        """
        cdef rd_kafka_topic_partition_list_t *c_topics
        cdef rd_kafka_resp_err_t err
        self._membership.begin(self)
        try:
            if not isinstance(topics, list):
                raise TypeError(f"topics: expected list of str, got {type(topics).__name__}")
            c_topics = topics_to(topics)
            try:
                self.enter()
                with nogil:
                    err = rd_kafka_share_subscribe(self._share, c_topics)
                self.leave()
            finally:
                rd_kafka_topic_partition_list_destroy(c_topics)
            if err == RD_KAFKA_RESP_ERR__INVALID_ARG:
                raise ValueError(f"Failed to subscribe: {subscription_fault(topics)}")
            _check(err, "Failed to subscribe")
            patterns = [topic for topic in topics if topic.startswith("^")]
            if patterns:
                _log.warning("%s: share groups have no patterns: %r can only be a topic's name",
                             self._label, patterns[0])
        finally:
            self._membership.end()

    def subscription(self):
        """Return the subscribed topic names, a list of str."""
        cdef rd_kafka_topic_partition_list_t *c_topics = NULL
        cdef rd_kafka_resp_err_t err
        cdef int i
        self._membership.begin(self)
        try:
            self.enter()
            with nogil:
                err = rd_kafka_share_subscription(self._share, &c_topics)
            self.leave()
            _check(err, "Failed to get subscription")
            try:
                return [c_topics.elems[i].topic.decode() for i in range(c_topics.cnt)]
            finally:
                rd_kafka_topic_partition_list_destroy(c_topics)
        finally:
            self._membership.end()

    def unsubscribe(self):
        """End the subscription."""
        cdef rd_kafka_resp_err_t err
        self._membership.begin(self)
        try:
            self.enter()
            with nogil:
                err = rd_kafka_share_unsubscribe(self._share)
            self.leave()
            _check(err, "Failed to unsubscribe")
        finally:
            self._membership.end()

    # -- records

    def poll(self, timeout=-1):
        """Wait for records, and send earlier acknowledgements. Callbacks run in this call.

        In implicit mode, the call first accepts all records of the last poll.

        Parameters
        ----------
        timeout : float
            Seconds to wait. A negative value waits forever; 0 does not wait. Ctrl-C and a close()
            in another thread end the wait within 0.2 s.

        Returns
        -------
        Messages
            Empty if the timeout expires. Check each message's ``error()``: for a corrupt record it
            is not None, and librdkafka has already rejected or released the record.

        Raises
        ------
        IllegalStateException
            The consumer is closed or not subscribed. In explicit mode: some records of the last
            poll are not acknowledged.
        ConcurrentModificationException
            Another thread is in a call.
        KafkaException
            The brokers refuse the member.
        """
        self._membership.begin(self, True)
        try:
            deadline = deadline_after(_seconds(timeout))
            if self._membership.rest is None:
                self.poll_until(deadline)
            if self._membership.rest is None:
                self.take_messages()
            # A finalizer may close the consumer at each allocation, which drops the messages.
            rest = self._membership.rest
            self.deserialize(rest, INT64_MAX)
            # A signal handler may raise in Messages(): then the next call returns them.
            messages = Messages(rest[::-1])
            self._membership.rest = None
            return messages
        finally:
            self._membership.end()

    def consume_batch(self, timeout=None):
        """Wait for records, as ``poll()`` does, and return them as one object.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None or a negative value waits forever.

        Returns
        -------
        MessageBatch
            Empty if the timeout expires. ``delivery_counts`` says how often each record was
            delivered. ``errors`` has the corrupt records.

        Raises
        ------
        IllegalStateException, ConcurrentModificationException, KafkaException
            As for ``poll()``. Also while an iteration over the consumer has not returned all
            messages of the last poll.
        """
        self._membership.begin(self, True)
        try:
            deadline = deadline_after(timeout_ms(timeout, "timeout"))
            self._refuse_rest("consume_batch")
            self.poll_until(deadline)
            self._refuse_rest("consume_batch")  # a callback may have begun an iteration
            return self.take_batch()
        finally:
            self._membership.end()

    def batches(self, timeout=1.0):
        """Iterate over batches: a generator of MessageBatch that are not empty.

        The iteration ends when the consumer is closed.

        Parameters
        ----------
        timeout : float, optional
            Seconds that one wait for records lasts, after which the generator waits again.

        Raises
        ------
        IllegalStateException, ConcurrentModificationException, KafkaException
            As for ``consume_batch()``.
        """
        cdef int64_t stops = self._stops
        self.check_open()
        return self._batches(timeout, stops)

    def _batches(self, timeout, stops):
        while True:
            try:
                batch = self.consume_batch(timeout)
            except ClosedError:
                if self._open_in == ck_runtime_generation and self._stops == stops:
                    raise  # a callback used another closed handle
                return
            if batch:
                yield batch

    def __iter__(self):
        """Iterate over the messages; see :meth:`__next__`."""
        self.check_open()
        return self

    def __next__(self):
        """Wait for the next record.

        The iteration polls again only after it has returned all records of the last poll. In
        implicit mode, that poll accepts them; in explicit mode, acknowledge each one before. The
        iteration ends when the consumer is closed.

        Raises
        ------
        KafkaException
            The record is corrupt. You can continue the iteration.
        IllegalStateException, ConcurrentModificationException
            As for ``poll()``.
        """
        cdef int64_t stops = self._stops
        while True:
            try:
                message = self.next_message(-1)
            except ClosedError:
                if self._open_in == ck_runtime_generation and self._stops == stops:
                    raise  # a callback used another closed handle
                raise StopIteration from None
            if message is not None:
                return message

    cdef object next_message(self, int64_t deadline):
        """Return the next message of the last poll. If it has none left, poll; None if that
        returns nothing."""
        self._membership.begin(self, True)
        try:
            if self._membership.rest is None:
                self.poll_until(deadline)
            if self._membership.rest is None:
                self.take_messages()
            rest = self._membership.rest  # see poll()
            self.deserialize(rest, 1)
            message = rest.pop() if rest else None
            self._membership.deserialized -= self._membership.deserialized > 0
            if not rest:
                self._membership.rest = None
        finally:
            self._membership.end()
        error = None if message is None else message.error()
        if error is not None and error.code() not in (KafkaError._KEY_DESERIALIZATION,
                                                      KafkaError._VALUE_DESERIALIZATION):
            raise KafkaException(error)
        return message

    def _deserialize(self, message):
        """For subclasses that set `_deserializes`: deserialize a message in place."""

    cdef int deserialize(self, list rest, int64_t count) except -1:
        """Deserialize the next messages, if the class does so. If that raises, the next call
        returns the messages, and continues with the one at fault."""
        cdef ShareMembership membership = self._membership
        if not self._deserializes:
            return 0
        membership.converting = PyThread_get_thread_ident()
        try:
            while membership.deserialized < min(count, len(rest)):
                message = rest[-1 - membership.deserialized]
                if message.error() is None:
                    self._deserialize(message)
                membership.deserialized += 1
                self.check_open()  # another thread may have closed the consumer
        finally:
            membership.converting = 0
        return 0

    cdef int poll_until(self, int64_t deadline) except -1:
        """Poll until there are messages or the deadline is over. Returns at once if a callback has
        begun an iteration, whose messages must be returned first."""
        cdef ShareMembership membership = self._membership
        cdef ck_batch_t *batch
        cdef rd_kafka_error_t *error
        cdef bint found
        cdef int ms, wait
        while True:
            self.after_call()
            if membership.rest is not None:
                return 0
            if membership.polled is not NULL and membership.polled.cnt:
                return 0  # an earlier call has raised while it made its result
            ms = wait = 0 if membership.fatal is not None else self.slice_ms(deadline)
            # librdkafka runs callbacks only at the beginning and the end of its poll.
            if (ms < 0 or ms > SLICE) and (
                    self._callbacks.any or membership.on_commit is not None):
                wait = SLICE
            self.enter()
            try:
                # Not before: a finalizer may close the consumer until enter() has counted a call.
                batch = membership.batch()
                with nogil:
                    error = ck_share_poll(self._share, wait, batch)
                found = batch.cnt > 0
            finally:
                self.leave()
            if error is not NULL:
                exception = _exception_of(error)
                if isinstance(exception, KafkaException) and exception.args[0].fatal():
                    membership.fatal = exception.args[0]
                raise exception
            if found:
                return 0  # callbacks run in the next call, because they may raise
            if membership.fatal is not None:
                raise KafkaException(membership.fatal)  # librdkafka reports it only once
            if ms == 0:
                return self.after_call()
            PyErr_CheckSignals()

    cdef int take_messages(self) except -1:
        """Make the polled messages `rest`, the last one first. In an error they stay for the next
        call."""
        cdef ck_batch_t *batch
        cdef rd_kafka_message_t *rkmessage
        cdef rd_kafka_topic_t *rkt = NULL
        cdef object topic = None
        cdef Message message
        cdef list messages
        cdef size_t i
        # Run no garbage collection: a finalizer may close the consumer, which frees the batch.
        cdef bint collecting = PyGC_Disable()
        try:
            batch = self._membership.batch()
            messages = []
            for i in range(batch.cnt):
                rkmessage = batch.rkmessages[i]
                if rkmessage.rkt is NULL:
                    topic = None
                elif i == 0 or rkmessage.rkt is not rkt:
                    topic = rd_kafka_topic_name(rkmessage.rkt).decode()
                rkt = rkmessage.rkt
                message = message_from(rkmessage, topic)
                message._delivery_count = rd_kafka_message_delivery_count(rkmessage)
                messages.append(message)
            for i in range(batch.cnt):
                rd_kafka_message_detach_headers(batch.rkmessages[i],
                                                &(<Message>messages[i])._c_headers)
            ck_batch_clear(batch)
            messages.reverse()
            self._membership.rest = messages
            self._membership.deserialized = 0
            return 0
        finally:
            if collecting:
                PyGC_Enable()

    cdef MessageBatch take_batch(self):
        """The polled messages as a batch. In an error they stay for the next call."""
        cdef ck_batch_t *batch
        cdef MessageBatch result
        cdef list errors
        cdef size_t i
        cdef bint collecting = PyGC_Disable()
        try:
            batch = self._membership.batch()
            errors = []
            for i in range(batch.cnt):
                if batch.rkmessages[i].err:
                    topic = None
                    if batch.rkmessages[i].rkt is not NULL:
                        topic = rd_kafka_topic_name(batch.rkmessages[i].rkt).decode()
                    errors.append(message_from(batch.rkmessages[i], topic))
            result = empty_batch(tuple(errors))
            ck_share_take(batch, self._loans)
            self._membership.polled = NULL
            fill_batch(result, batch, &self._membership.returned)
            return result
        finally:
            if collecting:
                PyGC_Enable()

    # -- acknowledgements

    def acknowledge(self, message, ack_type=1, rows=None):
        """Acknowledge records in explicit mode. The next poll or commit sends it.

        Until then, another call may change the type.

        Parameters
        ----------
        message : Message or MessageBatch
            A record of the last poll, or a batch or a slice of one.
        ack_type : AcknowledgeType
            ``ACCEPT`` (1, the default): processed. ``RELEASE``: deliver it again. ``REJECT``:
            never deliver it again.
        rows : iterable of int, optional
            Only these rows of the batch.

        Raises
        ------
        IllegalStateException
            The consumer is closed or in implicit mode, or it does not have the record: it
            was not polled here, or its acknowledgement was sent. For a batch, the records before
            it are acknowledged. (If the record's lock has expired, the commit fails instead.)
        IndexError
            A row is outside the batch. No row is acknowledged.
        TypeError, ValueError
            The message or the type is invalid.
        """
        self._membership.begin(self)
        try:
            if isinstance(message, MessageBatch):
                self.acknowledge_rows(<MessageBatch>message, _type(ack_type), rows)
            elif not isinstance(message, Message):
                raise TypeError("message: expected a Message or a MessageBatch, "
                                f"got {type(message).__name__}")
            elif rows is not None:
                raise TypeError("rows: only a MessageBatch has rows")
            elif (<Message>message)._topic is None:
                raise ValueError("message: it has no topic")
            else:
                self._acknowledge((<Message>message)._topic, (<Message>message)._report.partition,
                                  (<Message>message)._report.offset, ack_type)
        finally:
            self._membership.end()

    def acknowledge_offset(self, topic, partition, offset, ack_type=1):
        """Acknowledge the record at an offset in explicit mode, as ``acknowledge()`` does.

        Parameters
        ----------
        topic : str
        partition, offset : int
        ack_type : AcknowledgeType

        Raises
        ------
        IllegalStateException
            As for ``acknowledge()``.
        TypeError, ValueError
            An argument is invalid.
        """
        self._membership.begin(self)
        try:
            if not isinstance(topic, str):
                raise TypeError(f"topic: expected a str, got {type(topic).__name__}")
            self._acknowledge(topic, int_argument(partition, "partition", 0, INT32_MAX),
                              int_argument(offset, "offset", 0, INT64_MAX), ack_type)
        finally:
            self._membership.end()

    def _acknowledge(self, topic, partition, offset, ack_type):
        cdef const char *c_topic = c_name(topic)
        cdef int type = _type(ack_type)
        cdef rd_kafka_resp_err_t err
        self.enter()
        err = rd_kafka_share_acknowledge_offset(self._share, c_topic, partition, offset,
                                                <rd_kafka_share_AcknowledgeType_t>type)
        self.leave()
        if err:
            raise self._refused(err, f"{topic} [{partition}] at offset {offset}")

    cdef int acknowledge_rows(self, MessageBatch batch, int type, object rows) except -1:
        cdef ck_batch_t *opened
        cdef ck_row_t row
        cdef rd_kafka_resp_err_t err = <rd_kafka_resp_err_t>0
        cdef size_t done = 0, cnt, i
        cdef size_t *chosen = NULL
        cdef list numbers = []
        if rows is not None:
            for number in rows:
                if isinstance(number, bool):
                    raise TypeError("rows: expected row numbers, got a bool; for a mask: "
                                    "rows=[row for row, chosen in enumerate(mask) if chosen]")
                i = <size_t>int_argument(number, "rows", 0, INT64_MAX)
                if i >= <size_t>batch._cnt:
                    raise IndexError(f"rows: {number} is outside the batch of {batch._cnt} "
                                     "records")
                numbers.append(i)
        cnt = len(numbers) if rows is not None else <size_t>batch._cnt
        if rows is not None and cnt:
            chosen = <size_t *>malloc(cnt * sizeof(size_t))
            if chosen is NULL:
                raise MemoryError
            for i in range(cnt):
                chosen[i] = batch._start + <Py_ssize_t><size_t>numbers[i] * batch._step
        try:
            self.enter()
            try:
                opened = batch.opened()
                ck_batch_ref(opened)
            except:
                self.leave()
                raise
        except:
            free(chosen)
            raise
        with nogil:
            if chosen is NULL:
                done = ck_share_acknowledge(self._share, opened, batch._start, batch._step, cnt,
                                            <rd_kafka_share_AcknowledgeType_t>type, &err)
            else:
                while done < cnt and not err:
                    done += ck_share_acknowledge(self._share, opened, chosen[done], 1, 1,
                                                 <rd_kafka_share_AcknowledgeType_t>type, &err)
            if done < cnt:
                ck_batch_row(opened, chosen[done] if chosen is not NULL
                             else batch._start + <Py_ssize_t>done * batch._step, &row)
        self.leave()
        free(chosen)
        try:
            if done < cnt:
                raise self._refused(err, f"row {done if rows is None else numbers[done]}: "
                                    f"{row.topic.decode()} [{row.partition}] at offset "
                                    f"{row.offset}")
        finally:
            with nogil:
                ck_batch_unref(opened)
        return 0

    def _refused(self, err, record):
        """The exception for an acknowledgement that librdkafka has refused."""
        if err == <int>RD_KAFKA_RESP_ERR__INVALID_ARG:
            return ValueError(f"Failed to acknowledge {record}")
        if err == <int>RD_KAFKA_RESP_ERR__CONFLICT:
            return ConcurrentModificationException(f"Failed to acknowledge {record}")
        why = ("the consumer does not have it: it was not polled here, or its acknowledgement was "
               "already sent")
        if self.property("share.acknowledgement.mode") == "implicit":
            why = "share.acknowledgement.mode is implicit"
        return IllegalStateException(f"Failed to acknowledge {record}: {why}")

    def commit_sync(self, timeout=60):
        """Send the acknowledgements, and wait for the brokers' responses.

        In implicit mode, the call accepts all records of the last poll.

        Parameters
        ----------
        timeout : float
            Seconds to wait; a negative value waits until the requests time out
            (``socket.timeout.ms``). Ctrl-C ends the wait within 0.1 s; the commit then continues,
            and the next call waits for it.

        Returns
        -------
        dict of TopicPartition to (KafkaException or None)
            One item per partition with acknowledgements. The records of a failed partition are
            delivered again.

        Raises
        ------
        IllegalStateException
            The consumer is closed, or an iteration over the consumer has not returned all
            messages of the last poll, which implicit mode would accept.
        """
        self._membership.begin(self, True)
        try:
            return run(commit(self, timeout))
        finally:
            self._membership.end()

    def commit_async(self):
        """Send the acknowledgements without waiting. In implicit mode, the call accepts all
        records of the last poll. ``set_acknowledgement_commit_callback()`` reports the results.

        Raises
        ------
        IllegalStateException
            As for ``commit_sync()``.
        """
        cdef rd_kafka_error_t *error
        self._membership.begin(self, True)
        try:
            self.after_call()
            self._refuse_unseen("commit_async")
            self.enter()
            with nogil:
                error = rd_kafka_share_commit_async(self._share)
            self.leave()
            if error is not NULL:
                raise _exception_of(error)
            self.dispatch(NOW)
        finally:
            self._membership.end()

    def set_acknowledgement_commit_callback(self, callback):
        """Set the callback for the brokers' responses to acknowledgements, or remove it.

        Parameters
        ----------
        callback : callable or None
            ``callback(offsets, exception)``: a dict of TopicPartition to a set of int, the
            acknowledged offsets, and a KafkaException or None. It runs in the consumer's calls.
            The consumer refuses calls from it. Without a callback, failures are logged as
            warnings.
        """
        self._membership.begin(self)
        try:
            if callback is not None and not callable(callback):
                raise TypeError("callback: expected a callable or None, "
                                f"got {type(callback).__name__}")
            self._membership.on_commit = callback
        finally:
            self._membership.end()

    def _refuse_rest(self, call):
        rest = self._membership.rest
        if rest is not None:
            left = len(rest)
            raise IllegalStateException(
                f"{call}: the iteration has not returned {left} record(s) of the last poll; "
                "continue it, or call poll() for them")

    def _refuse_unseen(self, call):
        cdef ck_batch_t *polled
        if self.property("share.acknowledgement.mode") != "implicit":
            return
        self._refuse_rest(call)
        polled = self._membership.polled
        if polled is not NULL and polled.messages is not NULL:
            raise IllegalStateException(f"{call}: call poll() first for records that an earlier "
                                        "call could not return")

    # -- closing

    def close(self, timeout=None):
        """Send the acknowledgements, leave the group and free the consumer.

        The group delivers records without an acknowledgement again. In implicit mode, these are
        the records of the last poll: call ``commit_sync()`` first if they are processed. Closing
        again does nothing. A call in another thread raises IllegalStateException.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; by default until the brokers have responded or ``socket.timeout.ms``
            (60 s) ends their requests. After the timeout, and after Ctrl-C, the consumer is
            closed, and a thread completes the rest. If a commit was still in progress then, the
            group notices the end of the member only after its session.

        Returns
        -------
        bool or None
            None without a timeout. With a timeout, whether the consumer left its group in time.

        Raises
        ------
        IllegalStateException
            The acknowledgement commit callback, or a deserializer, calls it.
        KafkaException
            ``_TIMED_OUT`` if a call in another thread did not end in time. The consumer then stays
            open.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        self._membership.refuse_inside()
        if self.begin_close(deadline):
            self._membership.close(self, deadline)
        return None if deadline < 0 else not self._membership.overdue


def next_message(ShareConsumer consumer not None):
    """The next message of an iteration, without waiting; None if there is none yet."""
    return consumer.next_message(0)


def has_committed(ShareConsumer consumer not None):
    """Whether no commit is in progress."""
    cdef ck_call_t *commit = consumer._membership.commit
    return commit is NULL or ck_call_wait(commit, 0)


def commit(ShareConsumer consumer not None, timeout):
    """ShareConsumer.commit_sync() as an operation."""
    cdef ShareMembership membership = consumer._membership
    cdef Call call
    cdef ck_call_t *c
    cdef int i
    membership.begin(consumer, True)
    try:
        call = new_step(consumer, CK_CALL_SHARE_COMMIT, _seconds(timeout))
        consumer.after_call()
        consumer._refuse_unseen("commit_sync")
        c = call.c
        c.share = consumer._share
        ck_call_keep(c)
        membership.commit = c
    finally:
        membership.end()
    try:
        yield call
    finally:
        # After Ctrl-C it continues, and the next call waits for it.
        if membership.commit is c and (not call.is_started() or ck_call_wait(c, 0)):
            membership.drop_commit()
    if c.error is not NULL:
        error = c.error
        c.error = NULL
        raise _exception_of(error)
    results = {}
    if c.partitions is not NULL:
        for i in range(c.partitions.cnt):
            err = c.partitions.elems[i].err
            key = TopicPartition(c.partitions.elems[i].topic.decode(),
                                 c.partitions.elems[i].partition)
            results[key] = KafkaException(KafkaError(<int>err)) if err else None
    try:
        consumer.dispatch(NOW)
    except BaseException as exception:
        raised = None
        for failure in filter(None, results.values()):
            raised = chain(raised, failure)  # else it would be lost
        raise chain(raised, exception)
    return results


cdef int64_t _seconds(timeout) except? -2:
    """A timeout of confluent_kafka's methods, which refuse None, in ms."""
    if timeout is None:
        raise TypeError("timeout: expected a number of seconds, got None")
    return timeout_ms(timeout, "timeout")


cdef int _type(ack_type) except -1:
    """Check an AcknowledgeType."""
    cdef int64_t type = int_argument(ack_type, "ack_type", -INT64_MAX, INT64_MAX)
    if not 1 <= type <= 3:
        raise ValueError(f"ack_type: expected an AcknowledgeType, got {ack_type!r}")
    return <int>type


cdef int _check(rd_kafka_resp_err_t err, str doing) except -1:
    if err == RD_KAFKA_RESP_ERR__STATE:
        raise IllegalStateException(f"{doing}: {KafkaError(<int>err).str()}")
    if err == RD_KAFKA_RESP_ERR__CONFLICT:
        raise ConcurrentModificationException(f"{doing}: {KafkaError(<int>err).str()}")
    return check_doing(err, doing)


cdef int _check_config(dict config) except -1:
    if "on_commit" in config:
        raise ValueError("on_commit is not supported: a share consumer acknowledges records and "
                         "does not commit offsets; use set_acknowledgement_commit_callback()")
    for key in config:
        for group_key in (key, f"share.{key}"):
            if group_key in OF_GROUPS:
                raise ValueError(
                    f"{key} is not supported: set the group's property {group_key} with "
                    "AdminClient.incremental_alter_configs() or `cykafka configs alter group`")
    return 0


cdef object _exception_of(rd_kafka_error_t *c_error):
    """The exception for an error, which is destroyed."""
    error = take_error(c_error)
    if error == <int>RD_KAFKA_RESP_ERR__STATE:
        return IllegalStateException(error.str())
    if error == <int>RD_KAFKA_RESP_ERR__CONFLICT:
        return ConcurrentModificationException(error.str())
    if error == <int>RD_KAFKA_RESP_ERR__INVALID_ARG:
        return ValueError(error.str())
    if error in (<int>RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION,
                 <int>RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE):
        error = KafkaError(error.code(), "share groups need Kafka 4.2 or later, with the feature "
                           f"share.version: {error.str()}", error.fatal(), error.retriable())
    elif error == <int>RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND:
        error = KafkaError(error.code(), "group.id may belong to a group of another type: "
                           f"{error.str()}", error.fatal(), error.retriable())
    return KafkaException(error)


public("cykafka")(ShareConsumer)
