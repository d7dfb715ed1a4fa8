"""Producer: one record at a time.

Longer than 500 lines, a third of them the documentation of the methods.
"""
import logging

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_CheckExact
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t

from cykafka._core.clib.csrc cimport (
    CK_SLOT_FLIGHT,
    PyThread_get_thread_ident,
    ck_callback_flush,
    ck_callback_poll,
    ck_callback_report,
    ck_callback_serve,
    ck_event_destroy,
    ck_event_t,
    ck_flight_lost,
    ck_flight_new,
    ck_notice_t,
    ck_produce,
    ck_queue_attach,
    ck_queue_length,
    ck_queue_push,
    ck_queue_take_untold,
    ck_queue_turn,
    ck_record_t,
    ck_report_t,
    ck_runtime_generation,
    ck_runtime_now_ms,
    ck_turn_ended,
    ck_turn_enter,
    ck_turn_leave,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_PARTITION_UA,
    RD_KAFKA_PRODUCER,
    RD_KAFKA_PURGE_F_INFLIGHT,
    RD_KAFKA_PURGE_F_NON_BLOCKING,
    RD_KAFKA_PURGE_F_QUEUE,
    RD_KAFKA_RESP_ERR__INVALID_ARG,
    RD_KAFKA_RESP_ERR__QUEUE_FULL,
    rd_kafka_conf_set_dr_msg_cb,
    rd_kafka_conf_t,
    rd_kafka_error_code,
    rd_kafka_error_destroy,
    rd_kafka_error_t,
    rd_kafka_headers_destroy,
    rd_kafka_outq_len,
    rd_kafka_purge,
    rd_kafka_queue_io_event_enable,
    rd_kafka_queue_length,
    rd_kafka_resp_err_t,
    rd_kafka_t,
    rd_kafka_topic_t,
)
from cykafka._core.client.handle cimport chain
from cykafka._core.common.arguments cimport (
    NOW,
    SLICE,
    deadline_after,
    int_argument,
    slice_end,
    timeout_ms,
)
from cykafka._core.common.config cimport merged_config, take_bool, take_callable
from cykafka._core.common.errors cimport check_doing, error_from, take_error
from cykafka._core.common.message cimport (
    headers_to,
    in_flight_destroy,
    in_flight_new,
    in_flight_t,
)
from cykafka._core.produce.publisher cimport Publisher
from cykafka._core.produce.record cimport (
    data_of,
    frozen,
    headers_copy,
    is_data,
    produce_error,
)
from cykafka._core.produce.transaction cimport CALL_ABORT, CALL_COMMIT

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.naming import public

_log = logging.getLogger("cykafka")

cdef enum:
    # How long to wait for the reports of purged records, ms. librdkafka's threads make them at
    # once.
    PURGED_MS = 1000

# What close() purges: without waiting for librdkafka's threads, one of which may not run for any
# time.
cdef int PURGE_ALL = (RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT
                      | RD_KAFKA_PURGE_F_NON_BLOCKING)


