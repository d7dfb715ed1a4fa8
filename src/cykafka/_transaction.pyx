"""Transactions (KIP-98, KIP-447): the part of a producer that makes its records atomic."""
from cykafka._config cimport int_conf
from cykafka._csrc cimport (
    ck_callback_serve,
    ck_queue_turn,
    ck_runtime_generation,
    ck_runtime_now_ms,
    ck_turn_enter,
    ck_turn_leave,
)
from cykafka._errors cimport check_error
from cykafka._client cimport Client
from cykafka._util cimport NOW, SLICE, deadline_after, int_ms, plain_str, timeout_ms
from cykafka._librdkafka cimport (
    RD_KAFKA_RESP_ERR__CONFLICT,
    RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS,
    rd_kafka_abort_transaction,
    rd_kafka_begin_transaction,
    rd_kafka_commit_transaction,
    rd_kafka_conf_t,
    rd_kafka_consumer_group_metadata_destroy,
    rd_kafka_consumer_group_metadata_new,
    rd_kafka_consumer_group_metadata_read,
    rd_kafka_consumer_group_metadata_t,
    rd_kafka_error_code,
    rd_kafka_error_destroy,
    rd_kafka_error_is_retriable,
    rd_kafka_error_t,
    rd_kafka_init_transactions,
    rd_kafka_resp_err_t,
    rd_kafka_send_offsets_to_transaction,
    rd_kafka_t,
    rd_kafka_topic_partition_list_destroy,
)
from cykafka._partition cimport c_name, partitions_to
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals


cdef class Transactional(Client):
    """A handle with ``transactional.id``.

    Errors are KafkaException with a KafkaError that says what to do: ``retriable()``, make the
    same call again; ``txn_requires_abort()``, abort and begin anew; ``fatal()``, make a new producer.
    """

    cdef int set_callbacks(self, rd_kafka_conf_t *conf) except -1:
        Client.set_callbacks(self, conf)
        self._transaction_ms = int_conf(conf, "transaction.timeout.ms", 60000)
        return 0

    cdef int resume(self, rd_kafka_error_t *(*step)(rd_kafka_t *, int) noexcept nogil,
                    int64_t ms) except -1:
        """Make a resumable call in slices, with signals and callbacks between them."""
        cdef int64_t deadline = deadline_after(ms)
        cdef int64_t started
        cdef rd_kafka_error_t *error
        cdef rd_kafka_resp_err_t code
        cdef rd_kafka_t *rk
        cdef int slice
        while True:
            started = ck_runtime_now_ms()
            slice = <int>max(0, min(SLICE, deadline - started))
            rk = self.enter()
            try:
                with nogil:
                    ck_turn_enter(ck_queue_turn(self._events), self._wait_queue)
                    error = step(rk, slice)
                    ck_turn_leave(ck_queue_turn(self._events))
            finally:
                self.leave()
            if error is NULL:
                self.dispatch(deadline)
                return 0
            code = rd_kafka_error_code(error)
            if (not rd_kafka_error_is_retriable(error) or ck_runtime_now_ms() >= deadline
                    or code == RD_KAFKA_RESP_ERR__CONFLICT
                    or code == RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS):
                check_error(error)
            rd_kafka_error_destroy(error)
            self.dispatch(deadline)
            # A slice that ended early has an error that only time will mend.
            rk = self.enter()
            slice = <int>max(0, min(started + SLICE, deadline) - ck_runtime_now_ms())
            try:
                with nogil:
                    ck_callback_serve(rk, self._events, NULL, slice, NULL)
            finally:
                self.leave()
            PyErr_CheckSignals()

    def init_transactions(self, timeout=None):
        """Register the ``transactional.id``: fences older producers, completes their transactions.

        Call it once, before any other call of a transaction.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default twice ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s, and
            the call can be made again.

        Raises
        ------
        KafkaException
        """
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        self.resume(rd_kafka_init_transactions, 2 * self._transaction_ms if ms < 0 else ms)

    def begin_transaction(self):
        """Begin a transaction. Does not talk to the broker.

        Raises
        ------
        KafkaException
        """
        cdef rd_kafka_error_t *error
        rk = self.enter()
        try:
            with nogil:
                error = rd_kafka_begin_transaction(rk)
        finally:
            self.leave()
        check_error(error)
        self._begun = True
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
            where offsets and their ``metadata`` are kept for somebody else.
        timeout : float, optional
            Seconds; by default what is left of ``transaction.timeout.ms``. Cannot be interrupted.

        Raises
        ------
        KafkaException
        """
        cdef rd_kafka_consumer_group_metadata_t *metadata = NULL
        cdef rd_kafka_error_t *error
        cdef const char *group = NULL
        cdef str name
        cdef int ms = int_ms(timeout_ms(timeout, "timeout"))
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
        offsets = partitions_to(positions, "positions")
        try:
            if group is not NULL:
                metadata = rd_kafka_consumer_group_metadata_new(group)
            else:
                check_error(rd_kafka_consumer_group_metadata_read(
                    &metadata, PyBytes_AS_STRING(group_metadata),
                    PyBytes_GET_SIZE(group_metadata)))
            rk = self.enter()
            try:
                with nogil:
                    error = rd_kafka_send_offsets_to_transaction(rk, offsets, metadata, ms)
            finally:
                self.leave()
        finally:
            rd_kafka_topic_partition_list_destroy(offsets)
            if metadata is not NULL:
                rd_kafka_consumer_group_metadata_destroy(metadata)
        check_error(error)
        self.dispatch(NOW)

    def commit_transaction(self, timeout=None):
        """Send what is queued and commit; serves callbacks meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default ``transaction.timeout.ms``. Ctrl-C is noticed within 0.1 s, and
            the call can be made again to resume.

        Raises
        ------
        KafkaException
            Also when records that ``publish()`` was given could not be queued (too large, no room in time, ...) and
            nobody has looked at their Delivery: abort, or look at it and send them again.
        """
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        self.check_complete()
        self.resume(rd_kafka_commit_transaction, self._transaction_ms if ms < 0 else ms)
        self._begun = False
        self._incomplete = None

    def abort_transaction(self, timeout=None):
        """Give up on the transaction: purge what is queued and abort; serves callbacks meanwhile.

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
        self.resume(rd_kafka_abort_transaction, self._transaction_ms if ms < 0 else ms)
        self._begun = False
        self._incomplete = None
