from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *

cdef class TokenSource:
    cdef object _callback
    cdef object _first
    cdef object _failure
    cdef object _raised

    cdef int enable(self, rd_kafka_conf_t *conf, ck_queue_t *events) except -1
    cdef int wait(self) except -1
    cdef int check(self) except -1
    cdef int refresh(self, rd_kafka_t *rk, str config) except -1
