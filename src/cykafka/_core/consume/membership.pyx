"""Membership: a consumer's rebalances, and how it leaves its group."""
import logging

cimport cython
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport strcmp

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.leaving cimport Member
from cykafka._core.common.errors cimport chain, check_doing, check_error, error_from, take_error
from cykafka._core.common.partition cimport partitions_from
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.offsets cimport list_error_call_t
from cykafka._core.consume.progress cimport Progress

from cykafka._core.common.errors import KafkaException

_log = logging.getLogger("cykafka")


@cython.final
@cython.no_gc_clear
cdef class Rebalance:
    """A rebalance whose callback runs later, outside of librdkafka."""

    cdef Handle _handle
    cdef Membership _membership
    cdef rd_kafka_resp_err_t _err
    cdef rd_kafka_topic_partition_list_t *_partitions

    def __dealloc__(self):
        if self._partitions is not NULL:
            rd_kafka_topic_partition_list_destroy(self._partitions)

    @property
    def partitions(self):
        """The partitions, list of TopicPartition."""
        return partitions_from(self._partitions)

    def finish(self):
        """Assign or revoke the partitions, unless that is already done."""
        cdef rd_kafka_topic_partition_list_t *partitions = self._partitions
        self._partitions = NULL
        if partitions is NULL:
            return
        try:
            if (self._handle._ptr is not NULL
                    and self._handle._generation == ck_runtime_generation):
                # Not enter(): this thread may be inside close().
                self._handle._calls += 1
                try:
                    self._membership.finish(self._handle, self._err, partitions)
                finally:
                    self._handle.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(partitions)


cdef Rebalance rebalance_of(Handle handle, Membership membership, rd_kafka_resp_err_t err,
                            rd_kafka_topic_partition_list_t *partitions):
    cdef Rebalance rebalance = Rebalance.__new__(Rebalance)
    rebalance._handle = handle
    rebalance._membership = membership
    rebalance._err = err
    rebalance._partitions = rd_kafka_topic_partition_list_copy(partitions)
    return rebalance


cdef class Later:
    """A rebalance callback that cannot run inside librdkafka, because it is a coroutine.

    Parameters
    ----------
    take : callable
        Gets the Rebalance, and calls its finish() when the callback has ended.
    """

    def __cinit__(self, take not None):
        self.take = take

    def __call__(self, *args):
        raise TypeError("cykafka.aio runs this callback")


