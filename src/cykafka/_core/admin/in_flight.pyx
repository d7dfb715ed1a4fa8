"""InFlightRequests: an administrative client's requests in flight, and their futures.

librdkafka puts the responses on cykafka's queue. A Python thread reads the queue while requests
are in flight, so programs need not call poll(). cykafka cannot use librdkafka's background queue:
its thread must not close the handle, and it drops unserved responses when the handle is destroyed.
"""
import threading
from concurrent.futures import Future

cimport cython

from cykafka._core.admin.request cimport Request, choose_options, new_options, options_t
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport NOT_AGAIN, Role
from cykafka._core.common.arguments cimport NOW
from cykafka._core.common.errors cimport error_from

from cykafka._core.common.errors import KafkaError


# Errors of partitions that may by now have another leader, or a new epoch of the same leader.
_NO_LEADER = (<int>RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
              <int>RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
              <int>RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH,
              <int>RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH)


@cython.final
@cython.no_gc_clear
cdef class InFlightRequests(Role):
    """One client's requests, and the role of its handle."""

    def __cinit__(self):
        self.pending = {}

    # -- the role

    cdef void wake(self, ck_queue_t *events) noexcept nogil:
        if self._results is not NULL:
            rd_kafka_queue_yield(self._results)

    cdef int serve_loop(self, object client) except -1:
        cdef Handle handle = client
        cdef rd_kafka_event_t *event
        while self._results is not NULL:
            event = rd_kafka_queue_poll(self._results, 0)
            if event is NULL:
                break
            self.complete(handle, event)
        if handle._open_in == ck_runtime_generation:
            ck_callback_poll(handle._ptr, 0)
            handle.dispatch(NOW)
        return NOT_AGAIN

    cdef int release(self, object client) except -1:
        cdef rd_kafka_queue_t *results = self._results
        try:
            (<Handle>client).end_watch()
        finally:
            self._results = NULL
            if results is not NULL:
                with nogil:
                    rd_kafka_queue_destroy(results)
        return 0

    cdef int ended(self, object client) except -1:
        """Fail the remaining futures."""
        while self.pending:
            _, request = self.pending.popitem()
            (<Request>request).settle(KafkaError(<int>RD_KAFKA_RESP_ERR__DESTROY,
                                                 f"{type(client).__name__} was closed before the "
                                                 "response arrived"))
        return 0

    # -- requests

    cdef object send(self, Handle handle, Request request, object keys, dict options):
        """Send a request and return its futures; see Admin._send()."""
        cdef options_t chosen
        cdef rd_kafka_AdminOptions_t *c_options
        cdef char errstr[512]
        cdef size_t number
        cdef rd_kafka_t *rk
        cdef ck_pipe_t *pipe = NULL
        choose_options(&chosen, options)
        futures = _future() if keys is None else {key: _future() for key in keys}
        if self.watch is not None:
            pipe = self.watch.pipe()
        rk = handle.enter()
        if self._results is NULL:
            self._results = rd_kafka_queue_new(rk)
            if self.watch is not None:
                rd_kafka_queue_io_event_enable(self._results, ck_pipe_writer(pipe), b"1", 1)
        handle.leave()
        if isinstance(futures, dict) and not futures:
            return futures
        # Copy the dict: the caller may empty it before the response arrives.
        request._futures = futures if keys is None else dict(futures)
        self._number += 1
        number = self._number
        self.pending[number] = request
        try:
            self.ensure_thread(handle)
            rk = handle.enter()
            with nogil:
                c_options = new_options(rk, request._op, &chosen, <void *>number, errstr,
                                        sizeof(errstr))
                if c_options is not NULL:
                    request.submit(rk, c_options, self._results)
                    rd_kafka_AdminOptions_destroy(c_options)
            handle.leave()
            if c_options is NULL:
                raise ValueError(errstr.decode("utf-8", "replace"))
        except:
            self.pending.pop(number, None)
            self.wake_thread(handle)
            raise
        return futures

    cdef int ensure_thread(self, Handle handle) except -1:
        # The thread holds the GIL from its last check of pending until it resets _serving.
        if not self._serving and self.watch is None:
            self._serving = True
            try:
                threading.Thread(target=_serve_results, args=(self, handle), daemon=True,
                                 name=f"{type(handle).__name__} results").start()
            except:
                self._serving = False
                raise
        return 0

    cdef int wake_thread(self, Handle handle) except -1:
        """Wake the thread, so that it checks whether any request is left."""
        if self._results is not NULL and handle._open_in == ck_runtime_generation:
            rd_kafka_queue_yield(self._results)
        return 0

    # -- responses

    cdef int serve_results(self, Handle handle) except -1:
        """Deliver responses until every request has one, and keep the handle alive until then."""
        cdef rd_kafka_event_t *event
        while self.pending:
            if handle._generation != ck_runtime_generation:
                return 0  # a future's callback has forked: the rest belongs to the parent
            if handle._open_in != ck_runtime_generation:
                # Another thread closes the handle. Wait for it: Ctrl-C may make it give up.
                handle._closed.wait()
                if handle._open_in != ck_runtime_generation:
                    return 0
            handle._calls += 1
            with nogil:
                event = rd_kafka_queue_poll(self._results, -1)
            handle.leave()
            if event is not NULL:
                self.complete(handle, event)
        return 0

    cdef int complete(self, Handle handle, rd_kafka_event_t *event) except -1:
        # cykafka owns the event, which may outlive the handle, so this is not a counted call.
        cdef Request request = self.pending.pop(<size_t>rd_kafka_event_opaque(event), None)
        cdef rd_kafka_resp_err_t err
        outcome = None
        try:
            if request is not None:
                err = rd_kafka_event_error(event)
                if err:
                    outcome = error_from(err, rd_kafka_event_error_string(event))
                    if err == RD_KAFKA_RESP_ERR__TIMED_OUT:
                        self.refresh_metadata(handle, False)
                    elif err == RD_KAFKA_RESP_ERR__NOENT:  # no partition has a leader
                        self.refresh_metadata(handle, True)
                else:
                    outcome = request.decode(event)
                    if isinstance(outcome, dict) and any(
                            isinstance(item, KafkaError) and item in _NO_LEADER
                            for item in outcome.values()):
                        self.refresh_metadata(handle, True)
        except BaseException as failure:
            outcome = failure
        finally:
            with nogil:
                rd_kafka_event_destroy(event)
        if request is not None:
            try:
                request.settle(outcome)
            except BaseException as failure:
                request.settle(failure)  # the response has an unexpected format
        return 0

    cdef int refresh_metadata(self, Handle handle, bint topics) except -1:
        """Make librdkafka request the controller and the partition leaders again, without waiting.

        Without this, a client without topics would learn only at the next regular refresh, minutes
        later, that the controller has moved or that a topic now has leaders. All requests until
        then would fail too. librdkafka's thread handles the response.
        """
        cdef const rd_kafka_metadata_t *metadata = NULL
        if handle._open_in != ck_runtime_generation:
            return 0
        handle._calls += 1
        with nogil:
            rd_kafka_metadata(handle._ptr, topics, NULL, &metadata, 0)
            if metadata is not NULL:
                rd_kafka_metadata_destroy(metadata)
        handle.leave()
        return 0


def _serve_results(InFlightRequests requests not None, Handle handle not None):
    try:
        requests.serve_results(handle)
    finally:
        requests._serving = False


def _future():
    future = Future()
    future.set_running_or_notify_cancel()
    return future
