"""Handle: opens, uses and closes an rd_kafka_t; the base of every client.

A handle is new, open, closing or closed. Every call that uses the rd_kafka_t without the GIL
counts itself with `enter` and `leave`. `close` first refuses new calls, then wakes the calls in
flight and waits for them, and only then destroys the rd_kafka_t. Python callbacks run outside
counted calls (except rebalance callbacks, see consume/membership), so a callback may close its own
handle.

Each kind of client has a Role (role.pyx), which handles its events and releases its resources
before the rd_kafka_t is destroyed. Callbacks (callbacks.pyx) runs the program's callbacks.

The garbage collector clears neither a handle nor a role, so a handle keeps its parts until it is
freed. Handles and roles store Python callables in dicts and lists, where the collector can break
every cycle.
"""
import atexit
import os
import threading
import warnings
import weakref

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF, Py_XDECREF
cimport cython
from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
cimport cykafka._core.clib.csrc as runtime
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.callbacks cimport (
    Callbacks,
    TokenSource,
    forked_error,
    release_events,
    release_tokens,
)
from cykafka._core.client.requests cimport cluster_of, credential, name_topic, new_call
from cykafka._core.client.role cimport Role
from cykafka._core.common.arguments cimport (
    NOW,
    SLICE,
    deadline_after,
    slice_left,
    timeout_ms,
)
from cykafka._core.common.config cimport (
    conf_from,
    is_secret,
    property_of,
    without_url_secrets,
)
from cykafka._core.common.errors cimport (
    MAX_CONTEXTS,
    chain,
    check_doing,
    check_error,
    write_unraisable,
)

from cykafka._core.common.config import known_properties
from cykafka._core.common.errors import (
    ClosedError,
    ForkedError,
    KafkaError,
    KafkaException,
)
from cykafka._core.common.library import __version__

cdef enum:
    NEW, OPEN, CLOSING, CLOSED

cdef enum:
    # How long the interpreter's exit waits for each handle's calls, for another thread's close(),
    # and then for all clients that are being destroyed, ms.
    EXIT_WAIT_MS = 1000

cdef enum:
    # The interval between metadata requests until a broker responds, ms.
    METADATA_RETRY_MS = 100

# Keyed by id, because a subclass may override comparison and hashing.
_live = weakref.WeakValueDictionary()
# The number of threads between rd_kafka_new() and the entry in _live. The interpreter's exit waits
# for them.
cdef int _starting = 0


