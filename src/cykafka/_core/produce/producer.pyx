"""Producer: records one at a time and in batches, transactions, and close().

Most of this file documents the methods. Publisher tracks the records in flight; Transactions
holds the transaction's state. Publication and the functions after it serve event loops.
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
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.call cimport Call, new_step, run
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
from cykafka._core.common.registry_arguments import check_encoding
from cykafka._core.produce.transaction import Transaction

_log = logging.getLogger("cykafka")


@cython.no_gc_clear
cdef class Producer(Handle):
    """Producer(config=..., /, **kwargs)\n--\n
    Sends records, asynchronously.

    Parameters
    ----------
    config : dict
        librdkafka's properties, such as ``bootstrap.servers``. Values are str, bool, int, float or
        None (keep the default). cykafka adds these optional keys:

        ``on_delivery(err, msg)``
            Called once per record, unless ``produce()`` names another callback.
        ``delivery.report.only.error``
            If true, delivery callbacks run only for failed records.
        ``error_cb(KafkaError)``, ``throttle_cb(ThrottleEvent)``, ``stats_cb(json: str)``
            ``stats_cb`` needs ``statistics.interval.ms``.
        ``logger``
            A logging.Logger or logging.Handler that receives librdkafka's log.
        ``oauth_cb(config: str)``
            Returns (token, expiry in s since the epoch[, principal[, extensions]]). Runs on
            librdkafka's thread. The constructor waits up to 10 s for the first token.
        ``default.topic.config``
            A dict of topic properties, which override the same properties in ``config``.

    Raises
    ------
    KafkaException
        A property does not exist or rejects the value. The error names the property.
    ValueError
        ``transactional.id`` is blank.

    Notes
    -----
    All callbacks except ``oauth_cb`` run in the calls that wait: ``poll``, ``flush``, ``close``,
    ``publish``, ``Delivery.wait``, ``commit_transaction`` and ``abort_transaction``. If a callback
    raises, the call raises the callback's exception.
    The producer is a context manager; leaving the block closes it. ``len()`` is the number of
    messages and events in its queues. Close a producer before you drop it: a delivery callback
    that refers to the producer keeps it alive until the record's delivery report.
    """

    def __cinit__(self, *args, **kwargs):
        self._transactions = Transactions.__new__(Transactions)
        self._publisher = Publisher(self._transactions)
        self._on_delivery = [None]
        self._failures = {}
        self._role = self._publisher
        self._closed_words = "Producer has been closed"

    @cython.embedsignature(False)
    def __init__(self, *args, **kwargs):
        """__init__($self, config=..., /, **kwargs)\n--\n
        Create the client and start librdkafka's threads, without waiting for a broker.

        The class describes `config`. Keyword arguments override properties in `config`.
        """
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
        """Queue a record. librdkafka sends the record in the background.

        Parameters
        ----------
        topic : str
        value, key : bytes, str or any contiguous buffer, optional
            The producer copies the data and encodes a str as UTF-8. A record without a value is a
            tombstone.
        partition : int
            -1 lets the ``partitioner`` choose.
        callback, on_delivery : callable, optional
            ``on_delivery(err, msg)`` runs once, when the record is delivered (err is None) or
            when delivery fails permanently. It replaces the configured callback. If you pass both,
            ``callback`` takes precedence.
        timestamp : int
            ms since the epoch. 0 means now, and -1 no timestamp, as in ``Message.timestamp()``.
        headers : dict or list of (str, bytes or str or None), optional
        timeout : float, optional
            Seconds to wait for room in the queue; callbacks run during the wait. 0, the default,
            does not wait; None waits forever.

        Raises
        ------
        BufferError
            The queue is full (``queue.buffering.max.messages``, ``queue.buffering.max.kbytes``).
            Call ``poll()`` and retry, or pass a timeout.
        KafkaException
            librdkafka cannot queue the record: it is too large, the partition does not exist, no
            transaction is open, ...
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
            timestamp, "timestamp", -1, INT64_MAX)
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
                # The report is the first member of in_flight_t, so one pointer leads to both.
                record.report = <ck_report_t *>in_flight_new(
                    self._publisher.inflight, topic,
                    value if PyBytes_CheckExact(value) else frozen(value),
                    None if key is None else frozen(key),
                    None if headers is None else headers_copy(headers), callback)
            if topic is self._publisher.last_name:
                rkt = self._publisher.last_topic._ptr
            else:
                rkt = self._publisher.topic_of(self, topic)
            # Foreign code in the lines above may have closed the producer.
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
            # Read this before trying the queue: another thread could make room after that without
            # leaving an event.
            ended = ck_serving_count(ck_queue_serving(self._events))
            error = ck_produce(self._ptr, rkt, record)
        return 0

    cdef tuple record_copy(self, topic, value, key, partition, timestamp, headers):
        """Return immutable copies of the arguments for a later queue() call. Raises the same
        errors as queue() for arguments of a wrong type or value."""
        cdef const void *ptr
        cdef size_t size
        cdef Py_buffer buffer
        int_argument(partition, "partition", -1, INT32_MAX)
        int_argument(timestamp, "timestamp", -1, INT64_MAX)
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
        """Queue records given as a list of dicts.

        Parameters
        ----------
        topic : str
        messages : list of dict
            Keys ``value``, ``key``, ``headers``, ``partition``, ``callback`` and ``on_delivery``,
            as for :meth:`produce`. If a record cannot be queued, its dict gets the key ``_error``
            with a KafkaError.
        partition : int
            The default for records without a ``partition``.
        callback, on_delivery : callable, optional
            The default for records without a callback. If you pass both, ``on_delivery`` takes
            precedence; in a record's dict, ``callback`` does.

        Returns
        -------
        int
            The number of queued records.

        Raises
        ------
        NotImplementedError
            A dict has a ``timestamp``; use :meth:`publish` or :meth:`produce` instead.
        """
        if not isinstance(messages, list):
            raise TypeError(f"messages must be a list, got {type(messages).__name__}")
        str_argument(topic, "topic")
        if on_delivery is None:
            on_delivery = callback
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError("on_delivery: expected a callable or None, "
                            f"got {type(on_delivery).__name__}")
        queued = 0
        int_argument(partition, "partition", -1, INT32_MAX)
        self._publisher.topic_of(self, topic)
        # Check all records before queueing the first: an exception after that could not report how
        # many records are queued.
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
            own = _own_callback(message)
            if own is not None and not callable(own):
                raise TypeError(f"Message callback at index {number} must be callable, "
                                f"got {type(own).__name__}")
            if message.get("timestamp") is not None:
                raise NotImplementedError(
                    "Message timestamps are not currently supported in batch mode: use "
                    "publish(timestamps=) or produce(timestamp=)")
        for message in messages:
            message.pop("_error", None)
            own = _own_callback(message)
            try:
                self.produce(
                    topic, message.get("value"), message.get("key"),
                    partition if message.get("partition") is None else message["partition"],
                    on_delivery=on_delivery if own is None else own,
                    headers=message.get("headers"))
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
        """Send a batch of records, given as columns with one item per record.

        Parameters
        ----------
        topic : str or sequence of str
            One topic for all records, or one per record.
        values, keys : sequence of (bytes, str, buffer or None), or buffer, optional
            A str is encoded as UTF-8. None is a tombstone, or no key. Three forms avoid a Python
            object per record. The first is a numpy array of fixed-width bytes (dtype ``S``, which
            drops trailing NULs as padding). The second is a two-dimensional buffer of single bytes
            with contiguous rows (numpy ``uint8``, one row per record). The third is an Arrow
            array of binary or string (from pyarrow, polars, ...). For Arrow tables, use
            :meth:`publish_arrow`. With keys but without values, all records are tombstones.
        headers : sequence or mapping, optional
            One item per record: a dict, a list of (str, bytes or str or None), or None. Or a
            mapping of header name to column, in the forms of `values`; a bytes or str is the value
            for every record. Or an Arrow array as for :meth:`publish_arrow`.
        timestamps : int, sequence of (int or None), integer buffer or Arrow array, optional
            ms since the epoch, or Arrow timestamps. None and 0 are now.
        partitions : int, sequence of (int or None), integer buffer or Arrow array, optional
            None and -1 let the ``partitioner`` choose.
        timeout : float, optional
            Seconds to wait for room in the queue; callbacks run during the wait. None waits
            forever. 0 does not wait; use 0 in a coroutine. If there is no room in time, the
            remaining records fail with ``_QUEUE_FULL``.

        Returns
        -------
        Delivery
            The records' outcomes. Call ``wait()``, ``await`` the Delivery, or drop it. Records
            keep their order within a partition. If a record cannot be queued (too large, no such
            partition, no open transaction, ...), that record fails and the others are still sent.

        Raises
        ------
        ValueError
            Columns have different lengths, or a number is out of range.
        TypeError
            An argument is not a column.

        Notes
        -----
        ``publish()`` sends bytes as given: a SerializingProducer serializes only in ``produce()``.

        If some records could not be queued, ``commit_transaction()`` raises until you check their
        Delivery, for example with ``wait()``. After the check, it commits without these records.

        If ``publish()`` rejects an argument, it has sent nothing. Other exceptions (Ctrl-C, a
        callback that raises, a close in another thread) have the Delivery as their attribute
        ``delivery``. The records not queued by then fail with ``_QUEUE_FULL``, or with
        ``_DESTROY`` if the producer was closed.
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
                      partition=None, timeout=None, registry=None, schema=None, subject=None):
        """Send Arrow rows as records, without a Python object per record.

        Parameters
        ----------
        topic : str or None
            One topic for all records. None takes each record's topic from the column ``topic``.
        data : object with ``__arrow_c_array__`` or ``__arrow_c_stream__``
            A table or record batch (from pyarrow, polars, nanoarrow, DuckDB, a MessageBatch, ...)
            with the columns that you name, or an array of byte strings, which are the values. The
            call first reads a stream to its end: pass a large stream batch by batch.
        key, value : str, optional
            Names of binary or string columns, including large, view and fixed-size types. None
            sends no keys, or no values (tombstones).
        headers : str, optional
            Name of a list<struct<key, value>> or map column. Header names are strings; header
            values are binary or string.
        timestamp : str, optional
            Name of a column of timestamps, or of integers in ms. A null is now.
        partition : str, optional
            Name of an integer column. Null and -1 let the ``partitioner`` choose.
        timeout : float, optional
            As for :meth:`publish`.
        registry : cykafka.schemas.SchemaRegistryClient, optional
            The values are records in the registry's wire format. Their fields are all columns
            that the other arguments do not name, so that ``value`` must not be given.
        schema : Schema or str, optional
            The schema of the values, which must be registered; or ``SUBJECT:VERSION``. The
            default is the latest version in the subject. Needs `registry`, and so does `subject`.
        subject : str, optional
            The schema's subject; ``TOPIC-value`` by default.

        Returns
        -------
        Delivery
            As :meth:`publish`.

        Raises
        ------
        SerializationError
            A row does not fit the schema. Nothing is sent.
        TypeError
            The data is not Arrow data, or a column has the wrong type. The error names the cast
            that fixes the column.
        ValueError
            A column does not exist, or a number is out of range.
        """
        self.check_open()
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        check_encoding(registry, value, schema, subject)
        if registry is not None:
            names = (key, headers, timestamp, partition, "topic" if topic is None else None)
            data = registry.encode_table(topic, data, schema=schema, subject=subject, apart=names)
        return self._publisher.send(
            self, self.arrow_batch(topic, data, key, value, headers, timestamp, partition), ms)

    cdef Batch arrow_batch(self, topic, data, key, value, headers, timestamp, partition):
        cdef Batch batch = Batch.__new__(Batch)
        cdef ck_publish_t *publish = &batch.c
        cdef ArrowData arrow
        cdef Columns columns
        if value is None and key is None:
            raise TypeError("value: expected a column name, got None, and no key either")
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
        """Serve delivery reports and other events: run their callbacks.

        Ctrl-C interrupts the wait within 0.1 s.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the first event. None or a negative value waits forever; 0 does not
            wait.

        Returns
        -------
        int
            The number of served events.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef int64_t served = 0
        cdef rd_kafka_t *rk
        cdef int ms
        while True:
            # First serve, without a wait, the events left over after a callback raised.
            served += self._callbacks.count_waiting()
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
            Seconds to wait. None or a negative value waits until every record has its outcome,
            which takes at most ``delivery.timeout.ms``. Ctrl-C interrupts the wait within 0.1 s.

        Returns
        -------
        int
            The number of messages and events that are still in the queues.
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
                if ck_serving_enter(ck_queue_serving(self._events), self._wait_queue, ms):
                    ck_callback_flush(rk, ms)
                    ck_serving_leave(ck_queue_serving(self._events))
            self.leave()
            # Wait at most a slice: another thread's callback may wait for a Delivery, which this
            # close() serves.
            self.dispatch(slice_end(deadline))
            if self._ptr is NULL:
                return 0  # a callback has closed the producer, and close() has flushed
            left = rd_kafka_outq_len(self._ptr)
            # Inside a delivery callback, the queued reports must wait until the callback returns.
            if self._callbacks.dispatcher != me:
                # Count also the report whose callback runs in another thread.
                left += ck_queue_length(self._events) + (self._callbacks.dispatcher != 0)
            if left == 0 or ms == 0:
                return left
            PyErr_CheckSignals()

    def purge(self, in_queue=True, in_flight=True, blocking=True):
        """Fail queued records (``_PURGE_QUEUE``) or records in flight (``_PURGE_INFLIGHT``).

        The next ``poll()`` or ``flush()`` delivers their reports. Records in flight may have
        reached the broker anyway. If you purge them in a transaction, abort the transaction:
        brokers since Kafka 3.6 then keep these records out of the next transaction.

        Parameters
        ----------
        in_queue, in_flight : bool
            Which records to fail.
        blocking : bool
            Wait until librdkafka's threads have also purged their queues.
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

        Call this method once, before any other transaction call.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default twice ``transaction.timeout.ms``. Ctrl-C interrupts the call within
            0.1 s; you can then repeat the call.

        Raises
        ------
        KafkaException
        """
        run(self._transactions.init(self, timeout_ms(timeout, "timeout"), True))

    def transaction(self, consumer=None, timeout=None):
        """Return a block that commits its records together, or aborts them if it raises.

        ``with producer.transaction():`` begins a transaction and commits it at the end of the
        block. The first block calls :meth:`init_transactions` unless you have called it. Inside
        the block, ``abort_transaction()`` drops the records without an exception. With a consumer,
        the consumer then reads the same messages again.

        An exception, Ctrl-C included, aborts the transaction and propagates. The abort then takes
        up to ``timeout``, and a second Ctrl-C ends the abort. If the abort also fails, the
        exception's context and the log contain its error; the block raises a fatal error instead.

        The block retries ``retriable()`` errors until the timeout. If the commit fails, the block
        raises, and aborts the transaction if the error is ``txn_requires_abort()``. If a commit
        times out, the next block, ``commit_transaction()`` or ``close()`` resumes it.

        With a consumer, the block is one consume-transform-produce step: it commits the offsets
        that the consumer has read together with the records. Read in the block or before it::

            while running:
                messages = consumer.consume(1000, timeout=1)
                with producer.transaction(consumer):
                    for message in messages:
                        producer.produce("out", work(message.value()))

        If the transaction fails or cannot begin, the consumer seeks back to its group's committed
        offsets and reads the messages again. It neither skips a message nor commits one twice. So
        handle the exception outside the block, continue the loop, and do not resend messages read
        before the failure.

        A partition without a committed offset restarts at the first message that the consumer
        returned. If the seek fails, the next block repeats it first. If the consumer has returned
        messages before that repeated seek, the next block raises ``_RETRY``, because the consumer
        will return them again.

        A block also fails if the consumer has lost a partition after it returned messages from
        that partition since the last block. The block can then no longer commit their offsets.
        The group may have revoked the partition, or your program may have called ``seek()``,
        ``assign()``, ``unassign()`` or ``incremental_unassign()``. To skip messages, seek right
        after a block, before you read.

        Parameters
        ----------
        consumer : Consumer, optional
            The block commits the consumer's positions: the offsets after the last messages that it
            returned. The consumer needs ``enable.auto.commit`` false and ``isolation.level``
            read_committed (the default). During the block, only this thread may use the consumer.
        timeout : float, optional
            Seconds per step (:meth:`init_transactions`, the consumer's offsets, the commit or
            the abort, seeking back); by default ``transaction.timeout.ms``, and twice that for the
            first step. The consumer's offsets may take ``transaction.timeout.ms`` in librdkafka,
            whatever this timeout is.

        Returns
        -------
        context manager
            ``as`` binds the producer.

        Raises
        ------
        KafkaException
            At the beginning or the end of the block, with a KafkaError as ``args[0]``.
            ``fatal()``: create a new producer (another producer has the same ``transactional.id``,
            for example). ``_TIMED_OUT``: the commit continues; call ``commit_transaction()`` for
            its outcome, and do not resend the records until then. ``_ASSIGNMENT_LOST``: the group
            has revoked partitions that the consumer had read. ``_STATE``: the program has moved or
            removed such partitions. ``_RETRY``: the block began no transaction, because the
            consumer had to seek back; read again and enter another block.
        ClosedError
            A RuntimeError: the producer was closed in the block, which drops the records.
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
        """Begin a transaction, without a request to the broker.

        Raises
        ------
        KafkaException
        """
        self._transactions.begin(self)

    def send_offsets_to_transaction(self, positions, group_metadata, timeout=None):
        """Commit a consumer's offsets if and when the transaction commits (KIP-447).

        Parameters
        ----------
        positions : list of TopicPartition
            The offsets after the last processed records. The consumer itself must not commit
            (``enable.auto.commit=false``).
        group_metadata : bytes or str
            ``consumer.consumer_group_metadata()``; or the name of a group without members,
            which keeps offsets and their ``metadata`` for another program.
        timeout : float, optional
            Seconds; by default the rest of ``transaction.timeout.ms``. Ctrl-C interrupts the call
            within 0.1 s; you can then repeat the call.

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
        """Send queued records and commit. Callbacks run in this call.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default ``transaction.timeout.ms``. Ctrl-C interrupts the call within
            0.1 s; repeat the call to resume.

        Raises
        ------
        KafkaException
            Also if ``publish()`` could not queue some records (too large, no room in time, ...)
            and you did not check their Delivery: abort, or check the Delivery and resend them.
        ClosedError
            Another thread closes the producer. ``close()`` completes a commit that has begun, and
            aborts any other transaction.
        """
        run(self._transactions.commit(self, timeout_ms(timeout, "timeout"), True))

    def abort_transaction(self, timeout=None):
        """Purge queued records and abort the transaction. Callbacks run in this call.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default ``transaction.timeout.ms``. Ctrl-C interrupts the call within
            0.1 s; repeat the call to resume.

        Raises
        ------
        KafkaException
        """
        run(self._transactions.abort(self, timeout_ms(timeout, "timeout"), True))

    # -- closing

    def close(self, timeout=None):
        """Abort an open transaction or flush, then free the producer.

        If a commit has timed out, ``close()`` resumes the commit instead of aborting. A callback
        may call ``close()``, which waits for callbacks in other threads. If two callbacks close
        each other's producers, pass a timeout.

        Ctrl-C, or another signal handler's exception that is not an ``Exception``, ends the wait
        for records and leaves the producer open. The next transaction block then first completes a
        started abort. A later Ctrl-C, when ``close()`` has already failed the remaining records or
        waits for librdkafka's threads, still closes the producer.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait until every record has its outcome; by default until
            ``delivery.timeout.ms`` ends. Records without an outcome by then fail with
            ``_PURGE_QUEUE``, or with ``_PURGE_INFLIGHT`` if they may have arrived. Their delivery
            callbacks and Deliveries report the failure; a logged warning counts the records with
            neither. The timeout does not interrupt callbacks.

            If a librdkafka thread is stalled, the Delivery records that it holds fail with
            ``_DESTROY`` after the thread ends. The Delivery's callbacks then run in another
            thread, unless the interpreter ends first. ``close()`` logs the number of records that
            the stalled thread holds.

        Returns
        -------
        bool
            False if the timeout ended before every record had its outcome, or if ``close()`` could
            not end the transaction, which it logs. The producer is closed anyway. librdkafka's
            threads may end later. Closing again returns the same value.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if a call in another thread did not end in time. The producer then stays
            open, but other calls that waited during ``close()`` raise RuntimeError.
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
                # A callback raised. Still end the transaction and handle the next reports (only
                # in the parent, if the callback has forked). Each exception consumes one report.
                raised = chain(raised, exception)
            except BaseException as exception:
                # Ctrl-C, or a handler of SIGTERM that exits.
                if not self._publisher.purged_until and not self._ends_alone:
                    self.abandon_close()  # no record is lost yet
                    self._log_failures(failures)
                    raise chain(raised, exception)
                raised = chain(raised, exception)
                break
        # The close can no longer be undone: finish it, then raise.
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
        """End the transaction and flush. Collect failures to log them later: logging may raise."""
        # Do not call the methods: a subclass may override them.
        run(self._transactions.end_open(self, deadline, True, failures))
        if failures:
            self._gave_up = True
        return self._flush_or_purge(deadline)

    cdef int _flush_or_purge(self, int64_t deadline) except -1:
        """Flush until the deadline, then fail the remaining records."""
        # Do not count reports whose callbacks only wait for another thread.
        if (self.flush_until(deadline) and self._ptr is not NULL
                and self._publisher.undelivered(self) > 0):
            if not self._publisher.purged_until:
                self._gave_up = True
                self._publisher.purge(self)
            self.flush_until(self._publisher.purged_until)
        return 0

    cdef int _log_failures(self, dict failures) except -1:
        """Log these failures, and failed records that neither callback nor Delivery reports."""
        cdef ck_event_t *first
        for failure, error in failures.items():
            _log.warning("%s: %s: %s", self._label, failure, error.str())
        cdef int64_t unreported = ck_queue_take_unreported(self._events, &first)
        if first is not NULL:
            topic = (<ck_notice_t *>first).text.decode()
            error = error_from(<rd_kafka_resp_err_t>first.code, NULL)
            ck_event_destroy(first)
            _log.warning("%s: %d record(s) were not delivered, and the program did not "
                         "check them; the first one to %s: %s",
                         self._label, unreported, topic, error.str())
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
    """Set a value's or key's address and size. Returns 1 if the caller must release the buffer."""
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
        # An empty buffer may have a NULL address, which would mean a tombstone or no key.
        ptr[0] = <const void *>buffer.buf if buffer.len else <const void *>b""
        size[0] = buffer.len
        return 1
    else:
        raise TypeError(f"{argument}: expected bytes, str, a buffer or None, "
                        f"got {type(data).__name__}")
    return 0


cdef bint is_data(object data) noexcept:
    """Whether data is a valid value or key."""
    return data is None or isinstance(data, (bytes, str)) or PyObject_CheckBuffer(data)


cdef object _own_callback(dict message):
    """The callback in a message's dict, or None."""
    own = message.get("callback")
    return message.get("on_delivery") if own is None else own


