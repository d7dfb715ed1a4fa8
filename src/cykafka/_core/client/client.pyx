"""Client: what every handle can ask the cluster for."""
import os

from libc.stdint cimport int64_t
from libc.string cimport strdup

from cykafka._core.clib.csrc cimport (
    CK_CALL_METADATA,
    ck_call_leave,
    ck_call_new,
    ck_call_start,
    ck_call_wait,
    ck_runtime_generation,
    ck_runtime_now_ms,
)
from cykafka._core.clib.librdkafka cimport (
    RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE,
    RD_KAFKA_RESP_ERR__TIMED_OUT,
    rd_kafka_clusterid,
    rd_kafka_mem_free,
    rd_kafka_metadata,
    rd_kafka_metadata_destroy,
    rd_kafka_metadata_t,
    rd_kafka_sasl_set_credentials,
)
from cykafka._core.client.handle cimport Handle
from cykafka._core.common.arguments cimport (
    NOW,
    SLICE,
    deadline_after,
    hidden_utf8,
    plain_str,
    timeout_ms,
)
from cykafka._core.common.config cimport is_secret, property_names, property_of
from cykafka._core.common.errors cimport check_doing, check_error
from cykafka._core.common.metadata cimport metadata_from
from cykafka._core.common.partition cimport c_name

from cykafka._core.common.errors import KafkaError, KafkaException


cdef enum:
    # How often a client without an answer asks for metadata, ms.
    ASK_AGAIN_MS = 100


cdef ck_call_t *new_call(ck_call_kind_t kind) except NULL:
    """A call for Client.ask(); the caller ends it with ck_call_leave()."""
    cdef ck_call_t *call = ck_call_new(kind)
    if call is NULL:
        raise MemoryError
    return call


