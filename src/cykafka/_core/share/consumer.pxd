from libc.stdint cimport int64_t

from cykafka._core.batch cimport MessageBatch
from cykafka._core.client.handle cimport Handle
from cykafka._core.share.membership cimport ShareMembership

cdef class ShareConsumer(Handle):
    cdef ShareMembership _membership
    # Whether messages go through _deserialize().
    cdef public bint _deserializes

    cdef int poll_until(self, int64_t deadline) except -1
    cdef object next_message(self, int64_t deadline)
    cdef int deserialize(self, list rest, int64_t count) except -1
    cdef int take_messages(self) except -1
    cdef MessageBatch take_batch(self)
    cdef int acknowledge_rows(self, MessageBatch batch, int type, object rows) except -1
