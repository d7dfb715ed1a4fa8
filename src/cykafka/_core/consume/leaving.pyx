"""Leaving: closes a consumer in steps, between which an event loop can run other tasks."""
cimport cython

from cykafka._core.clib.csrc cimport ck_pipe_t, ck_pipe_writer, ck_runtime_generation
from cykafka._core.clib.librdkafka cimport rd_kafka_queue_io_event_enable
from cykafka._core.client.event_loop cimport Watch
from cykafka._core.common.errors cimport chain
from cykafka._core.consume.consumer cimport Consumer


@cython.final
@cython.no_gc_clear
cdef class Leaving:
    """A consumer that leaves its group. The caller must call finish(), even after an exception.

    Parameters
    ----------
    consumer : Consumer
        Its other calls end. If the consumer is already closed, step() returns True at once.
    watch : Watch
        Its loop serves the group's events.
    """

    cdef Consumer _consumer
    cdef object _raised
    cdef Watch _watch

    def __cinit__(self, Consumer consumer not None, Watch watch not None):
        cdef ck_pipe_t *pipe = NULL
        self._watch = watch
        # pipe() may fail, so call it before the close begins. In a forked child, the watch's lock
        # may stay locked, and there is nothing to close.
        if consumer._generation == ck_runtime_generation:
            pipe = watch.pipe()
        if consumer.begin_close(0):
            self._consumer = consumer
            consumer._ends_alone = True
            self._raised = consumer.begin_leave()
            if consumer._membership.closing is not NULL:
                rd_kafka_queue_io_event_enable(consumer._membership.closing,
                                               ck_pipe_writer(pipe), b"1", 1)

    def step(self):
        """Serve waiting events, and run callbacks. Returns whether the consumer has left its
        group."""
        if self._consumer is None:
            return True
        while True:
            try:
                return self._consumer._membership.step_leave(self._consumer)
            except BaseException as exception:
                # Continue, because librdkafka does not signal leftover events.
                self._raised = chain(self._raised, exception)

    def note(self, raised):
        """Let finish() raise a callback's exception."""
        self._raised = chain(self._raised, raised)

    def finish(self):
        """Close the consumer at once, then raise the callbacks' exceptions. If the consumer has
        not left its group yet, a thread completes the leave."""
        cdef Consumer consumer = self._consumer
        self._consumer = None
        if consumer is not None and consumer._generation == ck_runtime_generation:
            if consumer._membership.closing is not NULL:
                rd_kafka_queue_io_event_enable(consumer._membership.closing, -1, NULL, 0)
            raised = consumer.end_leave(0, self._raised)
            if raised is not None:
                raise raised
