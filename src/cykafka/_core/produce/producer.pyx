"""Producer: records one at a time and in batches, transactions, and close().

Most of this file is the documentation of the methods. The parts do the work: Publisher has the
records in flight, Transactions the state of the transaction.
"""
import logging

from cpython.buffer cimport (
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t

from cykafka._core.arrow.read cimport ArrowData
from cykafka._core.clib.csrc cimport (
    PyThread_get_thread_ident,
    ck_callback_flush,
    ck_callback_serve,
    ck_event_destroy,
    ck_event_t,
    ck_notice_t,
    ck_produce,
    ck_publish_t,
    ck_queue_length,
    ck_queue_take_untold,
    ck_queue_turn,
    ck_record_t,
    ck_report_t,
    ck_runtime_generation,
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
    rd_kafka_conf_destroy,
    rd_kafka_error_code,
    rd_kafka_error_destroy,
    rd_kafka_error_t,
    rd_kafka_headers_destroy,
    rd_kafka_outq_len,
    rd_kafka_purge,
    rd_kafka_queue_length,
    rd_kafka_resp_err_t,
    rd_kafka_t,
    rd_kafka_topic_t,
)
from cykafka._core.client.call cimport run
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport (
    NOW,
    SLICE,
    deadline_after,
    int_argument,
    slice_end,
    slice_left,
    str_argument,
    timeout_ms,
    utf8,
)
from cykafka._core.common.config cimport merged_config, take_bool, take_callable
from cykafka._core.common.errors cimport chain, check_doing, error_from, take_error
from cykafka._core.common.message cimport (
    headers_to,
    in_flight_destroy,
    in_flight_new,
    in_flight_t,
)
from cykafka._core.consume.consumer cimport Consumer
from cykafka._core.produce.columns cimport Columns, check_range
from cykafka._core.produce.publisher cimport Batch, Publisher
from cykafka._core.produce.transaction cimport Transactions

from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.naming import public
from cykafka._core.produce.transaction_block import Transaction

_log = logging.getLogger("cykafka")


@cython.no_gc_clear
cdef class Producer(Handle):
    """Sends records, asynchronously.

    Parameters
    ----------
    config : dict
        librdkafka's properties, such as ``bootstrap.servers``; values are str, bool, int, float or
        None (the default). And, all optional:

        ``on_delivery(err, msg)``
            Called for every record, unless ``produce()`` names another callback.
        ``delivery.report.only.error``
            Call it only for failed records.
        ``error_cb(KafkaError)``, ``throttle_cb(ThrottleEvent)``, ``stats_cb(json: str)``
            ``stats_cb`` needs ``statistics.interval.ms``.
        ``logger``
            A logging.Logger or logging.Handler for librdkafka's log.
        ``oauth_cb(config: str)``
            Returns (token, expiry in s since the epoch[, principal[, extensions]]). Runs on
            librdkafka's thread; the constructor waits up to 10 s for the first token.
        ``default.topic.config``
            A dict of topic properties; they override the same properties of ``config``.

    Raises
    ------
    KafkaException
        A property does not exist or does not accept the value; the error names it.

    Notes
    -----
    All callbacks except ``oauth_cb`` run in the calls that wait: ``poll``, ``flush``, ``close``,
    ``publish``, ``Delivery.wait``, ``commit_transaction`` and ``abort_transaction``. These calls
    raise the exceptions of the callbacks.
    The producer is a context manager; leaving the block closes it. ``len()`` is the number of
    messages and events in its queues. Close a producer before you drop it: until its records are
    reported, delivery callbacks that refer to it (methods of its owner, say) keep it alive.
    """

    def __cinit__(self, *args, **kwargs):
        self._transactions = Transactions.__new__(Transactions)
        self._publisher = Publisher(self._transactions)
        self._on_delivery = [None]
        self._failures = {}
        self._role = self._publisher
        self._closed_words = "Producer has been closed"

    def __init__(self, *args, **kwargs):
        self.check_new()
        try:
            config = merged_config(args, kwargs, type(self).__name__)
            self._on_delivery = [take_callable(config, "on_delivery")]
            self._publisher.only_errors = take_bool(config, "delivery.report.only.error", False)
            conf = self.new_conf(config)
            try:
                self._transactions.configure(conf)
                self._publisher.register(self, conf)
            except:
                rd_kafka_conf_destroy(conf)
                raise
            self.start(RD_KAFKA_PRODUCER, conf)
        finally:
            self._opening = False

    # -- records one at a time

    def produce(self, topic, value=None, key=None, partition=-1, callback=None,
                on_delivery=None, timestamp=0, headers=None, timeout=0):
        """Queue a record, which is sent in the background.

        Parameters
        ----------
        topic : str
        value, key : bytes, str or any contiguous buffer, optional
            They are copied. A str is encoded as UTF-8. Without a value the record is a tombstone.
        partition : int
            -1 leaves the choice to the ``partitioner``.
        callback, on_delivery : callable, optional
            ``on_delivery(err, msg)``, called once, when the record is delivered (err is None) or
            has finally failed. It replaces the callback of the configuration. If both are given,
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
            The record cannot be queued: too large, no such partition, no open transaction, ...
        """
        if self._open_in != ck_runtime_generation:
            self.refuse()
        if callback is None:
            callback = on_delivery if on_delivery is not None else self._on_delivery[0]
        if callback is not None and not callable(callback):
            raise TypeError("on_delivery: expected a callable or None, "
                            f"got {type(callback).__name__}")
        self.queue(topic, value, key, partition, callback, timestamp, headers, timeout)

    cdef int queue(self, topic, value, key, partition, callback, timestamp, headers,
                   timeout) except -1:
        """produce() with a checked callback."""
        cdef ck_record_t record
        cdef Py_buffer value_buffer, key_buffer
        cdef bint value_held = False, key_held = False
        cdef rd_kafka_topic_t *rkt
        cdef rd_kafka_error_t *error
        record.partition = RD_KAFKA_PARTITION_UA if partition is -1 else <int32_t>int_argument(
            partition, "partition", -1, INT32_MAX)
        record.timestamp = 0 if timestamp is 0 else int_argument(
            timestamp, "timestamp", 0, INT64_MAX)
        if timeout is not 0:
            timeout_ms(timeout, "timeout")  # check it even if the queue is not full
        record.report = NULL
        record.headers = NULL
        try:
            value_held = data_of(value, "value", &record.value, &record.value_len, &value_buffer)
            key_held = data_of(key, "key", &record.key, &record.key_len, &key_buffer)
            if headers is not None:
                record.headers = headers_to(headers)
            if callback is not None:
                # The in_flight_t begins with its report, so it comes back with the report.
                record.report = <ck_report_t *>in_flight_new(
                    self._publisher.flight, topic,
                    value if PyBytes_CheckExact(value) else frozen(value),
                    None if key is None else frozen(key),
                    None if headers is None else headers_copy(headers), callback)
            if topic is self._publisher.last_name:
                rkt = self._publisher.last_topic._ptr
            else:
                rkt = self._publisher.topic_of(self, topic)
            # The lines above may have run foreign code, which may have closed the producer.
            if self._open_in != ck_runtime_generation:
                self.refuse()
            # With the GIL: the call never waits, and releasing the GIL would double its cost.
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
        return 0

    cdef int _produce_slowly(self, topic, const ck_record_t *record, rd_kafka_error_t *error,
                             timeout) except -1:
        """Handle an error of ck_produce(): wait for room in the queue, or raise."""
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
                with nogil:
                    ck_callback_serve(rk, self._events, NULL, ms, &ended)
                self.leave()
                self.dispatch(NOW)
                PyErr_CheckSignals()
            again = True
            rkt = self._publisher.topic_of(self, topic)
            # A callback, or another thread, may have closed the producer, and with it the topic.
            self.check_open()
            # Read this before trying the queue: later another thread may make room and leave no
            # event.
            ended = ck_turn_ended(ck_queue_turn(self._events))
            error = ck_produce(self._ptr, rkt, record)
        return 0

    cdef tuple record_copy(self, topic, value, key, partition, timestamp, headers):
        """The arguments of a later call of queue(), which do not change meanwhile. Raises what
        queue() raises for arguments of a wrong type or value."""
        cdef const void *ptr
        cdef size_t size
        cdef Py_buffer buffer
        int_argument(partition, "partition", -1, INT32_MAX)
        int_argument(timestamp, "timestamp", 0, INT64_MAX)
        if data_of(value, "value", &ptr, &size, &buffer):
            PyBuffer_Release(&buffer)
        if data_of(key, "key", &ptr, &size, &buffer):
            PyBuffer_Release(&buffer)
        if headers is not None:
            rd_kafka_headers_destroy(headers_to(headers))
            headers = headers_copy(headers)
        self.check_open()
        self._publisher.topic_of(self, topic)
        return topic, frozen(value), frozen(key), partition, timestamp, headers

    def produce_batch(self, topic, messages, partition=-1, callback=None, on_delivery=None):
        """Queue a list of records, given as dicts.

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
            The number of queued records.

        Raises
        ------
        NotImplementedError
            A dict has a ``timestamp``; use :meth:`publish` or :meth:`produce` for it.
        """
        if not isinstance(messages, list):
            raise TypeError(f"messages must be a list, got {type(messages).__name__}")
        str_argument(topic, "topic")
        if on_delivery is None:
            on_delivery = callback
        queued = 0
        # Check all records before queueing the first: a later exception could not report how many
        # records are queued.
        for number, message in enumerate(messages):
            if not isinstance(message, dict):
                raise TypeError(f"Message at index {number} must be a dict, "
                                f"got {type(message).__name__}")
            for field in ("value", "key"):
                if not is_data(message.get(field)):
                    raise TypeError(f"Message {field} at index {number} must be bytes or str, a "
                                    f"buffer or None, got {type(message[field]).__name__}")
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
                message["_error"] = KafkaError(<int>RD_KAFKA_RESP_ERR__INVALID_ARG, str(exception))
        return queued

    # -- batches

    def publish(self, topic, values, *, keys=None, headers=None, timestamps=None, partitions=None,
                timeout=None):
        """Send a batch of records, given as columns with one item for each record.

        Parameters
        ----------
        topic : str or sequence of str
            The topic of all records, or of each.
        values, keys : sequence of (bytes, str, buffer or None), or buffer, optional
            A str is encoded as UTF-8; None is a tombstone, or no key. Also, without a Python
            object for each record: a numpy array of fixed-width bytes (dtype ``S``, which cannot
            keep trailing NULs: they look like padding), a two-dimensional buffer of single
            bytes whose rows are contiguous (numpy ``uint8``, one row for each record), or an Arrow
            array of binary or string (of pyarrow, polars, ...; for tables use
            :meth:`publish_arrow`). With keys but without values, all records are tombstones.
        headers : sequence or mapping, optional
            For each record a dict, a list of (str, bytes or str or None) or None. Or a mapping of
            name to column, in the forms of `values`; a bytes or str there is the value of every
            record. Or an Arrow array as for :meth:`publish_arrow`.
        timestamps : int, sequence of (int or None), integer buffer or Arrow array, optional
            ms since the epoch, or Arrow's timestamps; None and 0 are now.
        partitions : int, sequence of (int or None), integer buffer or Arrow array, optional
            None and -1 leave the choice to the ``partitioner``.
        timeout : float, optional
            Seconds to wait for room in the queue, serving callbacks; None: forever. 0 does not
            wait; use it in a coroutine. Records without room in time fail with ``_QUEUE_FULL``.

        Returns
        -------
        Delivery
            The outcomes of the records: ``wait()`` for it, ``await`` it, or drop it. Within a
            partition the records keep their order. A record that cannot be queued (too large, no
            such partition, no open transaction, ...) fails, and the others are still sent.

        Raises
        ------
        ValueError
            Columns have different lengths, or a number is out of range.
        TypeError
            An argument is not a column.

        Notes
        -----
        ``publish()`` sends bytes as given: the serializers of a SerializingProducer apply to
        ``produce()`` only.

        If records could not be queued, ``commit_transaction()`` raises unless their Delivery was
        checked: ``wait()`` for it first. After the check it commits without these records.

        If the arguments are refused, no record was sent. Other exceptions that end the call
        (Ctrl-C, a callback that raises, a close in another thread) have the Delivery as their
        attribute ``delivery``. The records that were not queued by then have failed with
        ``_QUEUE_FULL``, or with ``_DESTROY`` if the producer was closed.
        """
        self.check_open()
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        return self._publisher.send(
            self, self.batch(topic, values, keys, headers, timestamps, partitions), ms)

    cdef Batch batch(self, topic, values, keys, headers, timestamps, partitions):
        cdef Columns columns = Columns.__new__(Columns)
        cdef Batch batch = Batch.__new__(Batch)
        cdef ck_publish_t *publish = &batch.c
        cdef tuple kept
        batch.owner = columns
        kept = columns.bytes_column(values, "values", &publish.values)
        columns.bytes_column(keys, "keys", &publish.keys)
        if columns._cnt < 0:
            raise TypeError("values: expected a sequence, got None, and no keys either")
        publish.headers = columns.headers_column(headers)
        columns.numbers_column(timestamps, "timestamps", &publish.timestamps, 0, 0, INT64_MAX)
        columns.numbers_column(partitions, "partitions", &publish.partitions,
                               RD_KAFKA_PARTITION_UA, -1, INT32_MAX)
        batch.topic = self._publisher.topics_column(self, topic, columns, publish)
        publish.cnt = columns._cnt
        batch.borrow_large(kept)
        return batch

    def publish_arrow(self, topic, data, *, key=None, value="value", headers=None, timestamp=None,
                      partition=None, timeout=None):
        """Send the rows of Arrow data as records, without a Python object for each.

        Parameters
        ----------
        topic : str or None
            The topic of all records; None: the column named ``topic`` has the topic of each.
        data : object with ``__arrow_c_array__`` or ``__arrow_c_stream__``
            A table or record batch (of pyarrow, polars, nanoarrow, DuckDB, a MessageBatch, ...),
            whose columns you name; or an array of byte strings, which are the values. A
            stream is first read to its end: pass a large one batch by batch.
        key, value : str, optional
            Columns of binary or string, including large, view and fixed-size ones. None: no keys,
            or no values (tombstones).
        headers : str, optional
            A column of list<struct<key, value>> or map, whose names are strings and values binary
            or string.
        timestamp : str, optional
            A column of timestamps, or of integers in ms; nulls are now.
        partition : str, optional
            A column of integers; nulls and -1 leave the choice to the ``partitioner``.
        timeout : float, optional
            As for :meth:`publish`.

        Returns
        -------
        Delivery
            As :meth:`publish`.

        Raises
        ------
        TypeError
            The data is not Arrow data, or a column has the wrong type; the error names the cast to
            make.
        ValueError
            A column does not exist, or a number is out of range.
        """
        self.check_open()
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        return self._publisher.send(
            self, self.arrow_batch(topic, data, key, value, headers, timestamp, partition), ms)

    cdef Batch arrow_batch(self, topic, data, key, value, headers, timestamp, partition):
        cdef Batch batch = Batch.__new__(Batch)
        cdef ck_publish_t *publish = &batch.c
        cdef ArrowData arrow
        cdef Columns columns
        if value is None and key is None:
            raise TypeError("value: expected the name of a column, got None, and no key either")
        arrow = ArrowData(data)
        columns = Columns.__new__(Columns)
        batch.owner = (arrow, columns)
        publish.timestamps.missing = 0
        publish.partitions.missing = RD_KAFKA_PARTITION_UA
        publish.cnt = arrow.length
        if not arrow.is_table():
            arrow.whole_column(None, "data", &publish.values)
        elif value is not None:
            arrow.whole_column(value, "value", &publish.values)
        if key is not None:
            arrow.whole_column(key, "key", &publish.keys)
        if headers is not None:
            arrow.whole_headers(headers, "headers", &batch.c_headers)
            publish.headers = &batch.c_headers
        if timestamp is not None:
            arrow.whole_numbers(timestamp, "timestamp", True, &publish.timestamps)
            check_range(&publish.timestamps, publish.cnt, "timestamp", 0, INT64_MAX)
        if partition is not None:
            arrow.whole_numbers(partition, "partition", False, &publish.partitions)
            check_range(&publish.partitions, publish.cnt, "partition", -1, INT32_MAX)
        if topic is None:
            batch.topic = self._publisher.arrow_topics(self, arrow, columns, publish)
        else:
            if not isinstance(topic, str):
                raise TypeError("topic: expected a str, or None for the column of that name, "
                                f"got {type(topic).__name__}")
            batch.topic = self._publisher.topics_column(self, topic, columns, publish)
        batch.borrow_large(arrow)
        return batch

    # -- reports

    def poll(self, timeout=None):
        """Serve delivery reports and other events, running their callbacks.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the first event; None or less than 0: forever. 0 does not wait.

        Returns
        -------
        int
            The number of events that were served. Ctrl-C is noticed within 0.1 s.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef int64_t served = 0
        cdef rd_kafka_t *rk
        cdef int ms
        while True:
            # First, without a wait, the events that a raising callback has left over.
            if self._events is not NULL and self._dispatcher != PyThread_get_thread_ident():
                served += ck_queue_length(self._events)
            ms = 0 if served else self.slice_ms(deadline)
            rk = self.enter()
            # Do not release the GIL for an empty queue.
            if ms or rd_kafka_queue_length(self._wait_queue):
                with nogil:
                    served += ck_callback_serve(rk, self._events, NULL, ms, NULL)
            self.leave()
            self.dispatch(NOW)
            if served or ms == 0:
                return served
            PyErr_CheckSignals()

    def flush(self, timeout=None):
        """Send the queued records and wait for their reports, running their callbacks.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: until every record has its outcome;
            ``delivery.timeout.ms`` limits that. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        int
            The number of messages and events that are still in the queues; 0 if all is done.
        """
        return self.flush_until(deadline_after(timeout_ms(timeout, "timeout")))

    cdef int64_t flush_until(self, int64_t deadline) except -1:
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef rd_kafka_t *rk
        cdef int64_t left
        cdef int ms
        while True:
            ms = slice_left(deadline)
            rk = self.enter()
            with nogil:
                # If another thread is inside, it also serves for this one.
                if ck_turn_enter(ck_queue_turn(self._events), self._wait_queue, ms):
                    ck_callback_flush(rk, ms)
                    ck_turn_leave(ck_queue_turn(self._events))
            self.leave()
            # Wait at most a slice: another thread's callback may wait for a Delivery, which this
            # close() serves.
            self.dispatch(slice_end(deadline))
            if self._ptr is NULL:
                return 0  # a callback has closed the producer, which flushed
            left = rd_kafka_outq_len(self._ptr)
            # In a delivery callback, the following reports are handled after it.
            if self._dispatcher != me:
                # Plus the report whose callback runs in another thread.
                left += ck_queue_length(self._events) + (self._dispatcher != 0)
            if left == 0 or ms == 0:
                return left
            PyErr_CheckSignals()

    def purge(self, in_queue=True, in_flight=True, blocking=True):
        """Fail queued records (``_PURGE_QUEUE``) or records in flight (``_PURGE_INFLIGHT``).

        The next ``poll()`` or ``flush()`` delivers their reports. Records in flight may
        have reached the broker anyway.

        Parameters
        ----------
        in_queue, in_flight : bool
            Which records to fail.
        blocking : bool
            Wait until the queues of the background threads are also purged.
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
        with nogil:
            err = rd_kafka_purge(rk, flags)
        self.leave()
        check_doing(err, "Failed to purge")

    # -- transactions

    def init_transactions(self, timeout=None):
        """Register the ``transactional.id``: fence older producers, complete their transactions.

        Call it once, before any other call of a transaction.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default twice ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s;
            the call can then be repeated.

        Raises
        ------
        KafkaException
        """
        run(self._transactions.init(self, timeout_ms(timeout, "timeout"), True))

    def transaction(self, consumer=None, timeout=None):
        """A block whose records are committed together at its end, or aborted if it raises.

        ``with producer.transaction():`` begins a transaction and commits it at the end of the
        block. An exception, Ctrl-C included, aborts the transaction and propagates. The abort then
        takes up to ``timeout``, and a second Ctrl-C ends it. If the abort fails too, its
        error is in the context of the exception and in the log; a fatal error is raised instead.
        Errors that are ``retriable()`` are retried until the time is up. If the commit fails, the
        block raises. The transaction is then aborted if the error is ``txn_requires_abort()``. A
        commit that ran out of time is resumed by the next block, by ``commit_transaction()`` or by
        ``close()``. The first block calls :meth:`init_transactions` unless that was done before.
        In the block, ``abort_transaction()`` drops the records without an exception; with a
        consumer, the same messages are read again.

        With a consumer, the block is one step of consume, transform and produce: the offsets that
        the consumer has read are committed with the records. Read in the block or before it::

            while running:
                messages = consumer.consume(1000, timeout=1)
                with producer.transaction(consumer):
                    for message in messages:
                        producer.produce("out", work(message.value()))

        If the transaction fails, or cannot begin, the consumer seeks back to the committed offsets
        of its group and reads the messages again: none is skipped, and none is committed twice. So
        do not send messages again that were read before the failure. A partition without
        a committed offset starts again at the first message that the consumer returned. So handle
        the exception outside of the block and continue the loop. If the seek fails, the beginning
        of the next block repeats it. That block raises ``_RETRY`` if the consumer has returned
        messages meanwhile, because they will come again.

        A block also fails if the consumer has given up partitions of which it returned messages
        since the last block, because their offsets can no longer be committed: the group has
        revoked them, or the program has called ``seek()``, ``assign()``, ``unassign()`` or
        ``incremental_unassign()``. To skip messages, seek before any was read since the last
        block.

        Parameters
        ----------
        consumer : Consumer, optional
            The block commits its positions: the offsets after the last messages it has handed
            over. It needs ``enable.auto.commit`` false and ``isolation.level`` read_committed (the
            default). Only this thread may use it during the block.
        timeout : float, optional
            Seconds for each step (:meth:`init_transactions`, the consumer's offsets, the commit or
            the abort, seeking back); by default ``transaction.timeout.ms``, and twice that for the
            first step. librdkafka may let the offsets take ``transaction.timeout.ms``, whatever
            this timeout is.

        Returns
        -------
        context manager
            ``as`` binds the producer.

        Raises
        ------
        KafkaException
            At the beginning or the end of the block, with a KafkaError as ``args[0]``.
            ``fatal()``: make a new producer (another producer has the same ``transactional.id``,
            say). ``_TIMED_OUT``: the commit continues; call ``commit_transaction()`` for its
            outcome, and do not send the records again before. ``_ASSIGNMENT_LOST``: the group has
            revoked partitions that the consumer had read. ``_STATE``: the program has given them
            up. ``_RETRY``: no transaction was begun, because the consumer had to seek back; read
            again and enter another block.
        ClosedError
            A RuntimeError: the producer was closed in the block, and the records were dropped.
        ValueError
            The consumer's configuration is unsuitable.
        """
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        self.check_open()
        if consumer is not None and not isinstance(consumer, Consumer):
            raise TypeError("consumer: expected a Consumer or None, "
                            f"got {type(consumer).__name__}")
        return Transaction(self, self._transactions, consumer, None if ms < 0 else ms / 1e3)

    def begin_transaction(self):
        """Begin a transaction. Does not talk to the broker.

        Raises
        ------
        KafkaException
        """
        self._transactions.begin(self)

    def send_offsets_to_transaction(self, positions, group_metadata, timeout=None):
        """Commit a consumer's offsets with the transaction, and only with it (KIP-447).

        Parameters
        ----------
        positions : list of TopicPartition
            The offsets after the last processed records. The consumer must not commit itself
            (``enable.auto.commit=false``).
        group_metadata : bytes or str
            ``consumer.consumer_group_metadata()``; or the name of a group without members,
            which keeps offsets and their ``metadata`` for another program.
        timeout : float, optional
            Seconds; by default the rest of ``transaction.timeout.ms``. Ctrl-C is noticed within
            0.1 s; the call can then be repeated.

        Raises
        ------
        KafkaException
        """
        error = run(self._transactions.send_offsets(self, positions, group_metadata,
                                                    timeout_ms(timeout, "timeout")))
        if error is not None:
            raise KafkaException(error)
        self.dispatch(NOW)

    def commit_transaction(self, timeout=None):
        """Send queued records and commit; serves callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s; repeat
            the call to resume.

        Raises
        ------
        KafkaException
            Also when ``publish()`` could not queue some records (too large, no room in time, ...)
            and their Delivery was not checked: abort, or check the Delivery and send them again.
        """
        run(self._transactions.commit(self, timeout_ms(timeout, "timeout"), True))

    def abort_transaction(self, timeout=None):
        """Abort the transaction: purge queued records and abort; serves callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s, and
            the call can be made again to resume.

        Raises
        ------
        KafkaException
        """
        run(self._transactions.abort(self, timeout_ms(timeout, "timeout"), True))

    # -- closing

    def close(self, timeout=None):
        """Abort an open transaction, or else flush; then free the producer.

        A commit that has timed out is resumed instead. Ctrl-C, or another exception of a signal
        handler that is not an ``Exception``, ends the wait for records and leaves the producer
        open. The next transaction block first completes an abort that has begun. If Ctrl-C comes
        later, when ``close()`` has already failed the remaining records or waits for librdkafka's
        threads, the producer is closed anyway. A callback may call ``close()``. It waits for
        callbacks that run in other threads. Two callbacks that close each other's producers need a
        timeout.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait until every record has its outcome; by default until
            ``delivery.timeout.ms`` ends. Records without an outcome by then fail with
            ``_PURGE_QUEUE``, or with ``_PURGE_INFLIGHT`` if they may have arrived. Their delivery
            callbacks and Deliveries report that; a logged warning counts the records with neither.
            Callbacks are not interrupted. If one of librdkafka's threads is stalled, a Delivery's
            records that it holds fail with ``_DESTROY`` when it has ended. The Delivery's
            callbacks then run in another thread, unless the interpreter ends first. ``close()``
            logs the number of records that the stalled thread holds.

        Returns
        -------
        bool
            False if the timeout ended before every record had its outcome, or if the transaction
            could not be ended as above, which is logged. The producer is closed anyway.
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
        failures = self._failures
        self._failures = {}
        self._gave_up = bool(failures)
        self._publisher.purged_until = 0
        while self._generation == ck_runtime_generation:
            try:
                if self._publisher.purged_until:
                    self._flush_or_purge(deadline)
                else:
                    self._finish(deadline, failures)
                break
            except Exception as exception:
                # A callback raised. The transaction must still end, and the following reports must
                # be handled (only by the parent, if the callback has forked). Each exception
                # uses up a report.
                raised = chain(raised, exception)
            except BaseException as exception:
                # Ctrl-C, or a handler of SIGTERM that exits.
                if not self._publisher.purged_until and not self._ends_alone:
                    self.abandon_close()  # no record is lost yet
                    self._log_failures(failures)
                    raise chain(raised, exception)
                raised = chain(raised, exception)
                break
        # The close cannot be undone any more: finish it, then raise.
        raised = self.finish_close(0, NULL, deadline, raised)
        if self._generation == ck_runtime_generation:
            try:
                self._log_failures(failures)
            except BaseException as exception:
                raised = chain(raised, exception)
        if raised is not None:
            raise raised
        return not self._gave_up

    cdef int _finish(self, int64_t deadline, dict failures) except -1:
        """End the transaction and flush. Collects failures, to log them later: a log may raise."""
        # Do not call the methods: a subclass may override them.
        run(self._transactions.end_open(self, deadline, True, failures))
        if failures:
            self._gave_up = True
        return self._flush_or_purge(deadline)

    cdef int _flush_or_purge(self, int64_t deadline) except -1:
        """Flush until the deadline, then fail the remaining records."""
        # Reports whose callbacks are only delayed by another thread do not count as remaining.
        if (self.flush_until(deadline) and self._ptr is not NULL
                and self._publisher.undelivered(self) > 0):
            if not self._publisher.purged_until:
                self._gave_up = True
                self._publisher.purge(self)
            self.flush_until(self._publisher.purged_until)
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
        if self._publisher.unreported:
            _log.warning("%s: %d record(s) have no delivery report, probably because a thread of "
                         "librdkafka is stalled; they may have been delivered", self._label,
                         self._publisher.unreported)
        return 0

    def __len__(self):
        if self._ptr is NULL or self._generation != ck_runtime_generation:
            return 0
        return rd_kafka_outq_len(self._ptr) + ck_queue_length(self._events)

    def __bool__(self):
        return True


cdef int data_of(object data, str argument, const void **ptr, size_t *size,
                 Py_buffer *buffer) except -1:
    """Set the address and size of a value or key. 1: the caller must release the buffer."""
    cdef Py_ssize_t length
    if PyBytes_CheckExact(data):
        ptr[0] = PyBytes_AS_STRING(data)
        size[0] = PyBytes_GET_SIZE(data)
    elif data is None:
        ptr[0] = NULL
        size[0] = 0
    elif isinstance(data, str):
        ptr[0] = utf8(data, &length, argument)
        size[0] = length
    elif PyObject_CheckBuffer(data):
        try:
            PyObject_GetBuffer(data, buffer, PyBUF_SIMPLE)
        except BufferError as error:  # from produce() a BufferError means a full queue
            raise TypeError(f"{argument}: expected a contiguous buffer: {error}") from None
        # An empty buffer may have no address, which would make it a null.
        ptr[0] = buffer.buf if buffer.len else <const void *>b""
        size[0] = buffer.len
        return 1
    else:
        raise TypeError(f"{argument}: expected bytes, str, a buffer or None, "
                        f"got {type(data).__name__}")
    return 0


cdef bint is_data(object data) noexcept:
    """Whether data is a valid value or key."""
    return data is None or isinstance(data, (bytes, str)) or PyObject_CheckBuffer(data)


def delivery_callback(Producer producer not None):
    """The ``on_delivery`` of the configuration, or None."""
    return producer._on_delivery[0]


cdef object frozen(object data):
    """The data for a delivery callback, as an immutable object."""
    return data if data is None or isinstance(data, (bytes, str)) else bytes(data)


cdef object headers_copy(object headers):
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name if isinstance(name, str) else name.decode("utf-8", "replace"), frozen(value))
            for name, value in pairs]


cdef object produce_error(topic, const ck_record_t *record, error):
    where = topic if record.partition < 0 else f"{topic} [{record.partition}]"
    return KafkaError(error.code(), f"Unable to produce message to {where}: {error.str()}",
                      error.fatal(), error.retriable(), error.txn_requires_abort())


public("cykafka")(Producer)
