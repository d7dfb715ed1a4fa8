"""Client: what every handle can ask the cluster for."""
from libc.stdint cimport int32_t

from cykafka._config cimport properties_of
from cykafka._errors cimport check_doing, check_error
from cykafka._handle cimport Handle
from cykafka._librdkafka cimport (
    RD_KAFKA_RESP_ERR__TIMED_OUT,
    rd_kafka_clusterid,
    rd_kafka_controllerid,
    rd_kafka_last_error,
    rd_kafka_mem_free,
    rd_kafka_metadata,
    rd_kafka_metadata_destroy,
    rd_kafka_metadata_t,
    rd_kafka_resp_err_t,
    rd_kafka_sasl_set_credentials,
    rd_kafka_topic_destroy,
    rd_kafka_topic_new,
    rd_kafka_topic_t,
)
from cykafka._metadata cimport metadata_from
from cykafka._partition cimport c_name
from cykafka._util cimport NOW, int_ms, plain_str, timeout_ms


cdef class Client(Handle):
    """A handle that can be asked about its cluster."""

    def list_topics(self, topic=None, timeout=None):
        """Ask a broker for the cluster's brokers, topics and partitions.

        Parameters
        ----------
        topic : str, optional
            Only this topic. Asking may create it, where the broker's
            ``auto.create.topics.enable`` and ``allow.auto.create.topics`` say so.
        timeout : float, optional
            Seconds; forever by default. Cannot be interrupted by Ctrl-C.

        Returns
        -------
        ClusterMetadata

        Raises
        ------
        KafkaException
            ``_TRANSPORT`` or ``_TIMED_OUT`` if no broker answered.
        """
        cdef const rd_kafka_metadata_t *metadata = NULL
        cdef rd_kafka_topic_t *rkt = NULL
        cdef rd_kafka_resp_err_t err
        cdef int ms = int_ms(timeout_ms(timeout, "timeout"))
        cdef int32_t controller = -1
        cdef char *cluster_id = NULL
        cdef const char *only = NULL
        if topic is not None:
            if not isinstance(topic, str):
                raise TypeError(f"topic: expected a str or None, got {type(topic).__name__}")
            topic = plain_str(topic)
            only = c_name(topic)
        rk = self.enter()
        with nogil:
            if only is not NULL:
                rkt = rd_kafka_topic_new(rk, only, NULL)
            if only is not NULL and rkt is NULL:
                err = rd_kafka_last_error()
            else:
                err = rd_kafka_metadata(rk, only is NULL, rkt, &metadata, ms)
            if rkt is not NULL:
                rd_kafka_topic_destroy(rkt)
            if not err:
                # Both came with the metadata: no need to wait for more.
                cluster_id = rd_kafka_clusterid(rk, 0)
                controller = rd_kafka_controllerid(rk, 0)
        self.leave()
        check_doing(err, "Failed to get metadata")
        try:
            cluster = metadata_from(metadata)
            cluster.cluster_id = None if cluster_id is NULL else cluster_id.decode()
        finally:
            rd_kafka_metadata_destroy(metadata)
            rd_kafka_mem_free(NULL, cluster_id)
        cluster.controller_id = controller
        self.dispatch(NOW)
        return cluster

    def cluster_id(self, timeout=None):
        """The cluster's id, str.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for a broker to tell it; forever by default. Cannot be interrupted.

        Raises
        ------
        KafkaException
            ``_TIMED_OUT`` if no broker told it in time.
        """
        cdef char *c_id
        cdef int ms = int_ms(timeout_ms(timeout, "timeout"))
        rk = self.enter()
        with nogil:
            c_id = rd_kafka_clusterid(rk, ms)
        self.leave()
        if c_id is NULL:
            check_doing(RD_KAFKA_RESP_ERR__TIMED_OUT, "Failed to get the cluster id")
        try:
            return c_id.decode()
        finally:
            rd_kafka_mem_free(NULL, c_id)

    def configuration(self):
        """The configuration in effect, with the defaults and what librdkafka adjusted.

        Returns
        -------
        dict of str to str or None
            Every property of librdkafka's, by each of its names: its value in librdkafka's spelling,
            None without one, and ``"[redacted]"`` for secrets, set or not. Callbacks are None too.
        """
        rk = self.enter()
        try:
            return properties_of(rk)
        finally:
            self.leave()

    def set_sasl_credentials(self, username, password):
        """Use these SASL credentials from the next connection on (PLAIN and SCRAM).

        Connections that are open stay as they are.
        """
        cdef const char *c_username
        cdef const char *c_password
        for argument, text in (("username", username), ("password", password)):
            if not isinstance(text, str):
                raise TypeError(f"{argument}: expected a str, got {type(text).__name__}")
        encoded = plain_str(username).encode(), plain_str(password).encode()
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
