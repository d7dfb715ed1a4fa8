"""Admin: a handle that makes requests to the cluster and returns a Future for each answer.

librdkafka puts the answers on a queue of ours. A thread of ours reads it while requests are in
flight, so poll() is not needed. librdkafka's background queue would not do: its thread must not
close the handle, and it drops unserved answers when the handle is destroyed.
"""
import threading
import warnings
from concurrent.futures import Future

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from cykafka._core.admin.request cimport (
    Request,
    c_text,
    choose_options,
    new_options,
    options_t,
    text_or_none,
)
from cykafka._core.clib.csrc cimport (
    CK_CALL_GROUPS,
    PyThread_get_thread_ident,
    ck_call_leave,
    ck_call_t,
    ck_callback_poll,
    ck_queue_length,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_PRODUCER,
    RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
    RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
    RD_KAFKA_RESP_ERR__DESTROY,
    RD_KAFKA_RESP_ERR__NOENT,
    RD_KAFKA_RESP_ERR__TIMED_OUT,
    rd_kafka_metadata,
    rd_kafka_metadata_destroy,
    rd_kafka_metadata_t,
    rd_kafka_outq_len,
    rd_kafka_queue_destroy,
    rd_kafka_queue_new,
    rd_kafka_queue_yield,
    rd_kafka_resp_err_t,
    rd_kafka_t,
)
from cykafka._core.clib.librdkafka_admin cimport (
    rd_kafka_AdminOptions_destroy,
    rd_kafka_AdminOptions_t,
    rd_kafka_event_destroy,
    rd_kafka_event_error,
    rd_kafka_event_error_string,
    rd_kafka_event_opaque,
    rd_kafka_event_t,
    rd_kafka_group_info,
    rd_kafka_group_list,
    rd_kafka_queue_poll,
)
from cykafka._core.client.client cimport copied, new_call
from cykafka._core.common.arguments cimport NOW, deadline_after, timeout_ms
from cykafka._core.common.config cimport merged_config
from cykafka._core.common.errors cimport check_doing, error_from

from cykafka._core.common.errors import KafkaError
from cykafka._core.common.metadata import BrokerMetadata
from cykafka._core.model.group import GroupMember, GroupMetadata


# Of partitions that may have a leader by now.
_NO_LEADER = (<int>RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
              <int>RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION)


