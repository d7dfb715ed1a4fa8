from cykafka._core.clib.librdkafka cimport rd_kafka_queue_t
from cykafka._core.clib.librdkafka_admin cimport rd_kafka_event_t
from cykafka._core.client.client cimport Client

cdef class Admin(Client):
    # Where the answers arrive.
    cdef rd_kafka_queue_t *_results
    # By number: the requests librdkafka has.
    cdef dict _pending
    # Whether every future had its answer when close() began.
    cdef bint _answered
    cdef size_t _number
    cdef bint _serving

    cdef int ensure_thread(self) except -1
    cdef int serve_results(self) except -1
    cdef int complete(self, rd_kafka_event_t *event) except -1
    cdef int refresh_metadata(self, bint topics) except -1
    cdef int give_up(self) except -1
    cdef int look_again(self) except -1
