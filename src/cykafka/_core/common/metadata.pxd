from cykafka._core.clib.librdkafka cimport *

cdef object metadata_from(const rd_kafka_metadata_t *metadata)