@cython.no_gc_clear
cdef class Handle:
    """The base of Producer, Consumer and AdminClient."""

    def __cinit__(self, *args, **kwargs):
        self._callbacks = Callbacks.__new__(Callbacks)
        self._role = Role.__new__(Role)
        self._closed_words = "Handle has been closed"

    def __dealloc__(self):
        cdef bint done
        # Destroy handles whose subclass overrides __del__.
        if self._ptr is not NULL and self._generation == ck_runtime_generation:
            try:
                self._role.release(self)
            except BaseException as exception:
                write_unraisable(exception, type(self))
            self.free(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE, NULL,
                      ck_runtime_now_ms() + EXIT_WAIT_MS, False, &done)
            if done:
                release_tokens(self._events)
        if self._ptr is NULL:
            release_events(self._events)
            ck_condition_destroy(self._condition)
        # In a forked child, the loans belong to the parent, and their lock may be held.
        if self._generation in (0, ck_runtime_generation):
            ck_loans_destroy(self._loans)

    def __del__(self):
        # This runs before the garbage collector clears anything. A weak reference may still
        # resurrect the handle, which is then closed.
        if self._state != OPEN or self._generation != ck_runtime_generation:
            return
        if self.stop(-1):
            try:
                _warn_unclosed(self)
            finally:
                try:
                    # The collector may run in any thread, so wait only briefly.
                    self.destroy(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE, NULL,
                                 ck_runtime_now_ms() + EXIT_WAIT_MS)
                finally:
                    self._role.abandon(self)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, exc_traceback):
        self.close()

    def __repr__(self):
        state = {NEW: "not initialized", OPEN: "open", CLOSING: "closing", CLOSED: "closed"}
        return f"<{type(self).__module__}.{_name(self)} {self._label or ''} {state[self._state]}>"

    # -- opening

    cdef int check_new(self) except -1:
        """Raise if __init__ runs twice. Call this first in every __init__, and clear _opening at
        the end.

        A second __init__, from another thread or from code in the configuration, must not change
        the state of the first.
        """
        if self._state != NEW or self._opening:
            raise RuntimeError(f"{_name(self)} already initialized: __init__ was called twice")
        self._opening = True
        return 0

    cdef rd_kafka_conf_t *new_conf(self, dict config) except NULL:
        """Create a configuration for start(), with the callbacks that every client has. Remove
        their keys from the dict."""
        cdef rd_kafka_conf_t *conf
        self._callbacks.configure(config)
        config.setdefault("client.software.name", "cykafka")
        config.setdefault("client.software.version",
                          f"{__version__}-librdkafka-{rd_kafka_version_str().decode()}")
        if self._callbacks.has_logger():
            config["log.queue"] = True
        if self._events is NULL:  # an earlier __init__ that raised may have created it
            self._events = ck_queue_new()
        if self._condition is NULL:
            self._condition = ck_condition_new()
        if self._loans is NULL:
            self._loans = ck_loans_new()
        if self._events is NULL or self._condition is NULL or self._loans is NULL:
            raise MemoryError
        conf = conf_from(config)
        # From here on, do not raise: the configuration would leak.
        self._callbacks.install(conf, self._events)
        return conf

    cdef int start(self, rd_kafka_type_t kind, rd_kafka_conf_t *conf) except -1:
        """Create the rd_kafka_t, which takes ownership of conf, and open the handle."""
        global _starting
        cdef char errstr[512]
        cdef rd_kafka_error_t *error = NULL
        cdef rd_kafka_t *rk
        cdef TokenSource tokens = self._callbacks.tokens
        if exiting() and PyThread_get_thread_ident() != _main_thread:
            rd_kafka_conf_destroy(conf)
            raise SystemExit
        _starting += 1  # until it is in _live
        with nogil:
            rk = self.new_client(kind, conf, errstr, sizeof(errstr))
        if rk is NULL:
            _starting -= 1
            err = rd_kafka_last_error()
            rd_kafka_conf_destroy(conf)
            raise KafkaException(KafkaError(
                <int>err or <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                f"Failed to create {_name(self).lower()}: {errstr.decode('utf-8', 'replace')}"))
        self._ptr = rk
        # librdkafka may cut a long client.id in the middle of a character.
        self._label = rd_kafka_name(rk).decode("utf-8", "replace")
        self._callbacks.label = self._label
        self._callbacks.kind = _name(self)
        if tokens is not None:
            # The rd_kafka_t calls the token source, which must therefore live as long.
            Py_INCREF(tokens)
        self._generation = self._callbacks.generation = ck_runtime_generation
        # Do this before the handle is open: from then on, the interpreter's exit may close it.
        self._wait_queue = self._role.wait_queue(rk)
        if self._callbacks.has_logger():
            rd_kafka_set_log_queue(rk, NULL)
        if tokens is not None:
            with nogil:
                error = rd_kafka_sasl_background_callbacks_enable(rk)
        self._state = OPEN
        self._open_in = self._generation
        ck_runtime_count(CK_KIND_HANDLE, 1)
        _live[id(self)] = self
        _starting -= 1
        if tokens is not None:
            try:
                check_error(error)
                tokens.wait()
            except:
                if self.begin_close():
                    # Do not wait: oauth_cb may run for any length of time.
                    self.destroy(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE, NULL, ck_runtime_now_ms(),
                                 True)
                raise
        return 0

    cdef rd_kafka_t *new_client(self, rd_kafka_type_t kind, rd_kafka_conf_t *conf, char *errstr,
                                size_t size) noexcept nogil:
        """rd_kafka_new(), or what this kind of client has in its place."""
        return rd_kafka_new(kind, conf, errstr, size)

    # -- calls in flight

    cdef rd_kafka_t *enter(self) except NULL:
        """Count a call that uses the rd_kafka_t without the GIL; raise if it is refused."""
        if self._open_in != ck_runtime_generation:
            self.refuse()
        self._calls += 1
        return self._ptr

    cdef void leave(self) noexcept:
        # Never run Python code here: the caller may hold a message that a close() in another
        # thread must see first.
        self._calls -= 1
        if self._calls == 0 and self._state == CLOSING:
            ck_condition_signal(self._condition)

    cdef int check_wait(self, bint before) except -1:
        """Run signal handlers, and raise if the handle is closed or being closed.

        A wait outside counted calls calls this between its slices. `before` is the value that the
        role's closes_later had when the wait began.
        """
        PyErr_CheckSignals()
        self.check_open()
        if self._role.closes_later and not before:
            raise ClosedError(f"{_name(self)} is being closed by a signal handler")
        return 0

    cdef int refuse(self, str words=None) except -1:
        """Raise unless the handle is usable. While it closes, only the closing thread may use it,
        because that thread runs callbacks."""
        cdef unsigned long me = PyThread_get_thread_ident()
        if exiting() and me not in (self._closer, _main_thread):
            raise SystemExit
        if words is None:
            words = self._closed_words
        if self._state == NEW:
            raise closed_error(words, f"{_name(self)}.__init__ was not called")
        if self._generation != ck_runtime_generation:
            raise forked_error(_name(self))
        # Once destroy() has begun, also refuse the closing thread, where a signal handler may run.
        if self._state == CLOSED or self._destroying:
            raise closed_error(words, f"{_name(self)} {self._label}")
        if self._state == CLOSING and self._closer != me:
            raise closed_error(words, f"another thread is closing {_name(self)} {self._label}")
        return 0

    cdef bint is_closing(self) noexcept:
        """Whether close() has begun and the handle is not destroyed yet."""
        return self._state == CLOSING

    cdef int dispatch(self, int64_t deadline) except -1:
        """Run the Python callbacks for the waiting events; see Callbacks.dispatch()."""
        return self._callbacks.dispatch(self, self._role, deadline)

    cdef int after_call(self) except -1:
        """After a call that served librdkafka: run a delayed close(), then callbacks."""
        if self._role.closes_later:
            self._role.closes_later = False
            if self._role.close_timeout is None:
                self.close()
            else:
                self.close(self._role.close_timeout)
        self.dispatch(NOW)
        return self.check_open()

    cdef int slice_ms(self, int64_t deadline) noexcept:
        """Return the longest time to wait next, ms: -1 for no limit, 0 after the deadline."""
        cdef int64_t left = -1
        if deadline >= 0:
            left = max(deadline - ck_runtime_now_ms(), 0)
        # Only the main thread runs signal handlers, so only it needs slices.
        if PyThread_get_thread_ident() == _main_thread and (left < 0 or left > SLICE):
            return SLICE
        return <int>min(left, INT_MAX)

    # -- closing

    cdef bint begin_close(self, int64_t deadline=-1) except -1:
        """Refuse new calls and wait for the calls in flight. Return False if there is nothing to
        close.

        Raises _TIMED_OUT after the deadline. The handle is then open again, but the calls that
        this close woke raise ClosedError.
        """
        while True:
            if self._state in (NEW, CLOSED):
                return False
            if self._generation != ck_runtime_generation:
                # The handle belongs to the parent: neither use nor free it here.
                self._state = CLOSED
                self._callbacks.closed = True
                return False
            if self._state == OPEN:
                if ck_callback_is_background():
                    raise RuntimeError(f"{_name(self)}: close() cannot be called from oauth_cb, "
                                       "because it may wait for the thread that runs oauth_cb")
                try:
                    # Give the calls time to end, even after the deadline.
                    if self.stop(-1 if deadline < 0
                                 else max(deadline, ck_runtime_now_ms() + 2 * SLICE)):
                        if self._calls:
                            raise _not_closed(self, "a call in another thread has not ended")
                        return True
                except:
                    if self._state == CLOSING and self._closer == PyThread_get_thread_ident():
                        self.abandon_close()
                    raise
                continue
            if PyThread_get_thread_ident() in (self._closer, self._callbacks.dispatcher):
                # That close() runs this callback or waits for it.
                return False
            # Wait in slices: if a signal handler raises inside set(), the event may stay unset.
            wait = slice_left(deadline)
            if not self._closed.wait(wait / 1e3) and wait < SLICE:
                raise _not_closed(self, "another thread is still closing it")

    cdef int stop(self, int64_t deadline) except -1:
        """Refuse new calls, and wake the calls in flight until all have returned, or until the
        deadline.

        Returns 0 if another thread is already closing.
        """
        closed = threading.Event()  # Python code, during which another thread may run
        if self._state != OPEN:
            return 0
        self._closed = closed
        self._closer = PyThread_get_thread_ident()
        self._state = CLOSING
        self._stops += 1
        self._open_in = 0
        while self._calls and (deadline < 0 or ck_runtime_now_ms() < deadline):
            # A yield wakes only one waiting call, and misses a call that is about to wait. So
            # yield until all calls have returned.
            with nogil:
                rd_kafka_queue_yield(self._wait_queue)
                self._role.wake(self._events)
                ck_condition_wait(self._condition, 5)
            PyErr_CheckSignals()
            if self._generation != ck_runtime_generation:
                self.refuse()  # a signal handler forked: the calls belong to the parent
        return 1

    cdef int abandon_close(self) except -1:
        """Reopen the handle, because the close failed before anything was lost."""
        self._state = OPEN
        self._open_in = self._generation
        self._closed.set()
        return 0

    cdef int end_watch(self) except -1:
        """Stop the event loops from serving the handle, before its queue is released."""
        watch = self._watch
        self._watch = None
        if watch is not None:
            # Do this here: the watch may not find a handle that is being freed.
            rd_kafka_queue_io_event_enable(self._wait_queue, -1, NULL, 0)
            watch.end()  # calls the event loop's Python code, which may raise
        return 0

    cdef int destroy(self, int flags, rd_kafka_queue_t *closing, int64_t deadline,
                     bint signals=False) except -1:
        """Free the rd_kafka_t: the last step of closing. The handle is closed even if this raises.
        For the arguments see free()."""
        cdef bint done = False
        self._destroying = True
        try:
            if self._generation == ck_runtime_generation:  # else code in this method forked
                try:
                    self._role.release(self)
                finally:
                    if self._generation == ck_runtime_generation:
                        self.free(flags, closing, deadline, signals, &done)
        finally:
            self._state = CLOSED
            self._callbacks.closed = True
            # A signal handler may raise in each of these calls.
            try:
                self._closed.set()
            finally:
                try:
                    _live.pop(id(self), None)
                finally:
                    try:
                        if done:
                            release_tokens(self._events)  # this may run any code
                    finally:
                        self._role.ended(self)
        return 0

    cdef object finish_close(self, int flags, rd_kafka_queue_t *closing, int64_t deadline,
                             object raised):
        """Run the last steps of a close(). Return `raised`, with the exceptions of callbacks and
        signal handlers chained to it."""
        try:
            self.destroy(flags, closing, deadline, True)
        except BaseException as exception:
            raised = chain(raised, exception)
        while self._generation == ck_runtime_generation:
            try:
                self.dispatch(NOW)
                break
            except BaseException as exception:
                raised = chain(raised, exception)
        return raised

    cdef int free(self, int flags, rd_kafka_queue_t *closing, int64_t deadline, bint signals,
                  bint *done) except -1:
        """Destroy the rd_kafka_t in a new thread, and wait for it until the deadline (-1:
        forever).

        The thread first serves `closing` (NULL: nothing) until the consumer has left its group.
        `signals` says whether to run signal handlers during the wait. Sets *done if the rd_kafka_t
        is destroyed. Otherwise the thread continues alone: after the deadline, after a signal
        handler raises, or if the wait may be long because the application keeps views of messages
        or a broker request is in progress.
        """
        cdef rd_kafka_t *rk = self._ptr
        cdef rd_kafka_share_t *share = self._share
        cdef ck_queue_t *events = self._events
        cdef ck_loans_t *loans = self._loans
        cdef rd_kafka_queue_t *wait_queue = self._wait_queue
        cdef ck_end_t *end
        cdef bint may_wait = closing is NULL and not ck_callback_is_background()
        cdef bint waits
        done[0] = False
        self._ptr = NULL
        self._share = NULL
        self._loans = NULL
        # The rd_kafka_t may outlive this object, so its callbacks must no longer find the object.
        ck_queue_attach(events, CK_SLOT_CLIENT, NULL)
        ck_queue_keep(events)
        with nogil:
            rd_kafka_queue_destroy(wait_queue)
            waits = may_wait and not self._ends_alone and ck_loans_settle(loans)
            end = ck_end_start(rk, share, flags, closing, loans, _has_ended, events)
            if end is NULL and (waits or (may_wait and ck_loans_settle(loans))):
                ck_end_now(rk, share, flags, closing, loans)
                done[0] = True
        # If there is no new thread and this one must not wait, leak the rd_kafka_t: a wait could
        # deadlock. librdkafka's threads usually end at once, so wait briefly even after the
        # deadline.
        if deadline >= 0:
            deadline = max(deadline, ck_runtime_now_ms() + 2 * SLICE)
        try:
            while waits and not done[0] and (deadline < 0 or ck_runtime_now_ms() < deadline):
                with nogil:
                    done[0] = ck_end_wait(end, SLICE)
                if signals:
                    PyErr_CheckSignals()
                    if self._generation != ck_runtime_generation:
                        break  # a signal handler forked: the rest belongs to the parent
        finally:
            if end is not NULL and self._generation == ck_runtime_generation:
                # Let _settle_later() run the callbacks that this close() does not run.
                if signals and ck_delivery_is_pending(events):
                    Py_INCREF(self)
                    ck_queue_attach(events, CK_SLOT_HANDLE, <PyObject *>self)
                done[0] = ck_end_leave(end)
                if done[0] and ck_queue_attached(events, CK_SLOT_HANDLE) is not NULL:
                    ck_queue_attach(events, CK_SLOT_HANDLE, NULL)
                    Py_DECREF(self)
            if self._generation != ck_runtime_generation:
                done[0] = False  # the parent releases the rest
            if done[0]:
                ck_delivery_abandon_all(events)
                release_events(events)
        return 0

    # -- broker requests

    cdef int check_open(self) except -1:
        """Raise if the handle is closed. Calls that run per record inline this check."""
        if self._open_in != ck_runtime_generation:
            self.refuse()
        return 0

    cdef int check_handle(self) except -1:
        """Raise if the handle is closed, with confluent_kafka's text for methods of any handle."""
        if self._open_in != ck_runtime_generation:
            self.refuse("Handle has been closed")
        return 0

    cdef int run_call(self, ck_call_t *call, int64_t timeout) except -1:
        """Run a blocking librdkafka call to the brokers. timeout is in ms; -1 waits forever.

        Ctrl-C or a close() ends the wait. The call continues in its own thread, which drops the
        result.
        """
        cdef int64_t deadline = deadline_after(timeout)
        # First wait until a broker responds, so that Ctrl-C rarely abandons a call.
        if call.partitions is NULL or call.partitions.cnt > 0:
            rd_kafka_mem_free(NULL, self.await_cluster_id(deadline))
        if deadline >= 0:
            timeout = max(deadline - ck_runtime_now_ms(), 0)
        self.start_call(call, timeout)
        return self.await_call(call)

    cdef char *await_cluster_id(self, int64_t deadline) except? NULL:
        """Return the cluster id, which the caller frees. NULL on timeout, or if the brokers do not
        send it."""
        cdef bint closing = self._role.closes_later
        cdef const rd_kafka_metadata_t *metadata
        cdef char *c_id
        cdef int64_t started
        cdef int64_t asked = 0
        cdef int ms = 0
        while True:
            started = ck_runtime_now_ms()
            rk = self.enter()
            with nogil:
                c_id = rd_kafka_clusterid(rk, ms)
            self.leave()
            # The call returns early without an id only if the responding broker has no cluster id.
            if c_id is not NULL or (ms == SLICE and ck_runtime_now_ms() < started + SLICE // 2):
                return c_id
            ms = slice_left(deadline)
            if ms == 0:
                return NULL
            self.check_wait(closing)
            # The first request makes a new consumer connect at once. Otherwise it may connect only
            # when it looks for its group's coordinator a second time. Repeat the request: a broker
            # that has just started, or is fenced, may respond without any brokers. librdkafka
            # drops such a response, and does not repeat the request for minutes.
            if ck_runtime_now_ms() - asked >= METADATA_RETRY_MS:
                rk = self.enter()
                with nogil:
                    # librdkafka also keeps the id from a response after the timeout.
                    if rd_kafka_metadata(rk, 0, NULL, &metadata, ms if asked else 0) == 0:
                        rd_kafka_metadata_destroy(metadata)
                self.leave()
                asked = ck_runtime_now_ms()
                self.check_wait(closing)

    cdef int start_call(self, ck_call_t *call, int64_t timeout) except -1:
        rk = self.enter()
        error = ck_call_start(call, rk, self._loans, timeout)
        self.leave()
        if error:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE,
                f"Cannot start a thread to wait for the brokers: {os.strerror(error)}",
                retriable=True))
        return 0

    cdef int await_call(self, ck_call_t *call) except -1:
        cdef bint closing = self._role.closes_later
        cdef bint done
        while True:
            with nogil:
                done = ck_call_wait(call, SLICE)
            if done:
                if call.err and self._open_in != ck_runtime_generation:
                    self.refuse()  # a close() made librdkafka end the call
                return 0
            self.check_wait(closing)

    def list_topics(self, topic=None, timeout=None):
        """Request the cluster's brokers, topics and partitions from a broker.

        Parameters
        ----------
        topic : str, optional
            Only this topic. The request may create the topic if the broker's
            ``auto.create.topics.enable`` and the client's ``allow.auto.create.topics`` are true.
        timeout : float, optional
            Seconds to wait. None, the default, waits forever. Ctrl-C interrupts the wait within
            0.1 s.

        Returns
        -------
        ClusterMetadata

        Raises
        ------
        KafkaException
            ``_TRANSPORT`` or ``_TIMED_OUT`` if no broker responded.
        """
        self.check_handle()
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        cdef ck_call_t *call = new_call(CK_CALL_METADATA)
        try:
            name_topic(call, topic)
            self.run_call(call, ms)
            cluster = cluster_of(call)
        finally:
            ck_call_leave(call)
        self.dispatch(NOW)
        return cluster

    def cluster_id(self, timeout=None):
        """Return the cluster id, a str.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a broker's response. None, the default, waits forever. Ctrl-C
            interrupts the wait within 0.1 s.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if no broker sent the id in time.
        """
        self.check_handle()
        cdef int64_t deadline = deadline_after(timeout_ms(timeout, "timeout"))
        cdef char *c_id = self.await_cluster_id(deadline)
        if c_id is NULL:
            check_doing(RD_KAFKA_RESP_ERR__TIMED_OUT, "Failed to get the cluster id")
        try:
            return c_id.decode()
        finally:
            rd_kafka_mem_free(NULL, c_id)

    def configuration(self):
        """Return the effective configuration, with librdkafka's defaults and adjustments.

        Returns
        -------
        dict of str to str or None
            Every librdkafka property, under each of its names, with its value as librdkafka spells
            it. None for callbacks and properties without a value. Secrets, even if not set, are
            ``"[redacted]"``. URLs lack the user, password and query.
        """
        # Python code (a signal handler, a finalizer) may close the client. So do not run it in a
        # counted call: the close would wait for the call.
        return {key: "[redacted]" if is_secret(key) else without_url_secrets(self.property(key))
                for key in sorted(known_properties())}

    cdef str property(self, str key):
        rk = self.enter()
        try:
            return property_of(rk, key)
        finally:
            self.leave()

    def set_sasl_credentials(self, username, password):
        """Use these SASL credentials for new connections (PLAIN and SCRAM).

        Open connections keep the old credentials.

        Parameters
        ----------
        username, password : str
            Without NUL characters.

        Raises
        ------
        TypeError, ValueError
            The error messages never contain the credentials.
        """
        self.check_handle()
        cdef bytes name = credential(username, "username")
        cdef bytes secret = credential(password, "password")
        cdef const char *c_username = name
        cdef const char *c_password = secret
        rk = self.enter()
        with nogil:
            error = rd_kafka_sasl_set_credentials(rk, c_username, c_password)
        self.leave()
        check_error(error)


