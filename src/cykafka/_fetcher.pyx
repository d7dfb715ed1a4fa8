"""Fetcher: how a consumer gets its messages, and what happens when it is rebalanced or closed.

Offsets are stored when a message is handed to the application, not when librdkafka takes it off
its queue: with ``enable.auto.offset.store`` (the default) it is this class that stores, and
librdkafka's property of that name is always false. So a message that was gathered for a batch and then
dropped, because its partition was revoked or the process died, does not count as read.
"""
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t
from libc.string cimport strcmp

from cykafka._config cimport merged_config, take_bool, take_callable
from cykafka._csrc cimport (
    CK_SLOT_CONSUMER,
    PyGC_Disable,
    PyGC_Enable,
    PyThread_get_thread_ident,
    ck_batch_accept,
    ck_batch_clear,
    ck_batch_compact,
    ck_batch_destroy,
    ck_batch_drop,
    ck_batch_fill,
    ck_batch_move,
    ck_batch_new,
    ck_batch_release,
    ck_batch_reserve,
    ck_batch_skip,
    ck_batch_store_offsets,
    ck_callback_allow_yield,
    ck_callback_commit,
    ck_callback_consume,
    ck_queue_attach,
    ck_queue_attached,
    ck_queue_length,
    ck_queue_t,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._errors cimport check_doing, check_error
from cykafka._client cimport Client
from cykafka._util cimport deadline_after, int_argument, timeout_ms
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
    rd_kafka_consumer_poll,
    rd_kafka_error_t,
    rd_kafka_incremental_assign,
    rd_kafka_incremental_unassign,
    rd_kafka_message_destroy,
    rd_kafka_message_detach_headers,
    rd_kafka_poll_set_consumer,
    rd_kafka_queue_destroy,
    rd_kafka_queue_get_consumer,
    rd_kafka_queue_new,
    rd_kafka_queue_t,
    rd_kafka_rebalance_protocol,
    rd_kafka_t,
    rd_kafka_topic_name,
)
from cykafka._message cimport Message, lend, message_from
from cykafka._partition cimport partitions_from

cdef enum:
    MAX_CONSUME = 1_000_000
    # How many messages one wait may gather: room is made for so many at a time.
    STEP = 16_384
    # How long a wait may last that cannot be ended by an event with a Python callback, ms.
    CALLBACK_SLICE = 100


