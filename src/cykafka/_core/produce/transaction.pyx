"""Transactions (KIP-98, KIP-447): the state of a producer's transaction, and its calls.

The calls return librdkafka's error as a KafkaError, or None. They raise the exceptions of
callbacks and signal handlers. So an exception is never mistaken for the transaction's outcome.

Transaction is the block of ``with producer.transaction(consumer):``. The block begins the
transaction, commits it at its end, and aborts it on an exception. With a consumer, the block
commits the consumer's positions with the records. If the block fails or cannot begin, the consumer
seeks back. docs/design/batches.md (Transaction blocks) explains why.
"""
import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
cimport cython

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.call cimport Call, new_step, pause, run
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport NOW, SLICE, deadline_after, plain_str, slice_end
from cykafka._core.common.config cimport int_conf, text_conf
from cykafka._core.common.errors cimport chain, check_error, take_error
from cykafka._core.common.partition cimport c_name, partitions_to
from cykafka._core.consume.consumer cimport Consumer
from cykafka._core.produce.delivery cimport Delivery

from cykafka._core.common.errors import ClosedError, KafkaError, KafkaException

_log = logging.getLogger("cykafka")

# What close() could not end: an abort, or a commit.
_NOT_ENDED = ("the open transaction could not be aborted",
              "the transaction's commit did not finish")
# librdkafka expects another call, or another thread is in the same call.
_CONFLICTS = (<int>RD_KAFKA_RESP_ERR__CONFLICT, <int>RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS)