cdef str _name(Handle handle):
    return type(handle).__name__


cdef void _has_ended(void *opaque) noexcept nogil:
    # Runs in the thread that has destroyed an rd_kafka_t; see free(). While the interpreter exits,
    # the GIL may be unavailable, so leave Python's objects to the end of the process.
    cdef ck_queue_t *events = <ck_queue_t *>opaque
    cdef ck_event_t *event
    if not exiting():
        _settle_later(events)
        return
    if ck_queue_is_last(events):
        while True:
            event = ck_queue_pop(events)
            if event is NULL:
                break
            if event.kind != CK_EVENT_REPORT and event.kind != CK_EVENT_DELIVERY:
                ck_event_destroy(event)
        ck_inflight_destroy(<ck_inflight_t *>ck_queue_attached(events, CK_SLOT_INFLIGHT))
    ck_queue_destroy(events)


cdef void _settle_later(ck_queue_t *events) noexcept with gil:
    cdef PyObject *closed = <PyObject *>ck_queue_attached(events, CK_SLOT_HANDLE)
    ck_delivery_abandon_all(events)
    if closed is not NULL:
        ck_queue_attach(events, CK_SLOT_HANDLE, NULL)
        _run_left(<Handle>closed)
        if (<Handle>closed)._generation != ck_runtime_generation:
            return  # a callback forked: the rest belongs to the parent
        Py_XDECREF(closed)
    release_tokens(events)
    release_events(events)