cdef class Fetcher(Client):
    """The part of a consumer that waits for messages, follows rebalances and closes."""

    def __init__(self, *args, **kwargs):
        config = merged_config(args, kwargs, type(self).__name__)
        group_id = config.get("group.id")
        if group_id is None or group_id == "":
            raise ValueError("Failed to create consumer: group.id must be set")
        self._on_commit = take_callable(config, "on_commit")
        self._names = {}
        # A topic's property in older librdkafka; there it may still be found.
        topic_config = config.get("default.topic.config")
        stores = take_bool(config, "enable.auto.offset.store", True)
        if isinstance(topic_config, dict) and "enable.auto.offset.store" in topic_config:
            topic_config = config["default.topic.config"] = dict(topic_config)
            stores = take_bool(topic_config, "enable.auto.offset.store", stores)
        config["enable.auto.offset.store"] = False
        self._stores = stores
        self.open(RD_KAFKA_CONSUMER, config)
        # Errors, statistics and logs come to the queue that poll() and consume() serve.
        rk = self._ptr
        with nogil:
            rd_kafka_poll_set_consumer(rk)
            rd_kafka_queue_destroy(self._wait_queue)
            self._wait_queue = rd_kafka_queue_get_consumer(rk)

    def __dealloc__(self):
        if self._generation == ck_runtime_generation:
            self.release()

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
        # With the GIL: the thread a batch belongs to may be on its way out of its call.
        while batch is not NULL:
            ck_batch_clear(batch)
            batch = batch.next
        ck_batch_destroy(self._carry)
        self._carry = NULL
        self.take_back(0)
        self.take_back(1)
        return 0

    # -- messages

    cdef object name_of(self, const char *name):
        """The str of a topic's name, always the same one."""
        cdef bytes key
        if self._last_name is not None and strcmp(name, self._last_name) == 0:
            return self._last_topic
        key = name
        topic = self._names.get(key)
        if topic is None:
            topic = self._names[key] = key.decode()
        self._last_name = key
        self._last_topic = topic
        return topic

    cdef list hand_over(self, ck_batch_t *batch, size_t most):
        """The batch's next messages as Python's; they leave the batch and count as read."""
        cdef rd_kafka_message_t **first
        cdef list messages = []
        cdef object topic = None
        cdef Message message
        cdef size_t cnt, i
        cdef bint collecting
        ck_batch_compact(batch)
        cnt = min(most, batch.cnt)
        first = batch.rkmessages
        # No collection while messages are half taken: a finalizer may run any code, and so
        # close this very consumer or let another thread do it.
        collecting = PyGC_Disable()
        try:
            for i in range(cnt):
                # Within the batch a topic's handle stays the same, and stays alive.
                if i == 0 or first[i].rkt != first[i - 1].rkt:
                    topic = (None if first[i].rkt is NULL
                             else self.name_of(rd_kafka_topic_name(first[i].rkt)))
                message = message_from(first[i], topic)
                rd_kafka_message_detach_headers(first[i], &message._c_headers)
                messages.append(message)
            if self._stores:
                ck_batch_store_offsets(first, cnt)
            ck_batch_release(first, cnt)
            batch.head = cnt
        finally:
            if collecting:
                PyGC_Enable()
        return messages

    cdef object hand_over_one(self, rd_kafka_message_t *rkmessage):
        """As hand_over, for a message that is in no batch; it is gone even when this raises."""
        cdef bint collecting = PyGC_Disable()
        cdef bint lent = False
        cdef Message message
        try:
            message = message_from(
                rkmessage, None if rkmessage.rkt is NULL
                else self.name_of(rd_kafka_topic_name(rkmessage.rkt)))
            if self._stores:
                ck_batch_store_offsets(&rkmessage, 1)
            # In a loop, the message before the last is gone by now, and nobody has asked for
            # its headers.
            self.take_back(self._turn)
            lend(message, rkmessage, &self._lent[self._turn])
            self._turn ^= 1
            lent = True
            return message
        finally:
            if not lent:
                rd_kafka_message_destroy(rkmessage)
            if collecting:
                PyGC_Enable()

    cdef void take_back(self, int which) noexcept:
        if self._lent[which] is not NULL:
            (<Message>self._lent[which]).give_back()

    cdef int keep(self, rd_kafka_message_t *rkmessage) except -1:
        """Keep a message for the next call: this one has to raise."""
        if self._carry is NULL:
            self._carry = ck_batch_new(1)
        if self._carry is NULL or ck_batch_reserve(self._carry, 1):
            rd_kafka_message_destroy(rkmessage)
            raise MemoryError
        self._carry.rkmessages[self._carry.cnt] = rkmessage
        ck_batch_accept(self._carry, 1)
        return 0

    cdef void drop(self, const rd_kafka_topic_partition_list_t *partitions) noexcept:
        """Forget gathered messages of these partitions, or of all; they do not count as read."""
        cdef ck_batch_t *batch = self._batches
        while batch is not NULL:
            ck_batch_drop(batch, partitions)
            batch = batch.next
        if self._carry is not NULL:
            ck_batch_drop(self._carry, partitions)

    cdef int after_call(self) except -1:
        """What a call that served librdkafka has to see to once it is out again."""
        if self._close_after:
            self._close_after = False
            self.close()
        self.dispatch(False)
        if self._open_in != ck_runtime_generation:
            self.refuse()
        return 0

    def poll(self, timeout=None):
        """Wait for one message, running callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; None or less than 0: forever. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        Message or None
            None if there was none in time. Look at ``message.error()`` first: an event (such as
            ``_PARTITION_EOF``) or an error comes as a message too.

        Raises
        ------
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t limit = timeout_ms(timeout, "timeout")
        cdef int64_t deadline = -2  # not looked up before there is something to wait for
        cdef rd_kafka_message_t *rkmessage
        cdef rd_kafka_t *rk
        cdef int ms = 0
        if self._rebalancing and self._rebalancing == PyThread_get_thread_ident():
            raise RuntimeError("poll() cannot be called from a rebalance callback")
        if self._carry is not NULL:
            self.after_call()
            kept = self.hand_over(self._carry, 1)
            if kept:
                return kept[0]
        while True:
            rk = self.enter()
            # First without waiting and with the GIL: most of the time a message is there.
            if ms == 0:
                rkmessage = rd_kafka_consumer_poll(rk, 0)
            else:
                with nogil:
                    rkmessage = ck_callback_consume(rk, ms)
            self.leave()
            if (ck_queue_length(self._events) or self._raised is not None or self._close_after
                    or self._tokens is not None or self._open_in != ck_runtime_generation):
                # A callback may raise, or close: the message must outlive the one, not the other.
                if rkmessage is not NULL:
                    self.keep(rkmessage)
                self.after_call()
                if self._carry is not NULL:
                    kept = self.hand_over(self._carry, 1)
                    if kept:
                        return kept[0]
            elif rkmessage is not NULL:
                return self.hand_over_one(rkmessage)
            if deadline == -2:
                deadline = deadline_after(limit)
            ms = self.slice_ms(deadline)
            if ms == 0:
                return None
            PyErr_CheckSignals()

    def consume(self, num_messages=1, timeout=None):
        """Wait for up to so many messages, running callbacks meanwhile.

        Parameters
        ----------
        num_messages : int
            At most 1,000,000.
        timeout : float, optional
            Seconds; None or less than 0: until all are there. Ctrl-C is noticed within 0.1 s; what was
            gathered then, or when a callback raises, comes with the next call.

        Returns
        -------
        list of Message
            Fewer than asked for, or none, when the time is over. None of a partition that was
            revoked meanwhile.

        Raises
        ------
        ValueError
            ``num_messages`` is out of range.
        RuntimeError
            The consumer is closed, or was closed by another thread meanwhile.
        """
        cdef int64_t want = int_argument(num_messages, "num_messages", 0, MAX_CONSUME)
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef ck_batch_t *batch
        if self._open_in != ck_runtime_generation:
            self.refuse()
        if self._rebalancing and self._rebalancing == PyThread_get_thread_ident():
            raise RuntimeError("consume() cannot be called from a rebalance callback")
        if want == 0:
            return []
        batch = ck_batch_new(min(want, <int64_t>STEP))
        if batch is NULL:
            raise MemoryError
        batch.next = self._batches
        self._batches = batch
        try:
            if self._carry is not NULL:
                if ck_batch_move(self._carry, batch):
                    raise MemoryError
            self._gather(batch, want, deadline)
            return self.hand_over(batch, want)
        finally:
            self._unlink(batch)
            # What is left was not handed over: a callback raised, or the carry had more.
            if self._ptr is not NULL:
                ck_batch_compact(batch)
                if batch.cnt:
                    if self._carry is NULL:
                        self._carry = batch
                        batch = NULL
                    elif ck_batch_move(batch, self._carry):
                        raise MemoryError
            with nogil:
                ck_batch_destroy(batch)

    cdef int _unlink(self, ck_batch_t *batch) except -1:
        cdef ck_batch_t **link = &self._batches
        while link[0] != batch:
            link = &link[0].next
        link[0] = batch.next
        batch.next = NULL
        return 0

    cdef int _gather(self, ck_batch_t *batch, int64_t want, int64_t deadline) except -1:
        """Fill the batch until it is full or the time is over."""
        cdef size_t filled, step
        cdef int ms, wait
        while True:
            self.after_call()
            ck_batch_compact(batch)
            if <int64_t>batch.cnt >= want:
                return 0
            step = <size_t>min(want - <int64_t>batch.cnt, <int64_t>STEP)
            if ck_batch_reserve(batch, step):
                raise MemoryError
            ms = self.slice_ms(deadline)
            # Events cannot end this wait (see ck_callback.h): their callbacks would have to wait.
            wait = ms
            if self._has_callbacks and (ms < 0 or ms > CALLBACK_SLICE):
                wait = CALLBACK_SLICE
            self.enter()
            with nogil:
                filled = ck_batch_fill(batch, self._wait_queue, wait, step)
            ck_batch_accept(batch, filled)
            self.leave()
            if ms == 0:
                self.after_call()
                return 0
            PyErr_CheckSignals()

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
            if not self._assigned:
                self.apply(err, partitions)
        return 0

    cdef int apply(self, rd_kafka_resp_err_t err,
                   rd_kafka_topic_partition_list_t *partitions) except -1:
        """What librdkafka does when there is no rebalance callback."""
        cdef rd_kafka_t *rk = self._ptr
        cdef rd_kafka_error_t *error = NULL
        cdef rd_kafka_resp_err_t code = <rd_kafka_resp_err_t>0
        cdef bint cooperative = strcmp(rd_kafka_rebalance_protocol(rk), "COOPERATIVE") == 0
        with nogil:
            if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS:
                if cooperative:
                    error = rd_kafka_incremental_assign(rk, partitions)
                else:
                    code = rd_kafka_assign(rk, partitions)
            elif cooperative:
                error = rd_kafka_incremental_unassign(rk, partitions)
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
        if self._rebalancing and self._rebalancing == PyThread_get_thread_ident():
            self._close_after = True
            return
        if not self.begin_close():
            return
        raised = None
        flags = 0
        self.release()
        try:
            self._leave_group()
        except BaseException as exception:
            # The close cannot be taken back any more: finish it, then tell.
            raised = exception
            if not rd_kafka_consumer_closed(self._ptr):
                flags = RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE
        self.destroy(flags)
        try:
            self.dispatch(False)
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
                    ck_batch_skip(closing, CALLBACK_SLICE)
                try:
                    self.dispatch(False)
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
    cdef Fetcher self = <Fetcher>ck_queue_attached(<ck_queue_t *>opaque, CK_SLOT_CONSUMER)
    cdef unsigned long outer = self._rebalancing
    cdef bint yielding = ck_callback_allow_yield(False)
    self._rebalancing = PyThread_get_thread_ident()
    try:
        self.rebalance(err, partitions)
    except BaseException as exception:
        # Raised by the call that served librdkafka, once it is out of it.
        self._raised = exception
    finally:
        self._rebalancing = outer
        ck_callback_allow_yield(yielding)
