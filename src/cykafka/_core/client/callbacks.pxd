from libc.stdint cimport int64_t, uint32_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.role cimport Role

cdef class TokenSource:
    cdef object _callback
    cdef object _first
    cdef object _failure
    cdef object _raised

    cdef int enable(self, rd_kafka_conf_t *conf, ck_queue_t *events) except -1
    cdef int wait(self) except -1
    cdef int check(self) except -1
    cdef int refresh(self, rd_kafka_t *rk, str config) except -1

cdef class Callbacks:
    # The events that wait for their callbacks: the handle's queue, or NULL.
    cdef ck_queue_t *events
    # error_cb, throttle_cb, stats_cb (each a callable or None) and logger (a logger or None).
    cdef dict _functions
    # Whether there is any callback.
    cdef bint any
    cdef TokenSource tokens
    # An exception from a callback inside librdkafka; the next dispatch() raises it.
    cdef object raised
    # The lock is held while a thread runs callbacks; dispatcher is that thread, or 0.
    cdef object _lock
    cdef unsigned long dispatcher
    # The client's name and type, for logs and errors, and the fork generation in which it is open.
    cdef str label
    cdef str kind
    cdef uint32_t generation
    # Whether the client is closed, so this call is the last to run callbacks.
    cdef bint closed

    cdef int configure(self, dict config) except -1
    cdef bint has_logger(self) noexcept
    cdef int install(self, rd_kafka_conf_t *conf, ck_queue_t *events) except -1
    cdef int dispatch(self, object client, Role role, int64_t deadline) except -1
    cdef int64_t count_waiting(self) noexcept
    cdef int run(self, object client, Role role) except -1
    cdef int serve(self, ck_notice_t *notice) except -1

cdef object forked_error(str kind)
cdef void drop_event(ck_event_t *event) noexcept
cdef void release_tokens(ck_queue_t *events) noexcept
cdef void release_events(ck_queue_t *events) noexcept
