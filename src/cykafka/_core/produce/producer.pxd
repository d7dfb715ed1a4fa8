from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport ck_flight_t, ck_record_t
from cykafka._core.clib.librdkafka cimport rd_kafka_error_t
from cykafka._core.produce.publisher cimport Publisher

cdef class Producer(Publisher):
    cdef object _on_delivery
    # Whether close() had no time to wait for all records.
    cdef bint _gave_up
    # Until when close() waits for the reports of the records that it has purged, ms; 0: it has
    # purged none.
    cdef int64_t _purged_until
    # How many records had no report when the rd_kafka_t was about to be destroyed.
    cdef int64_t _unreported
    # The memory of the reports in flight, which is freed with the queue of events.
    cdef ck_flight_t *_flight

    cdef int64_t flush_until(self, int64_t deadline) except -1
    cdef void drop_reports(self) noexcept
    cdef int _produce_slowly(self, topic, const ck_record_t *record, rd_kafka_error_t *error,
                             timeout) except -1
    cdef int _finish(self, int64_t deadline, dict failures) except -1
    cdef int _flush_or_purge(self, int64_t deadline) except -1
    cdef int _log_failures(self, dict failures) except -1
