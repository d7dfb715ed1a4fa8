"""Publisher: a producer's topic handles, batches and reports."""
from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.string cimport memcmp

from cykafka._core.arrow.read cimport ArrowData
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.callbacks cimport drop_event
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport AGAIN_LATER, AGAIN_SOON, NOT_AGAIN, Role
from cykafka._core.common.arguments cimport NOW, SLICE, deadline_after, plain_str, str_argument
from cykafka._core.common.config cimport int_conf
from cykafka._core.common.errors cimport check_doing, write_unraisable
from cykafka._core.common.message cimport (
    Message,
    in_flight_destroy,
    in_flight_t,
    message_delivered,
)
from cykafka._core.common.partition cimport c_name
from cykafka._core.produce.columns cimport Columns, items_of
from cykafka._core.produce.delivery cimport Delivery, Ledger, delivery_new, delivery_notify
from cykafka._core.produce.transaction cimport Transactions

from cykafka._core.common.errors import ClosedError, KafkaError

cdef enum:
    # Borrow immutable values, instead of copying them, if they have at least this many bytes on
    # average. CPU time saved per record with the mock cluster: 0 % between 16 and 64 bytes, 0 to
    # 10 % at 100, 10 % at 300, 40 % at 1000 and more. Releasing smaller values costs as much as
    # copying them.
    BORROW_FROM = 64
    # Pass up to this many records with the GIL: releasing it would double the cost.
    FEW = 4
    # How long to pass records to librdkafka between two signal checks, ms.
    HAND_OVER_MS = 50
    # The same for an event loop, ms: its other tasks wait this long.
    STEP_MS = 2

# Never identical to an argument: topics are first compared by identity.
_NO_NAME = object()

cdef enum:
    # The longest wait for the reports of purged records, ms. librdkafka's threads send them at
    # once.
    PURGED_MS = 1000

# close()'s flags: do not wait for librdkafka's threads, because one may be stalled forever.
cdef int PURGE_ALL = (RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT
                      | RD_KAFKA_PURGE_F_NON_BLOCKING)


cdef class Topic:
    """A cached topic handle. It saves produce() a lookup by name."""

    def __cinit__(self):
        self._generation = ck_runtime_generation

    def __dealloc__(self):
        self.release()

    cdef void release(self) noexcept:
        # With the GIL: this only drops a reference, and no thread may see a half-released handle.
        if self._ptr is not NULL and self._generation == ck_runtime_generation:
            rd_kafka_topic_destroy(self._ptr)
            self._ptr = NULL
            ck_runtime_count(CK_KIND_TOPIC, -1)


@cython.final
@cython.no_gc_clear
cdef class Batch:
    """A batch of records to pass to librdkafka."""

    cdef int borrow_large(self, object kept) except -1:
        """Borrow the values that `kept` keeps alive, if copying them would cost more."""
        cdef size_t size = 0
        cdef size_t i
        if kept is None or self.c.cnt == 0:
            return 0
        with nogil:
            for i in range(self.c.cnt):
                size += ck_column_get(&self.c.values, i).len
        if size >= self.c.cnt * BORROW_FROM:
            self.kept = kept
        return 0


cdef class Receiver:

    cdef int receive(self, object future, object error, Message message) except -1:
        raise NotImplementedError


