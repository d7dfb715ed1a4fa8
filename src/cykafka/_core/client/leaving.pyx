"""Leaving a group: the role of a consumer that is a member, and its close in steps."""
import logging

from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.event_loop cimport Watch
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport Role
from cykafka._core.common.arguments cimport NOW, slice_left
from cykafka._core.common.errors cimport chain

_log = logging.getLogger("cykafka")


@cython.no_gc_clear
cdef class Member(Role):
    """The role of a consumer that is a member of a group."""

    cdef int close(self, Handle handle, int64_t deadline) except -1:
        """Leave the group and free the consumer, after Handle.begin_close()."""
        # The close can no longer be undone: finish it, then raise.
        raised = self.begin_leave(handle, deadline)
        raised = self.leave(handle, deadline, raised)
        raised = self.end_leave(handle, deadline, raised)
        if raised is not None:
            raise raised
        return 0

    cdef object begin_leave(self, Handle handle, int64_t deadline):
        """Stop reading and begin to leave the group; `closing` is then the queue to serve, or
        NULL. Return an exception to raise at the end, or None."""

    cdef object leave(self, Handle handle, int64_t deadline, object raised):
        """Leave the group, until the deadline or until a signal handler raises.

        Returns `raised`, with the exceptions of callbacks and signal handlers chained to it.
        """
        cdef rd_kafka_t *rk = handle._ptr
        cdef rd_kafka_share_t *share = handle._share
        cdef int ms
        try:
            while not self.has_left(handle):
                ms = slice_left(deadline)
                if ms == 0:
                    break
                with nogil:
                    ck_end_serve(rk, share, self.closing, ms)
                PyErr_CheckSignals()
                try:
                    handle.dispatch(NOW)
                except KeyboardInterrupt:  # Ctrl-C while a callback ran
                    raise
                except BaseException as exception:
                    raised = chain(raised, exception)
                if handle._generation != ck_runtime_generation:
                    return raised  # a callback has forked: the rest belongs to the parent
        except BaseException as exception:
            raised = chain(raised, exception)
        return raised

    cdef bint step_leave(self, Handle handle) except -1:
        """Serve the leave without waiting. Returns whether the consumer has left its group."""
        cdef rd_kafka_t *rk = handle._ptr
        cdef rd_kafka_share_t *share = handle._share
        if not self.has_left(handle):
            with nogil:
                while ck_end_serve(rk, share, self.closing, 0):
                    pass  # librdkafka does not signal leftovers
            handle.dispatch(NOW)
        return self.has_left(handle)

    cdef object end_leave(self, Handle handle, int64_t deadline, object raised):
        """Free the consumer; a thread completes the leave. Return the exception to raise."""
        cdef rd_kafka_queue_t *closing = self.closing
        cdef rd_kafka_t *rk = handle._ptr
        cdef rd_kafka_share_t *share = handle._share
        self.closing = NULL
        if handle._generation != ck_runtime_generation:
            closing = NULL  # a callback has forked: the queue belongs to the parent
        elif closing is not NULL and rd_kafka_consumer_closed(rk):
            with nogil:
                # The responses to the last commits arrive just before the end.
                while ck_end_serve(rk, share, closing, 0):
                    pass
                rd_kafka_queue_destroy(closing)
            closing = NULL
        if closing is not NULL:
            self.overdue = True
        if self.overdue:
            try:
                _log.warning("%s: %s", handle._label, self.overdue_words)
            except BaseException as exception:  # Ctrl-C, or a handler that raises
                raised = chain(raised, exception)
        return handle.finish_close(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE, closing, deadline, raised)

    cdef bint has_left(self, Handle handle) noexcept:
        return self.closing is NULL or rd_kafka_consumer_closed(handle._ptr)


@cython.final
@cython.no_gc_clear
cdef class Leaving:
    """A consumer that leaves its group in steps, between which an event loop can run other tasks.
    The caller must call finish(), even after an exception.

    Parameters
    ----------
    consumer : Consumer or ShareConsumer
        Its other calls end. If the consumer is already closed, step() returns True at once.
    watch : Watch
        Its loop serves the group's events.
    """

    cdef Handle _consumer
    cdef Member _member
    cdef object _raised
    cdef Watch _watch

    def __cinit__(self, Handle consumer not None, Watch watch not None):
        cdef ck_pipe_t *pipe = NULL
        self._watch = watch
        self._member = consumer._role
        # pipe() may fail, so call it before the close begins. In a forked child, the watch's lock
        # may stay locked, and there is nothing to close.
        if consumer._generation == ck_runtime_generation:
            pipe = watch.pipe()
        if consumer.begin_close(0):
            self._consumer = consumer
            consumer._ends_alone = True
            self._raised = self._member.begin_leave(consumer, 0)
            if self._member.closing is not NULL:
                rd_kafka_queue_io_event_enable(self._member.closing, ck_pipe_writer(pipe), b"1", 1)

    def step(self):
        """Serve waiting events, and run callbacks. Returns whether the consumer has left its
        group."""
        if self._consumer is None:
            return True
        while True:
            try:
                return self._member.step_leave(self._consumer)
            except BaseException as exception:
                # Continue, because librdkafka does not signal leftover events.
                self._raised = chain(self._raised, exception)

    def note(self, raised):
        """Let finish() raise a callback's exception."""
        self._raised = chain(self._raised, raised)

    def finish(self):
        """Close the consumer at once, then raise the callbacks' exceptions. If the consumer has
        not left its group yet, a thread completes the leave. Returns whether it left in time."""
        cdef Handle consumer = self._consumer
        self._consumer = None
        if consumer is not None and consumer._generation == ck_runtime_generation:
            if self._member.closing is not NULL:
                rd_kafka_queue_io_event_enable(self._member.closing, -1, NULL, 0)
            raised = self._member.end_leave(consumer, 0, self._raised)
            if raised is not None:
                raise raised
        return not self._member.overdue