cdef void _run_left(Handle handle) noexcept:
    """Run the callbacks of the batches that librdkafka still had when it was destroyed. Print
    their exceptions, because the program has no call that could raise them."""
    while handle._generation == ck_runtime_generation:
        try:
            handle.dispatch(NOW)
            return
        except BaseException as exception:
            if isinstance(exception, ForkedError) and handle._generation != ck_runtime_generation:
                return  # a callback forked, and this is the child
            # dispatch() has chained the exceptions of all callbacks.
            raised = [exception]
            while raised[-1].__context__ is not None and len(raised) < MAX_CONTEXTS:
                raised.append(raised[-1].__context__)
            for error in reversed(raised):
                write_unraisable(error, handle)


cdef object closed_error(str words, str note):
    """Create a ClosedError with exactly these words, because programs compare them."""
    error = ClosedError(words)
    error.add_note(note)
    return error


cdef object _not_closed(Handle handle, str why):
    return KafkaException(KafkaError(
        <int>RD_KAFKA_RESP_ERR__TIMED_OUT,
        f"Failed to close {_name(handle)} {handle._label} in time: {why}; its state is unchanged"))


def _warn_unclosed(Handle handle not None):
    undelivered = handle._role.undelivered(handle)
    if undelivered:
        warnings.warn(f"{_name(handle)} {handle._label} was never closed: {undelivered} "
                      "message(s) in its queue are lost; call flush() or close()",
                      RuntimeWarning, source=handle)
    else:
        warnings.warn(f"{_name(handle)} {handle._label} was never closed", ResourceWarning,
                      source=handle)


