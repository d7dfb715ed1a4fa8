"""Transactions (KIP-98, KIP-447): the part of a producer that makes its records atomic.

Longer than 500 lines, a third of them the documentation of the methods.
"""
import logging

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
cimport cython

from cykafka._core.clib.csrc cimport (
    CK_CALL_SEND_OFFSETS,
    PyThread_get_thread_ident,
    ck_call_leave,
    ck_call_t,
    ck_call_wait,
    ck_callback_serve,
    ck_event_destroy,
    ck_event_t,
    ck_queue_take_untold,
    ck_queue_turn,
    ck_runtime_generation,
    ck_runtime_now_ms,
    ck_turn_enter,
    ck_turn_leave,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_RESP_ERR__CONFLICT,
    RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS,
    RD_KAFKA_RESP_ERR__STATE,
    rd_kafka_abort_transaction,
    rd_kafka_begin_transaction,
    rd_kafka_commit_transaction,
    rd_kafka_conf_t,
    rd_kafka_consumer_group_metadata_new,
    rd_kafka_consumer_group_metadata_read,
    rd_kafka_error_t,
    rd_kafka_fatal_error,
    rd_kafka_init_transactions,
    rd_kafka_resp_err_t,
    rd_kafka_t,
)
from cykafka._core.client.client cimport Client, new_call
from cykafka._core.client.handle cimport chain
from cykafka._core.common.arguments cimport (
    NOW,
    SLICE,
    deadline_after,
    plain_str,
    slice_end,
    timeout_ms,
)
from cykafka._core.common.config cimport int_conf
from cykafka._core.common.errors cimport check_error, take_error
from cykafka._core.common.partition cimport c_name, partitions_to

from cykafka._core.common.errors import KafkaError, KafkaException


_log = logging.getLogger("cykafka")

# librdkafka expects another call, or another thread is in this one.
_CONFLICTS = (<int>RD_KAFKA_RESP_ERR__CONFLICT, <int>RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS)


@cython.final
cdef class Sending:
    """A send_offsets_to_transaction() that librdkafka continues alone."""

    cdef ck_call_t *_ptr

    def __dealloc__(self):
        ck_call_leave(self._ptr)


