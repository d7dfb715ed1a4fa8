"""Futures: an event loop's futures, one per record of a producer.

This code is in Cython because it runs once per record.
"""
import functools
import logging
import weakref
from asyncio import _get_running_loop
from collections import deque

cimport cython

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.event_loop cimport Watch, watch_of
from cykafka._core.common.message cimport Message
from cykafka._core.produce.producer cimport Producer
from cykafka._core.produce.publisher cimport Receiver

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException

_log = logging.getLogger("cykafka")
_PURGED = (<int>RD_KAFKA_RESP_ERR__PURGE_QUEUE, <int>RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)


@cython.final
cdef class Outcomes(Receiver):
    """Sets the futures of one producer's records, each in its loop.

    The producer refers to this object, which does not refer to the producer.
    """

    cdef Watch watch
    # Whether the program expects a transaction to abort its records.
    cdef bint aborts

    cdef int receive(self, object future, object error, Message message) except -1:
        return self.set(future, message, None if error is None else KafkaException(error),
                        message._topic)

    cdef int set(self, object future, Message message, exception, topic) except -1:
        loop = future.get_loop()
        # First ask the watch: Python 3.11's _get_running_loop() costs a system call.
        if self.watch.serves_here(loop) or _get_running_loop() is loop:
            self._set(future, message, exception, topic)
            return 0
        try:
            loop.call_soon_threadsafe(self._set, future, message, exception, topic)
        except RuntimeError:
            if not loop.is_closed():  # a signal handler has raised it
                raise
            self.log(topic, exception)
        return 0

    cpdef _set(self, future, Message message, exception, topic):
        if future.done():  # it was canceled
            self.log(topic, exception)
        elif exception is None:
            future.set_result(message)
        else:
            future.set_exception(exception)
            if self.is_aborted(exception):
                future.exception()  # keeps the loop from logging an expected failure

    cdef bint is_aborted(self, exception) except -1:
        return (self.aborts and isinstance(exception, KafkaException)
                and exception.args[0] in _PURGED)

    cdef int log(self, topic, exception) except -1:
        """Log a failure that no coroutine awaits."""
        if exception is not None and not self.is_aborted(exception):
            is_kafka = isinstance(exception, KafkaException)
            reason = exception.args[0].str() if is_kafka else exception
            _log.warning("a record to %s failed: %s", topic, reason)
        return 0


@cython.final
@cython.no_gc_clear
cdef class Futures:
    """The futures of one producer's records."""

    cdef Producer _producer
    cdef Watch _watch
    cdef Outcomes _outcomes
    # Records that librdkafka's queue had no room for, in order: pairs of the future and the
    # result of Producer.record_copy().
    cdef readonly object waiting
    # Whether queue_waiting() is running. The garbage collector may run a finalizer during it,
    # which may send a record.
    cdef bint _is_queuing
    # Queues the waiting records. Refers weakly to this object, which keeps the watch alive.
    cdef object _on_served
    cdef object __weakref__

    def __cinit__(self, Producer producer not None):
        producer.check_open()
        self._producer = producer
        self._watch = watch_of(producer)
        self._watch.stays = True
        self._outcomes = Outcomes.__new__(Outcomes)
        self._outcomes.watch = self._watch
        producer._publisher.receiver = self._outcomes
        self.waiting = deque()
        self._on_served = functools.partial(_queue_waiting, weakref.ref(self))

    cdef object produce(self, topic, value, key, partition, timestamp, headers):
        future = self._watch.running_loop().create_future()
        if len(self.waiting) == 0 and not self._is_queuing:
            try:
                self._producer.queue(topic, value, key, partition, future, timestamp, headers, 0)
                return future
            except BufferError:
                pass
        record = self._producer.record_copy(topic, value, key, partition, timestamp, headers)
        self.waiting.append((future, record))
        self.queue_waiting()  # there may be room by now
        return future

    def expect_abort(self, bint expected):
        """If expected, stop logging purged records that no coroutine awaits: the program aborts
        them itself. Otherwise log them again."""
        self._outcomes.aborts = expected

    def queue_waiting(self):
        """Queue the waiting records. The watch calls this method when there may be room."""
        if self._is_queuing or len(self.waiting) == 0:
            return
        self._watch.on_served = self._on_served
        self._is_queuing = True
        try:
            while self.waiting:
                future, record = self.waiting.popleft()
                try:
                    if not self._queue(future, record):
                        self.waiting.appendleft((future, record))
                        return
                except Exception as error:  # the record is refused
                    self._producer._transactions.note_refused()
                    self._outcomes.set(future, None, error, record[0])
        finally:
            self._is_queuing = False
        self._watch.on_served = None

    def refuse_waiting(self, code):
        """Fail the waiting records with this error code."""
        while self.waiting:
            future, record = self.waiting.popleft()
            self._outcomes.set(future, None, KafkaException(KafkaError(code)), record[0])

    cdef bint _queue(self, future, tuple record) except -1:
        """Queue a record. Return False if the queue is full."""
        topic, value, key, partition, timestamp, headers = record
        for _ in range(2):  # reports may have made room after the first attempt
            try:
                self._producer.queue(topic, value, key, partition, future, timestamp, headers, 0)
                return True
            except BufferError:
                if len(self._producer):
                    return False
        raise KafkaException(KafkaError(
            <int>RD_KAFKA_RESP_ERR__QUEUE_FULL,
            f"the record to {topic} is larger than the queue: raise "
            "queue.buffering.max.kbytes"))


@cython.no_gc_clear
cdef class RecordSender:
    """The part of AsyncProducer that runs once per record."""

    cdef public Futures _futures
    cdef public bint _is_closing

    def __del__(self):
        # The program may still await the records of a producer that it has dropped. In a forked
        # child, the records belong to the parent.
        futures = self._futures
        if futures is not None and futures._producer._generation == ck_runtime_generation:
            futures.refuse_waiting(<int>RD_KAFKA_RESP_ERR__PURGE_QUEUE)

    def produce(self, topic, value=None, key=None, partition=-1, timestamp=0, headers=None):
        """Send a record; await the result for the delivered message.

        When the call returns, librdkafka has queued the record. So records keep the call order,
        and you do not need a task per record for ``asyncio.gather()``. While the queue is full,
        records wait for room, in call order. Await the results to limit their number.

        Parameters
        ----------
        topic, value, key, partition, timestamp, headers
            As for :meth:`cykafka.Producer.produce`.

        Returns
        -------
        Future of Message
            Awaiting it raises KafkaException if delivery fails permanently. If you cancel it,
            librdkafka still sends the record, and cykafka logs a failure.

        Raises
        ------
        KafkaException
            librdkafka cannot queue the record: it is too large, the partition does not exist, no
            transaction is open, ...
        """
        cdef Futures futures = self._futures  # the arguments may run __init__() again
        if self._is_closing or futures is None:
            raise ClosedError("Producer has been closed")
        return futures.produce(topic, value, key, partition, timestamp, headers)


def _queue_waiting(futures):
    waiting = futures()
    if waiting is not None:
        waiting.queue_waiting()
