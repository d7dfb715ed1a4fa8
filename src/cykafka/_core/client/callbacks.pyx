"""Callbacks: runs the program's callbacks for one client. TokenSource: calls `oauth_cb` for it.

librdkafka's callbacks (csrc/ck_callback) only push events to a queue. Calls to the client then run
the program's callbacks outside librdkafka, one thread at a time. `oauth_cb`, which returns SASL
OAUTHBEARER tokens (KIP-255), is the exception: librdkafka's background thread takes the GIL and
calls it, so refreshing a token does not need poll().
"""
import logging
import math
import threading

from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject, Py_XDECREF
cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from cykafka._core.clib.csrc cimport *
cimport cykafka._core.clib.csrc as runtime
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.role cimport Role
from cykafka._core.common.arguments cimport NOW, SLICE, hidden_utf8, slice_left
from cykafka._core.common.config cimport take_callable
from cykafka._core.common.errors cimport chain
from cykafka._core.common.message cimport in_flight_destroy, in_flight_t

from cykafka._core.common.errors import ForkedError, KafkaError, KafkaException
from cykafka._core.common.naming import public

# Python's logging levels for syslog levels 0 to 7.
cdef tuple LOG_LEVELS = (logging.CRITICAL, logging.CRITICAL, logging.CRITICAL, logging.ERROR,
                         logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)
# How long a constructor waits for the first token, s.
_FIRST_TOKEN_TIMEOUT = 10


@public("cykafka")
class ThrottleEvent:
    """A broker throttled the client because of a quota: ``broker_name``, ``broker_id`` and
    ``throttle_time`` (s)."""

    def __init__(self, broker_name, broker_id, throttle_time):
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self):
        return (f"{self.broker_name}/{self.broker_id} throttled "
                f"for {int(self.throttle_time * 1000)} ms")


# The garbage collector does not clear this object, but breaks cycles in its dict of callables.
@cython.final
@cython.no_gc_clear
cdef class Callbacks:
    """The callbacks of one client. The handle owns this object, which does not refer to it."""

    def __cinit__(self):
        self._functions = {}

    cdef int configure(self, dict config) except -1:
        """Take the callbacks that every client has out of a configuration."""
        error_cb = take_callable(config, "error_cb")
        throttle_cb = take_callable(config, "throttle_cb")
        stats_cb = take_callable(config, "stats_cb")
        oauth_cb = take_callable(config, "oauth_cb")
        logger = _logger_of(config.pop("logger", None))
        self._functions = {"error_cb": error_cb, "throttle_cb": throttle_cb,
                           "stats_cb": stats_cb, "logger": logger}
        self.tokens = None if oauth_cb is None else TokenSource(oauth_cb)
        self._lock = threading.Lock()
        self.any = oauth_cb is not None or any(
            [item is not None for item in self._functions.values()])
        return 0

    cdef bint has_logger(self) noexcept:
        return self._functions["logger"] is not None

    cdef int install(self, rd_kafka_conf_t *conf, ck_queue_t *events) except -1:
        """Make librdkafka push events to the queue. Never raises: the configuration would leak."""
        self.events = events
        rd_kafka_conf_set_opaque(conf, events)
        # If a callback is None, keep librdkafka's default.
        if self._functions["error_cb"] is not None:
            rd_kafka_conf_set_error_cb(conf, ck_callback_error)
        if self._functions["throttle_cb"] is not None:
            rd_kafka_conf_set_throttle_cb(conf, ck_callback_throttle)
        if self._functions["stats_cb"] is not None:
            rd_kafka_conf_set_stats_cb(conf, ck_callback_stats)
        rd_kafka_conf_set_log_cb(conf, ck_callback_log if self.has_logger() else ck_callback_print)
        if self.tokens is not None:
            self.tokens.enable(conf, events)
        else:
            ck_queue_attach(events, CK_SLOT_TOKENS, NULL)
        return 0

    cdef int dispatch(self, object client, Role role, int64_t deadline) except -1:
        """Run the Python callbacks for the waiting events.

        One thread at a time runs callbacks, so that reports arrive in order. If another thread
        runs them, wait for it until the deadline (-1: forever; NOW: not at all). If a callback
        raises, the next call handles the remaining events, or this call if the handle is closed.
        Inside a callback, this does nothing: the outer call continues.
        """
        cdef unsigned long me = PyThread_get_thread_ident()
        if self.raised is not None:
            raised = self.raised
            self.raised = None
            raise raised
        if self.tokens is not None:
            self.tokens.check()
        if self.dispatcher == me or self.events is NULL:
            return 0
        while True:
            if deadline == NOW and ck_queue_is_empty(self.events):
                return 0
            if deadline == NOW:
                taken = self._lock.acquire(False)
            else:
                wait = slice_left(deadline)
                taken = self._lock.acquire(True, wait / 1e3)
                if self.generation != ck_runtime_generation:
                    raise forked_error(self.kind)  # a signal handler forked: parent owns the lock
                if not taken and wait == SLICE:
                    continue
            if not taken:
                return 0
            self.dispatcher = me
            raised = None
            try:
                while True:
                    try:
                        self.run(client, role)
                        break
                    except BaseException as exception:
                        if not self.closed or self.generation != ck_runtime_generation:
                            raise
                        # A callback closed the handle, so there will be no further call.
                        raised = chain(raised, exception)
                if raised is not None:
                    raise raised
            finally:
                self.dispatcher = 0
                self._lock.release()
            # Another thread may have pushed an event and skipped the lock, which was held.
            deadline = NOW

    cdef int64_t count_waiting(self) noexcept:
        """Return the number of events that this thread's next dispatch() handles."""
        if self.events is NULL or self.dispatcher == PyThread_get_thread_ident():
            return 0
        return ck_queue_length(self.events)

    cdef int run(self, object client, Role role) except -1:
        """Run the callbacks for the waiting events, until one raises."""
        cdef ck_event_t *event
        while True:
            # Handle Ctrl-C now: inside the callback it would lose the report.
            PyErr_CheckSignals()
            event = ck_queue_pop(self.events)
            if event is NULL:
                return 0
            if event.kind in (CK_EVENT_ERROR, CK_EVENT_THROTTLE, CK_EVENT_STATS, CK_EVENT_LOG):
                self.serve(<ck_notice_t *>event)
            else:
                role.serve(client, event)
            if self.generation != ck_runtime_generation:
                raise forked_error(self.kind)  # a callback forked: the parent has the other events

    cdef int serve(self, ck_notice_t *notice) except -1:
        """Handle an event that any kind of client may get."""
        cdef ck_event_kind_t kind = notice.event.kind
        try:
            if kind == CK_EVENT_ERROR:
                callback = self._functions.get("error_cb")
                if callback is not None:
                    callback(KafkaError(notice.event.code, _text(notice), notice.fatal))
            elif kind == CK_EVENT_THROTTLE:
                callback = self._functions.get("throttle_cb")
                if callback is not None:
                    callback(ThrottleEvent(_text(notice), notice.event.code, notice.number / 1e3))
            elif kind == CK_EVENT_STATS:
                callback = self._functions.get("stats_cb")
                if callback is not None:
                    callback(_text(notice))
            else:
                logger = self._functions.get("logger")
                if logger is not None:
                    facility = b"" if notice.facility is NULL else <bytes>notice.facility
                    logger.log(LOG_LEVELS[max(0, min(notice.event.code, 7))], "%s [%s] %s",
                               facility.decode("utf-8", "replace"), self.label, _text(notice))
        finally:
            ck_event_destroy(&notice.event)
        return 0


