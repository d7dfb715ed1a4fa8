"""librdkafka functions that work without a client: versions, leak counts, partitioners, Uuid."""
import base64
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    int32_t,
    int64_t,
    uint64_t,
)

from cykafka._core.clib.csrc cimport *
cimport cykafka._core.clib.csrc as runtime
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.arguments cimport int_argument

from cykafka._core.common.naming import public

# importlib.metadata would take half of the package's import time.
__version__ = ck_runtime_version().decode()


def libversion():
    """Return librdkafka's version, a tuple of its text and its number ``0xMMmmrrpp``."""
    return (rd_kafka_version_str().decode(), rd_kafka_version())


def live_handles():
    """Count the live librdkafka objects of each kind, for tests and for finding leaks.

    Returns
    -------
    dict of str to int
        ``handles`` (until they are destroyed, perhaps after ``close()`` returns), ``topics``,
        ``events`` (waiting for a callback), ``reports`` (messages in flight with a delivery
        callback), ``fetched`` (messages not yet returned to librdkafka), ``deliveries`` (batches
        in flight or with outcomes still referenced) and ``calls`` (calls to brokers, including
        abandoned calls).
    """
    return {"handles": ck_runtime_alive(CK_KIND_HANDLE), "topics": ck_runtime_alive(CK_KIND_TOPIC),
            "events": ck_runtime_alive(CK_KIND_EVENT),
            "reports": runtime.ck_runtime_reports,
            "fetched": ck_runtime_alive(CK_KIND_FETCHED),
            "deliveries": ck_runtime_alive(CK_KIND_DELIVERY),
            "calls": ck_runtime_alive(CK_KIND_CALL)}


def librdkafka_path():
    """Return the path of the loaded librdkafka, a str; None if the loader does not know it."""
    cdef const char *path = ck_runtime_librdkafka()
    return None if path is NULL else os.path.normpath(os.fsdecode(path))


def is_patched():
    """Whether the loaded librdkafka is the package's own, with all of cykafka's patches."""
    return bool(ck_runtime_is_patched())


cdef object _partition_of(partitioner_t partitioner, key, partition_count):
    cdef int32_t cnt = <int32_t>int_argument(partition_count, "partition_count", INT32_MIN,
                                             INT32_MAX)
    if cnt <= 0:
        raise ValueError(f"partition_count must be > 0, got {cnt}")
    if not isinstance(key, bytes):
        raise TypeError(f"key: expected bytes, got {type(key).__name__}")
    return partitioner(NULL, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), cnt, NULL, NULL)


def murmur2(key, partition_count):
    """Return the partition that the Java client's default partitioner chooses for a key.

    Parameters
    ----------
    key : bytes
    partition_count : int

    Returns
    -------
    int
    """
    return _partition_of(rd_kafka_msg_partitioner_murmur2, key, partition_count)


def murmur2_hash(key):
    """Return the Java client's hash of a key, from which it computes the partition.

    Parameters
    ----------
    key : bytes

    Returns
    -------
    int
        0 to 2**32 - 1.
    """
    if not isinstance(key, bytes):
        raise TypeError(f"key: expected bytes, got {type(key).__name__}")
    return ck_murmur2(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


def consistent(key, partition_count):
    """Return the partition that librdkafka's ``consistent`` partitioner (CRC-32) chooses for a
    key.

    Parameters
    ----------
    key : bytes
    partition_count : int

    Returns
    -------
    int
    """
    return _partition_of(rd_kafka_msg_partitioner_consistent, key, partition_count)


def fnv1a(key, partition_count):
    """Return the partition that librdkafka's ``fnv1a`` partitioner (Sarama's) chooses for a key.

    Parameters
    ----------
    key : bytes
    partition_count : int

    Returns
    -------
    int
    """
    return _partition_of(rd_kafka_msg_partitioner_fnv1a, key, partition_count)


cdef class Uuid:
    """Uuid(most_significant_bits, least_significant_bits)\n--\n
    128 bits that identify a topic, a cluster or a member.

    Parameters
    ----------
    most_significant_bits, least_significant_bits : int
        The two halves, signed.
    """

    cdef int64_t _most
    cdef int64_t _least

    def __init__(self, most_significant_bits, least_significant_bits):
        """Set both halves; the class describes them."""
        self._most = int_argument(most_significant_bits, "most_significant_bits", INT64_MIN,
                                  INT64_MAX)
        self._least = int_argument(least_significant_bits, "least_significant_bits", INT64_MIN,
                                   INT64_MAX)

    def get_most_significant_bits(self):
        """The upper half, a signed int."""
        return self._most

    def get_least_significant_bits(self):
        """The lower half, a signed int."""
        return self._least

    def __repr__(self):
        both = (<uint64_t>self._most).to_bytes(8, "big") + (<uint64_t>self._least).to_bytes(
            8, "big")
        return base64.b64encode(both).decode().rstrip("=")

    def __hash__(self):
        return hash((self._most, self._least))

    def __eq__(self, other):
        if not isinstance(other, Uuid):
            return NotImplemented
        return self._most == (<Uuid>other)._most and self._least == (<Uuid>other)._least

    def __reduce__(self):
        return (type(self), (self._most, self._least))


public("cykafka")(Uuid)
public("cykafka")(consistent)
public("cykafka")(fnv1a)
public("cykafka")(libversion)
public("cykafka")(murmur2)
public("cykafka.testing")(live_handles)