@cython.final
@cython.no_gc_clear
cdef class Transactions:
    """The transactions of one producer."""

    def __cinit__(self):
        self._sending = []
        self._resuming = set()
        self._steps = []

    cdef int configure(self, rd_kafka_conf_t *conf) except -1:
        if text_conf(conf, "transactional.id") == "":
            # Brokers reject a blank id, and librdkafka retries until its timeout.
            raise ValueError("transactional.id: expected a name or None, got a blank text")
        self.timeout_ms = int_conf(conf, "transaction.timeout.ms", 60000)
        return 0

    cdef int check_outside(self) except -1:
        """Raise if a callback in a transaction call makes another one: the first has not ended."""
        if self._resuming and PyThread_get_thread_ident() in self._resuming:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__CONFLICT,
                "A callback that runs in a transaction call cannot use the same producer's "
                "transactions: make its call after the one that runs the callback"))
        return 0

    # -- calls

    cdef int begin(self, Handle handle) except -1:
        cdef rd_kafka_error_t *error
        self.check_outside()
        rk = handle.enter()
        with nogil:
            error = rd_kafka_begin_transaction(rk)
        handle.leave()
        if error is not NULL:
            failure = take_error(error)
            if failure == <int>RD_KAFKA_RESP_ERR__STATE:
                failure = KafkaError(failure.code(), failure.str() + (
                    ": commit or abort the open transaction first" if self.initialized
                    else ": call init_transactions() first"), txn_requires_abort=False)
            raise KafkaException(failure)
        self.begun = True
        self.aborted = False
        self._number += 1
        self._incomplete = None
        self._refused = 0
        return 0

    def send_offsets(self, Handle handle not None, positions, group_metadata, int64_t ms):
        """An operation: Producer.send_offsets_to_transaction(). Its result is librdkafka's
        KafkaError, or None; it raises all other errors."""
        cdef rd_kafka_error_t *error
        cdef const char *group = NULL
        cdef str name
        cdef Call call
        cdef int64_t deadline = deadline_after(ms)
        if not isinstance(group_metadata, (bytes, str)):
            raise TypeError("group_metadata: expected the result of consumer_group_metadata(), "
                            f"or a group name, got {type(group_metadata).__name__}")
        if isinstance(group_metadata, str):
            name = plain_str(group_metadata)
            if not name or "\0" in name:
                raise ValueError(f"group_metadata: expected a group name, got {name!r}")
            group = c_name(name)
        handle.check_open()
        self.check_outside()
        call = new_step(handle, CK_CALL_SEND_OFFSETS, ms)
        call.c.partitions = partitions_to(positions, "positions")
        if group is not NULL:
            call.c.group = rd_kafka_consumer_group_metadata_new(group)
        else:
            check_error(rd_kafka_consumer_group_metadata_read(
                &call.c.group, PyBytes_AS_STRING(group_metadata),
                PyBytes_GET_SIZE(group_metadata)))
        # The outcome of an interrupted call does not matter: this call repeats or replaces it.
        while (yield from self.settle(handle, deadline)) is not None:
            pass
        if ms >= 0:
            call._ms = max(deadline - ck_runtime_now_ms(), 0)
        self._senders += 1
        try:
            yield call
        except:
            if call.is_started():
                self._sending.append(call)
            raise
        finally:
            self._senders -= 1
        error = call.c.error
        call.c.error = NULL
        if error is not NULL:
            return take_error(error)
        return None

    cdef int64_t deadline_of(self, int64_t ms) noexcept:
        return deadline_after(self.timeout_ms if ms < 0 else ms)

    def repeat(self, Handle handle not None, int call, int64_t deadline, bint in_thread):
        """An operation: make a resumable call until the deadline. Its result is librdkafka's
        KafkaError, or None.

        in_thread: a thread waits and runs the callbacks; otherwise an event loop runs them. The
        thread may also wait for callbacks in other threads, and its own callbacks cannot make
        transaction calls.
        """
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef bint nested = me in self._resuming
        handle.check_open()
        if not in_thread:
            return (yield from self.make_in_slices(handle, call, deadline, False))
        self._resuming.add(me)
        try:
            return (yield from self.make_in_slices(handle, call, deadline, True))
        finally:
            if not nested:
                self._resuming.discard(me)

    def make_in_slices(self, Handle handle not None, int call, int64_t deadline, bint in_thread):
        """See repeat()."""
        cdef int64_t started
        cdef rd_kafka_error_t *error
        cdef Call step
        cdef bint conflict = True
        cdef bint begun = self.begun and call != CALL_INIT
        cdef int64_t number = self._number
        while True:
            if begun and self.has_ended(number, call):
                return None  # a callback or signal handler has ended it, with close() for example
            if conflict:
                while True:
                    failure = yield from self.settle(handle, deadline)
                    if failure is None:
                        break
                    if call == CALL_COMMIT:
                        return failure  # not raised yet, and the offsets are missing
            started = ck_runtime_now_ms()
            step = new_step(handle, kind_of(call), max(0, min(SLICE, deadline - started)))
            step.c.events = handle._events
            self._steps.append(step)
            try:
                yield step
            except BaseException as raised:
                if not step.is_started():
                    self.note(step)
                if begun and isinstance(raised, ClosedError) and self.has_ended(number, call):
                    return None  # close() has ended it
                raise
            self.note(step)  # before any callback, which may raise
            if not step.c.entered:
                handle.check_open()
                continue  # another thread closes the producer, or has tried to close it
            error = step.c.error
            step.c.error = NULL
            if error is NULL:
                if in_thread:
                    handle.dispatch(deadline)
                return None
            failure = take_error(error)
            conflict = failure in _CONFLICTS
            if conflict:
                # Another call is pending. Only another thread's send_offsets_to_transaction() ends
                # without a repeat; close() waits for it.
                if handle._open_in == ck_runtime_generation or not (
                        self._senders or self._sending):
                    return failure
            elif not failure.retriable():
                # Another thread or task may have ended the transaction first, as close() does.
                yield from self.note_others(handle)
                return None if begun and self.has_ended(number, call) else failure
            if ck_runtime_now_ms() >= deadline:
                return failure
            if in_thread:
                handle.dispatch(slice_end(deadline))
            if begun and not self.begun:
                continue
            # If the slice ended early, the error is temporary: serve for the rest of the slice.
            yield pause(handle, max(0, min(started + SLICE, deadline) - ck_runtime_now_ms()))

    cdef bint has_calls(self) noexcept:
        """Whether a thread or a task makes a transaction call."""
        return bool(self._steps) or self._senders > 0 or bool(self._sending)

    cdef bint has_ended(self, int64_t number, int call) noexcept:
        """Whether a call of this kind has ended the transaction with this number."""
        return (number == self._number and not self.begun
                and self.aborted == (call == CALL_ABORT))

    cdef int note(self, Call step) except -1:
        """Update the state with a call's outcome, unless another thread or task has done so."""
        cdef rd_kafka_error_t *error = step.c.error
        if step not in self._steps:
            return 0
        self._steps.remove(step)
        if not step.c.entered:
            return 0
        if error is not NULL:
            if <int>rd_kafka_error_code(error) not in _CONFLICTS and (
                    self.begun or step.c.kind == CK_CALL_INIT_TRANSACTIONS):
                self.pending = (call_of(step.c.kind) if rd_kafka_error_is_retriable(error)
                                else CALL_NONE)
            return 0
        self.pending = CALL_NONE
        if step.c.kind == CK_CALL_INIT_TRANSACTIONS:
            self.initialized = True
        else:
            self.begun = False
            self.aborted = step.c.kind == CK_CALL_ABORT_TRANSACTION
            self._incomplete = None
        return 0

    def note_others(self, Handle handle not None):
        """An operation: wait for the calls of other threads and tasks, and update the state with
        their outcomes."""
        cdef Call step
        for step in tuple(self._steps):
            while step in self._steps and handle._generation == ck_runtime_generation:
                if ck_call_wait(step.c, 0):
                    self.note(step)
                else:
                    yield pause(handle, 1)

    def settle(self, Handle handle not None, int64_t deadline):
        """An operation: wait for an interrupted send_offsets_to_transaction(), because librdkafka
        rejects all other calls until then.

        Its result is the call's KafkaError, or None if no such call is left or the deadline has
        passed. After the deadline, the next call gets librdkafka's own error.
        """
        cdef Call sending
        cdef rd_kafka_error_t *error
        while self._sending:
            sending = self._sending[0]
            sending._deadline = deadline
            yield sending
            if not ck_call_wait(sending.c, 0):
                return None
            if sending in self._sending:  # no other thread has taken its outcome
                self._sending.remove(sending)
                error = sending.c.error
                sending.c.error = NULL
                if error is not NULL:
                    return take_error(error)
        return None

    def finish_pending(self, Handle handle not None, int64_t deadline, bint in_thread):
        """An operation: complete the commit or the abort that an earlier call could not complete.
        Its result is the KafkaError, or None. If a commit fails and the error requires an abort,
        it aborts the transaction."""
        cdef object error = None
        if self.pending == CALL_COMMIT:
            error = yield from self.repeat(handle, CALL_COMMIT, deadline, in_thread)
            if error is not None and error.txn_requires_abort():
                try:
                    yield from self.repeat(handle, CALL_ABORT, deadline, in_thread)
                except BaseException as exception:
                    raise chain(KafkaException(error), exception)
        elif self.pending == CALL_ABORT:
            error = yield from self.repeat(handle, CALL_ABORT, deadline, in_thread)
        return error

    # -- the producer's methods, as operations

    def end_open(self, Handle handle not None, int64_t deadline, bint in_thread,
                 dict failures not None):
        """An operation: complete a commit, or abort an open transaction, before a close.

        It adds failures to `failures`, a dict of text to KafkaError. Its result says whether it
        has ended a transaction.
        """
        cdef int64_t until = ck_runtime_now_ms() + self.timeout_ms
        cdef bint begun = self.begun
        cdef bint committing, others
        if handle._generation != ck_runtime_generation:
            return False  # the transaction belongs to the parent
        if deadline >= 0:
            until = min(until, deadline)
        while self.begun:
            committing = self.pending == CALL_COMMIT  # such a commit can only be completed
            others = self.has_calls()
            error = yield from self.repeat(
                handle, CALL_COMMIT if committing else CALL_ABORT, until, in_thread)
            if error is None:
                failures.pop(_NOT_ENDED[committing], None)
                break
            # A call of another thread or task may have ended the transaction, or may end it soon.
            others = others or self.has_calls()  # the conflicting call may have ended since
            yield from self.note_others(handle)
            if error in _CONFLICTS and others and ck_runtime_now_ms() < until:
                yield pause(handle, 1)  # send_offsets_to_transaction() is not among the steps
                continue
            if self.begun and committing:
                failures[_NOT_ENDED[True] if error.retriable()
                         else "the transaction's commit failed"] = error
                if self.pending == CALL_COMMIT:
                    break
            elif self.begun and self.pending != CALL_COMMIT:
                failures[_NOT_ENDED[False]] = error
                break
        return begun and not self.begun

    def init(self, Handle handle not None, int64_t ms, bint in_thread):
        """An operation: Producer.init_transactions()."""
        self.check_outside()
        _raise((yield from self.repeat(
            handle, CALL_INIT, deadline_after(2 * self.timeout_ms if ms < 0 else ms), in_thread)))

    def commit(self, Handle handle not None, int64_t ms, bint in_thread):
        """An operation: Producer.commit_transaction()."""
        self.check_outside()
        self.check_complete()
        _raise((yield from self.repeat(handle, CALL_COMMIT, self.deadline_of(ms), in_thread)))

    def abort(self, Handle handle not None, int64_t ms, bint in_thread):
        """An operation: Producer.abort_transaction()."""
        cdef ck_event_t *first
        self.check_outside()
        _raise((yield from self.repeat(handle, CALL_ABORT, self.deadline_of(ms), in_thread)))
        # close() does not warn about records that the program itself has aborted.
        ck_queue_take_unreported(handle._events, &first)
        ck_event_destroy(first)

    cdef object fatal_error(self, Handle handle):
        """The KafkaError that made this producer unusable, or None."""
        cdef char errstr[512]
        cdef rd_kafka_resp_err_t err
        rk = handle.enter()
        err = rd_kafka_fatal_error(rk, errstr, sizeof(errstr))
        handle.leave()
        if not err:
            return None
        return KafkaError(<int>err, errstr.decode("utf-8", "replace"), fatal=True)

    # -- records that the transaction lacks

    cdef int note_incomplete(self, Delivery delivery) except -1:
        if self.begun and ck_delivery_failed(delivery._ledger._ptr):
            if self._incomplete is None:
                self._incomplete = []
            self._incomplete.append(delivery)
        return 0

    cdef int note_refused(self) except -1:
        """Count a record that was refused after its call had returned."""
        if self.begun:
            self._refused += 1
        return 0

    cdef int check_complete(self) except -1:
        cdef Delivery delivery
        cdef int64_t lost = 0
        if self._refused:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__STATE,
                f"{self._refused} record(s) of this transaction were refused after they had "
                "waited for room in the queue: their futures have the reasons; call "
                "abort_transaction()",
                txn_requires_abort=True))
        if self._incomplete is None:
            return 0
        for delivery in self._incomplete:
            if not delivery._asked:
                lost += ck_delivery_failed(delivery._ledger._ptr)
        if lost:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__STATE,
                f"{lost} record(s) of this transaction could not be queued, and their Delivery "
                "was not checked: call abort_transaction(), or check the Delivery (wait(), "
                "errors) and send them again", txn_requires_abort=True))
        return 0