def _warn_closing(Handle handle not None):
    warnings.warn(f"{_name(handle)} {handle._label}: close() in another thread had not returned "
                  "when the interpreter ended: undelivered records are lost, and stored "
                  "offsets may not be committed; join that thread before the program ends",
                  RuntimeWarning, source=handle)


# -- process exit and fork

def _set_main_thread():
    global _main_thread
    _main_thread = threading.main_thread().ident or 0


cdef unsigned long _main_thread = 0
_set_main_thread()
# In a forked child, the thread that forked is the main thread.
os.register_at_fork(after_in_child=_set_main_thread)


@atexit.register
def _at_exit():
    """Destroy the open handles, because librdkafka's threads must not outlive the objects that
    they use.

    Daemon threads that wait in a call get SystemExit, which ends a thread silently. Clients that
    are already being destroyed get EXIT_WAIT_MS to end.
    """
    cdef int64_t deadline = ck_runtime_now_ms() + EXIT_WAIT_MS
    runtime.ck_runtime_exiting = True
    while _starting and ck_runtime_now_ms() < deadline:
        threading.Event().wait(0.001)  # a daemon thread is creating a client
    # Warnings about open clients run the program's code, which may create clients: a log handler
    # may send to Kafka. Other threads may free clients, so iterate over valuerefs(), a copy.
    ended = {}  # by id; keeps the references alive, so that their ids are not reused
    while left := [reference for reference in _live.valuerefs() if id(reference) not in ended]:
        for reference in left:
            ended[id(reference)] = reference
            handle = reference()
            if handle is not None:
                _end(handle)
    with nogil:
        ck_end_all(EXIT_WAIT_MS)


cdef bint exiting() noexcept nogil:
    """Whether the interpreter is exiting."""
    return runtime.ck_runtime_exiting


cdef void _end(Handle handle) noexcept:
    # If this raises (Ctrl-C, or a filter that turns the warning into an error), Cython prints the
    # exception, and the caller continues with the next handle.
    if handle._generation != ck_runtime_generation:
        return
    if handle._state == CLOSING and handle._closer != PyThread_get_thread_ident():
        # Another thread is closing it, and cannot finish after Python exits.
        if not handle._closed.wait(EXIT_WAIT_MS / 1e3):
            _warn_closing(handle)
    if handle._state != OPEN or not handle.stop(ck_runtime_now_ms() + EXIT_WAIT_MS):
        return
    try:
        _warn_unclosed(handle)
    finally:
        # If a call could not be woken, leak the handle, because the call still uses it.
        if not handle._calls:
            # Do not wait here: ck_end_all() waits for all slow handles together.
            handle.destroy(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE, NULL, ck_runtime_now_ms())
