from cykafka._core.clib.librdkafka cimport *

cdef dict merged_config(tuple args, dict kwargs, str cls)
cdef int set_default(dict config, str key, value) except -1
cdef rd_kafka_conf_t *conf_from(dict config) except NULL
cdef object take_callable(dict config, str key)
cdef bint take_bool(dict config, str key, bint default) except? -1
cdef int conf_set(rd_kafka_conf_t *conf, str key, value) except -1
cdef str text_conf(const rd_kafka_conf_t *conf, str key)
cdef int int_conf(rd_kafka_conf_t *conf, str key, int default)
cdef str property_of(rd_kafka_t *rk, str key)
cdef bint is_secret(str key) except -1
cdef str without_url_secrets(str text)
