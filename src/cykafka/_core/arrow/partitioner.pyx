"""key_partitions(): compute the partition of each key in Arrow data."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport int32_t

from cykafka._core.arrow.read cimport ArrowData
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *


def key_partitions(data, str partitioner not None, int32_t partition_count):
    """Compute the partition that a librdkafka partitioner chooses for each key.

    Parameters
    ----------
    data : object with ``__arrow_c_array__`` or ``__arrow_c_stream__``
        An array of binary or string.
    partitioner : str
        A value of the configuration property ``partitioner``.
    partition_count : int
        The topic's number of partitions.

    Returns
    -------
    bytes
        One 32-bit integer per key. -1 means that the partition does not depend on the key: the key
        is null, or the partitioner ignores it.

    Raises
    ------
    TypeError
        The data is not Arrow data, or is neither binary nor string.
    ValueError
        `partition_count` is less than 1.
    """
    cdef ArrowData arrow = ArrowData(data, "keys")
    cdef ck_column_t keys
    cdef ck_bytes_t key
    cdef size_t shortest = 0
    cdef size_t i
    cdef int32_t *partitions
    cdef partitioner_t choose = NULL
    if partition_count < 1:
        raise ValueError(f"partition_count: expected 1 or more, got {partition_count}")
    if partitioner in ("murmur2", "murmur2_random"):
        choose = rd_kafka_msg_partitioner_murmur2
    elif partitioner in ("consistent", "consistent_random"):
        choose = rd_kafka_msg_partitioner_consistent
        # This partitioner also chooses a random partition for an empty key.
        shortest = partitioner == "consistent_random"
    elif partitioner in ("fnv1a", "fnv1a_random"):
        choose = rd_kafka_msg_partitioner_fnv1a
    arrow.whole_column(None, "keys", &keys)
    packed = PyBytes_FromStringAndSize(NULL, arrow.length * sizeof(int32_t))
    partitions = <int32_t *>PyBytes_AS_STRING(packed)
    with nogil:
        for i in range(arrow.length):
            key = ck_column_get(&keys, i)
            if choose is NULL or key.ptr is NULL or key.len < shortest:
                partitions[i] = -1
            else:
                partitions[i] = choose(NULL, key.ptr, key.len, partition_count, NULL, NULL)
    return packed
