"""Publisher: whole batches of records, given as columns."""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT32_MAX, INT64_MAX
from libc.string cimport memcmp, memset

from cykafka._core.arrow.read cimport ArrowData, arrow_data
from cykafka._core.clib.csrc cimport (
    CK_DELIVERY_RELEASE,
    CK_KIND_TOPIC,
    ck_bytes_t,
    ck_callback_serve,
    ck_column_get,
    ck_column_t,
    ck_delivery_close,
    ck_delivery_failed,
    ck_event_t,
    ck_headers_t,
    ck_publish,
    ck_publish_t,
    ck_queue_turn,
    ck_runtime_count,
    ck_runtime_generation,
    ck_turn_ended,
    ck_turn_kick,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_PARTITION_UA,
    RD_KAFKA_RESP_ERR__DESTROY,
    RD_KAFKA_RESP_ERR__QUEUE_FULL,
    RD_KAFKA_RESP_ERR__STATE,
    rd_kafka_conf_t,
    rd_kafka_last_error,
    rd_kafka_queue_yield,
    rd_kafka_resp_err_t,
    rd_kafka_t,
    rd_kafka_topic_new,
    rd_kafka_topic_t,
)
from cykafka._core.common.arguments cimport (
    NOW,
    SLICE,
    deadline_after,
    plain_str,
    timeout_ms,
)
from cykafka._core.common.config cimport int_conf
from cykafka._core.common.errors cimport check_doing
from cykafka._core.common.partition cimport c_name
from cykafka._core.produce.columns cimport Columns, check_range, items_of
from cykafka._core.produce.delivery cimport Delivery, delivery_new, delivery_tell
from cykafka._core.produce.record cimport Topic
from cykafka._core.produce.transaction cimport Transactional

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException

cdef enum:
    # Values of this many bytes and more on average are not copied when they cannot change.
    # Measured with the mock cluster, CPU of the process for each record: nothing between 16 and 64
    # bytes, 0 to 10 % saved at 100, 10 % at 300, 40 % at 1000 and more. Below, giving them back
    # costs what the copy does.
    BORROW_FROM = 64
    # As many records are handed over with the GIL: letting go of it would cost as much again.
    FEW = 4
    # How long records are handed over before signals get their turn, ms.
    HAND_OVER_MS = 50

# What no argument is: topics are compared by identity first.
_NO_NAME = object()


