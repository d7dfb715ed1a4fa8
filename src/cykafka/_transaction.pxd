from libc.stdint cimport int64_t

from cykafka._client cimport Client
from cykafka._librdkafka cimport rd_kafka_error_t, rd_kafka_t

cdef class Transactional(Client):
    cdef int64_t _transaction_ms
    # Whether a transaction is open, as far as the calls here tell.
    cdef bint _begun
    # Deliveries of this transaction with records that could not be queued, or None.
    cdef list _incomplete

    cdef int check_complete(self) except -1
    cdef int resume(self, rd_kafka_error_t *(*step)(rd_kafka_t *, int) noexcept nogil,
                    int64_t ms) except -1