cdef class Transactional(Client):
    """A handle with ``transactional.id``.

    Errors are KafkaException with a KafkaError that names the remedy. ``retriable()``: repeat the
    call. ``txn_requires_abort()``: abort and begin again. ``fatal()``: make a new producer. A
    transaction call in a callback of another one raises ``_CONFLICT``.
    """

    cdef str closed_words(self):
        return "Producer has been closed"

    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1:
        Client.set_callbacks(self, conf)
        self._transaction_ms = int_conf(conf, "transaction.timeout.ms", 60000)
        self._sending = []
        self._resuming = set()
        return 0

    cdef int check_outside(self) except -1:
        """Refuse a transaction call in a callback of another one, which goes on after it."""
        if self._resuming and PyThread_get_thread_ident() in self._resuming:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__CONFLICT,
                "This producer's transactions cannot be used in a callback of a transaction call: "
                "make the call after the one that runs the callback"))
        return 0

    cdef object settle(self, int64_t deadline):
        """Wait for an interrupted send_offsets_to_transaction(): librdkafka accepts no other call
        meanwhile.

        Returns its KafkaError. None if there is no such call left, or after the deadline; the next
        call then gets librdkafka's own error.
        """
        cdef bint closing = self._close_after
        cdef Sending sending
        cdef rd_kafka_error_t *error
        cdef bint done
        cdef int ms
        while self._sending:
            ms = SLICE
            if deadline >= 0:
                ms = <int>max(0, min(SLICE, deadline - ck_runtime_now_ms()))
            sending = self._sending[0]
            with nogil:
                done = ck_call_wait(sending._ptr, ms)
            if not done:
                self.give_way(closing)
                if ms == 0:
                    return None
            elif sending in self._sending:  # no other thread has waited for it, too
                self._sending.remove(sending)
                error = sending._ptr.error
                sending._ptr.error = NULL
                if error is not NULL:
                    return take_error(error)
        return None

    cdef object resume(self, int call, int64_t ms):
        """Make a resumable call in slices, with signals and callbacks between them.

        Returns the KafkaError of librdkafka's call, or None. Raises what callbacks and signal
        handlers raise, whatever the outcome of the call. In any case the attributes say what
        librdkafka has done.
        """
        cdef unsigned long me = PyThread_get_thread_ident()
        cdef int64_t deadline = deadline_after(self._transaction_ms if ms < 0 else ms)
        if self._open_in != ck_runtime_generation:
            self.refuse()
        # A callback may close the producer, which ends the transaction.
        nested = me in self._resuming
        self._resuming.add(me)
        try:
            return self.repeat(call, deadline)
        finally:
            if not nested:
                self._resuming.discard(me)

    cdef object repeat(self, int call, int64_t deadline):
        cdef int64_t started
        cdef rd_kafka_error_t *error = NULL
        cdef rd_kafka_t *rk
        cdef bint conflict = True
        cdef bint called
        cdef bint begun = self._begun and call != CALL_INIT
        cdef int slice
        while True:
            if begun and not self._begun and self._aborted == (call == CALL_ABORT):
                return None  # completed by a callback or a signal handler, with close() say
            if conflict:
                while True:
                    failure = self.settle(deadline)
                    if failure is None:
                        break
                    if call == CALL_COMMIT:
                        return failure  # not raised yet, and the transaction lacks the offsets
            started = ck_runtime_now_ms()
            slice = <int>max(0, min(SLICE, deadline - started))
            rk = self.enter()
            try:
                with nogil:
                    called = ck_turn_enter(ck_queue_turn(self._events), self._wait_queue, -1)
                    if called:
                        error = make(call, rk, slice)
                        ck_turn_leave(ck_queue_turn(self._events))
            finally:
                self.leave()
            if not called:
                continue  # another thread closes the producer, or has tried to
            # Before any callback, which may raise.
            if error is NULL:
                self._pending = CALL_NONE
                if call == CALL_INIT:
                    self._initialized = True
                else:
                    self._begun = False
                    self._aborted = call == CALL_ABORT
                    self._incomplete = None
                self.dispatch(deadline)
                return None
            failure = take_error(error)
            conflict = failure in _CONFLICTS
            if conflict:
                # Another call is pending. Only a send_offsets_to_transaction() of another thread
                # ends without being repeated, and close() waits for it.
                if self._open_in == ck_runtime_generation or not (
                        self._senders or self._sending):
                    return failure
            elif failure.retriable():
                self._pending = call
            else:
                self._pending = CALL_NONE
                return failure
            if ck_runtime_now_ms() >= deadline:
                return failure
            self.dispatch(slice_end(deadline))
            if begun and not self._begun:
                continue
            # A slice that ended early has an error that only time will mend.
            rk = self.enter()
            slice = <int>max(0, min(started + SLICE, deadline) - ck_runtime_now_ms())
            try:
                with nogil:
                    ck_callback_serve(rk, self._events, NULL, slice, NULL)
            finally:
                self.leave()
            PyErr_CheckSignals()

    cdef object finish_pending(self, int64_t deadline):
        """Complete the commit or the abort that an earlier call could not complete. Returns its
        KafkaError, or None; a commit that fails is aborted if it can be."""
        cdef object error = None
        if self._pending == CALL_COMMIT:
            error = self.resume(CALL_COMMIT, max(0, deadline - ck_runtime_now_ms()))
            if error is not None and error.txn_requires_abort():
                try:
                    self.resume(CALL_ABORT, max(0, deadline - ck_runtime_now_ms()))
                except BaseException as exception:
                    raise chain(KafkaException(error), exception)
        elif self._pending == CALL_ABORT:
            error = self.resume(CALL_ABORT, max(0, deadline - ck_runtime_now_ms()))
        return error

    cdef object fatal_error(self):
        """The KafkaError after which this producer can do no more, or None."""
        cdef char errstr[512]
        cdef rd_kafka_resp_err_t err
        rk = self.enter()
        err = rd_kafka_fatal_error(rk, errstr, sizeof(errstr))
        self.leave()
        if not err:
            return None
        return KafkaError(<int>err, errstr.decode("utf-8", "replace"), fatal=True)

    def init_transactions(self, timeout=None):
        """Register the ``transactional.id``: fences older producers, completes their transactions.

        Call it once, before any other call of a transaction.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default twice ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s;
            the call can then be repeated.

        Raises
        ------
        KafkaException
        """
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        self.check_outside()
        error = self.resume(CALL_INIT, 2 * self._transaction_ms if ms < 0 else ms)
        if error is not None:
            raise KafkaException(error)

    def transaction(self, consumer=None, timeout=None):
        """A block whose records are committed together at its end, or aborted if it raises.

        ``with producer.transaction():`` begins a transaction and commits it at the end of the
        block. An exception aborts the transaction and propagates, also Ctrl-C: the abort then
        takes up to ``timeout``, and a second Ctrl-C ends it. If the abort fails too, its
        error is in the context of the exception and in the log; a fatal error is raised instead.
        Errors that are ``retriable()`` are retried until the time is up. If the commit fails, the
        block raises. The transaction is then aborted if the error is ``txn_requires_abort()``. A
        commit that ran out of time is resumed by the next block, by ``commit_transaction()`` or by
        ``close()``. The first block calls :meth:`init_transactions` unless that was done before.
        In the block, ``abort_transaction()`` drops the records without an exception; with a
        consumer, the same messages are read again.

        With a consumer, the block is one step of consume, transform and produce: the offsets that
        the consumer has read are committed with the records. Read in the block or before it::

            while running:
                messages = consumer.consume(1000, timeout=1)
                with producer.transaction(consumer):
                    for message in messages:
                        producer.produce("out", work(message.value()))

        If the transaction fails, or cannot begin, the consumer seeks back to the committed offsets
        of its group and reads the messages again: none is skipped, and none is committed twice. So
        do not send messages again that were read before the failure. A partition without
        a committed offset starts again at the first message that the consumer returned. So handle
        the exception outside of the block and continue the loop. If the seek fails, the beginning
        of the next block repeats it. That block raises ``_RETRY`` if the consumer has returned
        messages meanwhile, because they will come again.

        A block also fails if the consumer has given up partitions of which it returned messages
        since the last block, because their offsets can no longer be committed: the group has
        revoked them, or the program has called ``seek()``, ``assign()``, ``unassign()`` or
        ``incremental_unassign()``. To skip messages, seek before any was read since the last
        block.

        Parameters
        ----------
        consumer : Consumer, optional
            The block commits its positions: the offsets after the last messages it has handed
            over. It needs ``enable.auto.commit`` false and ``isolation.level`` read_committed (the
            default). Only this thread may use it during the block.
        timeout : float, optional
            Seconds for each step (:meth:`init_transactions`, the consumer's offsets, the commit or
            the abort, seeking back); by default ``transaction.timeout.ms``, and twice that for the
            first step. librdkafka may let the offsets take ``transaction.timeout.ms``, whatever
            this says.

        Returns
        -------
        context manager
            ``as`` binds the producer.

        Raises
        ------
        KafkaException
            At the beginning or the end of the block, with a KafkaError as ``args[0]``.
            ``fatal()``: make a new producer (another producer has the same ``transactional.id``,
            say). ``_TIMED_OUT``: the commit goes on; call ``commit_transaction()`` to learn how it
            ends, and do not send the records again before. ``_ASSIGNMENT_LOST``: the group has
            revoked partitions that the consumer had read. ``_STATE``: the program has given them
            up. ``_RETRY``: no transaction was begun, since the consumer had to seek back; read
            again and enter another block.
        ClosedError
            A RuntimeError: the producer was closed in the block, and the records were dropped.
        ValueError
            The consumer's configuration is unsuitable.
        """
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        if self._open_in != ck_runtime_generation:
            self.refuse()
        if consumer is not None:
            from cykafka._core.consume.consumer import Consumer  # above this module

            if not isinstance(consumer, Consumer):
                raise TypeError("consumer: expected a Consumer or None, "
                                f"got {type(consumer).__name__}")
        return Transaction(self, consumer, None if ms < 0 else ms / 1e3)

    def begin_transaction(self):
        """Begin a transaction. Does not talk to the broker.

        Raises
        ------
        KafkaException
        """
        cdef rd_kafka_error_t *error
        self.check_outside()
        rk = self.enter()
        try:
            with nogil:
                error = rd_kafka_begin_transaction(rk)
        finally:
            self.leave()
        if error is not NULL:
            failure = take_error(error)
            if failure == <int>RD_KAFKA_RESP_ERR__STATE:
                failure = KafkaError(failure.code(), failure.str() + (
                    ": commit or abort the open transaction first" if self._initialized
                    else ": call init_transactions() first"), txn_requires_abort=False)
            raise KafkaException(failure)
        self._begun = True
        self._aborted = False
        self._incomplete = None

    cdef int check_complete(self) except -1:
        """Refuse to commit a transaction that lacks records without anybody knowing."""
        return 0

    def send_offsets_to_transaction(self, positions, group_metadata, timeout=None):
        """Commit a consumer's offsets with the transaction, and only with it (KIP-447).

        Parameters
        ----------
        positions : list of TopicPartition
            The offsets behind the last records processed. The consumer must not commit itself
            (``enable.auto.commit=false``).
        group_metadata : bytes or str
            ``consumer.consumer_group_metadata()``; or the name of a group that has no members,
            where offsets and their ``metadata`` are kept for another program.
        timeout : float, optional
            Seconds; by default the rest of ``transaction.timeout.ms``. Ctrl-C is noticed within
            0.1 s; the call can then be repeated.

        Raises
        ------
        KafkaException
        """
        error = self.send_offsets(positions, group_metadata, timeout_ms(timeout, "timeout"))
        if error is not None:
            raise KafkaException(error)

    cdef object send_offsets(self, positions, group_metadata, int64_t ms):
        """Returns the KafkaError of librdkafka's call, or None; raises everything else."""
        cdef rd_kafka_error_t *error
        cdef const char *group = NULL
        cdef str name
        cdef Sending sending
        cdef ck_call_t *call
        cdef int64_t deadline = deadline_after(ms)
        if not isinstance(group_metadata, (bytes, str)):
            raise TypeError("group_metadata: expected the result of consumer_group_metadata(), "
                            f"or the name of a group, got {type(group_metadata).__name__}")
        if isinstance(group_metadata, str):
            name = plain_str(group_metadata)
            if not name or "\0" in name:
                raise ValueError(f"group_metadata: expected the name of a group, got {name!r}")
            group = c_name(name)
        if self._open_in != ck_runtime_generation:
            self.refuse()
        self.check_outside()
        sending = Sending.__new__(Sending)
        call = sending._ptr = new_call(CK_CALL_SEND_OFFSETS)
        call.partitions = partitions_to(positions, "positions")
        if group is not NULL:
            call.group = rd_kafka_consumer_group_metadata_new(group)
        else:
            check_error(rd_kafka_consumer_group_metadata_read(
                &call.group, PyBytes_AS_STRING(group_metadata),
                PyBytes_GET_SIZE(group_metadata)))
        # The outcome of an interrupted call does not matter: this call repeats or replaces it.
        while self.settle(deadline) is not None:
            pass
        if ms >= 0:
            ms = max(deadline - ck_runtime_now_ms(), 0)
        self.start_call(call, ms)
        self._senders += 1
        try:
            self.await_call(call)
        except:
            self._sending.append(sending)
            raise
        finally:
            self._senders -= 1
        error = call.error
        call.error = NULL
        if error is not NULL:
            return take_error(error)
        self.dispatch(NOW)
        return None

    def commit_transaction(self, timeout=None):
        """Send queued records and commit; serves callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s; repeat
            the call to resume.

        Raises
        ------
        KafkaException
            Also when ``publish()`` could not queue some records (too large, no room in time, ...)
            and their Delivery was not checked: abort, or check the Delivery and send them again.
        """
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        self.check_outside()
        self.check_complete()
        error = self.resume(CALL_COMMIT, ms)
        if error is not None:
            raise KafkaException(error)

    def abort_transaction(self, timeout=None):
        """Abort the transaction: purge queued records and abort; serves callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s, and
            the call can be made again to resume.

        Raises
        ------
        KafkaException
        """
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        cdef ck_event_t *first
        self.check_outside()
        error = self.resume(CALL_ABORT, ms)
        if error is not None:
            raise KafkaException(error)
        # close() need not warn of records that the program has aborted itself.
        ck_queue_take_untold(self._events, &first)
        ck_event_destroy(first)