cdef class Admin(Client):
    """The native half of AdminClient.

    ``AdminClient(dict)``, ``AdminClient(dict, **kwargs)`` or ``AdminClient(**kwargs)`` take
    librdkafka's properties and the keys ``error_cb``, ``throttle_cb``, ``stats_cb``, ``oauth_cb``
    and ``logger``.
    """

    def __cinit__(self, *args, **kwargs):
        self._pending = {}
        self._answered = True

    def __init__(self, *args, **kwargs):
        self.check_new()
        try:
            # A consumer would do as well; a producer is the lighter one.
            self.open(RD_KAFKA_PRODUCER, merged_config(args, kwargs, type(self).__name__))
        finally:
            self._opening = False

    def __dealloc__(self):
        # As Handle's: for classes that hide __del__.
        if self._generation == ck_runtime_generation:
            self.release()

    cdef str closed_words(self):
        return "AdminClient has been closed"

    # -- asking

    def _ask(self, Request request not None, keys, **options):
        """Make a request.

        Parameters
        ----------
        request : Request
        keys : iterable or None
            The items of the answer: each gets a future. None for a single future.
        **options
            ``request_timeout`` and ``operation_timeout`` in seconds; flags, numbers, lists of
            numbers. None leaves librdkafka's default.

        Returns
        -------
        concurrent.futures.Future or dict
            Already running, so they cannot be cancelled. Each gets a result or a KafkaException.
            If the handle is closed first, its code is ``_DESTROY``.
        """
        cdef options_t chosen
        cdef rd_kafka_AdminOptions_t *c_options
        cdef char errstr[512]
        cdef size_t number
        cdef rd_kafka_t *rk
        choose_options(&chosen, options)
        futures = _future() if keys is None else {key: _future() for key in keys}
        rk = self.enter()
        if self._results is NULL:
            self._results = rd_kafka_queue_new(rk)
        self.leave()
        if isinstance(futures, dict) and not futures:
            return futures
        request._futures = futures
        self._number += 1
        number = self._number
        self._pending[number] = request
        try:
            self.ensure_thread()
            rk = self.enter()
        except:
            self._pending.pop(number, None)
            self.look_again()
            raise
        with nogil:
            c_options = new_options(rk, request._op, &chosen, <void *>number, errstr,
                                    sizeof(errstr))
            if c_options is not NULL:
                request.submit(rk, c_options, self._results)
                rd_kafka_AdminOptions_destroy(c_options)
        self.leave()
        if c_options is NULL:
            self._pending.pop(number, None)
            self.look_again()
            raise ValueError(errstr.decode("utf-8", "replace"))
        return futures

    cdef int ensure_thread(self) except -1:
        # Between here and the thread's last look at _pending nothing lets go of the GIL.
        if not self._serving:
            self._serving = True
            try:
                threading.Thread(target=_serve_results, args=(self,), daemon=True,
                                 name=f"{type(self).__name__} results").start()
            except:
                self._serving = False
                raise
        return 0

    cdef int look_again(self) except -1:
        """Have the thread see that there may be nothing left to wait for."""
        if self._results is not NULL and self._open_in == ck_runtime_generation:
            rd_kafka_queue_yield(self._results)
        return 0

    # -- answers

    cdef int serve_results(self) except -1:
        """Give out answers until no request is left. Keeps the handle alive that long."""
        cdef rd_kafka_event_t *event
        while self._pending:
            if self._generation != ck_runtime_generation:
                return 0  # a future's callback has forked: the rest is the parent's
            if self._open_in != ck_runtime_generation:
                # Somebody is closing it: awaited, for Ctrl-C may make him think better of it.
                self._closed.wait()
                if self._open_in != ck_runtime_generation:
                    return 0
            self._calls += 1
            with nogil:
                event = rd_kafka_queue_poll(self._results, -1)
            self.leave()
            if event is not NULL:
                self.complete(event)
        return 0

    cdef int complete(self, rd_kafka_event_t *event) except -1:
        # The event is nobody's but ours, and outlives the handle if it has to: no call in flight.
        cdef Request request = self._pending.pop(<size_t>rd_kafka_event_opaque(event), None)
        cdef rd_kafka_resp_err_t err
        outcome = None
        try:
            if request is not None:
                err = rd_kafka_event_error(event)
                if err:
                    outcome = error_from(err, rd_kafka_event_error_string(event))
                    if err == RD_KAFKA_RESP_ERR__TIMED_OUT:
                        self.refresh_metadata(False)
                    elif err == RD_KAFKA_RESP_ERR__NOENT:  # no partition has a leader
                        self.refresh_metadata(True)
                else:
                    outcome = request.decode(event)
                    if isinstance(outcome, dict) and any(
                            isinstance(each, KafkaError) and each in _NO_LEADER
                            for each in outcome.values()):
                        self.refresh_metadata(True)
        except BaseException as failure:
            outcome = failure
        finally:
            with nogil:
                rd_kafka_event_destroy(event)
        if request is not None:
            try:
                request.settle(outcome)
            except BaseException as failure:
                request.settle(failure)  # an answer in a form nobody expects
        return 0

    cdef int refresh_metadata(self, bint topics) except -1:
        """Make librdkafka request the controller and the partition leaders again, without waiting.

        Without this, a client without topics would learn only at the next regular refresh, minutes
        later, that the controller has moved or that a topic now has leaders. All requests until
        then would fail too. librdkafka's thread handles the answer.
        """
        cdef const rd_kafka_metadata_t *metadata = NULL
        if self._open_in != ck_runtime_generation:
            return 0
        self._calls += 1
        with nogil:
            rd_kafka_metadata(self._ptr, topics, NULL, &metadata, 0)
            if metadata is not NULL:
                rd_kafka_metadata_destroy(metadata)
        self.leave()
        return 0

    cdef int give_up(self) except -1:
        """Fail the remaining futures."""
        while self._pending:
            _, request = self._pending.popitem()
            (<Request>request).settle(KafkaError(<int>RD_KAFKA_RESP_ERR__DESTROY,
                                                 f"{type(self).__name__} was closed before the "
                                                 "answer came"))
        return 0

    # -- synchronous calls

    def poll(self, timeout=None):
        """Run the callbacks that are waiting (``error_cb``, ``stats_cb``, ``logger``, ...).

        Futures need no poll().

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for one; None or less than 0: forever. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        int
            How many events were served.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef int64_t served = 0
        cdef rd_kafka_t *rk
        cdef int ms
        while True:
            if self._events is not NULL and self._dispatcher != PyThread_get_thread_ident():
                served += ck_queue_length(self._events)
            ms = 0 if served else self.slice_ms(deadline)
            rk = self.enter()
            with nogil:
                served += ck_callback_poll(rk, ms)
            self.leave()
            self.dispatch(NOW)
            if served or ms == 0:
                return served
            PyErr_CheckSignals()

    def list_groups(self, group=None, timeout=-1):
        """Ask the brokers for their groups, in one synchronous call.

        .. deprecated:: 0.2
            Use :meth:`list_consumer_groups` and :meth:`describe_consumer_groups`.

        Parameters
        ----------
        group : str, optional
            Only this one.
        timeout : float
            Seconds; forever by default. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        list of GroupMetadata
        """
        self.check_handle()
        cdef int64_t ms
        cdef ck_call_t *call
        cdef int i
        warnings.warn("list_groups() is deprecated: use list_consumer_groups() and "
                      "describe_consumer_groups()", DeprecationWarning, stacklevel=1)
        ms = timeout_ms(timeout, "timeout")
        call = new_call(CK_CALL_GROUPS)
        try:
            if group is not None:
                call.topic = copied(c_text(group, "group"))
            self.ask(call, ms)
            check_doing(call.err, "Failed to list groups")
            result = [_group_from(call.groups, i) for i in range(call.groups.group_cnt)]
        finally:
            ck_call_leave(call)
        self.dispatch(NOW)
        return result

    # -- closing

    cdef void wake(self) noexcept nogil:
        Client.wake(self)
        if self._results is not NULL:
            rd_kafka_queue_yield(self._results)

    cdef int release(self) except -1:
        cdef rd_kafka_queue_t *results = self._results
        self._results = NULL
        if results is not NULL:
            with nogil:
                rd_kafka_queue_destroy(results)
        return 0

    cdef int destroy(self, int flags, int64_t deadline=-1, bint signals=False) except -1:
        try:
            Client.destroy(self, flags, deadline, signals)
        finally:
            self.give_up()
        return 0

    def close(self, timeout=None):
        """Free the client. Futures without an answer get a KafkaException, ``_DESTROY``.

        A future's callback may close. Ctrl-C ends the wait, and the client is closed all the same.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for calls in other threads and for librdkafka's threads, which may end
            later; by default without limit. It does not wait for answers.

        Returns
        -------
        bool
            False if futures were without an answer. Closing again returns the same.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if a call in another thread did not end in time. The client then stays
            open, but other calls that waited meanwhile raise RuntimeError.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if self.begin_close(deadline):
            self._answered = not self._pending
            self.destroy(0, deadline, True)
        return self._answered

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, exc_traceback):
        self.close()

    def __len__(self):
        if self._ptr is NULL or self._generation != ck_runtime_generation:
            return 0
        return rd_kafka_outq_len(self._ptr)

    def __bool__(self):
        return True


