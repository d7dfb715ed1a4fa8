"""ShareMembership: who may use a share consumer now, its acknowledgements, and how it leaves.

A share consumer belongs to one thread at a time (KIP-932). librdkafka refuses a second thread only
while a call is inside librdkafka, so cykafka counts its own calls, which wait in slices.
"""
import logging

from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy
from posix.unistd cimport usleep

from cykafka._core.batch cimport detach_all
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.leaving cimport Member
from cykafka._core.common.arguments cimport SLICE, slice_left
from cykafka._core.common.errors cimport check_error, error_from
from cykafka._core.common.partition cimport partitions_from

from cykafka._core.common.errors import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaException,
)

_log = logging.getLogger("cykafka")

_INVALID_STATE = <int>RD_KAFKA_RESP_ERR_INVALID_RECORD_STATE


@cython.final
@cython.no_gc_clear
cdef class ShareMembership(Member):
    """The membership of one share consumer, and the role of its handle."""

    def __cinit__(self):
        self.overdue_words = ("closed without waiting for the group any longer: acknowledgements "
                              "may not be sent, and their records are delivered again")

    def __dealloc__(self):
        # Only in a forked child, where the messages belong to the parent: see release().
        ck_batch_destroy(self.polled)
        self.drop_commit()

    # -- the role

    cdef rd_kafka_queue_t *wait_queue(self, rd_kafka_t *rk) noexcept:
        return rd_kafka_queue_get_consumer(rk)

    cdef int serve(self, object client, ck_event_t *event) except -1:
        cdef ck_notice_t *notice = <ck_notice_t *>event
        try:
            if event.kind == CK_EVENT_ACKNOWLEDGED and (event.code or self.on_commit is not None):
                self.report((<Handle>client)._label, notice)
        finally:
            ck_event_destroy(event)
        return 0

    cdef int report(self, object label, const ck_notice_t *notice) except -1:
        """Pass the brokers' response to acknowledgements to the callback. Without a callback, log
        an error."""
        partition, = partitions_from(notice.partitions)
        offsets = _offsets_of(notice)
        error = None
        if notice.event.code:
            error = error_from(<rd_kafka_resp_err_t>notice.event.code, NULL)
        if self.on_commit is None:
            why = " (perhaps their locks expired)" if error == _INVALID_STATE else ""
            _log.warning(
                "%s: the acknowledgements of %d record(s) of %s [%d] failed, so the group may "
                "deliver them again%s: %s", label, len(offsets), partition.topic,
                partition.partition, why, error.str())
            return 0
        self.reporting = PyThread_get_thread_ident()
        try:
            self.on_commit({partition: offsets}, None if error is None else KafkaException(error))
        finally:
            self.reporting = 0
        return 0

    cdef int release(self, object client) except -1:
        try:
            (<Handle>client).end_watch()
        finally:
            self.rest = None
            self.drop_commit()
            ck_batch_destroy(self.polled)
            self.polled = NULL
            detach_all(&self.returned)
        return 0

    # -- calls

    cdef int begin(self, Handle handle, bint waits=False) except -1:
        """Begin a call of the consumer, which the caller ends with end(). Raises while another
        thread is in a call that waits; waits for the end of any other call."""
        cdef unsigned long me = PyThread_get_thread_ident()
        handle.check_open()
        self.refuse_inside()
        try:
            while self._user not in (0, me) or self._next not in (0, me):
                if self._waits:
                    raise ConcurrentModificationException(
                        "Share consumer is not safe for multi-threaded access: another thread "
                        "waits in a call. Use one consumer per thread")
                if self._next == 0:
                    self._next = me  # else a thread with many short calls would keep this one out
                with nogil:
                    usleep(100)
                handle.check_wait(False)
        finally:
            if self._next == me:
                self._next = 0
        self._user = me
        self._waits = self._waits or waits
        self._depth += 1
        try:
            self.await_commit(handle)
        except:
            self.end()
            raise
        return 0

    cdef int refuse_inside(self) except -1:
        """Refuse calls of a callback or deserializer, which runs inside a call."""
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.reporting == me:
            raise IllegalStateException("Share consumer methods are not accessible from the "
                                        "acknowledgement commit callback")
        if self.converting == me:
            raise IllegalStateException("Share consumer methods are not accessible from a "
                                        "deserializer")
        return 0

    cdef void end(self) noexcept:
        self._depth -= 1
        if self._depth == 0:
            self._user = 0
            self._waits = False

    cdef int await_commit(self, Handle handle) except -1:
        """Wait for a commit that Ctrl-C has left: librdkafka refuses other calls until it ends."""
        cdef ck_call_t *commit = self.commit
        if commit is NULL:
            return 0
        if self._depth > 1:
            raise ConcurrentModificationException("Share consumer is in commit_sync()")
        ck_call_keep(commit)  # another thread may close the consumer
        try:
            handle.await_call(commit)
            if self.commit is commit:
                self.drop_commit()
        finally:
            ck_call_leave(commit)
        return 0

    cdef int drop_commit(self) noexcept:
        ck_call_leave(self.commit)
        self.commit = NULL
        return 0

    cdef ck_batch_t *batch(self) except NULL:
        """Return the batch for polled messages."""
        if self.polled is NULL:
            self.polled = ck_batch_new(1)
            if self.polled is NULL:
                raise MemoryError
        return self.polled

    # -- leaving

    cdef object begin_leave(self, Handle handle, int64_t deadline):
        cdef rd_kafka_queue_t *queue
        cdef rd_kafka_error_t *error
        cdef rd_kafka_t *rk = handle._ptr
        self.overdue = True  # until the leave has begun
        try:
            if not self.commit_ends(deadline):
                return None
            with nogil:
                queue = rd_kafka_queue_new(rk)
                error = rd_kafka_share_consumer_close_queue(handle._share, queue)
            if error is not NULL:
                with nogil:
                    rd_kafka_queue_destroy(queue)
                check_error(error)
        except BaseException as exception:
            return exception
        self.closing = queue
        self.overdue = False
        return None

    cdef bint commit_ends(self, int64_t deadline) except -1:
        """Wait for the commit in progress until the deadline. Return whether there is none."""
        cdef ck_call_t *commit = self.commit
        cdef bint done = commit is NULL
        cdef int ms = SLICE
        if not done:
            ck_call_keep(commit)  # the thread in commit_sync() may drop it
            try:
                while not done and ms > 0:
                    ms = slice_left(deadline)
                    with nogil:
                        done = ck_call_wait(commit, ms)
                    PyErr_CheckSignals()
            finally:
                ck_call_leave(commit)
        return done


cdef set _offsets_of(const ck_notice_t *notice):
    cdef int64_t offset
    cdef size_t at
    offsets = set()
    for at in range(0, notice.text_len, sizeof(int64_t)):
        memcpy(&offset, notice.text + at, sizeof(offset))
        offsets.add(offset)
    return offsets
