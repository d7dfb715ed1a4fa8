"""Role: the parts of a Handle that differ between producers, consumers and admin clients."""
cimport cython
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *


@cython.no_gc_clear
cdef class Role:
    """The code for one kind of client. The handle owns its Role, which does not refer to it."""

    def __cinit__(self, *args):
        self._inside = {}

    cdef rd_kafka_queue_t *wait_queue(self, rd_kafka_t *rk) noexcept:
        """Return the queue on which waiting calls sleep. The caller owns the reference."""
        return rd_kafka_queue_get_main(rk)

    cdef void wake(self, ck_queue_t *events) noexcept nogil:
        """Wake calls in flight that do not sleep on the wait queue."""

    cdef int serve(self, object client, ck_event_t *event) except -1:
        """Handle an event that only clients of this kind get."""
        return 0

    cdef int serve_loop(self, object client) except -1:
        """Handle the wait queue's entries for an event loop, without waiting. Return NOT_AGAIN,
        AGAIN_SOON or AGAIN_LATER. A consumer does nothing: the coroutines that wait for messages
        take them and run callbacks."""
        return NOT_AGAIN

    cdef int64_t undelivered(self, object client) noexcept:
        """Return the number of messages that the client has not delivered yet."""
        return 0

    cdef int release(self, object client) except -1:
        """Release resources before the rd_kafka_t is destroyed. May run more than once."""
        return 0

    cdef int ended(self, object client) except -1:
        """Run after a close, when the rd_kafka_t is destroyed or a thread will destroy it."""
        return 0

    cdef int abandon(self, object client) except -1:
        """Handle the waiting events of a client that the program dropped without closing it. Skip
        the program's callbacks."""
        return 0

    # Counted calls that run Python code: callbacks from librdkafka, signal handlers.

    cdef bint is_in_callback(self) except -1:
        """Whether this thread is inside such a call, and so must not wait for its end."""
        return len(self._inside) > 0 and PyThread_get_thread_ident() in self._inside

    cdef int enter_callback(self) except -1:
        me = PyThread_get_thread_ident()
        self._inside[me] = self._inside.get(me, 0) + 1
        return 0

    cdef int leave_callback(self) except -1:
        me = PyThread_get_thread_ident()
        if self._inside[me] == 1:
            del self._inside[me]
        else:
            self._inside[me] -= 1
        return 0