cdef class Publisher(Transactional):
    """A producer's topics, and the records it sends by the batch."""

    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1:
        Transactional.set_callbacks(self, conf)
        self._topics = {}
        self._last_name = _NO_NAME
        self._room = 1024 * <int64_t>int_conf(conf, "queue.buffering.max.kbytes", 0)
        return 0

    cdef void wake(self) noexcept nogil:
        rd_kafka_queue_yield(self._wait_queue)
        ck_turn_kick(ck_queue_turn(self._events))

    cdef int tell(self, ck_event_t *event) except -1:
        return delivery_tell(self, event)

    # -- topics

    cdef void release_topics(self) noexcept:
        cdef Topic topic
        self._last_name = _NO_NAME
        self._last_topic = None
        for topic in self._topics.values():
            topic.release()
        self._topics.clear()

    cdef rd_kafka_topic_t *topic_of(self, object name) except NULL:
        """The handle of a topic, made at its first use."""
        cdef Topic topic
        cdef rd_kafka_resp_err_t err
        cdef rd_kafka_topic_t *rkt
        cdef const char *text
        if not isinstance(name, str):
            raise TypeError(f"topic: expected a str, got {type(name).__name__}")
        key = plain_str(name)  # a subclass's __hash__ may close the producer
        topic = self._topics.get(key)
        if topic is None:
            text = c_name(key)
            rk = self.enter()
            with nogil:
                rkt = rd_kafka_topic_new(rk, text, NULL)
                err = rd_kafka_last_error()
            self.leave()
            if rkt is NULL:
                check_doing(err, f"topic {name!r}")
            # Another thread may have been quicker; librdkafka counts the references.
            topic = Topic()
            topic._ptr = rkt
            ck_runtime_count(CK_KIND_TOPIC, 1)
            if self._topics.setdefault(key, topic) is not topic:
                topic.release()
                topic = self._topics[key]
        self._last_name = name
        self._last_topic = topic
        return topic._ptr

    cdef object topics_column(self, object topic, Columns columns, ck_publish_t *publish):
        """The topic handles of the records; returns the names that a Delivery keeps."""
        cdef rd_kafka_topic_t **rkts
        cdef rd_kafka_topic_t *rkt = NULL
        cdef tuple names
        cdef Py_ssize_t i = 0
        if isinstance(topic, str):
            publish.rkt = (self._last_topic._ptr if topic is self._last_name
                           else self.topic_of(topic))
            return plain_str(topic)
        names = items_of(topic, "topic", "str")
        columns.count("topic", len(names))
        rkts = <rd_kafka_topic_t **>columns.block(len(names), sizeof(rd_kafka_topic_t *))
        last = _NO_NAME
        for name in names:
            if name is not last:
                if not isinstance(name, str):
                    raise TypeError(f"topic[{i}]: expected a str, got {type(name).__name__}")
                rkt = self.topic_of(name)
                last = name
            rkts[i] = rkt
            i += 1
        publish.rkts = rkts
        return names

    # -- batches

    def publish(self, topic, values, *, keys=None, headers=None, timestamps=None, partitions=None,
                timeout=None):
        """Send a batch of records, given as columns: one item for each record in each of them.

        Parameters
        ----------
        topic : str or sequence of str
            Of all records, or of each.
        values, keys : sequence of (bytes, str, buffer or None), or buffer, optional
            A str is encoded as UTF-8; None is a tombstone, or no key. Also, without a Python
            object for each record: a numpy array of fixed-width bytes (dtype ``S``, which cannot
            tell trailing NULs from padding: they are lost), a two-dimensional buffer of single
            bytes whose rows are contiguous (numpy ``uint8``, one row for each record), or an Arrow
            array of binary or string (of pyarrow, polars, ...; for tables use
            :meth:`publish_arrow`). With keys but without values, all records are tombstones.
        headers : sequence or mapping, optional
            For each record a dict, a list of (str, bytes or str or None) or None. Or a mapping of
            name to column, whose forms are those of values; a bytes or str there is the same for
            every record. Or an Arrow array as :meth:`publish_arrow` takes it.
        timestamps : int, sequence of (int or None), integer buffer or Arrow array, optional
            ms since the epoch, or Arrow's timestamps; None and 0 are now.
        partitions : int, sequence of (int or None), integer buffer or Arrow array, optional
            None and -1 leave the choice to the ``partitioner``.
        timeout : float, optional
            Seconds to wait for room in the queue, serving callbacks; None: forever, 0: not at all,
            as is right in a coroutine. Records without room in time fail with ``_QUEUE_FULL``.

        Returns
        -------
        Delivery
            The outcomes of the records: ``wait()`` for it, ``await`` it, or drop it. Within a
            partition the records keep their order. A record that cannot be queued (too large, no
            such partition, no transaction begun, ...) fails, and the others are still sent.

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

        Nothing was sent if the arguments are refused. Whatever else ends the call early (Ctrl-C, a
        callback that raises, another thread that closes the producer) has the Delivery as its
        attribute ``delivery``; the records not taken up by then have failed with ``_QUEUE_FULL``,
        or ``_DESTROY`` when it was closed.
        """
        cdef ck_publish_t publish
        cdef Columns columns
        cdef tuple kept
        cdef int64_t ms
        if self._open_in != ck_runtime_generation:
            self.refuse()
        ms = -1 if timeout is None else timeout_ms(timeout, "timeout")
        columns = Columns.__new__(Columns)
        memset(&publish, 0, sizeof(publish))
        kept = columns.bytes_column(values, "values", &publish.values)
        columns.bytes_column(keys, "keys", &publish.keys)
        if columns._cnt < 0:
            raise TypeError("values: expected a sequence, got None, and no keys either")
        publish.headers = columns.headers_column(headers)
        columns.numbers_column(timestamps, "timestamps", &publish.timestamps, 0, 0, INT64_MAX)
        columns.numbers_column(partitions, "partitions", &publish.partitions,
                               RD_KAFKA_PARTITION_UA, -1, INT32_MAX)
        names = self.topics_column(topic, columns, &publish)
        publish.cnt = columns._cnt
        return self.send(&publish, names, kept if is_large(kept, &publish) else None, ms)

    def publish_arrow(self, topic, data, *, key=None, value="value", headers=None, timestamp=None,
                      partition=None, timeout=None):
        """Send the rows of Arrow data as records, without a Python object for each.

        Parameters
        ----------
        topic : str or None
            Of all records; None: the column named ``topic`` has the topic of each.
        data : object with ``__arrow_c_array__`` or ``__arrow_c_stream__``
            A table or record batch (of pyarrow, polars, nanoarrow, DuckDB, a MessageBatch, ...),
            whose columns are given by name; or an array of byte strings, which are the values. A
            stream is read to its end first: give a large one batch by batch.
        key, value : str, optional
            Columns of binary or string, including large, view and fixed-size ones. None: no keys,
            or no values (tombstones).
        headers : str, optional
            A column of list<struct<key, value>> or map, with names of string and values of binary
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
            As :meth:`publish` returns it.

        Raises
        ------
        TypeError
            The data is not Arrow's, or a column has another type; the error names the cast to
            make.
        ValueError
            There is no such column, or a number is out of range.
        """
        cdef ck_publish_t publish
        cdef ck_headers_t c_headers
        cdef ArrowData arrow
        cdef Columns columns
        cdef object names
        cdef int64_t ms
        if self._open_in != ck_runtime_generation:
            self.refuse()
        ms = -1 if timeout is None else timeout_ms(timeout, "timeout")
        if value is None and key is None:
            raise TypeError("value: expected the name of a column, got None, and no key either")
        arrow = arrow_data(data, "data")
        columns = Columns.__new__(Columns)
        memset(&publish, 0, sizeof(publish))
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
            arrow.whole_headers(headers, "headers", &c_headers)
            publish.headers = &c_headers
        if timestamp is not None:
            arrow.whole_numbers(timestamp, "timestamp", True, &publish.timestamps)
            check_range(&publish.timestamps, publish.cnt, "timestamp", 0, INT64_MAX)
        if partition is not None:
            arrow.whole_numbers(partition, "partition", False, &publish.partitions)
            check_range(&publish.partitions, publish.cnt, "partition", -1, INT32_MAX)
        if topic is None:
            names = self.arrow_topics(arrow, columns, &publish)
        else:
            if not isinstance(topic, str):
                raise TypeError("topic: expected a str, or None for the column of that name, "
                                f"got {type(topic).__name__}")
            names = self.topics_column(topic, columns, &publish)
        return self.send(&publish, names, arrow if is_large(arrow, &publish) else None, ms)

    cdef tuple arrow_topics(self, ArrowData arrow, Columns columns, ck_publish_t *publish):
        """As topics_column, of the column `topic`."""
        cdef rd_kafka_topic_t **rkts
        cdef rd_kafka_topic_t *rkt = NULL
        cdef ck_column_t column
        cdef ck_bytes_t last, item
        cdef size_t i
        cdef list names = []
        arrow.whole_column("topic", "topic", &column)
        rkts = <rd_kafka_topic_t **>columns.block(arrow.length, sizeof(rd_kafka_topic_t *))
        last.ptr = NULL
        last.len = 0
        name = None
        for i in range(arrow.length):
            item = ck_column_get(&column, i)
            if item.ptr is NULL:
                raise ValueError(f"topic: row {i} is null")
            if last.ptr is NULL or item.len != last.len or memcmp(item.ptr, last.ptr, item.len):
                name = (<const char *>item.ptr)[:item.len].decode()
                rkt = self.topic_of(name)
                last = item
            rkts[i] = rkt
            names.append(name)
        publish.rkts = rkts
        return tuple(names)

    cdef Delivery send(self, ck_publish_t *publish, object topic, object kept, int64_t ms):
        """Publish C columns. `kept` keeps borrowed values alive; None: values are copied."""
        cdef Delivery delivery
        cdef rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__QUEUE_FULL
        if publish.cnt > FEW:
            self.serve_reports()
        # Any of the columns may have run foreign code, which may have closed the producer.
        if self._open_in != ck_runtime_generation:
            self.refuse()
        publish.room = self._room
        publish.borrow = kept is not None
        delivery = delivery_new(self, publish.cnt, topic)
        if kept is not None:
            delivery._ledger._kept = kept
            delivery._ledger.lend(CK_DELIVERY_RELEASE)
        try:
            self._hand_over(publish, delivery, deadline_after(ms))
        except BaseException as exception:
            if isinstance(exception, ClosedError):
                err = RD_KAFKA_RESP_ERR__DESTROY
            ck_delivery_close(delivery._ledger._ptr, err)
            self.note_incomplete(delivery)
            try:
                exception.delivery = delivery
            except Exception:  # a foreign exception may refuse it
                pass
            raise
        ck_delivery_close(delivery._ledger._ptr, err)
        self.note_incomplete(delivery)
        return delivery

    cdef int note_incomplete(self, Delivery delivery) except -1:
        if self._begun and ck_delivery_failed(delivery._ledger._ptr):
            if self._incomplete is None:
                self._incomplete = []
            self._incomplete.append(delivery)
        return 0

    cdef int check_complete(self) except -1:
        cdef Delivery delivery
        cdef int64_t lost = 0
        if self._incomplete is None:
            return 0
        for delivery in self._incomplete:
            if not delivery._asked:
                lost += ck_delivery_failed(delivery._ledger._ptr)
        if lost:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__STATE,
                f"{lost} record(s) of this transaction could not be queued, and their Delivery "
                "was not checked: call abort_transaction(), or check the Delivery (wait(), "
                "errors) and send them again", txn_requires_abort=True))
        return 0

    cdef int serve_reports(self) except -1:
        """Handle the waiting reports of earlier batches, without blocking. Otherwise an
        application that publishes and never polls would accumulate them, and the memory they
        keep."""
        cdef rd_kafka_t *rk = self.enter()
        with nogil:
            ck_callback_serve(rk, self._events, NULL, 0, NULL)
        self.leave()
        self.dispatch(NOW)
        return 0

    cdef int _hand_over(self, ck_publish_t *publish, Delivery delivery,
                        int64_t deadline) except -1:
        cdef rd_kafka_resp_err_t err
        cdef unsigned ended
        cdef rd_kafka_t *rk
        cdef int ms
        # Even the allocation of the delivery may have run a collection, and so code of others.
        if publish.cnt <= FEW and self._open_in == ck_runtime_generation:
            err = ck_publish(self._ptr, publish, delivery._ledger._ptr, HAND_OVER_MS)
            if not err:
                return 0
        while True:
            rk = self.enter()
            with nogil:
                # Before the look at the queue: who makes room after it may leave nothing to serve.
                ended = ck_turn_ended(ck_queue_turn(self._events))
                err = ck_publish(rk, publish, delivery._ledger._ptr, HAND_OVER_MS)
            self.leave()
            if not err:
                return 0
            if err == RD_KAFKA_RESP_ERR__QUEUE_FULL:
                ms = self.slice_ms(deadline)
                if ms == 0:
                    return 0
                ms = SLICE if ms < 0 else min(ms, <int>SLICE)
                rk = self.enter()
                with nogil:
                    ck_callback_serve(rk, self._events, NULL, ms, &ended)
                self.leave()
                self.dispatch(NOW)
            PyErr_CheckSignals()


cdef bint is_large(object kept, ck_publish_t *publish) noexcept:
    """Whether the values that `kept` keeps are worth to be borrowed rather than copied."""
    cdef size_t size = 0
    cdef size_t i
    if kept is None or publish.cnt == 0:
        return False
    with nogil:
        for i in range(publish.cnt):
            size += ck_column_get(&publish.values, i).len
    return size >= publish.cnt * BORROW_FROM