@cython.final
@cython.no_gc_clear
cdef class Membership(Member):
    """One consumer's membership, and the role of its handle."""

    def __cinit__(self, Backlog backlog not None, Progress progress not None):
        self._backlog = backlog
        self._progress = progress
        self.listeners = {}
        self.overdue_words = ("closed without waiting for the group: stored offsets may not be "
                              "committed, so the group may read their messages again")

    # -- the role

    cdef int register(self, Handle handle, rd_kafka_conf_t *conf) except -1:
        """Register a consumer's callbacks, before Handle.start()."""
        ck_queue_attach(handle._events, CK_SLOT_CLIENT, <void *>handle)
        rd_kafka_conf_set_rebalance_cb(conf, _on_rebalance)
        if self.listeners.get("on_commit") is not None:
            rd_kafka_conf_set_offset_commit_cb(conf, ck_callback_commit)
        return 0

    cdef rd_kafka_queue_t *wait_queue(self, rd_kafka_t *rk) noexcept:
        # Send errors, statistics and logs to the queue that poll() and consume() serve.
        rd_kafka_poll_set_consumer(rk)
        return rd_kafka_queue_get_consumer(rk)

    cdef int serve(self, object client, ck_event_t *event) except -1:
        cdef ck_notice_t *notice = <ck_notice_t *>event
        try:
            on_commit = self.listeners.get("on_commit")
            if event.kind == CK_EVENT_COMMIT and on_commit is not None:
                error = error_from(<rd_kafka_resp_err_t>event.code, NULL) if event.code else None
                on_commit(error, partitions_from(notice.partitions))
        finally:
            ck_event_destroy(event)
        return 0

    cdef int release(self, object client) except -1:
        cdef Handle handle = client
        try:
            handle.end_watch()
        finally:
            ck_queue_attach(handle._events, CK_SLOT_CLIENT, NULL)
            self._backlog.release()
        return 0

    cdef bint listens(self) noexcept:
        """Whether there is any callback."""
        return any(callback is not None for callback in self.listeners.values())

    cdef int refuse_inside(self, str call) except -1:
        """Raise for a call that would wait for itself."""
        if self.is_in_callback():
            raise RuntimeError(f"{call}() cannot be called from a rebalance callback, nor from a "
                               "signal handler during a commit")
        return 0

    # -- rebalances

    cdef int rebalance(self, Handle handle, rd_kafka_resp_err_t err,
                       rd_kafka_topic_partition_list_t *partitions) except -1:
        """Handle the assignment or revocation of partitions."""
        try:
            if err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
                self.give_up(handle, partitions)
            elif err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
                self._progress.begin_reading(handle, partitions_from(partitions))
        finally:
            self.follow(handle, err, partitions)
        return 0

    cdef int follow(self, Handle handle, rd_kafka_resp_err_t err,
                    rd_kafka_topic_partition_list_t *partitions) except -1:
        """Run the user's callback, if any; then assign or unassign, unless the callback has."""
        if err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
            self._backlog.drop(partitions)
        callback = None
        if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
            callback = self.listeners.get("on_assign")
        elif err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
            callback = self.listeners.get("on_revoke")
            on_lost = self.listeners.get("on_lost")
            if on_lost is not None and rd_kafka_assignment_lost(handle._ptr):
                callback = on_lost
        self.assigned = self.unassigned = False
        if isinstance(callback, Later):
            (<Later>callback).take(rebalance_of(handle, self, err, partitions))
            return 0
        try:
            if callback is not None:
                callback(handle, partitions_from(partitions))
        finally:
            self.complete(handle, err, partitions)
        return 0

    cdef int give_up(self, Handle handle, rd_kafka_topic_partition_list_t *partitions) except -1:
        return self._progress.give_up(handle, partitions_from(partitions),
                                      RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST,
                                      "the group has revoked the partition")

    cdef int finish(self, Handle handle, rd_kafka_resp_err_t err,
                    rd_kafka_topic_partition_list_t *partitions) except -1:
        """Follow a rebalance whose callback has run outside of librdkafka."""
        try:
            if err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
                # The call that served the rebalance may have returned messages after it.
                self.give_up(handle, partitions)
                self._backlog.drop(partitions)
        finally:
            self.complete(handle, err, partitions)
        return 0

    cdef int complete(self, Handle handle, rd_kafka_resp_err_t err,
                      rd_kafka_topic_partition_list_t *partitions) except -1:
        """Assign or unassign, unless the callback has."""
        # A revocation needs unassign() or incremental_unassign(). Without it, the group waits
        # forever, even in close(). In a child that the callback has forked, librdkafka's
        # threads do not exist.
        done = (self.assigned if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS
                else self.unassigned)
        if not done and handle._generation == ck_runtime_generation:
            self.apply(handle, err, partitions)
        return 0

    cdef int apply(self, Handle handle, rd_kafka_resp_err_t err,
                   rd_kafka_topic_partition_list_t *partitions) except -1:
        """Apply the rebalance as librdkafka does without a rebalance callback."""
        cdef rd_kafka_t *rk = handle._ptr
        cdef rd_kafka_error_t *error = NULL
        cdef rd_kafka_resp_err_t code = <rd_kafka_resp_err_t>0
        cdef rd_kafka_topic_partition_list_t *rest = NULL
        cdef list_error_call_t call = (
            rd_kafka_incremental_assign if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS
            else rd_kafka_incremental_unassign)
        cdef const char *protocol
        with nogil:
            protocol = rd_kafka_rebalance_protocol(rk)
            if protocol is not NULL and strcmp(protocol, "COOPERATIVE") == 0:
                error = call(rk, partitions)
                if error is not NULL:
                    # The application has already changed the assignment. The group waits forever
                    # unless a call succeeds.
                    rest = _left(rk, partitions, err != RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS)
                    rd_kafka_error_destroy(error)
                    error = call(rk, rest)
                    rd_kafka_topic_partition_list_destroy(rest)
            elif err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
                code = rd_kafka_assign(rk, partitions)
            else:
                code = rd_kafka_assign(rk, NULL)
        check_error(error)
        check_doing(code, "Failed to follow the rebalance")
        return 0

    # -- leaving

    cdef object begin_leave(self, Handle handle, int64_t deadline):
        raised = None
        try:
            self._backlog.catch_up(handle, INT64_MAX)
        except BaseException as exception:
            raised = exception
        self._backlog.release()
        try:
            self.begin_close(handle)
        except BaseException as exception:
            raised = chain(raised, exception)
        return raised

    cdef int begin_close(self, Handle handle) except -1:
        cdef rd_kafka_t *rk = handle._ptr
        cdef rd_kafka_queue_t *queue
        cdef rd_kafka_error_t *error
        with nogil:
            queue = rd_kafka_queue_new(rk)
            error = rd_kafka_consumer_close_queue(rk, queue)
        if error is NULL:
            self.closing = queue
            return 0
        with nogil:
            rd_kafka_queue_destroy(queue)
        failure = take_error(error)
        if not failure.fatal():
            raise KafkaException(failure)
        # For example, the group has fenced the member. poll() has returned the error, and the
        # consumer is no longer in the group.
        _log.warning("%s: closed without leaving the group: %s", handle._label, failure.str())
        return 0