cdef class Producer(Publisher):
    """Sends records, asynchronously.

    Parameters
    ----------
    config : dict
        librdkafka's properties, such as ``bootstrap.servers``; values are str, bool, int, float or
        None (the default). And, all optional:

        ``on_delivery(err, msg)``
            Called for every record, unless ``produce()`` names another callback.
        ``delivery.report.only.error``
            Call it for records that failed only.
        ``error_cb(KafkaError)``, ``throttle_cb(ThrottleEvent)``, ``stats_cb(json: str)``
            ``stats_cb`` needs ``statistics.interval.ms``.
        ``logger``
            A logging.Logger or logging.Handler for librdkafka's log.
        ``oauth_cb(config: str)``
            Returns (token, expiry in s since the epoch[, principal[, extensions]]). Runs on
            librdkafka's thread; the constructor waits up to 10 s for the first token.
        ``default.topic.config``
            A dict of topic properties; they win over the same ones given beside it.

    Raises
    ------
    KafkaException
        For a property that does not exist or does not take the value; it names the property.

    Notes
    -----
    All callbacks but ``oauth_cb`` run in the calls that wait: ``poll``, ``flush``, ``close``,
    ``publish``, ``Delivery.wait``, ``commit_transaction`` and ``abort_transaction``. What they
    raise, these calls raise.
    The producer is a context manager; leaving the block closes it. ``len()`` is the number
    of messages and events in its queues. Close a producer that you drop: until its records are
    reported it is kept alive by delivery callbacks that refer to it, such as its owner's methods.
    """

    def __init__(self, *args, **kwargs):
        self.check_new()
        try:
            config = merged_config(args, kwargs, type(self).__name__)
            self._on_delivery = take_callable(config, "on_delivery")
            self._only_errors = take_bool(config, "delivery.report.only.error", False)
            self.open(RD_KAFKA_PRODUCER, config)
        finally:
            self._opening = False

    def __dealloc__(self):
        # See Handle.__dealloc__; topics the collector has cleared have released themselves.
        if self._ptr is not NULL and self._generation == ck_runtime_generation:
            self.drop_reports()
            if self._topics is not None:
                self.release_topics()

    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1:
        Publisher.set_callbacks(self, conf)
        if self._flight is NULL:  # an __init__ that raised may have left one
            self._flight = ck_flight_new(sizeof(in_flight_t))
        if self._flight is NULL:
            raise MemoryError
        # It lives as long as the queue of events, which delivers the reports.
        ck_queue_attach(self._events, CK_SLOT_FLIGHT, self._flight)
        # Always: without reports flush() waits in steps of 10 ms, and costs more, not less.
        rd_kafka_conf_set_dr_msg_cb(conf, ck_callback_report)
        return 0

    cdef int64_t undelivered(self) noexcept:
        # A record whose report has been served is no longer undelivered, even if its callback has
        # not run.
        cdef int64_t left
        cdef size_t queued
        with nogil:
            ck_callback_poll(self._ptr, 0)
        # librdkafka also counts events, such as statistics, and may add one between the two reads.
        while True:
            queued = rd_kafka_queue_length(self._wait_queue)
            left = rd_kafka_outq_len(self._ptr) - <int64_t>queued
            if rd_kafka_queue_length(self._wait_queue) == queued:
                return left

    cdef int release(self) except -1:
        watch = self._watch
        self._watch = None
        if watch is not None:
            # First, and not by the watch: it may not find a handle that the collector frees.
            rd_kafka_queue_io_event_enable(self._wait_queue, -1, NULL, 0)
        self.drop_reports()
        self.release_topics()
        if watch is not None:
            watch.end()  # calls the event loop: Python code, which may raise
        return 0

    cdef void drop_reports(self) noexcept:
        """Purge every message in flight. When it is destroyed, librdkafka drops them without a
        report: the references of those with a callback would leak, and batches would lose their
        outcomes. Nobody serves librdkafka after this: reports that did not come in time are made
        here; batches get their outcomes when the rd_kafka_t is destroyed, since it may still read
        their memory."""
        # close() has purged and waited before; a callback may have produced since.
        cdef int64_t deadline = max(self._purged_until, ck_runtime_now_ms()
                                    + (SLICE if self._purged_until else PURGED_MS))
        cdef int64_t left = self.undelivered()
        cdef rd_kafka_t *rk = self._ptr
        cdef ck_event_t *lost
        cdef ck_event_t *following
        if left > 0:
            with nogil:
                rd_kafka_purge(rk, PURGE_ALL)
            left = self.undelivered()
        while left > 0 and ck_runtime_now_ms() < deadline:
            with nogil:
                ck_callback_poll(rk, 10)
            left = self.undelivered()
        self._unreported = left
        lost = ck_flight_lost(self._flight)
        while lost is not NULL:
            following = lost.next
            ck_queue_push(self._events, lost)
            lost = following

    def produce(self, topic, value=None, key=None, partition=-1, callback=None,
                on_delivery=None, timestamp=0, headers=None, timeout=0):
        """Queue one record; it is sent in the background.

        Parameters
        ----------
        topic : str
        value, key : bytes, str or any contiguous buffer, optional
            Copied. A str is encoded as UTF-8. Without a value the record is a tombstone.
        partition : int
            -1 leaves the choice to the ``partitioner``.
        callback, on_delivery : callable, optional
            ``on_delivery(err, msg)``, called once, when the record has been delivered (err is
            None) or has failed for good. Replaces the one in the configuration. If both are given,
            ``callback`` counts.
        timestamp : int
            ms since the epoch; 0 is now.
        headers : dict or list of (str, bytes or str or None), optional
        timeout : float, optional
            Seconds to wait for room in the queue, serving callbacks. 0, the default, does not
            wait; None waits forever.

        Raises
        ------
        BufferError
            The queue is full (``queue.buffering.max.messages``, ``queue.buffering.max.kbytes``):
            call ``poll()`` and try again, or give a timeout.
        KafkaException
            The record cannot be queued: too large, no such partition, no transaction begun...
        """
        cdef ck_record_t record
        cdef Py_buffer value_buffer, key_buffer
        cdef bint value_held = False, key_held = False
        cdef rd_kafka_topic_t *rkt
        cdef rd_kafka_error_t *error
        if self._open_in != ck_runtime_generation:
            self.refuse()
        if callback is None:
            callback = on_delivery if on_delivery is not None else self._on_delivery
        if callback is not None and not callable(callback):
            raise TypeError("on_delivery: expected a callable or None, "
                            f"got {type(callback).__name__}")
        record.partition = RD_KAFKA_PARTITION_UA if partition is -1 else <int32_t>int_argument(
            partition, "partition", -1, INT32_MAX)
        record.timestamp = 0 if timestamp is 0 else int_argument(
            timestamp, "timestamp", 0, INT64_MAX)
        if timeout is not 0:
            timeout_ms(timeout, "timeout")  # not only once the queue is full
        record.report = NULL
        record.headers = NULL
        try:
            value_held = data_of(value, "value", &record.value, &record.value_len, &value_buffer)
            key_held = data_of(key, "key", &record.key, &record.key_len, &key_buffer)
            if headers is not None:
                record.headers = headers_to(headers)
            if callback is not None:
                # It comes back with the report, which is what it begins with.
                record.report = <ck_report_t *>in_flight_new(
                    self._flight, topic, value if PyBytes_CheckExact(value) else frozen(value),
                    None if key is None else frozen(key),
                    None if headers is None else headers_copy(headers), callback)
            rkt = self._last_topic._ptr if topic is self._last_name else self.topic_of(topic)
            # Any of the lines above may have run code of others, and so closed the producer.
            if self._open_in != ck_runtime_generation:
                self.refuse()
            # With the GIL: the call never waits, and letting go of it would cost as much again.
            error = ck_produce(self._ptr, rkt, &record)
            if error is not NULL:
                self._produce_slowly(topic, &record, error, timeout)
            record.headers = NULL
            record.report = NULL
        finally:
            if value_held:
                PyBuffer_Release(&value_buffer)
            if key_held:
                PyBuffer_Release(&key_buffer)
            if record.headers is not NULL:
                rd_kafka_headers_destroy(record.headers)
            if record.report is not NULL:
                in_flight_destroy(<in_flight_t *>record.report)

    cdef int _produce_slowly(self, topic, const ck_record_t *record, rd_kafka_error_t *error,
                             timeout) except -1:
        """What to do about an error of ck_produce(): wait for room in the queue, or raise."""
        cdef int64_t deadline = 0
        cdef bint again = False
        cdef unsigned ended = 0
        cdef rd_kafka_topic_t *rkt
        cdef rd_kafka_t *rk
        cdef int ms
        while error is not NULL:
            if rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR__QUEUE_FULL:
                raise KafkaException(produce_error(topic, record, take_error(error)))
            rd_kafka_error_destroy(error)
            if not again:
                deadline = deadline_after(timeout_ms(timeout, "timeout"))
            ms = self.slice_ms(deadline)
            if ms == 0:
                raise BufferError("Local: Queue full: call poll() to make room, give produce() a "
                                  "timeout, or raise queue.buffering.max.messages or .kbytes")
            if again:
                ms = SLICE if ms < 0 else min(ms, <int>SLICE)
                rk = self.enter()
                try:
                    with nogil:
                        ck_callback_serve(rk, self._events, NULL, ms, &ended)
                finally:
                    self.leave()
                self.dispatch(NOW)
                PyErr_CheckSignals()
            again = True
            rkt = self.topic_of(topic)
            # A callback, or another thread, may have closed the producer, and with it the topic.
            if self._open_in != ck_runtime_generation:
                self.refuse()
            # Before the look at the queue: who makes room after it may leave nothing to serve.
            ended = ck_turn_ended(ck_queue_turn(self._events))
            error = ck_produce(self._ptr, rkt, record)
        return 0

    def produce_batch(self, topic, messages, partition=-1, callback=None, on_delivery=None):
        """Queue a list of records given as dicts.

        Parameters
        ----------
        topic : str
        messages : list of dict
            Keys ``value``, ``key``, ``headers``, ``partition``, ``callback`` and ``on_delivery``,
            as for :meth:`produce`. A dict whose record could not be queued gets an ``_error``, a
            KafkaError.
        partition : int
            For records that name none.
        callback, on_delivery : callable, optional
            For records that name none.

        Returns
        -------
        int
            How many were queued.

        Raises
        ------
        NotImplementedError
            A dict has a ``timestamp``; use :meth:`publish` or :meth:`produce` for it.
        """
        if not isinstance(messages, list):
            raise TypeError(f"messages must be a list, got {type(messages).__name__}")
        if not isinstance(topic, str):
            raise TypeError(f"topic: expected a str, got {type(topic).__name__}")
        if on_delivery is None:
            on_delivery = callback
        queued = 0
        # Check all of them before the first is queued: a later exception could not report how many
        # were.
        for number, message in enumerate(messages):
            if not isinstance(message, dict):
                raise TypeError(f"Message at index {number} must be a dict, "
                                f"got {type(message).__name__}")
            if not is_data(message.get("value")):
                raise TypeError(f"Message value at index {number} must be bytes or str, a buffer "
                                f"or None, got {type(message['value']).__name__}")
            if not is_data(message.get("key")):
                raise TypeError(f"Message key at index {number} must be bytes or str, a buffer or "
                                f"None, got {type(message['key']).__name__}")
            own = message.get("partition")
            if own is not None and not hasattr(own, "__index__"):
                raise TypeError(f"Message partition at index {number} must be int, "
                                f"got {type(own).__name__}")
            if message.get("timestamp") is not None:
                raise NotImplementedError(
                    "Message timestamps are not currently supported in batch mode: use "
                    "publish(timestamps=) or produce(timestamp=)")
        for message in messages:
            message.pop("_error", None)
            try:
                own = message.get("partition")
                self.produce(
                    topic, message.get("value"), message.get("key"),
                    partition if own is None else own,
                    on_delivery=message.get("callback") or message.get("on_delivery")
                    or on_delivery, headers=message.get("headers"))
                queued += 1
            except BufferError:
                message["_error"] = KafkaError(<int>RD_KAFKA_RESP_ERR__QUEUE_FULL)
            except KafkaException as exception:
                message["_error"] = exception.args[0]
            except (TypeError, ValueError) as exception:
                message["_error"] = KafkaError(<int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                                               str(exception))
        return queued

    def poll(self, timeout=None):
        """Serve delivery reports and other events, running their callbacks.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the first event; None or less than 0: forever. 0 does not wait.

        Returns
        -------
        int
            How many events were served. Ctrl-C is noticed within 0.1 s.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef int64_t served = 0
        cdef rd_kafka_t *rk
        cdef int ms
        while True:
            # What a raising callback has left over comes first, and does not wait.
            if self._events is not NULL and self._dispatcher != PyThread_get_thread_ident():
                served += ck_queue_length(self._events)
            ms = 0 if served else self.slice_ms(deadline)
            rk = self.enter()
            # A look at an empty queue is not worth letting go of the GIL.
            if ms or rd_kafka_queue_length(self._wait_queue):
                try:
                    with nogil:
                        served += ck_callback_serve(rk, self._events, NULL, ms, NULL)
                finally:
                    self.leave()
            else:
                self.leave()
            self.dispatch(NOW)
            if served or ms == 0:
                return served
            PyErr_CheckSignals()

    def flush(self, timeout=None):
        """Send what is queued and wait for its reports, running their callbacks.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: until every record has its outcome, which
            ``delivery.timeout.ms`` bounds. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        int
            How many messages and events are still in the queues; 0 if all is done.
        """
        return self.flush_until(deadline_after(timeout_ms(timeout, "timeout")))

    cdef int64_t flush_until(self, int64_t deadline) except -1:
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef rd_kafka_t *rk
        cdef int64_t left
        cdef int ms
        while True:
            ms = SLICE
            if deadline >= 0:
                ms = <int>max(0, min(SLICE, deadline - ck_runtime_now_ms()))
            rk = self.enter()
            with nogil:
                # While another thread is in there, it serves for this one.
                if ck_turn_enter(ck_queue_turn(self._events), self._wait_queue, ms):
                    ck_callback_flush(rk, ms)
                    ck_turn_leave(ck_queue_turn(self._events))
            self.leave()
            # Not for longer: another thread's callback may wait for a Delivery, which this close()
            # serves.
            self.dispatch(slice_end(deadline))
            if self._ptr is NULL:
                return 0  # a callback closed the producer, which flushed
            left = rd_kafka_outq_len(self._ptr)
            # In a delivery callback, the reports behind it come when it is over.
            if self._dispatcher != me:
                # And the one whose callback runs in another thread.
                left += ck_queue_length(self._events) + (self._dispatcher != 0)
            if left == 0 or ms == 0:
                return left
            PyErr_CheckSignals()

    def purge(self, in_queue=True, in_flight=True, blocking=True):
        """Fail records that wait (``_PURGE_QUEUE``) or are in flight (``_PURGE_INFLIGHT``).

        Their delivery reports come with the next ``poll()`` or ``flush()``. Records in flight may
        have reached the broker all the same.

        Parameters
        ----------
        in_queue, in_flight : bool
            Which records to fail.
        blocking : bool
            Wait until the queues of the background threads are purged as well.
        """
        cdef int flags = 0
        cdef rd_kafka_resp_err_t err
        if in_queue:
            flags |= RD_KAFKA_PURGE_F_QUEUE
        if in_flight:
            flags |= RD_KAFKA_PURGE_F_INFLIGHT
        if not blocking:
            flags |= RD_KAFKA_PURGE_F_NON_BLOCKING
        rk = self.enter()
        try:
            with nogil:
                err = rd_kafka_purge(rk, flags)
        finally:
            self.leave()
        check_doing(err, "Failed to purge")

    def close(self, timeout=None):
        """Abort an open transaction, or else flush; then free the producer.

        A commit that ran out of time is resumed instead. Ctrl-C, and any other exception of a
        signal handler that is no ``Exception``, ends the wait for records and leaves the producer
        open; the next transaction block first completes an abort that has begun. If Ctrl-C comes
        later, when ``close()`` has already failed the remaining records or waits for librdkafka's
        threads, the producer is closed all the same. A callback may call it. ``close()`` waits for
        callbacks that run in other threads. Two callbacks that close each other's producers need a
        timeout.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait until every record has its outcome; by default as long as
            ``delivery.timeout.ms`` allows. Records without an outcome by then fail with
            ``_PURGE_QUEUE``, or with ``_PURGE_INFLIGHT`` if they may have arrived. Their delivery
            callbacks and Deliveries report that; records with neither are counted in a logged
            warning. Callbacks are not interrupted. If one of librdkafka's threads is stalled, the
            records that it holds of a Delivery fail with ``_DESTROY`` when it has ended, and that
            Delivery's callbacks then run in another thread. If the interpreter ends first, they do
            not run. ``close()`` logs how many records the stalled thread holds.

        Returns
        -------
        bool
            False if the time was up before every record had its outcome, or if the transaction
            could not be ended as above, which is logged. The producer is closed all the same.
            librdkafka's threads may end later. Closing again returns the same.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if a call in another thread did not end in time. The producer then stays
            open, but other calls that waited meanwhile raise RuntimeError.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if not self.begin_close(deadline):
            return not self._gave_up
        raised = None
        failures = {}
        self._gave_up = False
        self._purged_until = 0
        while self._generation == ck_runtime_generation:
            try:
                if self._purged_until:
                    self._flush_or_purge(deadline)
                else:
                    self._finish(deadline, failures)
                break
            except Exception as exception:
                # A callback raised: the transaction still has to end, and the reports behind it
                # have to be heard (by the parent alone, should it have forked). Each exception
                # uses up a report.
                raised = chain(raised, exception)
            except BaseException as exception:
                # Ctrl-C, or a SIGTERM's handler that exits.
                if not self._purged_until:
                    self.abandon_close()  # nothing is lost yet
                    self._log_failures(failures)
                    raise chain(raised, exception)
                raised = chain(raised, exception)
                break
        # The close cannot be taken back any more: finish it, then raise.
        raised = self.finish_close(0, deadline, raised)
        if self._generation == ck_runtime_generation:
            try:
                self._log_failures(failures)
            except BaseException as exception:
                raised = chain(raised, exception)
        if raised is not None:
            raise raised
        return not self._gave_up

    cdef int _finish(self, int64_t deadline, dict failures) except -1:
        """End the transaction and flush. What fails is logged later, since a log may raise."""
        cdef int64_t until = ck_runtime_now_ms() + self._transaction_ms
        if deadline >= 0:
            until = min(until, deadline)
        # Not by the methods: a subclass may have its own.
        if self._pending == CALL_COMMIT:
            # It can only be completed.
            error = self.resume(CALL_COMMIT, max(0, until - ck_runtime_now_ms()))
            if error is not None:
                self._gave_up = True
                failures["the commit of the transaction "
                         + ("did not end" if error.retriable() else "has failed")] = error
        if self._begun and self._pending != CALL_COMMIT:
            error = self.resume(CALL_ABORT, max(0, until - ck_runtime_now_ms()))
            if error is not None:
                self._gave_up = True
                failures["the open transaction could not be aborted"] = error
        return self._flush_or_purge(deadline)

    cdef int _flush_or_purge(self, int64_t deadline) except -1:
        """Flush until the deadline, then fail the remaining records."""
        # Reports that only wait for their callbacks, in another thread, are no remaining records.
        if (self.flush_until(deadline) and self._ptr is not NULL
                and self.undelivered() > 0):
            if not self._purged_until:
                self._gave_up = True
                with nogil:
                    rd_kafka_purge(self._ptr, PURGE_ALL)
                self._purged_until = ck_runtime_now_ms() + PURGED_MS
            self.flush_until(self._purged_until)
        return 0

    cdef int _log_failures(self, dict failures) except -1:
        """Log these failures, and the failed records that no callback and no Delivery reports."""
        cdef ck_event_t *first
        for failure, error in failures.items():
            _log.warning("%s: %s: %s", self._label, failure, error.str())
        cdef int64_t untold = ck_queue_take_untold(self._events, &first)
        if first is not NULL:
            topic = (<ck_notice_t *>first).text.decode()
            error = error_from(<rd_kafka_resp_err_t>first.code, NULL)
            ck_event_destroy(first)
            _log.warning("%s: %d record(s) were not delivered, and the program did not "
                         "check them; the first one to %s: %s",
                         self._label, untold, topic, error.str())
        if self._unreported:
            _log.warning("%s: %d record(s) have no delivery report, probably because a thread of "
                         "librdkafka is stalled; they may have been delivered", self._label,
                         self._unreported)
        return 0

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, exc_traceback):
        self.close()

    def __len__(self):
        if self._ptr is NULL or self._generation != ck_runtime_generation:
            return 0
        return rd_kafka_outq_len(self._ptr) + ck_queue_length(self._events)

    def __bool__(self):
        return True


public("cykafka")(Producer)
