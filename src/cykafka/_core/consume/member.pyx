"""Member: a consumer's place in its group: what it must give up, and how it leaves.

Longer than 500 lines: rebalances and the close share the state of the group.
"""
import logging

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport strcmp

from cykafka._core.batch.storage cimport Storage
from cykafka._core.clib.csrc cimport (
    CK_SLOT_CONSUMER,
    PyThread_get_thread_ident,
    ck_batch_clear,
    ck_batch_compact,
    ck_batch_destroy,
    ck_batch_drop,
    ck_batch_hold,
    ck_batch_move,
    ck_batch_new,
    ck_batch_pin,
    ck_batch_positions,
    ck_batch_skip,
    ck_batch_store_positions,
    ck_batch_t,
    ck_callback_commit,
    ck_callback_inside,
    ck_lent_return,
    ck_lent_unref,
    ck_queue_attach,
    ck_queue_attached,
    ck_queue_t,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_CONSUMER,
    RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE,
    RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS,
    RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS,
    rd_kafka_assign,
    rd_kafka_assignment_lost,
    rd_kafka_conf_set_offset_commit_cb,
    rd_kafka_conf_set_rebalance_cb,
    rd_kafka_conf_t,
    rd_kafka_consumer_close_queue,
    rd_kafka_consumer_closed,
    rd_kafka_error_t,
    rd_kafka_incremental_assign,
    rd_kafka_incremental_unassign,
    rd_kafka_queue_destroy,
    rd_kafka_queue_new,
    rd_kafka_queue_t,
    rd_kafka_queue_yield,
    rd_kafka_rebalance_protocol,
    rd_kafka_resp_err_t,
    rd_kafka_t,
    rd_kafka_topic_partition_list_destroy,
    rd_kafka_topic_partition_list_t,
)
from cykafka._core.client.client cimport Client
from cykafka._core.client.handle cimport chain
from cykafka._core.common.arguments cimport NOW, SLICE, deadline_after, timeout_ms
from cykafka._core.common.config cimport (
    merged_config,
    set_default,
    take_bool,
    take_callable,
)
from cykafka._core.common.errors cimport check_doing, check_error
from cykafka._core.common.partition cimport partitions_from

from cykafka._core.common.errors import KafkaException

_log = logging.getLogger("cykafka")

cdef enum:
    # How long a partition is not fetched after the queue of fetched messages was full, ms. With
    # librdkafka's 1000 a fast reader empties the queue long before, and waits for the rest of the
    # second.
    FULL_QUEUE_MS = 20


