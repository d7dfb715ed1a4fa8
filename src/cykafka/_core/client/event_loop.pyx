"""Watch: asyncio's loops serve a handle while coroutines await its results, without a thread.

librdkafka writes to a pipe when its queue becomes non-empty (rd_kafka_queue_io_event_enable), and
a loop that reads the pipe serves the queue. A queue has one such pipe. With several loops, one
serves, and the others learn of their results by call_soon_threadsafe(). Nothing tells them when
the serving one stops running, or is blocked; so they look at intervals. For a loop that cannot
read a pipe (Windows' proactor) a thread does so.
"""
import selectors
import threading
import weakref

cimport cython

from cpython.exc cimport PyErr_SetFromErrno

from cykafka._core.clib.csrc cimport (
    PyThread_get_thread_ident,
    ck_pipe_empty,
    ck_pipe_is_rung,
    ck_pipe_new,
    ck_pipe_reader,
    ck_pipe_ring,
    ck_pipe_t,
    ck_pipe_unref,
    ck_pipe_writer,
    ck_runtime_generation,
)
from cykafka._core.clib.librdkafka cimport (
    rd_kafka_queue_io_event_enable,
    rd_kafka_queue_length,
)
from cykafka._core.client.handle cimport AGAIN_LATER, AGAIN_SOON, NOT_AGAIN, Handle


cdef double LATER_S = 0.005
# How often a loop looks whether the serving one has work, and how soon then whether that is done.
cdef double LOOK_S = 0.5
cdef double LOOK_AGAIN_S = 0.1


# A loop that awaits.
@cython.final
cdef class Awaiting:

    # The number of its awaits.
    cdef int64_t cnt
    # The timer of its next look, while another loop serves.
    cdef object look
    # The watch's `turns` at the last look, if there was something to serve; otherwise -1.
    cdef int64_t turns

    def __cinit__(self):
        self.turns = -1