def _raise(error):
    if error is not None:
        raise KafkaException(error)


cdef int call_of(ck_call_kind_t kind) noexcept:
    if kind == CK_CALL_INIT_TRANSACTIONS:
        return CALL_INIT
    if kind == CK_CALL_COMMIT_TRANSACTION:
        return CALL_COMMIT
    return CALL_ABORT


cdef ck_call_kind_t kind_of(int call) noexcept:
    if call == CALL_INIT:
        return CK_CALL_INIT_TRANSACTIONS
    if call == CALL_COMMIT:
        return CK_CALL_COMMIT_TRANSACTION
    return CK_CALL_ABORT_TRANSACTION


@cython.final
@cython.no_gc_clear
cdef class Transaction:
    """The context manager of ``with producer.transaction():``."""

    cdef Handle _producer
    cdef Transactions _transactions
    cdef Consumer _consumer
    # The first step's timeout, s; None for its default.
    cdef object _limit
    # Every other step's timeout, s.
    cdef double _timeout
    cdef bint _entered

    def __cinit__(self, Handle producer not None, Transactions transactions not None,
                  Consumer consumer, limit):
        self._producer = producer
        self._transactions = transactions
        self._consumer = consumer
        self._limit = limit
        self._timeout = transactions.timeout_ms / 1e3 if limit is None else limit

    def __enter__(self):
        run(self.begin(True))
        return self._producer

    def __exit__(self, exc_type, exc_value, exc_traceback):
        run(self.end(exc_value, True))

    def begin(self, bint in_thread):
        """An operation: begin the block; see Transactions.repeat() for `in_thread`."""
        if self._entered:
            raise RuntimeError("transaction(): the block was entered twice; call transaction() "
                               "for each block")
        self._entered = True
        self._transactions.check_outside()
        if self._consumer is not None:
            self._consumer._progress.check_suitable(self._consumer)
        yield from self._or_go_back(self._end_earlier(in_thread))
        if self._consumer is not None:
            yield from self._consumer._progress.prepare(self._consumer, self._timeout)
        yield from self._or_go_back(self._begin())

    def _end_earlier(self, bint in_thread):
        """Register the transactional.id, and complete an earlier block's transaction."""
        if self._transactions.initialized and not self._transactions.pending:
            return
        if not self._transactions.initialized:
            if in_thread:
                self._producer.init_transactions(self._limit)  # a subclass may override it
            else:
                yield from self._transactions.init(
                    self._producer, -1 if self._limit is None else <int64_t>(self._limit * 1e3),
                    False)
        error = yield from self._transactions.finish_pending(
            self._producer, deadline_after(<int64_t>(self._timeout * 1e3)), in_thread)
        if error is not None:
            raise KafkaException(error)
        # A canceled task raises here, before the transaction begins.
        yield pause(self._producer, 0)

    def _begin(self):
        self._producer.begin_transaction()
        yield from ()

    def _or_go_back(self, step):
        """Run a step that begins the block. If the step raises, the transaction does not cover
        the messages that the consumer has returned, so the consumer seeks back."""
        try:
            yield from step
        except BaseException as failure:
            if self._consumer is not None:
                self._consumer._progress.note_failed(self._consumer)
            if isinstance(failure, GeneratorExit):
                raise  # the event loop has ended, so nothing awaits calls
            words = yield from self._go_back(failure, "no transaction has begun")
            if words:
                _log.warning("%s: after %s %s", self._producer._label,
                             type(failure).__name__, words)
            raise

    def _go_back(self, failure, outcome):
        """Seek the consumer back. If that fails, chain the error to the failure. The result is a
        text that reports this failed seek, or an empty text."""
        # While a commit is in progress, the committed offsets are unknown.
        if self._consumer is None or self._transactions.pending == CALL_COMMIT:
            return ""
        try:
            yield from self._consumer._progress.rewind(self._consumer, self._timeout)
        except Exception as another:
            chain(another, failure)
            return f"{outcome}, but the consumer cannot seek back: {another}"
        return ""

    def end(self, exc_value, bint in_thread):
        """An operation: end the block; `exc_value` is the exception that it raised, or None."""
        if exc_value is not None:
            yield from self._give_up(exc_value, in_thread)
            return
        try:
            yield from self._commit(in_thread)
        except BaseException as failure:
            yield from self._give_up(failure, in_thread)
            raise

    def _commit(self, bint in_thread):
        if not self._transactions.begun:  # the transaction ended in the block
            if self._transactions.aborted and self._producer._open_in != ck_runtime_generation:
                self._producer.refuse()  # close() has dropped the records
            if self._transactions.aborted and self._consumer is not None:
                yield from self._consumer._progress.rewind(self._consumer, self._timeout)
            return
        positions = None
        if self._consumer is not None:
            metadata = self._consumer.consumer_group_metadata()
            positions = self._consumer._progress.transaction_offsets(self._consumer)
            if positions:
                yield from self._send_offsets(positions, metadata, in_thread)
        if in_thread:
            self._producer.commit_transaction(self._timeout)  # a subclass may override it
        else:
            yield from self._transactions.commit(self._producer, <int64_t>(self._timeout * 1e3),
                                                 False)
        if self._consumer is not None:
            self._consumer._progress.note_committed(positions)

    def _send_offsets(self, positions, metadata, bint in_thread):
        cdef int64_t deadline = deadline_after(<int64_t>(self._timeout * 1e3))
        cdef int64_t left
        while True:
            left = max(deadline - ck_runtime_now_ms(), 0)
            error = yield from self._transactions.send_offsets(self._producer, positions,
                                                               metadata, left)
            if error is None:
                return
            if not error.retriable() or left == 0:
                raise KafkaException(error)
            yield pause(self._producer, min(left, <int64_t>SLICE))
            if in_thread:
                self._producer.dispatch(NOW)

    def _give_up(self, failure, bint in_thread):
        """Abort and seek the consumer back. Chain an error of these steps to the failure."""
        if self._consumer is not None:
            self._consumer._progress.note_failed(self._consumer)
        # A commit in progress can only be resumed.
        if self._transactions.pending == CALL_COMMIT:
            return
        if isinstance(failure, GeneratorExit):
            # The event loop has ended, so nothing awaits an abort: the next block aborts.
            if self._transactions.begun:
                self._transactions.pending = CALL_ABORT
            return
        words = ""
        try:
            # This producer's fatal error has ended the transaction. Another client's fatal error
            # has not.
            if self._transactions.begun and not (
                    _is_fatal(failure)
                    and self._transactions.fatal_error(self._producer) is not None):
                if in_thread:
                    self._producer.abort_transaction(self._timeout)  # a subclass may override it
                else:
                    yield from self._transactions.abort(
                        self._producer, <int64_t>(self._timeout * 1e3), False)
        except BaseException as another:
            if self._transactions.begun:
                # The next block first aborts the transaction, even if librdkafka has not begun to.
                self._transactions.pending = CALL_ABORT
                words = f"the transaction could not be aborted: {another}"
            # Otherwise a delivery callback has raised after the abort.
            if not isinstance(another, Exception):
                raise
            chain(another, failure)
        if not words:
            words = yield from self._go_back(failure, "the transaction was aborted")
        if not words:
            return
        _log.warning("%s: after %s %s", self._producer._label, type(failure).__name__, words)
        if self._producer._open_in == ck_runtime_generation and not _is_fatal(failure):
            fatal = self._transactions.fatal_error(self._producer)
            if fatal is not None:
                raise KafkaException(fatal)


def _is_fatal(error):
    return isinstance(error, KafkaException) and bool(error.args) and isinstance(
        error.args[0], KafkaError) and error.args[0].fatal()
