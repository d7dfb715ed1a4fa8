"""The block of ``with producer.transaction(consumer):``.

The block begins the transaction, commits it at its end, and aborts it on an exception. With a
consumer, the block commits the consumer's positions with the records. If the block fails or cannot
begin, the consumer seeks back. docs/design/batches.md (Transaction blocks) explains why.
"""
import logging

cimport cython
from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.client.call cimport pause, run
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport NOW, SLICE, deadline_after
from cykafka._core.common.errors cimport chain
from cykafka._core.consume.consumer cimport Consumer
from cykafka._core.produce.transaction cimport CALL_ABORT, CALL_COMMIT, Transactions

from cykafka._core.common.errors import KafkaError, KafkaException

_log = logging.getLogger("cykafka")


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
