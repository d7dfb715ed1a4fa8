from libc.stdint cimport int64_t

from cykafka._core.clib.librdkafka cimport rd_kafka_queue_t
from cykafka._core.consume.offsets cimport Offsets

cdef class Lag(Offsets):
    cdef dict _ask_watermarks(self, list keys, int64_t deadline)
    cdef int _refresh(self, str topic, int64_t ms) except -1
    cdef list _list_offsets(self, list partitions, int64_t deadline)
    cdef int _await_offsets(self, rd_kafka_queue_t *replies, list found, int64_t deadline,
                            bint closing) except -1