cdef rd_kafka_error_t *make(int call, rd_kafka_t *rk, int ms) noexcept nogil:
    if call == CALL_INIT:
        return rd_kafka_init_transactions(rk, ms)
    if call == CALL_COMMIT:
        return rd_kafka_commit_transaction(rk, ms)
    return rd_kafka_abort_transaction(rk, ms)


class Transaction:
    """The context manager of ``with producer.transaction():``."""

    __slots__ = ("_consumer", "_entered", "_limit", "_producer", "_timeout")

    def __init__(self, Transactional producer not None, consumer, limit):
        self._producer = producer
        self._consumer = consumer
        self._limit = limit  # None: each step's default
        self._timeout = producer._transaction_ms / 1e3 if limit is None else limit
        self._entered = False

    def __enter__(self):
        cdef Transactional producer = self._producer
        if self._entered:
            raise RuntimeError("transaction(): the block was entered twice; call it anew for each")
        self._entered = True
        producer.check_outside()
        if self._consumer is not None:
            self._consumer._check_suitable()
        self._or_go_back(self._end_earlier)
        if self._consumer is not None:
            self._consumer._prepare_transaction(self._timeout)
        self._or_go_back(producer.begin_transaction)
        return producer

    def _end_earlier(self):
        """Register the transactional.id, and complete what an earlier block could not."""
        cdef Transactional producer = self._producer
        if not producer._initialized:
            producer.init_transactions(self._limit)
        error = producer.finish_pending(deadline_after(<int64_t>(self._timeout * 1e3)))
        if error is not None:
            raise KafkaException(error)

    def _or_go_back(self, step):
        """Make a step of the beginning. If it raises, the messages that the consumer has handed
        over are in no transaction, and it seeks back."""
        try:
            step()
        except BaseException as failure:
            if self._consumer is not None:
                self._consumer._note_failed_transaction()
            words = self._go_back(failure, "no transaction was begun")
            if words:
                _log.warning("%s: after %s %s", (<Transactional>self._producer)._label,
                             type(failure).__name__, words)
            raise

    def _go_back(self, failure, outcome):
        """Seek the consumer back. Returns a text with the outcome if that failed, else an empty
        one, and attaches the error to the failure."""
        # After a commit in progress, the committed offsets are not known yet.
        if self._consumer is None or (<Transactional>self._producer)._pending == CALL_COMMIT:
            return ""
        try:
            self._consumer._rewind(self._timeout)
        except Exception as another:
            chain(another, failure)
            return f"{outcome}, but the consumer cannot go back: {another}"
        return ""

    def __exit__(self, exc_type, exc_value, exc_traceback):
        if exc_value is not None:
            self._give_up(exc_value)
            return
        try:
            self._commit()
        except BaseException as failure:
            self._give_up(failure)
            raise

    def _commit(self):
        cdef Transactional producer = self._producer
        if not producer._begun:  # ended in the block
            if producer._aborted and producer._open_in != ck_runtime_generation:
                producer.refuse()  # close() has dropped the records
            if producer._aborted and self._consumer is not None:
                self._consumer._rewind(self._timeout)
            return
        if self._consumer is None:
            producer.commit_transaction(self._timeout)
            return
        positions, metadata = self._consumer._transaction_offsets()
        if positions:
            self._send_offsets(positions, metadata)
        producer.commit_transaction(self._timeout)
        self._consumer._note_committed(positions)

    def _send_offsets(self, positions, metadata):
        cdef Transactional producer = self._producer
        cdef int64_t deadline = deadline_after(<int64_t>(self._timeout * 1e3))
        cdef int64_t left
        while True:
            left = max(deadline - ck_runtime_now_ms(), 0)
            error = producer.send_offsets(positions, metadata, left)
            if error is None:
                return
            if not error.retriable() or left == 0:
                raise KafkaException(error)
            self._producer.poll(min(left, <int64_t>SLICE) / 1e3)

    def _give_up(self, failure):
        """Abort, and seek the consumer back; attaches an error of these steps to the failure."""
        cdef Transactional producer = self._producer
        if self._consumer is not None:
            self._consumer._note_failed_transaction()
        # A commit in progress can only be resumed.
        if producer._pending == CALL_COMMIT:
            return
        words = ""
        try:
            # After this producer's fatal error there is no transaction. Another client's fatal
            # error does not end it.
            if producer._begun and not (
                    _is_fatal(failure) and producer.fatal_error() is not None):
                producer.abort_transaction(self._timeout)
        except BaseException as another:
            if producer._begun:
                # The next block aborts it first, even if librdkafka has not begun to.
                producer._pending = CALL_ABORT
                words = f"the transaction could not be aborted: {another}"
            # Else a delivery callback has raised, after the abort.
            if not isinstance(another, Exception):
                raise
            chain(another, failure)
        if not words:
            words = self._go_back(failure, "the transaction was aborted")
        if not words:
            return
        _log.warning("%s: after %s %s", producer._label, type(failure).__name__, words)
        if producer._open_in == ck_runtime_generation and not _is_fatal(failure):
            fatal = producer.fatal_error()
            if fatal is not None:
                raise KafkaException(fatal)


def _is_fatal(error):
    return isinstance(error, KafkaException) and bool(error.args) and isinstance(
        error.args[0], KafkaError) and error.args[0].fatal()
