from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.produce.publisher cimport Batch, Publisher
from cykafka._core.produce.transaction cimport Transactions

cdef class Producer(Handle):
    cdef Publisher _publisher
    cdef Transactions _transactions
    # The configured on_delivery, in a list, because the garbage collector can clear a list.
    cdef list _on_delivery
    # Whether close() ran out of time before all records had outcomes.
    cdef bint _gave_up
    # Failures before close(), which logs them: a dict of text to KafkaError.
    cdef dict _failures

    cdef int queue(self, topic, value, key, partition, callback, timestamp, headers,
                   timeout) except -1
    cdef tuple record_copy(self, topic, value, key, partition, timestamp, headers)
    cdef Batch batch(self, topic, values, keys, headers, timestamps, partitions)
    cdef Batch arrow_batch(self, topic, data, key, value, headers, timestamp, partition)
    cdef int64_t flush_until(self, int64_t deadline) except -1
    cdef int _produce_slowly(self, topic, const ck_record_t *record, rd_kafka_error_t *error,
                             timeout) except -1
    cdef int _finish(self, int64_t deadline, dict failures) except -1
    cdef int _flush_or_purge(self, int64_t deadline) except -1
    cdef int _log_failures(self, dict failures) except -1