cdef rd_kafka_topic_partition_list_t *_left(
        rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *partitions,
        bint assigned) noexcept nogil:
    """Return those of these partitions that are assigned, or those that are not."""
    cdef rd_kafka_topic_partition_list_t *left = rd_kafka_topic_partition_list_new(0)
    cdef rd_kafka_topic_partition_list_t *current = NULL
    cdef const rd_kafka_topic_partition_t *item
    cdef int i
    rd_kafka_assignment(rk, &current)
    for i in range(partitions.cnt):
        item = &partitions.elems[i]
        if assigned == (current is not NULL and rd_kafka_topic_partition_list_find(
                current, item.topic, item.partition) is not NULL):
            rd_kafka_topic_partition_list_add(left, item.topic,
                                              item.partition).offset = item.offset
    if current is not NULL:
        rd_kafka_topic_partition_list_destroy(current)
    return left


cdef void _on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                        rd_kafka_topic_partition_list_t *partitions,
                        void *opaque) noexcept nogil:
    cdef void *attached = ck_queue_attached(<ck_queue_t *>opaque, CK_SLOT_CLIENT)
    if attached is NULL:
        # A thread without Python destroys the consumer, see ck_end_now(). While a consumer
        # closes, this call is right for every protocol.
        rd_kafka_assign(rk, NULL)
    else:
        _rebalance(err, partitions, attached)


cdef void _rebalance(rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *partitions,
                     void *attached) noexcept with gil:
    cdef Handle handle = <Handle>attached
    cdef Membership membership = <Membership>handle._role
    cdef bint outer = ck_callback_inside(True)
    try:
        membership.enter_callback()
        try:
            membership.rebalance(handle, err, partitions)
        except BaseException as exception:
            # The call that served librdkafka raises it after leaving librdkafka. This allocates,
            # so a finalizer may close the consumer: leave_callback() comes later.
            handle._callbacks.raised = chain(handle._callbacks.raised, exception)
        finally:
            membership.leave_callback()
    finally:
        ck_callback_inside(outer)