cdef object _logger_of(object logger):
    if logger is None or hasattr(logger, "log"):
        return logger
    if isinstance(logger, logging.Handler):
        of_handler = logging.Logger("cykafka")
        of_handler.addHandler(logger)
        return of_handler
    raise TypeError("logger: expected a logging.Logger or logging.Handler, "
                    f"got {type(logger).__name__}")


cdef object forked_error(str kind):
    """Create the error for a client of this kind that was created before a fork."""
    return ForkedError(f"{kind} was created before a fork: librdkafka's threads do not exist in "
                       "this process; create a new one here")


cdef object _text(ck_notice_t *notice):
    if notice.text is NULL:
        return None
    return notice.text[:notice.text_len].decode("utf-8", "replace")


cdef void release_events(ck_queue_t *events) noexcept:
    """Drop a reference to a handle's queue. The last drop also frees the waiting events."""
    cdef ck_event_t *event
    if events is NULL:
        return
    while ck_queue_is_last(events):
        event = ck_queue_pop(events)
        if event is NULL:
            ck_inflight_destroy(<ck_inflight_t *>ck_queue_attached(events, CK_SLOT_INFLIGHT))
            break
        drop_event(event)
    ck_queue_destroy(events)


cdef void drop_event(ck_event_t *event) noexcept:
    """Free an event without running its callback."""
    if event.kind == CK_EVENT_REPORT:
        in_flight_destroy(<in_flight_t *>event)
    elif event.kind == CK_EVENT_DELIVERY:
        Py_XDECREF(<PyObject *>ck_delivery_of_event(event, True))
    else:
        ck_event_destroy(event)


