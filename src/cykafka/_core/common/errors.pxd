from cykafka._core.clib.librdkafka cimport *

cdef object error_from(rd_kafka_resp_err_t err, const char *words)
cdef int check_doing(rd_kafka_resp_err_t err, str doing) except -1
cdef object take_error(rd_kafka_error_t *error)
cdef int check_error(rd_kafka_error_t *error) except -1

cdef enum:
    # How many exception contexts to follow at most: the program may have created a cycle.
    MAX_CONTEXTS = 1000

cdef object chain(object earlier, object later)
cdef void write_unraisable(object exception, object source) noexcept
