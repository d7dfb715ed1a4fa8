from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int64_t, uint32_t

from cykafka._core.batch.message_batch cimport MessageBatch
from cykafka._core.clib.csrc cimport ck_batch_t, ck_bytes_t, ck_envelope_t, ck_zone_t
from cykafka._core.common.message cimport Message

cdef class EnvelopeRows:
    # The codec's.
    cdef object _type
    cdef bint _json
    cdef bint _traceparent
    cdef list _known
    # What C reads of each row, and what that points to.
    cdef size_t _cnt
    cdef ck_envelope_t *_read
    cdef uint32_t *_at
    cdef char **_blocks
    cdef size_t _block_cnt
    cdef ck_bytes_t *_values
    cdef char *_arena
    cdef list _kept
    cdef ck_zone_t _zone
    cdef int64_t _last_us
    cdef object _last_time  # of _last_us

    cdef int allocate(self, size_t cnt) except -1
    cdef list of_batch(self, MessageBatch batch)
    cdef object of_message(self, Message message)
    cdef int _read_headers(self, const ck_batch_t *batch, size_t start,
                           ptrdiff_t step) noexcept nogil
    cdef int _make_messages(self, MessageBatch batch, list result) except -1
    cdef int _read_values(self, list messages) except -1
    cdef int _decode_values(self, size_t size) noexcept
    cdef int _make_envelopes(self, list result) except -1
    cdef object _envelope(self, Message message, object key, object value,
                          const ck_envelope_t *read)
    cdef object _local_time(self, int64_t us)
    cdef object _known_type(self, ck_bytes_t text)