def delivery_callback(Producer producer not None):
    """Return the configured ``on_delivery``, or None."""
    return producer._on_delivery[0]


cdef object frozen(object data):
    """Return an immutable copy of the data for a delivery callback."""
    return data if data is None or isinstance(data, (bytes, str)) else bytes(data)


cdef object headers_copy(object headers):
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name if isinstance(name, str) else name.decode("utf-8", "replace"), frozen(value))
            for name, value in pairs]


cdef object produce_error(topic, const ck_record_t *record, error):
    where = topic if record.partition < 0 else f"{topic} [{record.partition}]"
    return KafkaError(error.code(), f"Unable to produce message to {where}: {error.str()}",
                      error.fatal(), error.retriable(), error.txn_requires_abort())


@cython.final
@cython.no_gc_clear
cdef class Publication:
    """A batch that an event loop passes to librdkafka in steps, between its other tasks. The
    caller must call end(), even after an exception."""

    cdef Producer _producer
    cdef Batch _batch

    @property
    def delivery(self):
        """The batch's outcomes, a Delivery."""
        return self._batch.delivery

    def step(self):
        """Pass records to librdkafka for about 2 ms, without waiting.

        Returns
        -------
        bool or None
            True: librdkafka has all records. False: the queue is full. None: call again.
        """
        return self._producer._publisher.step(self._producer, self._batch)

    def end(self, raised=None):
        """Fail the records that librdkafka has not received: with ``_DESTROY`` if `raised` is a
        ClosedError, else with ``_QUEUE_FULL``."""
        self._producer._publisher.end(self._batch, raised)


