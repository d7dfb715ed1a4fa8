from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *

cdef enum:
    # Kafka has fewer group states and group types.
    MAX_CHOICES = 16

ctypedef struct options_t:
    int request_timeout
    int operation_timeout
    int validate_only
    int broker
    int require_stable
    int include_authorized_operations
    int isolation_level
    int states[MAX_CHOICES]
    size_t state_cnt
    int types[MAX_CHOICES]
    size_t type_cnt

cdef class Request:
    cdef rd_kafka_admin_op_t _op
    # librdkafka's objects, which the request owns; submit() makes librdkafka copy them.
    cdef void **_objects
    cdef size_t _cnt
    # A Future or a dict of futures.
    cdef object _futures

    cdef int reserve(self, Py_ssize_t cnt) except -1
    cdef void add(self, void *object) noexcept
    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil
    cdef object decode(self, rd_kafka_event_t *event)
    cdef int settle(self, outcome) except -1

cdef int choose_options(options_t *chosen, dict options) except -1
cdef rd_kafka_AdminOptions_t *new_options(
    rd_kafka_t *rk, rd_kafka_admin_op_t op, const options_t *chosen, void *opaque, char *errstr,
    size_t errstr_size) noexcept nogil

cdef const char *c_text(object text, str argument) except NULL
cdef object text_or_none(const char *text)
cdef object outcome_of(const rd_kafka_error_t *error, object result)
cdef object node_from(const rd_kafka_Node_t *node)
cdef list nodes_from(const rd_kafka_Node_t **nodes, size_t cnt)
cdef object operations_from(const rd_kafka_AclOperation_t *operations, size_t cnt)
