"""Handle: the life of an rd_kafka_t, and its callbacks.

A handle is new, open, closing or closed. Every call that lets go of the GIL while it uses the
rd_kafka_t is counted between `enter` and `leave`; `close` first stops new calls, then wakes and
awaits those in flight, and only then destroys. Python callbacks run outside of counted calls
(rebalance callbacks excepted, see _consumer), so a callback may close its own handle.
"""
import atexit
import logging
import threading
import warnings
import weakref

from cpython.ref cimport Py_XDECREF, PyObject

from cykafka._config cimport conf_from, conf_set, take_bool, take_callable
cimport cykafka._csrc as runtime
from cykafka._csrc cimport (
    CK_EVENT_COMMIT,
    CK_EVENT_ERROR,
    CK_EVENT_LOG,
    CK_EVENT_REPORT,
    CK_EVENT_STATS,
    CK_EVENT_THROTTLE,
    CK_KIND_EVENT,
    CK_KIND_FETCHED,
    CK_KIND_HANDLE,
    CK_KIND_TOPIC,
    PyThread_get_thread_ident,
    ck_callback_destroy,
    ck_callback_error,
    ck_callback_is_background,
    ck_callback_log,
    ck_callback_poll,
    ck_callback_stats,
    ck_callback_throttle,
    ck_event_destroy,
    ck_queue_destroy,
    ck_queue_length,
    ck_queue_new,
    ck_queue_pop,
    ck_runtime_alive,
    ck_runtime_count,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._errors cimport error_from
from cykafka._librdkafka cimport (
    RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE,
    RD_KAFKA_PURGE_F_INFLIGHT,
    RD_KAFKA_PURGE_F_QUEUE,
    RD_KAFKA_RESP_ERR__INVALID_ARG,
    rd_kafka_conf_destroy,
    rd_kafka_conf_set_error_cb,
    rd_kafka_conf_set_log_cb,
    rd_kafka_conf_set_opaque,
    rd_kafka_conf_set_stats_cb,
    rd_kafka_conf_set_throttle_cb,
    rd_kafka_last_error,
    rd_kafka_name,
    rd_kafka_new,
    rd_kafka_outq_len,
    rd_kafka_purge,
    rd_kafka_queue_destroy,
    rd_kafka_queue_get_main,
    rd_kafka_queue_yield,
    rd_kafka_resp_err_t,
    rd_kafka_set_log_queue,
    rd_kafka_version_str,
)
from cykafka._message cimport Message
from cykafka._oauth cimport TokenSource
from cykafka._partition cimport partitions_from
from cykafka._util cimport int_ms

from cykafka._errors import KafkaError, KafkaException
from cykafka._version import __version__

cdef enum:
    NEW, OPEN, CLOSING, CLOSED

# How long a wait of the main thread lasts before signals are looked at, ms.
cdef int SIGNAL_SLICE = 100

# syslog's levels, 0 to 7, in Python's.
cdef tuple LOG_LEVELS = (logging.CRITICAL, logging.CRITICAL, logging.CRITICAL, logging.ERROR,
                         logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG)

_live = weakref.WeakSet()


class ThrottleEvent:
    """A broker slowed us down (quota): ``broker_name``, ``broker_id``, ``throttle_time`` (s)."""

    def __init__(self, broker_name, broker_id, throttle_time):
        self.broker_name = broker_name
        self.broker_id = broker_id
        self.throttle_time = throttle_time

    def __str__(self):
        return (f"{self.broker_name}/{self.broker_id} throttled "
                f"for {int(self.throttle_time * 1000)} ms")


def live_handles():
    """How many objects of librdkafka's are alive, by kind: for tests and for hunting leaks.

    Returns
    -------
    dict of str to int
        ``handles``, ``topics``, ``events`` (waiting for a callback), ``reports`` (messages in flight
        with a delivery callback) and ``fetched`` (messages librdkafka has lent us).
    """
    return {"handles": ck_runtime_alive(CK_KIND_HANDLE), "topics": ck_runtime_alive(CK_KIND_TOPIC),
            "events": ck_runtime_alive(CK_KIND_EVENT),
            "reports": runtime.ck_runtime_reports,
            "fetched": ck_runtime_alive(CK_KIND_FETCHED)}


cdef object _logger_of(object logger):
    if logger is None or hasattr(logger, "log"):
        return logger
    if isinstance(logger, logging.Handler):
        of_handler = logging.Logger("cykafka")
        of_handler.addHandler(logger)
        return of_handler
    raise TypeError("logger: expected a logging.Logger or logging.Handler, "
                    f"got {type(logger).__name__}")


cdef class Handle:
    """What Producer and Consumer share."""

    def __dealloc__(self):
        if self._ptr is not NULL and self._generation == ck_runtime_generation:
            self.drop_reports()
            with nogil:
                rd_kafka_queue_destroy(self._wait_queue)
                ck_callback_destroy(self._ptr, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE)
            self._ptr = NULL
            ck_runtime_count(CK_KIND_HANDLE, -1)
            _drain(self._events)
        if self._ptr is NULL:
            ck_queue_destroy(self._events)

    def __del__(self):
        if self._state == OPEN and self._generation == ck_runtime_generation:
            _warn_unclosed(self)

    # -- opening

    cdef int open(self, rd_kafka_type_t kind, dict config) except -1:
        cdef char errstr[512]
        cdef rd_kafka_conf_t *conf
        cdef rd_kafka_t *rk
        if self._state != NEW:
            raise RuntimeError(f"{_name(self)}: __init__ was called twice")
        self._error_cb = take_callable(config, "error_cb")
        self._throttle_cb = take_callable(config, "throttle_cb")
        self._stats_cb = take_callable(config, "stats_cb")
        oauth_cb = take_callable(config, "oauth_cb")
        self._logger = _logger_of(config.pop("logger", None))
        config.setdefault("client.software.name", "cykafka")
        config.setdefault("client.software.version",
                          f"{__version__}-librdkafka-{rd_kafka_version_str().decode()}")
        if self._logger is not None:
            config["log.queue"] = True
        self._events = ck_queue_new()
        if self._events is NULL:
            raise MemoryError
        if oauth_cb is not None:
            self._tokens = TokenSource(oauth_cb)
        self._dispatching = threading.RLock()
        conf = conf_from(config)
        try:
            self.set_callbacks(conf)
        except:
            rd_kafka_conf_destroy(conf)
            raise
        with nogil:
            rk = rd_kafka_new(kind, conf, errstr, sizeof(errstr))
        if rk is NULL:
            err = rd_kafka_last_error()
            rd_kafka_conf_destroy(conf)
            raise KafkaException(KafkaError(<int>err or <int>RD_KAFKA_RESP_ERR__INVALID_ARG,
                f"Failed to create {_name(self).lower()}: {errstr.decode('utf-8', 'replace')}"))
        self._ptr = rk
        self._generation = ck_runtime_generation
        self._wait_queue = rd_kafka_queue_get_main(rk)
        self._state = OPEN
        self._open_in = self._generation
        ck_runtime_count(CK_KIND_HANDLE, 1)
        _live.add(self)
        if self._logger is not None:
            rd_kafka_set_log_queue(rk, NULL)
        if self._tokens is not None:
            try:
                self._tokens.start(rk)
            except:
                if self.begin_close():
                    self.destroy(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE)
                raise
        return 0

    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1:
        """Register the C callbacks; those nobody wants are left to librdkafka's defaults."""
        rd_kafka_conf_set_opaque(conf, self._events)
        if self._error_cb is not None:
            rd_kafka_conf_set_error_cb(conf, ck_callback_error)
        if self._throttle_cb is not None:
            rd_kafka_conf_set_throttle_cb(conf, ck_callback_throttle)
        if self._stats_cb is not None:
            rd_kafka_conf_set_stats_cb(conf, ck_callback_stats)
        if self._logger is not None:
            rd_kafka_conf_set_log_cb(conf, ck_callback_log)
        if self._tokens is not None:
            self._tokens.enable(conf, self._events)
        self._has_callbacks = (self._error_cb is not None or self._throttle_cb is not None
                               or self._stats_cb is not None or self._logger is not None
                               or self._tokens is not None or self._on_commit is not None)
        return 0

    # -- calls in flight

    cdef rd_kafka_t *enter(self) except NULL:
        """Count a call that uses the rd_kafka_t without the GIL, or refuse it."""
        if self._open_in != ck_runtime_generation:
            self.refuse()
        self._calls += 1
        return self._ptr

    cdef void leave(self) noexcept:
        self._calls -= 1
        if self._calls == 0 and self._idle is not None:
            self._idle.set()

    cdef int refuse(self) except -1:
        """Raise unless the handle can be used: by the thread that is closing it, for its callbacks."""
        if _exiting and PyThread_get_thread_ident() != self._closer:
            raise SystemExit
        if self._state == NEW:
            raise RuntimeError(f"{_name(self)}: __init__ was not called")
        if self._generation != ck_runtime_generation:
            raise RuntimeError(f"{_name(self)} was made before a fork: librdkafka's threads do not "
                               "exist in this process; make a new one here")
        if self._state == CLOSED:
            raise RuntimeError(f"{_name(self)} is closed")
        if self._state == CLOSING and self._closer != PyThread_get_thread_ident():
            raise RuntimeError(f"{_name(self)} is being closed by another thread")
        return 0

    cdef int slice_ms(self, int64_t deadline) noexcept:
        """How long the next wait may last, ms; -1: forever. 0 once the deadline is over."""
        cdef int64_t left = -1
        if deadline >= 0:
            left = max(deadline - ck_runtime_now_ms(), 0)
        # Only the main thread ever sees a signal, so only it has to look.
        if PyThread_get_thread_ident() == _main_thread and (left < 0 or left > SIGNAL_SLICE):
            return SIGNAL_SLICE
        return int_ms(left)

    # -- callbacks

    cdef int dispatch(self, bint wait) except -1:
        """Run the Python callbacks of the events that are waiting.

        One thread at a time, so that reports come in order. With `wait`, those of another thread
        are over too when this returns. An exception leaves the rest for the next call.
        """
        cdef ck_event_t *event
        if self._raised is not None:
            raised = self._raised
            self._raised = None
            raise raised
        if self._tokens is not None:
            self._tokens.check()
        while True:
            if ck_queue_length(self._events) == 0 and not wait:
                return 0
            if not self._dispatching.acquire(blocking=wait):
                return 0
            try:
                while True:
                    event = ck_queue_pop(self._events)
                    if event is NULL:
                        break
                    self.serve(event)
            finally:
                self._dispatching.release()
            # Another thread may have pushed, found the lock taken and gone on.
            wait = False

    cdef int serve(self, ck_event_t *event) except -1:
        if event.kind == CK_EVENT_REPORT:
            return self.deliver(<ck_report_t *>event)
        try:
            if event.kind == CK_EVENT_ERROR:
                if self._error_cb is not None:
                    self._error_cb(KafkaError(event.code, _text(event), event.fatal))
            elif event.kind == CK_EVENT_THROTTLE:
                if self._throttle_cb is not None:
                    self._throttle_cb(ThrottleEvent(_text(event), event.code,
                                                    event.number / 1e3))
            elif event.kind == CK_EVENT_STATS:
                if self._stats_cb is not None:
                    self._stats_cb(_text(event))
            elif event.kind == CK_EVENT_COMMIT:
                if self._on_commit is not None:
                    error = (error_from(<rd_kafka_resp_err_t>event.code, NULL)
                             if event.code else None)
                    self._on_commit(error, partitions_from(event.partitions))
            elif event.kind == CK_EVENT_LOG:
                if self._logger is not None:
                    facility = b"" if event.facility is NULL else <bytes>event.facility
                    self._logger.log(LOG_LEVELS[max(0, min(event.code, 7))], "%s [%s] %s",
                                     facility.decode("utf-8", "replace"), self.name(),
                                     _text(event))
        finally:
            ck_event_destroy(event)
        return 0

    cdef int deliver(self, ck_report_t *report) except -1:
        # The reference that went with the message into librdkafka comes back to us here.
        cdef Message message = <Message>report.owner
        Py_XDECREF(<PyObject *>report.owner)
        runtime.ck_runtime_reports -= 1
        on_delivery = message._on_delivery
        message._on_delivery = None
        error = None
        if report.event.code:
            error = error_from(<rd_kafka_resp_err_t>report.event.code, report.event.text)
            message._error = error
            ck_event_destroy(&report.event)
        elif self._only_errors:
            return 0
        if on_delivery is not None:
            on_delivery(error, message)
        return 0

    cdef str name(self):
        return "" if self._ptr is NULL else rd_kafka_name(self._ptr).decode()

    # -- closing

    cdef bint begin_close(self) except -1:
        """Stop new calls and await those in flight. False if there is nothing left to close."""
        while True:
            if self._state in (NEW, CLOSED):
                return False
            if self._generation != ck_runtime_generation:
                # The parent's: nothing of it may be touched here, not even to free it.
                self._state = CLOSED
                return False
            if self._state == OPEN:
                break
            if self._closer == PyThread_get_thread_ident():
                return False  # a callback of our own close()
            self._closed.wait()
        if ck_callback_is_background():
            raise RuntimeError(f"{_name(self)}: close() cannot be called from oauth_cb, which runs on "
                               "a thread that the close has to wait for")
        try:
            self.stop(-1)
        except:
            self.abandon_close()
            raise
        return True

    cdef int stop(self, int64_t deadline) except -1:
        """Refuse new calls and wake those in flight until they have come back."""
        self._closed = threading.Event()
        self._idle = threading.Event()
        self._closer = PyThread_get_thread_ident()
        self._state = CLOSING
        self._open_in = 0
        while self._calls and (deadline < 0 or ck_runtime_now_ms() < deadline):
            # One waiting call eats a yield, and one that was about to wait misses it: again
            # and again, until all have come back and been refused.
            with nogil:
                rd_kafka_queue_yield(self._wait_queue)
            self._idle.wait(0.005)
        return 0

    cdef int abandon_close(self) except -1:
        """Open again what begin_close() has stopped (Ctrl-C came before anything was lost)."""
        self._state = OPEN
        self._open_in = self._generation
        self._idle = None
        self._closed.set()
        return 0

    cdef int release(self) noexcept:
        """Free what must go before the rd_kafka_t: a subclass's share."""
        return 0

    cdef int destroy(self, int flags) except -1:
        """The last step of closing: free the rd_kafka_t."""
        self.drop_reports()
        self.release()
        with nogil:
            rd_kafka_queue_destroy(self._wait_queue)
            ck_callback_destroy(self._ptr, flags)
        self._ptr = NULL
        self._state = CLOSED
        self._idle = None
        ck_runtime_count(CK_KIND_HANDLE, -1)
        _live.discard(self)
        self._closed.set()
        return 0

    cdef void drop_reports(self) noexcept:
        """Let librdkafka give back every message in flight: it forgets them when destroyed, and with
        them the reference each one with a callback holds."""
        cdef int64_t deadline = ck_runtime_now_ms() + 1000
        if runtime.ck_runtime_reports == 0:
            return
        with nogil:
            rd_kafka_purge(self._ptr, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT)
            while rd_kafka_outq_len(self._ptr) > 0 and ck_runtime_now_ms() < deadline:
                ck_callback_poll(self._ptr, 10)


cdef object _text(ck_event_t *event):
    return None if event.text is NULL else event.text[:event.text_len].decode("utf-8", "replace")


cdef str _name(Handle handle):
    return type(handle).__name__


cdef void _drain(ck_queue_t *events) noexcept:
    """Free what waits in the queue of a handle nobody can call any more."""
    cdef ck_event_t *event
    while True:
        event = ck_queue_pop(events)
        if event is NULL:
            return
        if event.kind == CK_EVENT_REPORT:
            runtime.ck_runtime_reports -= 1
            owner = (<ck_report_t *>event).owner
            ck_event_destroy(event)
            Py_XDECREF(<PyObject *>owner)
        else:
            ck_event_destroy(event)


def _warn_unclosed(Handle handle):
    undelivered = rd_kafka_outq_len(handle._ptr)
    if undelivered:
        warnings.warn(f"{_name(handle)} {handle.name()} was never closed: {undelivered} message(s) "
                      "or events in its queue are lost; call flush() or close()",
                      RuntimeWarning, stacklevel=2, source=handle)
    else:
        warnings.warn(f"{_name(handle)} {handle.name()} was never closed", ResourceWarning,
                      stacklevel=2, source=handle)


# -- process exit and fork

def _set_main_thread():
    global _main_thread
    _main_thread = threading.main_thread().ident or 0

cdef unsigned long _main_thread = 0
_set_main_thread()


@atexit.register
def _at_exit():
    """Destroy the handles that are still open: librdkafka's threads must not outlive what they use.

    Daemon threads that wait in a call end by SystemExit, which a thread takes without a word.
    """
    global _exiting
    _exiting = True
    for handle in list(_live):
        _end(handle)

cdef bint _exiting = False


cdef int _end(Handle handle) except -1:
    if handle._state != OPEN or handle._generation != ck_runtime_generation:
        return 0
    _warn_at_exit(handle)
    handle.stop(ck_runtime_now_ms() + 1000)
    # A call that cannot be woken keeps its handle: better unfreed than freed under it.
    if not handle._calls:
        handle.destroy(RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE)
    return 0


cdef void _warn_at_exit(Handle handle) noexcept:
    # An exception (a filter made the warning an error) is printed and ignored.
    _warn_unclosed(handle)
