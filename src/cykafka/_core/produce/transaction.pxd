from libc.stdint cimport int64_t

from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.call cimport Call
from cykafka._core.client.handle cimport Handle
from cykafka._core.produce.delivery cimport Delivery

# The calls that librdkafka continues in the background after their timeout.
cdef enum:
    CALL_NONE, CALL_INIT, CALL_COMMIT, CALL_ABORT

cdef class Transactions:
    # transaction.timeout.ms
    cdef int64_t timeout_ms
    # Whether a transaction is open, according to cykafka's calls.
    cdef bint begun
    cdef bint initialized
    # The call that librdkafka continues in the background. librdkafka rejects all other calls
    # until cykafka has repeated this call to its end.
    cdef int pending
    # The number of transactions begun so far.
    cdef int64_t _number
    # Whether the last transaction was aborted.
    cdef bint aborted
    # This transaction's Deliveries with records that could not be queued, or None.
    cdef list _incomplete
    # How many of this transaction's records were refused after their call had returned.
    cdef int64_t _refused
    # Interrupted send_offsets_to_transaction() calls.
    cdef list _sending
    # The number of threads that wait in send_offsets_to_transaction().
    cdef int _senders
    # The threads inside repeat().
    cdef set _resuming

    # The running resumable calls of all threads and tasks, until the state reflects their
    # outcomes.
    cdef list _steps

    cdef int configure(self, rd_kafka_conf_t *conf) except -1
    cdef int check_outside(self) except -1
    cdef int begin(self, Handle handle) except -1
    cdef int check_complete(self) except -1
    cdef int note_refused(self) except -1
    cdef int note_incomplete(self, Delivery delivery) except -1
    cdef bint has_calls(self) noexcept
    cdef bint has_ended(self, int64_t number, int call) noexcept
    cdef int note(self, Call step) except -1
    cdef int64_t deadline_of(self, int64_t ms) noexcept
    cdef object fatal_error(self, Handle handle)