cdef class TokenSource:
    """Calls `oauth_cb` and passes its tokens to librdkafka."""

    def __cinit__(self, callback):
        self._callback = callback
        self._first = threading.Event()

    cdef int enable(self, rd_kafka_conf_t *conf, ck_queue_t *events) except -1:
        """Call this before rd_kafka_new(). The handle keeps this object as long as the rd_kafka_t.
        """
        ck_queue_attach(events, CK_SLOT_TOKENS, <void *>self)
        rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, _on_refresh)
        rd_kafka_conf_enable_sasl_queue(conf, 1)
        return 0

    cdef int wait(self) except -1:
        """Wait for the first token. Call this after rd_kafka_new()."""
        if not self._first.wait(_FIRST_TOKEN_TIMEOUT):
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED,
                f"oauth_cb returned no token within {_FIRST_TOKEN_TIMEOUT} s"))
        if self._failure is not None:
            failure = self._failure
            self._failure = self._raised = None
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED,
                f"oauth_cb failed: {_failure_text(failure)}")) from failure
        return 0

    cdef int check(self) except -1:
        """If oauth_cb has raised since the last call, raise its exception."""
        if self._raised is not None:
            raised = self._raised
            self._raised = None
            raise raised
        return 0

    cdef int refresh(self, rd_kafka_t *rk, str config) except -1:
        try:
            _set_token(rk, self._callback(config))
            # An error that no call has raised is over. librdkafka has reported it.
            self._failure = self._raised = None
        except BaseException as failure:
            self._failure = self._raised = failure
            # librdkafka retries in 10 s.
            words = f"oauth_cb: {_failure_text(failure)}".encode(errors="replace")
            rd_kafka_oauthbearer_set_token_failure(rk, words)
        finally:
            self._first.set()
        return 0


cdef void _on_refresh(rd_kafka_t *rk, const char *config, void *opaque) noexcept nogil:
    # While the interpreter exits, the GIL may be unavailable, and clients need no more tokens.
    if not runtime.ck_runtime_exiting:
        _refresh(rk, config, opaque)


cdef void _refresh(rd_kafka_t *rk, const char *config, void *opaque) noexcept with gil:
    cdef TokenSource source = <TokenSource>ck_queue_attached(<ck_queue_t *>opaque, CK_SLOT_TOKENS)
    ck_callback_on_background(True)
    try:
        source.refresh(rk, "" if config is NULL else config.decode("utf-8", "replace"))
    finally:
        ck_callback_on_background(False)


cdef void release_tokens(ck_queue_t *events) noexcept:
    """Drop the reference that a destroyed rd_kafka_t had to its token source."""
    cdef PyObject *tokens = <PyObject *>ck_queue_attached(events, CK_SLOT_TOKENS)
    ck_queue_attach(events, CK_SLOT_TOKENS, NULL)
    Py_XDECREF(tokens)


cdef str _failure_text(object failure):
    """Return an exception's type and, unless its __str__ raises, its text."""
    name = type(failure).__name__
    try:
        return f"{name}: {failure}"
    except Exception:
        return name


cdef int _set_token(rd_kafka_t *rk, object result) except -1:
    cdef char errstr[512]
    cdef const char **c_extensions = NULL
    cdef const char *c_token
    cdef const char *c_principal
    cdef rd_kafka_resp_err_t err
    cdef int64_t expiry_ms
    cdef size_t cnt, i
    if not isinstance(result, tuple) or not 2 <= len(result) <= 4:
        raise TypeError("oauth_cb: expected a tuple (token, expiry in seconds since the epoch"
                        f"[, principal[, extensions]]), got {type(result).__name__}")
    token, expiry, principal, extensions = result + ("", {})[len(result) - 2:]
    if not isinstance(token, str):
        raise TypeError(f"oauth_cb: expected a str as token, got {type(token).__name__}")
    if not isinstance(extensions, dict):
        raise TypeError("oauth_cb: expected a dict as extensions, "
                        f"got {type(extensions).__name__}")
    if not math.isfinite(expiry):
        raise ValueError(f"oauth_cb: {expiry} is not a valid expiry time")
    expiry_ms = <int64_t>(<double>expiry * 1000)
    token = _plain(token, "token")
    principal = _plain(principal or "", "principal")
    encoded = [_plain(text, "extension") for pair in extensions.items() for text in pair]
    c_token = token
    c_principal = principal
    cnt = len(encoded)
    c_extensions = <const char **>malloc((cnt + 1) * sizeof(char *))
    if c_extensions is NULL:
        raise MemoryError
    try:
        for i in range(cnt):
            c_extensions[i] = <const char *><bytes>encoded[i]
        err = rd_kafka_oauthbearer_set_token(rk, c_token, expiry_ms, c_principal, c_extensions,
                                             cnt, errstr, sizeof(errstr))
    finally:
        free(c_extensions)
    if err:
        words = errstr.decode("utf-8", "replace")
        for secret in (token, *encoded[1::2]):  # librdkafka quotes values that it rejects
            words = words.replace(secret.decode(), "[redacted]") if secret else words
        raise ValueError(f"oauth_cb: {words}")
    return 0


cdef bytes _plain(object text, str what):
    """Encode a part of a token as UTF-8. Errors never show it."""
    if not isinstance(text, str):
        raise TypeError(f"oauth_cb: expected a str as {what}, got {type(text).__name__}")
    if "\0" in text:
        raise ValueError(f"oauth_cb: the {what} cannot contain a NUL character")
    return hidden_utf8(text, f"oauth_cb: {what}")
