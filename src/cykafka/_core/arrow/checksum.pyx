"""checksum(): detects whether two runs of a Spark task had the same records."""
from libc.stdint cimport uint64_t
from libc.string cimport memset

from cykafka._core.arrow.read cimport ArrowData
from cykafka._core.clib.csrc cimport ck_checksum, ck_checksum_t, ck_headers_t


def checksum(data, *, value="value", key=None, topic=None, partition=None, headers=None,
             timestamp=None):
    """Return a checksum of the rows of Arrow data, in any order, and the bytes of keys and values.

    Parameters
    ----------
    data : object with ``__arrow_c_array__`` or ``__arrow_c_stream__``
        A table.
    value, key, topic, partition, headers, timestamp : str or None
        The table's columns, as for :meth:`Producer.publish_arrow`; None ignores one.

    Returns
    -------
    tuple of (int, int)
        The sum is below 2**64. Add the sums of parts modulo 2**64.

    Raises
    ------
    TypeError
        The data is not Arrow data, or a column has the wrong type.
    ValueError
        A column does not exist.
    """
    cdef ck_checksum_t records
    cdef ck_headers_t c_headers
    cdef uint64_t total, size
    cdef ArrowData arrow = ArrowData(data)
    memset(&records, 0, sizeof(records))
    records.partitions.missing = -1
    records.cnt = arrow.length
    if value is not None:
        arrow.whole_column(value, "value", &records.values)
    if key is not None:
        arrow.whole_column(key, "key", &records.keys)
    if topic is not None:
        arrow.whole_column(topic, "topic", &records.topics)
    if partition is not None:
        arrow.whole_numbers(partition, "partition", False, &records.partitions)
    if timestamp is not None:
        arrow.whole_numbers(timestamp, "timestamp", True, &records.timestamps)
    if headers is not None:
        arrow.whole_headers(headers, "headers", &c_headers)
        records.headers = &c_headers
    with nogil:
        total = ck_checksum(&records, &size)
    return total, size