cdef class Member(Client):
    """The part of a consumer that follows rebalances and closes.

    It keeps the list of messages that were fetched and not handed over, because a rebalance drops
    some of them too.
    """

    def __init__(self, *args, **kwargs):
        self.check_new()
        try:
            config = merged_config(args, kwargs, type(self).__name__)
            group_id = config.get("group.id")
            if group_id is None or group_id == "":
                import difflib  # only for a message

                close = difflib.get_close_matches("group.id", config, n=1, cutoff=0.7)
                meant = f'; did you mean it by "{close[0]}"?' if close else ""
                raise ValueError(f"Failed to create consumer: group.id must be set{meant}")
            self._on_commit = take_callable(config, "on_commit")
            self._inside = {}
            # A topic's property in older librdkafka; there it may still be found.
            topic_config = config.get("default.topic.config")
            stores = take_bool(config, "enable.auto.offset.store", True)
            if isinstance(topic_config, dict) and "enable.auto.offset.store" in topic_config:
                topic_config = config["default.topic.config"] = dict(topic_config)
                stores = take_bool(topic_config, "enable.auto.offset.store", stores)
            config["enable.auto.offset.store"] = False
            self._stores = stores
            set_default(config, "fetch.queue.backoff.ms", FULL_QUEUE_MS)
            self.open(RD_KAFKA_CONSUMER, config)
        finally:
            self._opening = False

    def __dealloc__(self):
        cdef int which
        if self._ptr is not NULL and self._generation == ck_runtime_generation:
            ck_queue_attach(self._events, CK_SLOT_CONSUMER, NULL)
            self.release()
        # Only in a forked child, where the messages belong to the parent.
        for which in range(2):
            if self._lent[which] is not NULL:
                ck_lent_unref(self._lent[which])
        while self._handed is not NULL:
            (<Storage>self._handed).unlink()

    cdef str closed_words(self):
        return "Consumer closed"

    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1:
        Client.set_callbacks(self, conf)
        ck_queue_attach(self._events, CK_SLOT_CONSUMER, <void *>self)
        rd_kafka_conf_set_rebalance_cb(conf, _on_rebalance)
        if self._on_commit is not None:
            rd_kafka_conf_set_offset_commit_cb(conf, ck_callback_commit)
        return 0

    cdef int release(self) except -1:
        """Give every message back: librdkafka waits for them when it is destroyed."""
        cdef ck_batch_t *batch = self._batches
        cdef Storage storage
        cdef int which
        # With the GIL: the thread a batch belongs to may be on its way out of its call.
        while batch is not NULL:
            ck_batch_clear(batch)
            batch = batch.next
        ck_batch_destroy(self._carry)
        self._carry = NULL
        ck_batch_destroy(self._held)
        self._held = NULL
        for which in range(2):
            if self._lent[which] is not NULL:
                ck_lent_return(self._lent[which])
                ck_lent_unref(self._lent[which])
                self._lent[which] = NULL
        # The application's batches get copies. A batch without memory for its copy stays as it is,
        # as if pinned.
        while self._handed is not NULL:
            storage = <Storage>self._handed
            storage.unlink()
            if not storage.detach() and storage._ptr is not NULL:
                ck_batch_pin(storage._ptr)
                storage._pinned = True
        return 0

    def configuration(self):
        values = Client.configuration(self)
        # librdkafka's is always false: it is this class that stores.
        values["enable.auto.offset.store"] = "true" if self._stores else "false"
        return values

    # -- calls with a list

    cdef int on_list(self, list_call_t call, rd_kafka_topic_partition_list_t *rktparlist,
                     str doing) except -1:
        """Call a librdkafka function with a list, which stays the caller's. An exception begins
        with the text `doing`."""
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        with nogil:
            err = call(rk, rktparlist)
        self.leave()
        check_doing(err, doing)
        return 0

    cdef int on_list_error(self, list_error_call_t call,
                           const rd_kafka_topic_partition_list_t *rktparlist) except -1:
        """As on_list, for calls that say themselves what they could not do."""
        cdef rd_kafka_error_t *error
        rk = self.enter()
        with nogil:
            error = call(rk, rktparlist)
        self.leave()
        check_error(error)
        return 0

    # -- what was fetched and not handed over

    cdef bint has_kept(self) noexcept:
        """Whether an earlier call has left messages over."""
        return self._carry is not NULL and self._carry.cnt > self._carry.head

    cdef void drop(self, const rd_kafka_topic_partition_list_t *partitions) noexcept:
        """Forget gathered messages of these partitions, or of all; they do not count as read."""
        cdef ck_batch_t *batch = self._batches
        while batch is not NULL:
            ck_batch_drop(batch, partitions)
            batch = batch.next
        if self._carry is not NULL:
            ck_batch_drop(self._carry, partitions)
        if self._held is not NULL:
            ck_batch_drop(self._held, partitions)
            ck_batch_compact(self._held)

    cdef ck_batch_t *new_batch(self, size_t size) except NULL:
        """A batch whose messages go back to librdkafka when the consumer is closed; see
        end_batch()."""
        cdef ck_batch_t *batch = ck_batch_new(size)
        if batch is NULL:
            raise MemoryError
        batch.next = self._batches
        self._batches = batch
        return batch

    cdef int end_batch(self, ck_batch_t *batch) except -1:
        """Destroy the batch. Messages that were not handed over (because a callback raised, or
        there were more than requested) come with the next call."""
        cdef ck_batch_t **link = &self._batches
        cdef bint left = self._ptr is not NULL and batch.cnt > batch.head
        # The messages of this batch are older than those in _carry, which resume() in another
        # thread has put there.
        if left and self._carry is not NULL and ck_batch_move(self._carry, batch):
            raise MemoryError  # close() gives them back
        while link[0] != batch:
            link = &link[0].next
        link[0] = batch.next
        batch.next = NULL
        if left:
            batch, self._carry = self._carry, batch
        with nogil:
            ck_batch_destroy(batch)
        if left:
            self.wake_reader()
        return 0

    cdef void wake_reader(self) noexcept:
        """End the wait of a call in another thread, if there is one: kept messages are there."""
        if self._calls and self.has_kept():
            rd_kafka_queue_yield(self._wait_queue)

    cdef int take_out(self, const rd_kafka_topic_partition_list_t *partitions,
                      ck_batch_t *into) except -1:
        """Move gathered messages of these partitions into a batch."""
        cdef ck_batch_t *batch = self._batches
        while batch is not NULL:
            if batch != into and ck_batch_hold(batch, partitions, into):
                raise MemoryError
            batch = batch.next
        # _carry last: its messages are newer than those of a batch that is still being filled.
        if self._carry is not NULL and ck_batch_hold(self._carry, partitions, into):
            raise MemoryError
        return 0

    cdef int hold(self, const rd_kafka_topic_partition_list_t *partitions) except -1:
        """Hold back gathered messages of these partitions, which are paused."""
        if self._batches is NULL and self._carry is NULL:
            return 0
        if self._held is NULL:
            self._held = ck_batch_new(1)
        if self._held is NULL:
            raise MemoryError
        return self.take_out(partitions, self._held)

    cdef int let_go(self, const rd_kafka_topic_partition_list_t *partitions) except -1:
        """Return the held-back messages of these partitions with the next call."""
        if self._held is NULL:
            return 0
        if self._carry is NULL:
            self._carry = ck_batch_new(1)
        if self._carry is NULL or ck_batch_hold(self._held, partitions, self._carry):
            raise MemoryError
        ck_batch_compact(self._held)
        return 0

    # -- calls inside of calls

    cdef bint is_inside(self) except -1:
        """Whether this thread is inside a counted call already: it must not wait for itself."""
        return len(self._inside) > 0 and PyThread_get_thread_ident() in self._inside

    cdef int go_inside(self) except -1:
        me = PyThread_get_thread_ident()
        self._inside[me] = self._inside.get(me, 0) + 1
        return 0

    cdef int come_out(self) except -1:
        me = PyThread_get_thread_ident()
        if self._inside[me] == 1:
            del self._inside[me]
        else:
            self._inside[me] -= 1
        return 0

    cdef int after_call(self) except -1:
        """What a call that served librdkafka has to see to once it is out again."""
        if self._close_after:
            self._close_after = False
            if self._close_timeout is None:
                self.close()
            else:
                self.close(self._close_timeout)
        self.dispatch(NOW)
        if self._open_in != ck_runtime_generation:
            self.refuse()
        return 0

    cdef int catch_up(self, int64_t now) except -1:
        """Store positions that are further than the last message: behind markers of transactions.

        Only when everything gathered was handed over, and not with every empty poll().
        """
        cdef rd_kafka_topic_partition_list_t *held = NULL
        cdef rd_kafka_t *rk
        if (not self._stores or self._batches is not NULL or now < self._caught_up + 500
                or self.has_kept()):
            return 0
        self._caught_up = now
        rk = self.enter()
        if self._held is not NULL and self._held.cnt > 0:
            held = ck_batch_positions(self._held, 0, 1, self._held.cnt)
        with nogil:
            ck_batch_store_positions(rk, held)
            if held is not NULL:
                rd_kafka_topic_partition_list_destroy(held)
        self.leave()
        return 0

    # -- rebalances

    cdef int rebalance(self, rd_kafka_resp_err_t err,
                       rd_kafka_topic_partition_list_t *partitions) except -1:
        """Run the user's callback, if any; assign or unassign unless it has."""
        if err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
            self.drop(partitions)
        callback = None
        if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
            callback = self._on_assign
        elif err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS:
            callback = self._on_revoke
            if self._on_lost is not None and rd_kafka_assignment_lost(self._ptr):
                callback = self._on_lost
        self._assigned = False
        try:
            if callback is not None:
                callback(self, partitions_from(partitions))
        finally:
            # A child that was forked in the callback has no librdkafka to tell.
            if not self._assigned and self._generation == ck_runtime_generation:
                self.apply(err, partitions)
        return 0

    cdef int apply(self, rd_kafka_resp_err_t err,
                   rd_kafka_topic_partition_list_t *partitions) except -1:
        """What librdkafka does when there is no rebalance callback."""
        cdef rd_kafka_t *rk = self._ptr
        cdef rd_kafka_error_t *error = NULL
        cdef rd_kafka_resp_err_t code = <rd_kafka_resp_err_t>0
        cdef const char *protocol
        with nogil:
            protocol = rd_kafka_rebalance_protocol(rk)
            if protocol is not NULL and strcmp(protocol, "COOPERATIVE") == 0:
                if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
                    error = rd_kafka_incremental_assign(rk, partitions)
                else:
                    error = rd_kafka_incremental_unassign(rk, partitions)
            elif err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
                code = rd_kafka_assign(rk, partitions)
            else:
                code = rd_kafka_assign(rk, NULL)
        check_error(error)
        check_doing(code, "Failed to follow the rebalance")
        return 0

    # -- closing

    def close(self, timeout=None):
        """Leave the group and free the consumer.

        Runs ``on_revoke`` and, with ``enable.auto.commit``, commits the stored offsets first.
        Closing again is harmless. A ``poll()`` or ``consume()`` in another thread raises
        RuntimeError. In a rebalance callback the consumer is closed after the callback, and the
        call returns None. Exceptions of callbacks are raised when the consumer is closed, each as
        the ``__context__`` of the next.

        Ctrl-C ends the wait as the end of the timeout does: the consumer is closed, and a thread
        completes the rest. The interpreter's end waits for such threads for at most a second.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; by default without limit, which may mean ``session.timeout.ms`` if
            there is no coordinator, and the rest of ``socket.timeout.ms`` of a commit before the
            close. Callbacks are not interrupted.

        Returns
        -------
        bool or None
            None without a timeout. With one, whether the consumer left its group in time;
            librdkafka's threads may end later. If not, it is closed all the same and logs a
            warning. A thread completes the leave, but ``on_revoke`` may not have run. If the
            process ends before that, the group notices only after the session timeout, and stored
            offsets may not be committed, so their messages are read again.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if a call in another thread (a rebalance callback, say) did not end in
            time. The consumer then stays open, but other calls that waited meanwhile raise
            RuntimeError, and iterations end.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if self._state and self.is_inside():
            self._close_after = True
            self._close_timeout = timeout
            return None
        if self.begin_close(deadline):
            self._close(deadline)
        return None if deadline < 0 else not self._overdue

    cdef int _close(self, int64_t deadline) except -1:
        # The close cannot be taken back any more: finish it, then raise.
        raised = None
        try:
            self.catch_up(INT64_MAX)
        except BaseException as exception:
            raised = exception
        self.release()
        try:
            raised = self._leave_group(deadline, raised)
            if self._closing is not NULL:
                self._overdue = True
                _log.warning("%s: closed without waiting for the group any longer: stored offsets "
                             "may not be committed, and their messages are read again",
                             self._label)
        except BaseException as exception:
            raised = chain(raised, exception)
        raised = self.finish_close(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE, deadline, raised)
        if raised is not None:
            raise raised
        return 0

    cdef object _leave_group(self, int64_t deadline, object raised):
        """Leave the group, until the deadline or until a signal handler raises. What is left to do
        after that is left in _closing, for the thread that destroys the consumer.

        Returns `raised`, with the exceptions of callbacks and signal handlers chained to it.
        """
        cdef rd_kafka_t *rk = self._ptr
        cdef rd_kafka_queue_t *closing
        cdef rd_kafka_error_t *error
        cdef int ms = SLICE
        with nogil:
            closing = rd_kafka_queue_new(rk)
            error = rd_kafka_consumer_close_queue(rk, closing)
        try:
            check_error(error)
        except KafkaException as exception:
            # Fenced, say: poll() has told, and there is no group to leave any more.
            with nogil:
                rd_kafka_queue_destroy(closing)
            if not exception.args[0].fatal():
                return chain(raised, exception)
            _log.warning("%s: closed without leaving the group: %s", self._label,
                         exception.args[0].str())
            return raised
        try:
            while not rd_kafka_consumer_closed(rk):
                if deadline >= 0:
                    ms = <int>max(0, min(SLICE, deadline - ck_runtime_now_ms()))
                    if ms == 0:
                        break
                with nogil:
                    ck_batch_skip(closing, ms)
                PyErr_CheckSignals()
                try:
                    self.dispatch(NOW)
                except KeyboardInterrupt:  # came while a callback ran
                    raise
                except BaseException as exception:
                    raised = chain(raised, exception)
                if self._generation != ck_runtime_generation:
                    return raised  # a callback has forked: the rest is the parent's
        except BaseException as exception:
            raised = chain(raised, exception)
        if rd_kafka_consumer_closed(rk):
            with nogil:
                rd_kafka_queue_destroy(closing)
        else:
            self._closing = closing
        return raised

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, exc_traceback):
        self.close()


cdef void _on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                        rd_kafka_topic_partition_list_t *partitions,
                        void *opaque) noexcept nogil:
    cdef void *attached = ck_queue_attached(<ck_queue_t *>opaque, CK_SLOT_CONSUMER)
    if attached is NULL:
        # A thread without Python destroys the consumer: see ck_end_now(). In a consumer that
        # closes this call is right for every protocol.
        rd_kafka_assign(rk, NULL)
    else:
        _rebalance(err, partitions, attached)


cdef void _rebalance(rd_kafka_resp_err_t err, rd_kafka_topic_partition_list_t *partitions,
                     void *attached) noexcept with gil:
    cdef Member self = <Member>attached
    cdef bint outer = ck_callback_inside(True)
    try:
        self.go_inside()
        try:
            self.rebalance(err, partitions)
        finally:
            self.come_out()
    except BaseException as exception:
        # Raised by the call that served librdkafka, once it is out of it.
        self._raised = chain(self._raised, exception)
    ck_callback_inside(outer)
