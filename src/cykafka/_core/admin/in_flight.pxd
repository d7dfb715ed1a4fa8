from cykafka._core.admin.request cimport Request
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.client.event_loop cimport Watch
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport Role

cdef class InFlightRequests(Role):
    # The queue of responses.
    cdef rd_kafka_queue_t *_results
    # Requests in flight, by number.
    cdef dict pending
    cdef size_t _number
    cdef bint _serving
    # If not None, its loop serves instead of the thread.
    cdef Watch watch

    cdef object send(self, Handle handle, Request request, object keys, dict options)
    cdef int ensure_thread(self, Handle handle) except -1
    cdef int serve_results(self, Handle handle) except -1
    cdef int complete(self, Handle handle, rd_kafka_event_t *event) except -1
    cdef int refresh_metadata(self, Handle handle, bint topics) except -1
    cdef int wake_thread(self, Handle handle) except -1