def _serve_results(Admin handle not None):
    try:
        handle.serve_results()
    finally:
        handle._serving = False


def _future():
    future = Future()
    future.set_running_or_notify_cancel()
    return future


cdef object _group_from(const rd_kafka_group_list *groups, int index):
    cdef int i
    cdef const rd_kafka_group_info *c_group = &groups.groups[index]
    group = GroupMetadata()
    group.broker = BrokerMetadata()
    group.broker.id = c_group.broker.id
    group.broker.host = text_or_none(c_group.broker.host)
    group.broker.port = c_group.broker.port
    group.id = text_or_none(c_group.group)
    if c_group.err:
        group.error = error_from(c_group.err, NULL)
    group.state = text_or_none(c_group.state)
    group.protocol_type = text_or_none(c_group.protocol_type)
    group.protocol = text_or_none(c_group.protocol)
    for i in range(c_group.member_cnt):
        member = GroupMember()
        member.id = text_or_none(c_group.members[i].member_id)
        member.client_id = text_or_none(c_group.members[i].client_id)
        member.client_host = text_or_none(c_group.members[i].client_host)
        member.metadata = _bytes_from(c_group.members[i].member_metadata,
                                      c_group.members[i].member_metadata_size)
        member.assignment = _bytes_from(c_group.members[i].member_assignment,
                                        c_group.members[i].member_assignment_size)
        group.members.append(member)
    return group


cdef object _bytes_from(const void *data, int size):
    return b"" if data is NULL else (<const char *>data)[:size]
