from libc.stdint cimport int64_t

from cykafka._core.client.client cimport Client

# The calls that librdkafka continues in the background when their time is over.
cdef enum:
    CALL_NONE, CALL_INIT, CALL_COMMIT, CALL_ABORT

cdef class Transactional(Client):
    cdef int64_t _transaction_ms
    # Whether a transaction is open, judging by the calls here.
    cdef bint _begun
    cdef bint _initialized
    # The call that librdkafka continues in the background: until it is repeated and has ended,
    # librdkafka rejects every other one.
    cdef int _pending
    # Whether the last transaction was aborted.
    cdef bint _aborted
    # Deliveries of this transaction with records that could not be queued, or None.
    cdef list _incomplete
    # The send_offsets_to_transaction() calls that were interrupted.
    cdef list _sending
    # How many threads wait in send_offsets_to_transaction().
    cdef int _senders
    # The threads inside a call that resume() makes.
    cdef set _resuming

    cdef int check_outside(self) except -1
    cdef object settle(self, int64_t deadline)
    cdef int check_complete(self) except -1
    cdef object resume(self, int call, int64_t ms)
    cdef object repeat(self, int call, int64_t deadline)
    cdef object finish_pending(self, int64_t deadline)
    cdef object send_offsets(self, positions, group_metadata, int64_t ms)
    cdef object fatal_error(self)
