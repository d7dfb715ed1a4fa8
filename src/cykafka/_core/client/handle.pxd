from libc.stdint cimport int64_t, uint32_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.callbacks cimport Callbacks
from cykafka._core.client.role cimport Role

cdef class Handle:
    cdef object __weakref__
    cdef rd_kafka_t *_ptr
    # The share consumer that owns it, or NULL.
    cdef rd_kafka_share_t *_share
    cdef ck_queue_t *_events
    # The queue on which waiting calls sleep; rd_kafka_queue_yield() wakes one.
    cdef rd_kafka_queue_t *_wait_queue
    # The fork generation in which the handle is open; 0 while it is not open.
    cdef uint32_t _open_in
    cdef uint32_t _generation
    cdef int _state
    cdef bint _opening
    cdef int _calls
    cdef unsigned long _closer
    cdef ck_condition_t *_condition
    # Counts what must end before the rd_kafka_t is destroyed.
    cdef ck_loans_t *_loans
    cdef object _closed
    cdef str _label
    # Whether destroy() has begun. From then on, the closing thread cannot use the rd_kafka_t.
    cdef bint _destroying
    # Whether close() returns before the destruction ends, because an event loop must not wait.
    cdef bint _ends_alone
    # How often close() has stopped the handle's calls, including attempts that failed.
    cdef int64_t _stops
    cdef Callbacks _callbacks
    # The code for this kind of client.
    cdef Role _role
    # confluent_kafka's error text for a client of this kind that is closed or was never opened.
    cdef str _closed_words
    # The Watch through which an asyncio loop serves the handle; None before the first await.
    cdef object _watch

    cdef int check_new(self) except -1
    cdef rd_kafka_conf_t *new_conf(self, dict config) except NULL
    cdef int start(self, rd_kafka_type_t kind, rd_kafka_conf_t *conf) except -1
    cdef rd_kafka_t *new_client(self, rd_kafka_type_t kind, rd_kafka_conf_t *conf, char *errstr,
                                size_t size) noexcept nogil
    cdef rd_kafka_t *enter(self) except NULL
    cdef void leave(self) noexcept
    cdef int refuse(self, str words=*) except -1
    cdef bint is_closing(self) noexcept
    cdef int check_wait(self, bint before) except -1
    cdef int dispatch(self, int64_t deadline) except -1
    cdef int after_call(self) except -1
    cdef int slice_ms(self, int64_t deadline) noexcept
    cdef bint begin_close(self, int64_t deadline=*) except -1
    cdef int stop(self, int64_t deadline) except -1
    cdef int abandon_close(self) except -1
    cdef int end_watch(self) except -1
    cdef int destroy(self, int flags, rd_kafka_queue_t *closing, int64_t deadline,
                     bint signals=*) except -1
    cdef object finish_close(self, int flags, rd_kafka_queue_t *closing, int64_t deadline,
                             object raised)
    cdef int free(self, int flags, rd_kafka_queue_t *closing, int64_t deadline, bint signals,
                  bint *done) except -1

    cdef int check_open(self) except -1
    cdef int check_handle(self) except -1
    cdef str property(self, str key)
    cdef char *await_cluster_id(self, int64_t deadline) except? NULL
    cdef int run_call(self, ck_call_t *call, int64_t timeout) except -1
    cdef int start_call(self, ck_call_t *call, int64_t timeout) except -1
    cdef int await_call(self, ck_call_t *call) except -1

cdef bint exiting() noexcept nogil
cdef object closed_error(str words, str note)
