"""Publication: a batch that an event loop passes to librdkafka between its other tasks."""
cimport cython
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.client.call cimport Call, new_step
from cykafka._core.common.arguments cimport SLICE, deadline_after, slice_left, timeout_ms
from cykafka._core.produce.producer cimport Producer
from cykafka._core.produce.publisher cimport Batch


@cython.final
@cython.no_gc_clear
cdef class Publication:
    """A batch that the caller passes to librdkafka in steps. The caller must call end(), even
    after an exception."""

    cdef Producer _producer
    cdef Batch _batch

    @property
    def delivery(self):
        """The batch's outcomes, a Delivery."""
        return self._batch.delivery

    def step(self):
        """Pass records to librdkafka for about 2 ms, without waiting.

        Returns
        -------
        bool or None
            True: librdkafka has all records. False: the queue is full. None: call again.
        """
        return self._producer._publisher.step(self._producer, self._batch)

    def end(self, raised=None):
        """Fail the records that librdkafka has not received: with ``_DESTROY`` if `raised` is a
        ClosedError, else with ``_QUEUE_FULL``."""
        self._producer._publisher.end(self._batch, raised)


def publication(Producer producer not None, topic, values, *, keys=None, headers=None,
                timestamps=None, partitions=None):
    """Begin to publish a batch. The arguments are those of ``Producer.publish()``."""
    return _begin(producer, producer.batch(topic, values, keys, headers, timestamps, partitions))


def arrow_publication(Producer producer not None, topic, data, *, key=None, value="value",
                      headers=None, timestamp=None, partition=None):
    """Like publication(), for ``Producer.publish_arrow()``."""
    return _begin(producer, producer.arrow_batch(topic, data, key, value, headers, timestamp,
                                                 partition))


cdef Publication _begin(Producer producer, Batch batch):
    cdef Publication publication = Publication.__new__(Publication)
    producer._publisher.begin(producer, batch)
    publication._producer = producer
    publication._batch = batch
    return publication


# -- other producer functions for an event loop

def transactions_of(Producer producer not None):
    """Return the producer's Transactions, whose methods are operations."""
    return producer._transactions


def flush(Producer producer not None, timeout):
    """An operation: send the records that wait for ``linger.ms``, and wait for all outcomes.

    The event loop runs the callbacks. The result is the number of records without an outcome plus
    the number of events; timeout in s.
    """
    cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
    cdef Call call
    cdef int ms
    while True:
        ms = slice_left(deadline)
        left = len(producer)
        if left == 0 or ms == 0:
            return left
        call = new_step(producer, CK_CALL_FLUSH, ms)
        call.c.events = producer._events
        # The wait must end even if the serving loop is blocked.
        call._deadline = deadline_after(ms + SLICE)
        yield call


def end_transaction(Producer producer not None, timeout):
    """An operation: end an open transaction before close_now(), which logs failures; timeout in
    s. The result says whether the operation has ended a transaction."""
    return producer._transactions.end_open(
        producer, deadline_after(timeout_ms(timeout, "timeout")), False, producer._failures)


def is_inherited(Producer producer not None):
    """Whether this process inherited the producer through a fork."""
    return producer._generation != ck_runtime_generation


def undelivered(Producer producer not None):
    """The number of records in librdkafka without an outcome. Their callbacks may run later."""
    cdef int64_t left
    if producer._open_in != ck_runtime_generation:
        return 0  # closed, or inherited: the records belong to the parent
    producer.enter()
    left = producer._publisher.undelivered(producer)
    producer.leave()
    return left


def close_now(Producer producer not None):
    """Close a producer without waiting; records without an outcome fail.

    Returns True if every record had its outcome and no transaction was left open. Raises the
    callbacks' exceptions after closing the producer; another call then returns the result.
    """
    producer._ends_alone = True
    return Producer.close(producer, 0)
