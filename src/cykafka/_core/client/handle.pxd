from libc.stdint cimport int32_t, int64_t, uint32_t

from cykafka._core.clib.csrc cimport (
    ck_bell_t,
    ck_event_t,
    ck_loans_t,
    ck_notice_t,
    ck_queue_t,
    ck_report_t,
)
from cykafka._core.clib.librdkafka cimport (
    rd_kafka_conf_t,
    rd_kafka_queue_t,
    rd_kafka_t,
    rd_kafka_type_t,
)
from cykafka._core.client.oauth cimport TokenSource

cdef class Handle:
    cdef object __weakref__
    cdef rd_kafka_t *_ptr
    cdef ck_queue_t *_events
    # The queue a waiting call sleeps on: yielding it wakes the call.
    cdef rd_kafka_queue_t *_wait_queue
    # The fork generation the handle is open in; 0 while it is not open.
    cdef uint32_t _open_in
    cdef uint32_t _generation
    cdef int _state
    cdef bint _opening
    cdef int _calls
    cdef unsigned long _closer
    cdef ck_bell_t *_bell
    # Counts what must end before the rd_kafka_t is destroyed.
    cdef ck_loans_t *_loans
    # Whether a consumer was closed inside of a counted call of the same thread: it closes after
    # that call.
    cdef bint _close_after
    cdef object _closed
    cdef object _dispatching
    cdef unsigned long _dispatcher
    cdef str _label
    cdef object _raised
    # What the thread that destroys a consumer serves until the consumer has left its group.
    cdef rd_kafka_queue_t *_closing
    # Whether destroy() has begun: then the thread that closes cannot use the rd_kafka_t either.
    cdef bint _destroying
    # How often a close() has stopped the handle's calls, even if it gave up then.
    cdef int64_t _stops
    cdef bint _has_callbacks
    cdef bint _only_errors
    cdef object _error_cb
    cdef object _throttle_cb
    cdef object _stats_cb
    cdef object _logger
    cdef object _on_commit
    cdef TokenSource _tokens
    # What serves the handle from asyncio's loops, see _watch; made when it is first wanted.
    cdef object _watch

    cdef int check_new(self) except -1
    cdef int open(self, rd_kafka_type_t kind, dict config) except -1
    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1
    cdef rd_kafka_t *enter(self) except NULL
    cdef void leave(self) noexcept
    cdef str closed_words(self)
    cdef int refuse(self, str words=*) except -1
    cdef int give_way(self, bint before) except -1
    cdef int dispatch(self, int64_t deadline) except -1
    cdef int run_callbacks(self) except -1
    cdef int serve(self, ck_notice_t *notice) except -1
    cdef int deliver(self, ck_report_t *report) except -1
    cdef int tell(self, ck_event_t *event) except -1
    cdef int slice_ms(self, int64_t deadline) noexcept
    cdef bint begin_close(self, int64_t deadline=*) except -1
    cdef int stop(self, int64_t deadline) except -1
    cdef void wake(self) noexcept nogil
    cdef int abandon_close(self) except -1
    cdef int64_t undelivered(self) noexcept
    cdef int release(self) except -1
    cdef int destroy(self, int flags, int64_t deadline=*, bint signals=*) except -1
    cdef object finish_close(self, int flags, int64_t deadline, object raised)
    cdef int free(self, int flags, int64_t deadline, bint signals, bint *done) except -1

cdef bint exiting() noexcept nogil
cdef object chain(object earlier, object later)
cdef void write_unraisable(object exception, object source) noexcept