@cython.final
@cython.no_gc_clear
cdef class Publisher(Role):
    """One producer's publisher, and the role of its handle."""

    def __cinit__(self, Transactions transactions not None):
        self._transactions = transactions
        self._topics = {}
        self.last_name = _NO_NAME

    # -- the role

    cdef int register(self, Handle handle, rd_kafka_conf_t *conf) except -1:
        """Register a producer's callbacks, before Handle.start()."""
        self._room = 1024 * <int64_t>int_conf(conf, "queue.buffering.max.kbytes", 0)
        if self.inflight is NULL:  # an earlier __init__ that raised may have created it
            self.inflight = ck_inflight_new(sizeof(in_flight_t))
        if self.inflight is NULL:
            raise MemoryError
        # It lives as long as the event queue, which delivers the reports.
        ck_queue_attach(handle._events, CK_SLOT_INFLIGHT, self.inflight)
        # Always request reports: without them flush() waits in steps of 10 ms, and costs more.
        rd_kafka_conf_set_dr_msg_cb(conf, ck_callback_report)
        return 0

    cdef void wake(self, ck_queue_t *events) noexcept nogil:
        ck_serving_interrupt(ck_queue_serving(events))

    cdef int serve(self, object client, ck_event_t *event) except -1:
        if event.kind == CK_EVENT_REPORT:
            return self.deliver(<ck_report_t *>event)
        return delivery_notify(client, event)

    cdef int serve_loop(self, object client) except -1:
        cdef Handle handle = client
        # While another thread serves, it also runs the callbacks, so reports keep their order.
        watch = handle._watch
        served = self.serve_reports(handle)
        if watch is not None:
            watch.served += served
        # A callback may have closed the handle. If events are left, one may have ended the
        # serving early, or another thread serves and may stop just after a new event arrives.
        if (handle._open_in != ck_runtime_generation
                or rd_kafka_queue_length(handle._wait_queue) == 0):
            return NOT_AGAIN
        return AGAIN_SOON if served else AGAIN_LATER

    cdef int deliver(self, ck_report_t *report) except -1:
        # The report is the first member of the in_flight_t that librdkafka kept with the record.
        cdef in_flight_t *sent = <in_flight_t *>report
        cdef Message message
        on_delivery = error = None
        try:
            if report.event.code:
                error = KafkaError(report.event.code)
            on_delivery = <object>sent.on_delivery
            if error is None and self.only_errors and self.receiver is None:
                on_delivery = None
            else:
                message = message_delivered(sent)
        finally:
            in_flight_destroy(sent)
        if self.receiver is not None:
            self.receiver.receive(on_delivery, error, message)
        elif on_delivery is not None:
            on_delivery(error, message)
        return 0

    cdef int64_t undelivered(self, object client) noexcept:
        # A record whose report has been served is no longer undelivered, even if its callback has
        # not run.
        cdef Handle handle = client
        cdef int64_t left
        cdef size_t queued
        with nogil:
            ck_callback_poll(handle._ptr, 0)
        # librdkafka also counts events, such as statistics, and may add one between the two reads.
        while True:
            queued = rd_kafka_queue_length(handle._wait_queue)
            left = rd_kafka_outq_len(handle._ptr) - <int64_t>queued
            if rd_kafka_queue_length(handle._wait_queue) == queued:
                return left

    cdef int release(self, object client) except -1:
        cdef Handle handle = client
        try:
            handle.end_watch()
        finally:
            self.drop_reports(handle)
            self.release_topics()
        return 0

    cdef int abandon(self, object client) except -1:
        cdef Handle handle = client
        cdef ck_event_t *event
        while handle._events is not NULL:
            event = ck_queue_pop(handle._events)
            if event is NULL:
                break
            # The program may still await the record's future.
            if event.kind == CK_EVENT_REPORT and self.receiver is not None:
                try:
                    self.deliver(<ck_report_t *>event)
                except BaseException as exception:
                    write_unraisable(exception, handle)
            else:
                drop_event(event)
        return 0

    cdef int purge(self, Handle handle) except -1:
        """Fail all records, and set the time until which close() waits for their reports."""
        cdef rd_kafka_t *rk = handle._ptr
        with nogil:
            rd_kafka_purge(rk, PURGE_ALL)
        self.purged_until = ck_runtime_now_ms() + PURGED_MS
        return 0

    cdef void drop_reports(self, Handle handle) noexcept:
        """Purge every message in flight, before rd_kafka_destroy() drops them without a report.

        Otherwise the references of records with callbacks would leak, and batches would lose their
        outcomes. No thread serves librdkafka after this, so this method creates the reports that
        did not arrive in time. Batches get their outcomes when the rd_kafka_t is destroyed,
        because librdkafka may still read their memory.
        """
        # close() has purged and waited before; a callback may have produced since.
        cdef int64_t deadline = max(self.purged_until, ck_runtime_now_ms()
                                    + (SLICE if self.purged_until else PURGED_MS))
        cdef int64_t left = self.undelivered(handle)
        cdef rd_kafka_t *rk = handle._ptr
        cdef ck_event_t *lost
        cdef ck_event_t *following
        if left > 0:
            with nogil:
                rd_kafka_purge(rk, PURGE_ALL)
            left = self.undelivered(handle)
        while left > 0 and ck_runtime_now_ms() < deadline:
            with nogil:
                ck_callback_poll(rk, 10)
            left = self.undelivered(handle)
        self.unreported = left
        lost = ck_inflight_lost(self.inflight)
        while lost is not NULL:
            following = lost.next
            ck_queue_push(handle._events, lost)
            lost = following

    # -- topics

    cdef void release_topics(self) noexcept:
        cdef Topic topic
        self.last_name = _NO_NAME
        self.last_topic = None
        for topic in self._topics.values():
            topic.release()
        self._topics.clear()

    cdef rd_kafka_topic_t *topic_of(self, Handle handle, object name) except NULL:
        """Return a topic's handle; the first use creates it."""
        cdef Topic topic
        cdef rd_kafka_resp_err_t err
        cdef rd_kafka_topic_t *rkt
        cdef const char *text
        key = str_argument(name, "topic")  # a subclass's __hash__ may close the producer
        topic = self._topics.get(key)
        if topic is None:
            text = c_name(key)
            rk = handle.enter()
            with nogil:
                rkt = rd_kafka_topic_new(rk, text, NULL)
                err = rd_kafka_last_error()
            handle.leave()
            if rkt is NULL:
                check_doing(err, f"topic {name!r}")
            # Another thread may have created the same handle; librdkafka counts the references.
            topic = Topic()
            topic._ptr = rkt
            ck_runtime_count(CK_KIND_TOPIC, 1)
            if self._topics.setdefault(key, topic) is not topic:
                topic.release()
                topic = self._topics[key]
        self.last_topic = topic
        self.last_name = name  # frees the old name, whose finalizer may produce or close
        handle.check_open()
        return topic._ptr

    cdef object topics_column(self, Handle handle, object topic, Columns columns,
                              ck_publish_t *publish):
        """Set the records' topic handles. Returns the names that a Delivery keeps."""
        cdef rd_kafka_topic_t **rkts
        cdef rd_kafka_topic_t *rkt = NULL
        cdef tuple names
        cdef Py_ssize_t i = 0
        if isinstance(topic, str):
            publish.rkt = (self.last_topic._ptr if topic is self.last_name
                           else self.topic_of(handle, topic))
            return plain_str(topic)
        names = items_of(topic, "topic", "str")
        columns.count("topic", len(names))
        rkts = <rd_kafka_topic_t **>columns.block(len(names), sizeof(rd_kafka_topic_t *))
        last = _NO_NAME
        for name in names:
            if name is not last:
                if not isinstance(name, str):
                    raise TypeError(f"topic[{i}]: expected a str, got {type(name).__name__}")
                rkt = self.topic_of(handle, name)
                last = name
            rkts[i] = rkt
            i += 1
        publish.rkts = rkts
        return names

    cdef tuple arrow_topics(self, Handle handle, ArrowData arrow, Columns columns,
                            ck_publish_t *publish):
        """Like topics_column(), for the column `topic`."""
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
                rkt = self.topic_of(handle, name)
                last = item
            rkts[i] = rkt
            names.append(name)
        publish.rkts = rkts
        return tuple(names)

    # -- batches

    cdef Delivery send(self, Handle handle, Batch batch, int64_t ms):
        """Pass a batch to librdkafka; wait at most `ms` for room."""
        if batch.c.cnt > FEW:
            self.serve_reports(handle)
        self.begin(handle, batch)
        try:
            self._hand_over(handle, batch, deadline_after(ms))
        except BaseException as exception:
            self.end(batch, exception)
            raise
        self.end(batch, None)
        return batch.delivery

    cdef int begin(self, Handle handle, Batch batch) except -1:
        """Create the batch's Delivery. end() must follow."""
        # Each column may have run foreign code, which may have closed the producer.
        handle.check_open()
        batch.c.room = self._room
        batch.c.borrow = batch.kept is not None
        batch.delivery = delivery_new(handle, batch.c.cnt, batch.topic)
        if batch.kept is not None:
            batch.delivery._ledger._kept = batch.kept
        return 0

    cdef object step(self, Handle handle, Batch batch):
        """Pass records to librdkafka for STEP_MS, without waiting. True: librdkafka has all
        records. False: the queue is full. None: call again."""
        cdef rd_kafka_resp_err_t err
        rk = handle.enter()
        with nogil:
            err = ck_publish(rk, &batch.c, batch.delivery._ledger._ptr, STEP_MS)
        handle.leave()
        if err == RD_KAFKA_RESP_ERR__QUEUE_FULL:
            return False
        return None if err else True

    cdef int end(self, Batch batch, object raised) except -1:
        """Fail the records that librdkafka has not received. `raised` is the exception that ended
        the call, or None."""
        cdef rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__QUEUE_FULL
        cdef Ledger ledger = batch.delivery._ledger
        if isinstance(raised, ClosedError):
            err = RD_KAFKA_RESP_ERR__DESTROY
        ck_delivery_close(ledger._ptr, err)
        # If every record already has its outcome (all are too large, for example), do not wait
        # for an event: it may be long until a call serves one.
        if batch.kept is not None and not ledger.add_reference(CK_DELIVERY_RELEASE):
            ledger._kept = None
        self._transactions.note_incomplete(batch.delivery)
        if raised is not None:
            try:
                raised.delivery = batch.delivery
            except Exception:  # a foreign exception may refuse the attribute
                pass
        return 0

    cdef int64_t serve_reports(self, Handle handle) except -1:
        """Handle the waiting reports of earlier batches, without blocking.

        Otherwise an application that publishes and never polls would accumulate the reports and
        the memory that they keep. Returns the number of events.
        """
        cdef int64_t served
        cdef rd_kafka_t *rk = handle.enter()
        with nogil:
            served = ck_callback_serve(rk, handle._events, NULL, 0, NULL)
        handle.leave()
        handle.dispatch(NOW)
        return served

    cdef int _hand_over(self, Handle handle, Batch batch, int64_t deadline) except -1:
        cdef ck_publish_t *publish = &batch.c
        cdef ck_delivery_t *delivery = batch.delivery._ledger._ptr
        cdef rd_kafka_resp_err_t err
        cdef unsigned ended
        cdef rd_kafka_t *rk
        cdef int ms
        # Even the delivery's allocation may have run the garbage collector, and so foreign code.
        if publish.cnt <= FEW and handle._open_in == ck_runtime_generation:
            err = ck_publish(handle._ptr, publish, delivery, HAND_OVER_MS)
            if not err:
                return 0
        while True:
            rk = handle.enter()
            with nogil:
                # Read this before trying the queue: another thread could make room after that
                # without leaving an event.
                ended = ck_serving_count(ck_queue_serving(handle._events))
                err = ck_publish(rk, publish, delivery, HAND_OVER_MS)
            handle.leave()
            if not err:
                return 0
            if err == RD_KAFKA_RESP_ERR__QUEUE_FULL:
                ms = handle.slice_ms(deadline)
                if ms == 0:
                    return 0
                ms = SLICE if ms < 0 else min(ms, <int>SLICE)
                rk = handle.enter()
                with nogil:
                    ck_callback_serve(rk, handle._events, NULL, ms, &ended)
                handle.leave()
                handle.dispatch(NOW)
            PyErr_CheckSignals()
