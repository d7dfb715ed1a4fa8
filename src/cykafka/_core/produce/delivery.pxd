from libc.stdint cimport int32_t, int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.client.handle cimport Handle

cdef class Ledger:
    cdef ck_delivery_t *_ptr
    # A str, or a tuple with one str per record.
    cdef object _topic
    # Keeps the borrowed values until the delivery is done.
    cdef object _kept
    cdef list _callbacks
    # A weak reference to the Delivery that the callbacks get.
    cdef object _front
    # Whether the ck_delivery_t holds a reference to this Ledger; its event returns the reference.
    cdef bint _referenced
    cdef bint _reported
    # The _asked of the Delivery that the program has dropped.
    cdef bint _asked

    cdef int add_reference(self, int which) except -1

cdef class Delivery:
    cdef object __weakref__
    cdef Handle _handle
    cdef Ledger _ledger
    # The ledger's _topic, which the garbage collector may have cleared there.
    cdef object _topic
    # Whether the program has read the outcomes, so that failures are not logged.
    cdef bint _asked

    cdef ck_delivery_t *ptr(self) except NULL
    cdef int await_end(self, int64_t deadline) except -1
    cdef int check(self) except -1

cdef Delivery delivery_of(Handle handle, Ledger ledger)
cdef Delivery delivery_new(Handle handle, size_t cnt, object topic)
cdef int delivery_notify(Handle handle, ck_event_t *event) except -1