cdef class Client(Handle):
    """A handle that can query its cluster."""

    cdef int check_handle(self) except -1:
        """Raise if the handle is closed, with confluent_kafka's text for methods of any handle."""
        if self._open_in != ck_runtime_generation:
            self.refuse("Handle has been closed")
        return 0

    # -- queries

    cdef int ask(self, ck_call_t *call, int64_t timeout) except -1:
        """Make a blocking librdkafka call to the brokers; timeout in ms, -1: forever.

        Ctrl-C or a close() ends the wait. The call then continues in its own thread, and its
        result is dropped.
        """
        cdef int64_t deadline = deadline_after(timeout)
        # Until any broker has answered no call is started, so an interrupted wait abandons none.
        if call.partitions is NULL or call.partitions.cnt > 0:
            rd_kafka_mem_free(NULL, self.await_cluster_id(deadline))
        if deadline >= 0:
            timeout = max(deadline - ck_runtime_now_ms(), 0)
        self.start_call(call, timeout)
        return self.await_call(call)

    cdef char *await_cluster_id(self, int64_t deadline) except? NULL:
        """The cluster's id, which the caller frees; NULL on timeout or if the brokers do not send
        it."""
        cdef bint closing = self._close_after
        cdef const rd_kafka_metadata_t *metadata
        cdef char *c_id
        cdef int64_t started
        cdef int64_t asked = ck_runtime_now_ms()
        cdef int ms = 0
        while True:
            started = ck_runtime_now_ms()
            rk = self.enter()
            with nogil:
                c_id = rd_kafka_clusterid(rk, ms)
            self.leave()
            # It returns early only if the broker that answered has no cluster id.
            if c_id is not NULL or (ms == SLICE and ck_runtime_now_ms() < started + SLICE // 2):
                return c_id
            ms = SLICE
            if deadline >= 0:
                ms = <int>max(0, min(SLICE, deadline - ck_runtime_now_ms()))
            if ms == 0:
                return NULL
            self.give_way(closing)
            # A broker that has just started, or has been fenced, may name no brokers in its first
            # answer. librdkafka drops such an answer, and does not ask again for minutes.
            if ck_runtime_now_ms() - asked >= ASK_AGAIN_MS:
                rk = self.enter()
                with nogil:
                    # A later answer counts, too: librdkafka keeps the id.
                    if rd_kafka_metadata(rk, 0, NULL, &metadata, ms) == 0:
                        rd_kafka_metadata_destroy(metadata)
                self.leave()
                asked = ck_runtime_now_ms()
                self.give_way(closing)

    cdef int start_call(self, ck_call_t *call, int64_t timeout) except -1:
        rk = self.enter()
        error = ck_call_start(call, rk, self._loans, timeout)
        self.leave()
        if error:
            raise KafkaException(KafkaError(
                <int>RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE,
                f"No thread can be started to wait for the brokers: {os.strerror(error)}",
                retriable=True))
        return 0

    cdef int await_call(self, ck_call_t *call) except -1:
        cdef bint closing = self._close_after
        cdef bint done
        while True:
            with nogil:
                done = ck_call_wait(call, SLICE)
            if done:
                if call.err and self._open_in != ck_runtime_generation:
                    self.refuse()  # librdkafka has ended the call because of the close()
                return 0
            self.give_way(closing)

    def list_topics(self, topic=None, timeout=None):
        """Ask a broker for the cluster's brokers, topics and partitions.

        Parameters
        ----------
        topic : str, optional
            Only this topic. Asking may create it, where the broker's
            ``auto.create.topics.enable`` and ``allow.auto.create.topics`` say so.
        timeout : float, optional
            Seconds; forever by default. Ctrl-C is noticed within 0.1 s.

        Returns
        -------
        ClusterMetadata

        Raises
        ------
        KafkaException
            ``_TRANSPORT`` or ``_TIMED_OUT`` if no broker answered.
        """
        self.check_handle()
        cdef int64_t ms = timeout_ms(timeout, "timeout")
        cdef ck_call_t *call
        if topic is not None:
            if not isinstance(topic, str):
                raise TypeError(f"topic: expected a str or None, got {type(topic).__name__}")
            topic = plain_str(topic)
        call = new_call(CK_CALL_METADATA)
        try:
            if topic is not None:
                call.topic = copied(c_name(topic))
            self.ask(call, ms)
            check_doing(call.err, "Failed to get metadata")
            cluster = metadata_from(call.metadata)
            cluster.cluster_id = None if call.cluster_id is NULL else call.cluster_id.decode()
            cluster.controller_id = call.controller
        finally:
            ck_call_leave(call)
        self.dispatch(NOW)
        return cluster

    def cluster_id(self, timeout=None):
        """The cluster's id, str.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a broker's answer; forever by default. Ctrl-C is noticed within
            0.1 s.

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
        """The configuration in effect, with librdkafka's defaults and adjustments.

        Returns
        -------
        dict of str to str or None
            Every property of librdkafka, by each of its names, with its value in librdkafka's
            spelling. None if there is no value, and for callbacks. ``"[redacted]"`` for secrets,
            set or not.
        """
        # Python code may close the client: a signal handler, a finalizer. So none of it is in a
        # counted call, for which the close would wait.
        values = {}
        for key in property_names():
            values[key] = "[redacted]" if is_secret(key) else self.property(key)
        return values

    cdef str property(self, str key):
        rk = self.enter()
        try:
            return property_of(rk, key)
        finally:
            self.leave()

    def set_sasl_credentials(self, username, password):
        """Use these SASL credentials from the next connection on (PLAIN and SCRAM).

        Connections that are open stay as they are.

        Parameters
        ----------
        username, password : str
            Without NUL characters.

        Raises
        ------
        TypeError, ValueError
            Neither shows the text.
        """
        self.check_handle()
        cdef const char *c_username
        cdef const char *c_password
        for argument, text in (("username", username), ("password", password)):
            if not isinstance(text, str):
                raise TypeError(f"{argument}: expected a str, got {type(text).__name__}")
        encoded = (hidden_utf8(plain_str(username), "username"),
                   hidden_utf8(plain_str(password), "password"))
        for argument, text in (("username", encoded[0]), ("password", encoded[1])):
            if b"\0" in text:
                raise ValueError(f"{argument}: it has a NUL character in it")
        c_username = encoded[0]
        c_password = encoded[1]
        rk = self.enter()
        try:
            with nogil:
                error = rd_kafka_sasl_set_credentials(rk, c_username, c_password)
        finally:
            self.leave()
        check_error(error)


cdef char *copied(const char *text) except NULL:
    """A copy that a ck_call_t may own."""
    cdef char *copy = strdup(text)
    if copy is NULL:
        raise MemoryError
    return copy
