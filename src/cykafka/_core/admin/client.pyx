"""Admin: the native half of AdminClient. It sends requests; each response is a Future."""
import warnings

from cpython.exc cimport PyErr_CheckSignals
cimport cython
from libc.stdint cimport int64_t

from cykafka._core.admin.in_flight cimport InFlightRequests
from cykafka._core.admin.request cimport Request, c_text, text_or_none
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.client.event_loop cimport Watch
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.requests cimport copied, new_call
from cykafka._core.common.arguments cimport NOW, deadline_after, timeout_ms
from cykafka._core.common.config cimport merged_config
from cykafka._core.common.errors cimport check_doing, error_from

from cykafka._core.common.metadata import BrokerMetadata
from cykafka._core.model.group import GroupMember, GroupMetadata


@cython.no_gc_clear
cdef class Admin(Handle):
    """Admin(config=..., /, **kwargs)\n--\n
    The native half of AdminClient.

    ``AdminClient(dict)``, ``AdminClient(dict, **kwargs)`` or ``AdminClient(**kwargs)`` take
    librdkafka's properties and the keys ``error_cb``, ``throttle_cb``, ``stats_cb``, ``oauth_cb``
    and ``logger``.
    """

    def __cinit__(self, *args, **kwargs):
        self._requests = InFlightRequests.__new__(InFlightRequests)
        self._responded = True
        self._role = self._requests
        self._closed_words = "AdminClient has been closed"

    @cython.embedsignature(False)
    def __init__(self, *args, **kwargs):
        """__init__($self, config=..., /, **kwargs)\n--\n
        Create the client and start librdkafka's threads, without waiting for a broker.

        The class describes `config`. Keyword arguments override properties in `config`.
        """
        self.check_new()
        try:
            if not args and isinstance(kwargs.get("conf"), dict):  # confluent_kafka's name
                args = (kwargs.pop("conf"),)
            conf = self.new_conf(merged_config(args, kwargs, type(self).__name__))
            # A producer, because it is lighter than a consumer.
            self.start(RD_KAFKA_PRODUCER, conf)
        finally:
            self._opening = False

    def _send(self, Request request not None, keys, **options):
        """Send a request.

        Parameters
        ----------
        request : Request
        keys : iterable or None
            The items of the response; each gets a future. None returns a single future.
        **options
            ``request_timeout`` and ``operation_timeout`` in seconds; flags (bool), numbers, lists
            of numbers. None, except as a flag, leaves librdkafka's default.

        Returns
        -------
        concurrent.futures.Future or dict
            The futures are running, so you cannot cancel them. Each gets a result or a
            KafkaException. If the handle is closed first, the code is ``_DESTROY``.
        """
        return self._requests.send(self, request, keys, options)

    def _serve_in_loop(self, Watch watch not None):
        """Deliver responses in the watch's loop from now on. Call this method before the first
        request. close() then does not wait for librdkafka's threads."""
        self._requests.watch = watch
        self._ends_alone = True

    # -- synchronous calls

    def poll(self, timeout=None):
        """Run the waiting callbacks (``error_cb``, ``stats_cb``, ``logger``, ...).

        Futures need no poll().

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a callback. None or a negative value waits forever. Ctrl-C
            interrupts the wait within 0.1 s.

        Returns
        -------
        int
            The number of served events.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef int64_t served = 0
        cdef rd_kafka_t *rk
        cdef int ms
        while True:
            served += self._callbacks.count_waiting()
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
        """Request the groups from the brokers, in one synchronous call.

        .. deprecated:: 0.2
            Use :meth:`list_consumer_groups` and :meth:`describe_consumer_groups`.

        Parameters
        ----------
        group : str, optional
            Only this group.
        timeout : float
            Seconds; forever by default. Ctrl-C interrupts the wait within 0.1 s.

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
            self.run_call(call, ms)
            check_doing(call.err, "Failed to list groups")
            result = [_group_from(call.groups, i) for i in range(call.groups.group_cnt)]
        finally:
            ck_call_leave(call)
        self.dispatch(NOW)
        return result

    # -- closing

    def close(self, timeout=None):
        """Free the client. Futures without a response get a KafkaException, ``_DESTROY``.

        A future's callback may close the client. Ctrl-C ends the wait. If ``close()`` was waiting
        for calls in other threads, the client stays open; if it was waiting for librdkafka's
        threads, the client closes.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for calls in other threads and for librdkafka's threads, which may end
            later; by default without limit. ``close()`` does not wait for responses.

        Returns
        -------
        bool
            False if a future had no response yet. Closing again returns the same value.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if a call in another thread did not end in time. The client then stays
            open, but other calls that waited during ``close()`` raise RuntimeError.
        """
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        if self.begin_close(deadline):
            self._responded = not self._requests.pending
            self.destroy(0, NULL, deadline, True)
        return self._responded

    def __len__(self):
        if self._ptr is NULL or self._generation != ck_runtime_generation:
            return 0
        return rd_kafka_outq_len(self._ptr)

    def __bool__(self):
        return True


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
