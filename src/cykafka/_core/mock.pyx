"""Thin binding of librdkafka's mock cluster, the backend of :class:`cykafka.testing.MockCluster`.

MockCluster checks the arguments. This module opens and closes the handle, and makes the calls. A
call that can fail returns librdkafka's error code.
"""

import os
import signal
import threading

from cpython.mem cimport PyMem_Free, PyMem_Malloc
cimport cython
from libc.stdint cimport int16_t, int32_t
from posix.unistd cimport getpid, pid_t

from cykafka._core.clib.librdkafka cimport *


cdef int check_descriptors(int count) except? -1:
    # librdkafka aborts the process if it cannot create a mock broker's socket. So detect a
    # shortage of descriptors here, and raise an OSError.
    held = []
    try:
        for _ in range(count):
            held.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for fd in held:
            os.close(fd)
    return 0


ctypedef void (*share_setter_t)(rd_kafka_mock_cluster_t *, int) noexcept nogil


cdef share_setter_t share_setter(str setting) except NULL:
    """Return librdkafka's function for a setting of share groups."""
    if setting == "session_timeout_ms":
        return rd_kafka_mock_sharegroup_set_session_timeout
    if setting == "heartbeat_interval_ms":
        return rd_kafka_mock_sharegroup_set_heartbeat_interval
    if setting == "delivery_count_limit":
        return rd_kafka_mock_sharegroup_set_max_delivery_attempts
    if setting == "record_lock_duration_ms":
        return rd_kafka_mock_sharegroup_set_record_lock_duration
    if setting == "partition_max_record_locks":
        return rd_kafka_mock_sharegroup_set_max_record_locks
    if setting == "max_size":
        return rd_kafka_mock_sharegroup_set_max_size
    if setting == "isolation_level":
        return rd_kafka_mock_sharegroup_set_isolation_level
    if setting == "auto_offset_reset":
        return rd_kafka_mock_sharegroup_set_auto_offset_reset
    raise ValueError(setting)