def publication(Producer producer not None, topic, values, *, keys=None, headers=None,
                timestamps=None, partitions=None):
    """Begin to publish a batch. The arguments are those of ``Producer.publish()``."""
    return _begin(producer, producer.batch(topic, values, keys, headers, timestamps, partitions))


def arrow_publication(Producer producer not None, topic, data, *, key=None, value="value",
                      headers=None, timestamp=None, partition=None):
    """Like publication(), for ``Producer.publish_arrow()``."""
    return _begin(producer, producer.arrow_batch(topic, data, key, value, headers, timestamp,
                                                 partition))


cdef Publication _begin(Producer producer, Batch batch):
    cdef Publication publication = Publication.__new__(Publication)
    producer._publisher.begin(producer, batch)
    publication._producer = producer
    publication._batch = batch
    return publication


def transactions_of(Producer producer not None):
    """Return the producer's Transactions, whose methods are operations."""
    return producer._transactions


def flush(Producer producer not None, timeout):
    """An operation: send the records that wait for ``linger.ms``, and wait for all outcomes.

    The event loop runs the callbacks. The result is the number of records without an outcome plus
    the number of events; timeout in s.
    """
    cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
    cdef Call call
    cdef int ms
    while True:
        ms = slice_left(deadline)
        left = len(producer)
        if left == 0 or ms == 0:
            return left
        call = new_step(producer, CK_CALL_FLUSH, ms)
        call.c.events = producer._events
        # The wait must end even if the serving loop is blocked.
        call._deadline = deadline_after(ms + SLICE)
        yield call


def end_transaction(Producer producer not None, timeout):
    """An operation: end an open transaction before close_now(), which logs failures; timeout in
    s. The result says whether the operation has ended a transaction."""
    return producer._transactions.end_open(
        producer, deadline_after(timeout_ms(timeout, "timeout")), False, producer._failures)


def is_inherited(Producer producer not None):
    """Whether this process inherited the producer through a fork."""
    return producer._generation != ck_runtime_generation


def undelivered(Producer producer not None):
    """The number of records in librdkafka without an outcome. Their callbacks may run later."""
    cdef int64_t left
    if producer._open_in != ck_runtime_generation:
        return 0  # closed, or inherited: the records belong to the parent
    producer.enter()
    left = producer._publisher.undelivered(producer)
    producer.leave()
    return left


def close_now(Producer producer not None):
    """Close a producer without waiting; records without an outcome fail.

    Returns True if every record had its outcome and no transaction was left open. Raises the
    callbacks' exceptions after closing the producer; another call then returns the result.
    """
    producer._ends_alone = True
    return Producer.close(producer, 0)


public("cykafka")(Producer)
