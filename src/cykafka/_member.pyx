"""Member: a consumer's place in its group: what it must give up, and how it leaves."""
import logging

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t
from libc.string cimport strcmp

from cykafka._batch_storage cimport Storage
from cykafka._client cimport Client
from cykafka._config cimport merged_config, set_default, take_bool, take_callable
from cykafka._csrc cimport (
    CK_SLOT_CONSUMER,
    PyThread_get_thread_ident,
    ck_batch_clear,
    ck_batch_destroy,
    ck_batch_drop,
    ck_batch_pin,
    ck_batch_skip,
    ck_batch_store_positions,
    ck_batch_t,
    ck_callback_inside,
    ck_callback_commit,
    ck_loans_new,
    ck_queue_attach,
    ck_queue_attached,
    ck_queue_t,
    ck_runtime_generation,
)
from cykafka._errors cimport check_doing, check_error
from cykafka._librdkafka cimport (
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
    rd_kafka_poll_set_consumer,
    rd_kafka_queue_destroy,
    rd_kafka_queue_get_consumer,
    rd_kafka_queue_new,
    rd_kafka_queue_t,
    rd_kafka_rebalance_protocol,
    rd_kafka_resp_err_t,
    rd_kafka_topic_partition_list_t,
    rd_kafka_t,
)
from cykafka._message cimport Message
from cykafka._partition cimport partitions_from
from cykafka._util cimport NOW, SLICE

from cykafka._errors import KafkaException

_log = logging.getLogger("cykafka")

cdef enum:
    # How long a partition is not fetched once the queue of fetched messages was full, ms. With librdkafka's
    # 1000 a fast reader has emptied the queue long before, and waits for the rest of the second.
    FULL_QUEUE_MS = 20


cdef class Member(Client):
    """The part of a consumer that follows rebalances and closes.

    It keeps the list of what was fetched and not handed over, since a rebalance takes of that too.
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
            if self._loans is NULL:  # an __init__ that raised may have left one
                self._loans = ck_loans_new()
            if self._loans is NULL:
                raise MemoryError
            self.open(RD_KAFKA_CONSUMER, config)
            # Errors, statistics and logs come to the queue that poll() and consume() serve.
            rk = self._ptr
            with nogil:
                rd_kafka_poll_set_consumer(rk)
                rd_kafka_queue_destroy(self._wait_queue)
                self._wait_queue = rd_kafka_queue_get_consumer(rk)
        finally:
            self._opening = False

    def __dealloc__(self):
        if self._ptr is not NULL and self._generation == ck_runtime_generation:
            ck_queue_attach(self._events, CK_SLOT_CONSUMER, NULL)
            self.release()
        while self._handed is not NULL:  # in a forked child
            (<Storage>self._handed).unlink()

    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1:
        Client.set_callbacks(self, conf)
        ck_queue_attach(self._events, CK_SLOT_CONSUMER, <void *>self)
        rd_kafka_conf_set_rebalance_cb(conf, _on_rebalance)
        if self._on_commit is not None:
            rd_kafka_conf_set_offset_commit_cb(conf, ck_callback_commit)
        return 0

    cdef int release(self) noexcept:
        """Give every message back: librdkafka waits for them when it is destroyed."""
        cdef ck_batch_t *batch = self._batches
        cdef Storage storage
        # With the GIL: the thread a batch belongs to may be on its way out of its call.
        while batch is not NULL:
            ck_batch_clear(batch)
            batch = batch.next
        ck_batch_destroy(self._carry)
        self._carry = NULL
        self.take_back(0)
        self.take_back(1)
        # The application's batches get copies of their own. Without memory for one it keeps what it has, as
        # if it were pinned.
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
        """Have librdkafka do something with a list, which stays the caller's; say what if it fails."""
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

    cdef void take_back(self, int which) noexcept:
        if self._lent[which] is not NULL:
            (<Message>self._lent[which]).give_back()

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
            self.close()
        self.dispatch(NOW)
        if self._open_in != ck_runtime_generation:
            self.refuse()
        return 0

    cdef int catch_up(self, int64_t now) except -1:
        """Store positions that are further than the last message: behind markers of transactions.

        Only when everything gathered was handed over, and not with every empty poll().
        """
        cdef rd_kafka_t *rk
        if (not self._stores or self._batches is not NULL or now < self._caught_up + 500
                or self.has_kept()):
            return 0
        self._caught_up = now
        rk = self.enter()
        with nogil:
            ck_batch_store_positions(rk)
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

    def close(self):
        """Leave the group and free the consumer.

        Runs ``on_revoke`` and, with ``enable.auto.commit``, commits the stored offsets first. Closing
        again is harmless. Another thread's ``poll()`` or ``consume()`` ends with RuntimeError. In a
        rebalance callback the close is done when the callback is over.
        """
        if self._state and self.is_inside():
            self._close_after = True
            return
        if not self.begin_close():
            return
        raised = None
        flags = 0
        try:
            self.catch_up(INT64_MAX)
            self.release()
            try:
                self._leave_group()
            except KafkaException as exception:
                # Fenced, say: poll() has told, and there is no group to leave any more.
                if not exception.args[0].fatal():
                    raise
                flags = RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE
                _log.warning("%s: closed without leaving the group: %s", self._label,
                             exception.args[0].str())
        except BaseException as exception:
            # The close cannot be taken back any more: finish it, then tell.
            raised = exception
            if not rd_kafka_consumer_closed(self._ptr):
                flags = RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE
        self.destroy(flags)
        try:
            self.dispatch(NOW)
        except BaseException as exception:
            if raised is None:
                raised = exception
        if raised is not None:
            raise raised

    cdef int _leave_group(self) except -1:
        cdef rd_kafka_t *rk = self._ptr
        cdef rd_kafka_queue_t *closing
        cdef rd_kafka_error_t *error
        raised = None
        with nogil:
            closing = rd_kafka_queue_new(rk)
            error = rd_kafka_consumer_close_queue(rk, closing)
        try:
            check_error(error)
            while not rd_kafka_consumer_closed(rk):
                with nogil:
                    ck_batch_skip(closing, SLICE)
                try:
                    self.dispatch(NOW)
                except Exception as exception:
                    raised = exception
                PyErr_CheckSignals()
        finally:
            with nogil:
                rd_kafka_queue_destroy(closing)
        if raised is not None:
            raise raised
        return 0

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, exc_traceback):
        self.close()


cdef void _on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                        rd_kafka_topic_partition_list_t *partitions,
                        void *opaque) noexcept with gil:
    cdef void *attached = ck_queue_attached(<ck_queue_t *>opaque, CK_SLOT_CONSUMER)
    cdef Member self
    if attached is NULL:  # it is being deallocated
        return
    self = <Member>attached
    cdef bint outer = ck_callback_inside(True)
    try:
        self.go_inside()
        try:
            self.rebalance(err, partitions)
        finally:
            self.come_out()
    except BaseException as exception:
        # Raised by the call that served librdkafka, once it is out of it.
        if self._raised is not None and self._raised is not exception:
            exception.__context__ = self._raised
        self._raised = exception
    ck_callback_inside(outer)
