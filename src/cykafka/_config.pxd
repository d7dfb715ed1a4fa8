from cykafka._librdkafka cimport rd_kafka_conf_t

cdef dict merged_config(tuple args, dict kwargs, str cls)
cdef rd_kafka_conf_t *conf_from(dict config) except NULL
cdef object take_callable(dict config, str key)
cdef bint take_bool(dict config, str key, bint default) except? -1
cdef int conf_set(rd_kafka_conf_t *conf, str key, value) except -1
cdef int int_conf(rd_kafka_conf_t *conf, str key, int default)
cdef dict conf_to_dict(const rd_kafka_conf_t *conf)
cdef str text_conf(const rd_kafka_conf_t *conf, str key)