@cython.final
cdef class Cluster:
    """A mock cluster and the client handle that owns it.

    Any thread may call any method. `close` waits for calls in flight. In a forked child, `close`
    does nothing and all other calls raise RuntimeError.
    """

    cdef rd_kafka_t *_rk
    cdef rd_kafka_mock_cluster_t *_ptr
    cdef pid_t _pid
    # Held during every call into the cluster, so that close() in another thread waits for the
    # call.
    cdef object _lock

    def __cinit__(self, int brokers):
        self._rk = NULL
        self._ptr = NULL
        self._pid = getpid()
        self._lock = threading.Lock()
        # One socket per broker for its listener, and some for librdkafka's threads.
        check_descriptors(brokers + 16)
        # The mock cluster's thread inherits the signal mask. It must not receive signals for which
        # the main thread waits.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.start(brokers)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    cdef int start(self, int brokers) except? -1:
        cdef char errstr[512]
        cdef rd_kafka_conf_t *conf = rd_kafka_conf_new()
        # The owning client never connects, so log only its errors.
        if rd_kafka_conf_set(conf, b"log_level", b"3", errstr, sizeof(errstr)) == RD_KAFKA_CONF_OK:
            with nogil:
                self._rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, errstr, sizeof(errstr))
        if self._rk == NULL:
            rd_kafka_conf_destroy(conf)
            raise RuntimeError(f"no client for the mock cluster: {errstr.decode('utf-8')}")
        with nogil:
            self._ptr = rd_kafka_mock_cluster_new(self._rk, brokers)
        if self._ptr == NULL:
            raise RuntimeError("librdkafka could not start the mock cluster; see its log")
        return 0

    cdef void stop(self) noexcept:
        cdef rd_kafka_mock_cluster_t *ptr = self._ptr
        cdef rd_kafka_t *rk = self._rk
        self._ptr = NULL
        self._rk = NULL
        # In a forked child, the cluster's threads do not exist.
        if getpid() != self._pid:
            return
        with nogil:
            if ptr != NULL:
                rd_kafka_mock_cluster_destroy(ptr)
            if rk != NULL:
                rd_kafka_destroy(rk)

    def __dealloc__(self):
        self.stop()

    cdef int check_open(self) except? -1:
        if self._ptr == NULL:
            raise RuntimeError("MockCluster is closed")
        return 0

    cdef object locked(self):
        """Return the lock to hold during a call. After taking it, call `check_open`."""
        # Check before taking the lock: a fork may have copied it while another thread held it.
        if getpid() != self._pid:
            raise RuntimeError(
                "the MockCluster was created before a fork: create another one in the child, or "
                "use only the parent's address"
            )
        return self._lock

    @property
    def closed(self):
        return self._ptr == NULL

    @property
    def forked(self):
        return getpid() != self._pid

    def close(self):
        if getpid() == self._pid:
            with self._lock:
                self.stop()

    def bootstrap_servers(self):
        with self.locked():
            self.check_open()
            return rd_kafka_mock_cluster_bootstraps(self._ptr).decode("ascii")

    def set_group_timing(self, int initial_delay_ms, int heartbeat_ms, int session_ms):
        with self.locked():
            self.check_open()
            with nogil:
                rd_kafka_mock_group_initial_rebalance_delay_ms(self._ptr, initial_delay_ms)
                rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(self._ptr, heartbeat_ms)
                rd_kafka_mock_set_group_consumer_session_timeout_ms(self._ptr, session_ms)

    def set_share_group(self, str setting not None, int value):
        cdef share_setter_t setter = share_setter(setting)
        with self.locked():
            self.check_open()
            with nogil:
                setter(self._ptr, value)

    def create_topic(self, bytes topic not None, int partitions, int replication_factor):
        cdef const char *c_topic = topic
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_topic_create(
                    self._ptr, c_topic, partitions, replication_factor
                )
            return <int>err

    def set_topic_error(self, bytes topic not None, int code):
        cdef const char *c_topic = topic
        with self.locked():
            self.check_open()
            with nogil:
                rd_kafka_mock_topic_set_error(self._ptr, c_topic, <rd_kafka_resp_err_t>code)

    def set_partition_leader(self, bytes topic not None, int32_t partition, int32_t broker):
        cdef const char *c_topic = topic
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_partition_set_leader(self._ptr, c_topic, partition, broker)
            return <int>err

    def set_partition_follower(self, bytes topic not None, int32_t partition, int32_t broker):
        cdef const char *c_topic = topic
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_partition_set_follower(self._ptr, c_topic, partition, broker)
            return <int>err

    def set_coordinator(self, bytes key_type not None, bytes key not None, int32_t broker):
        cdef const char *c_type = key_type
        cdef const char *c_key = key
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_coordinator_set(self._ptr, c_type, c_key, broker)
            return <int>err

    def broker_down(self, int32_t broker):
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_broker_set_down(self._ptr, broker)
            return <int>err

    def broker_up(self, int32_t broker):
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_broker_set_up(self._ptr, broker)
            return <int>err

    def set_rtt(self, int32_t broker, int rtt_ms):
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_broker_set_rtt(self._ptr, broker, rtt_ms)
            return <int>err

    def push_request_errors(self, int16_t api_key, list codes not None):
        cdef size_t count = len(codes)
        cdef size_t i
        cdef int code
        cdef rd_kafka_resp_err_t *errors = <rd_kafka_resp_err_t *>PyMem_Malloc(
            count * sizeof(rd_kafka_resp_err_t)
        )
        if errors == NULL:
            raise MemoryError()
        try:
            for i in range(count):
                code = codes[i]
                errors[i] = <rd_kafka_resp_err_t>code
            with self.locked():
                self.check_open()
                with nogil:
                    rd_kafka_mock_push_request_errors_array(self._ptr, api_key, count, errors)
        finally:
            PyMem_Free(errors)

    def push_broker_request_error(self, int32_t broker, int16_t api_key, int code, int rtt_ms):
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_broker_push_request_error_rtts(
                    self._ptr, broker, api_key, 1, code, rtt_ms
                )
            return <int>err

    def clear_request_errors(self, int16_t api_key):
        with self.locked():
            self.check_open()
            with nogil:
                rd_kafka_mock_clear_request_errors(self._ptr, api_key)

    def set_api_versions(self, int16_t api_key, int16_t lowest, int16_t highest):
        cdef rd_kafka_resp_err_t err
        with self.locked():
            self.check_open()
            with nogil:
                err = rd_kafka_mock_set_apiversion(self._ptr, api_key, lowest, highest)
            return <int>err

    def track_requests(self, bint on):
        with self.locked():
            self.check_open()
            with nogil:
                if on:
                    rd_kafka_mock_start_request_tracking(self._ptr)
                else:
                    rd_kafka_mock_stop_request_tracking(self._ptr)

    def clear_requests(self):
        with self.locked():
            self.check_open()
            with nogil:
                rd_kafka_mock_clear_requests(self._ptr)

    def requests(self):
        """Return (broker id, API key, arrival in us by the monotonic clock) per request."""
        cdef rd_kafka_mock_request_t **array = NULL
        cdef size_t count = 0
        cdef size_t i
        with self.locked():
            self.check_open()
            with nogil:
                array = rd_kafka_mock_get_requests(self._ptr, &count)
        if array == NULL:
            return []
        try:
            return [
                (
                    rd_kafka_mock_request_id(array[i]),
                    rd_kafka_mock_request_api_key(array[i]),
                    rd_kafka_mock_request_timestamp(array[i]),
                )
                for i in range(count)
            ]
        finally:
            rd_kafka_mock_request_destroy_array(array, count)
