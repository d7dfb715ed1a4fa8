from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.leaving cimport Member

cdef class ShareMembership(Member):
    # The callback for acknowledgement commits, or None; and the thread that runs it, or 0.
    cdef object on_commit
    cdef unsigned long reporting
    # The thread in a call of the consumer, or 0; whether the call waits for brokers; and how many
    # of the thread's calls are nested.
    cdef unsigned long _user
    # The thread that is next, or 0.
    cdef unsigned long _next
    cdef bint _waits
    cdef int _depth
    # The polled messages that no call has returned yet; NULL before the first poll.
    cdef ck_batch_t *polled
    # The Messages of the last poll that an iteration has not returned yet, the next one last; how
    # many of them are deserialized, and the thread that deserializes now, or 0.
    cdef object rest
    cdef Py_ssize_t deserialized
    cdef unsigned long converting
    # The Storage of each returned batch that is alive: a linked list.
    cdef void *returned
    # The commit in progress; after Ctrl-C it continues without its caller.
    cdef ck_call_t *commit
    # The KafkaError after which the brokers do not accept the member again, or None.
    cdef object fatal

    cdef int report(self, object label, const ck_notice_t *notice) except -1
    cdef int begin(self, Handle handle, bint waits=*) except -1
    cdef int refuse_inside(self) except -1
    cdef void end(self) noexcept
    cdef int await_commit(self, Handle handle) except -1
    cdef ck_batch_t *batch(self) except NULL
    cdef int drop_commit(self) noexcept
    cdef bint commit_ends(self, int64_t deadline) except -1