# The collector does not clear a watch, nor the handle that ends it, but the loop and _awaiting.
@cython.no_gc_clear
cdef class Watch:
    """The loops in which coroutines await results of one handle."""

    def __cinit__(self):
        self._generation = ck_runtime_generation

    def __dealloc__(self):
        ck_pipe_unref(self._pipe)

    def add(self, loop):
        """Serve the handle while this loop awaits; call it (and `remove`) in the loop's thread."""
        cdef Awaiting awaiting
        if self._generation != ck_runtime_generation:
            return
        with self._lock:
            if self._over:
                return
            awaiting = self._awaiting.get(loop)
            if awaiting is None:
                drop_closed(self._awaiting)
                awaiting = self._awaiting[loop] = Awaiting.__new__(Awaiting)
            awaiting.cnt += 1
            serving = self._loop
            try:
                # A loop that has stayed is not among those that await.
                if serving is not loop and (
                        serving not in self._awaiting or not serving.is_running()):
                    self.replace_by(loop)
                self.look_later(loop)
            except:
                awaiting.cnt -= 1
                if awaiting.cnt == 0:
                    self._awaiting.pop(loop, None)
                raise

    cdef int replace_by(self, loop) except -1:
        """Let this loop serve, and no longer the other one, which may run in another thread."""
        if self._loop is not None:
            before = self._loop
            self._loop = None
            self._forget(before)
        return self.start(loop)

    cdef int look_later(self, loop) except -1:
        """If another loop serves, look soon whether it does. Call it in the loop's thread."""
        cdef Awaiting awaiting = self._awaiting.get(loop)
        if awaiting is None or awaiting.look is not None or self._loop is loop:
            return 0
        pause = LOOK_S if awaiting.turns < 0 else LOOK_AGAIN_S
        awaiting.look = loop.call_later(pause, self._look, loop)
        return 0

    cdef bint has_work(self) except -1:
        """Whether the loop that serves has something to do."""
        cdef Handle handle = self._handle()
        if handle is None or handle._open_in != ck_runtime_generation:
            return False
        return (ck_pipe_is_rung(self.pipe())
                or rd_kafka_queue_length(handle._wait_queue) > 0)

    def _look(self, loop):
        """Serve, if the loop that should has stopped, or is blocked. If it is blocked in a
        callback of the client, the remaining callbacks wait all the same, for their order."""
        cdef Awaiting awaiting
        if self._generation != ck_runtime_generation:
            return
        with self._lock:
            awaiting = self._awaiting.get(loop)
            if awaiting is None or self._over:
                return
            awaiting.look = None
            before = awaiting.turns
            awaiting.turns = self.turns if self.has_work() else -1
            try:
                if self._loop is not loop and before == awaiting.turns != -1:
                    self.replace_by(loop)
            finally:
                self.look_later(loop)

    def remove(self, loop):
        """End one await of a loop; the inverse of `add`."""
        # In a forked child a thread that does not exist may hold the lock. A loop's epoll is
        # shared with the parent: removing a file descriptor here would remove it there too.
        cdef Awaiting awaiting
        if self._generation != ck_runtime_generation:
            return
        with self._lock:
            awaiting = self._awaiting.get(loop)
            if awaiting is not None:
                awaiting.cnt -= 1
                if awaiting.cnt > 0:
                    return
                if awaiting.look is not None:
                    awaiting.look.cancel()
                del self._awaiting[loop]
            if self._loop is not loop or (self.stays and not self._awaiting):
                return
            self.stop(loop)
            self._hand_on()

    def _hand_on(self):
        # Call all loops: the first that runs takes over; the others may run later.
        for other in list(self._awaiting):
            try:
                other.call_soon_threadsafe(self._take_over, other)
            except RuntimeError:
                # With an open loop, a signal handler has raised it.
                if not other.is_closed():
                    raise
                self._awaiting.pop(other, None)

    def _take_over(self, loop):
        if self._generation != ck_runtime_generation:
            return
        with self._lock:
            if not self._over and self._loop is None and loop in self._awaiting:
                self.start(loop)

    def join(self, waker):
        """Call ``waker(loop)`` whenever the handle's queue may have new entries, and at the end of
        the watch. It is called in any thread; `loop` is the one that runs there, or None. Join
        before looking into the queue."""
        self._wakers.add(waker)
        if self._over:
            waker(None)

    def part(self, waker):
        """The inverse of `join`."""
        self._wakers.discard(waker)

    def ring(self):
        """Call every waker, because a client's state has changed."""
        self.wake(None)

    cdef ck_pipe_t *pipe(self) except NULL:
        """The pipe whose bytes make the loop serve the handle. It lives as long as the watch, and
        as its other references."""
        with self._lock:
            if self._pipe is NULL:
                self._pipe = ck_pipe_new()
            if self._pipe is NULL:
                PyErr_SetFromErrno(OSError)
            return self._pipe

    cdef int wake(self, loop) except -1:
        on_served = self.on_served
        if on_served is not None:
            on_served()
        for waker in tuple(self._wakers):
            waker(loop)
        return 0

    cdef int start(self, loop) except -1:
        cdef Handle handle = self._handle()
        if handle is None or handle._open_in != ck_runtime_generation:
            return 0
        reader = ck_pipe_reader(self.pipe())
        try:
            loop.add_reader(reader, _Reader(self, loop))
        except NotImplementedError:
            self._thread = _ReaderThread(self, loop)
        if self._over or handle._open_in != ck_runtime_generation:
            self.remove_reader(loop)  # other code has closed the handle meanwhile
            return 0
        self._loop = loop
        rd_kafka_queue_io_event_enable(handle._wait_queue, ck_pipe_writer(self._pipe), b"1", 1)
        # Entries that are already in the queue do not write to the pipe.
        loop.call_soon(self._readable, loop)
        return 0

    cdef int stop(self, loop) except -1:
        cdef Handle handle = self._handle()
        self._loop = None
        if (handle is not None and handle._ptr is not NULL
                and handle._generation == ck_runtime_generation):
            rd_kafka_queue_io_event_enable(handle._wait_queue, -1, NULL, 0)
        self.remove_reader(loop)
        return 0

    cdef int remove_reader(self, loop) except -1:
        self.end_thread()
        return self.unread(loop)

    cdef int unread(self, loop) except -1:
        try:
            loop.remove_reader(ck_pipe_reader(self._pipe))
        except NotImplementedError:
            pass  # a thread has read for it
        return 0

    cdef int end_thread(self) except -1:
        """End the thread that reads the pipe, if there is one."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None
            ck_pipe_ring(self._pipe)
        return 0

    def end(self):
        """End the watch before the handle is destroyed. Any thread may call it."""
        cdef Handle handle = self._handle()
        with self._lock:
            self._over = True
            loop = self._loop
            self._loop = None
            self._awaiting.clear()
            if loop is not None and handle is not None and handle._ptr is not NULL:
                rd_kafka_queue_io_event_enable(handle._wait_queue, -1, NULL, 0)
        # Without the lock, because the producer's waker has a lock of its own.
        try:
            self.wake(None)
        finally:
            if loop is not None:
                self._forget(loop)

    def _forget(self, loop):
        self.end_thread()
        try:
            loop.call_soon_threadsafe(self._replaced, loop)
        except RuntimeError:
            # With an open loop, a signal handler has raised it.
            if not loop.is_closed():
                raise

    def _replaced(self, loop):
        # This call keeps the watch alive; when the watch is freed, it closes the pipe.
        if self._generation != ck_runtime_generation or loop is self._loop:  # it serves again
            return
        self.unread(loop)
        with self._lock:
            self.look_later(loop)

    def _left_closed(self, loop):
        # A loop has been closed with unfinished awaits: let another one serve.
        if self._generation != ck_runtime_generation:
            return
        with self._lock:
            self._awaiting.pop(loop, None)
            if self._loop is loop:
                self._loop = None
                self.end_thread()
                self._hand_on()

    def _readable(self, loop):
        cdef Handle handle = self._handle()
        # A forked child shares the pipe with its parent.
        if self._generation != ck_runtime_generation:
            return
        if handle is None:
            self.remove_reader(loop)
            return
        # A loop that no longer serves may still have this call. It must not read the other's pipe.
        if loop is not self._loop:
            return
        ck_pipe_empty(self._pipe)
        if self._thread is not None:
            self._thread.go_on()
        if handle._open_in != ck_runtime_generation:
            self.wake(loop)  # the closing thread serves, or a coroutine of this loop
            return
        self.serving_in = PyThread_get_thread_ident()
        self.serving = loop
        try:
            again = handle._role.serve_loop(handle, loop)
        except:
            # For the remaining events. Another loop may have taken over meanwhile.
            ck_pipe_ring(self._pipe)
            raise
        finally:
            self.serving = None
        self.turns += 1
        self.emptied += again == NOT_AGAIN
        self.wake(loop)
        if again == AGAIN_SOON:
            loop.call_soon(self._readable, loop)
        elif again == AGAIN_LATER:
            loop.call_later(LATER_S, self._readable, loop)


class _Reader:
    """The reader of a loop. Only the loop refers to it, so it is freed when the loop is closed."""

    def __init__(self, watch, loop):
        self._watch = watch
        self._loop = loop

    def __call__(self):
        self._watch._readable(self._loop)

    def __del__(self):
        if self._loop.is_closed():
            self._watch._left_closed(self._loop)


class _ReaderThread:
    """A thread that waits for the pipe's bytes for a loop without ``add_reader``."""

    def __init__(self, watch, loop):
        self._is_over = False
        self._is_emptied = threading.Event()
        selector = selectors.DefaultSelector()  # here, so that a failure reaches the caller
        try:
            selector.register(ck_pipe_reader((<Watch>watch)._pipe), selectors.EVENT_READ)
            threading.Thread(target=self._run, args=(watch, loop, selector),
                             name="cykafka-reader", daemon=True).start()
        except:
            selector.close()
            raise

    def go_on(self):
        """Wait for more, because the loop has emptied the pipe."""
        self._is_emptied.set()

    def end(self):
        """End the thread at the pipe's next byte, which it does not read."""
        self._is_over = True
        self._is_emptied.set()

    def _run(self, watch, loop, selector):
        with selector:
            while not self._is_over:
                selector.select()
                self._is_emptied.clear()
                if self._is_over:
                    return
                try:
                    loop.call_soon_threadsafe((<Watch>watch)._readable, loop)
                except RuntimeError:  # the loop is closed
                    (<Watch>watch)._left_closed(loop)
                    return
                self._is_emptied.wait()


cdef int drop_closed(dict by_loop) except -1:
    """Remove the closed loops, whose awaits do not end."""
    if len(by_loop) > 0:
        for each in list(by_loop):  # the collector, or another thread, may change it meanwhile
            if each.is_closed():
                by_loop.pop(each, None)
    return 0


cdef Watch watch_of(Handle handle):
    """The handle's watch; the first call makes it."""
    cdef Watch watch
    if handle._watch is None:
        watch = Watch.__new__(Watch)
        watch._handle = weakref.ref(handle)
        watch._lock = threading.RLock()
        watch._awaiting = {}
        watch._wakers = set()
        if handle._watch is None:
            handle._watch = watch
    return handle._watch


def watch(Handle handle not None):
    """The handle's watch, for cykafka.aio."""
    return watch_of(handle)
