from cykafka._core.clib.csrc cimport *

cdef ck_call_t *new_call(ck_call_kind_t kind) except NULL
cdef int name_topic(ck_call_t *call, object topic) except -1
cdef object cluster_of(ck_call_t *call)
cdef char *copied(const char *text) except NULL
cdef bytes credential(object text, str argument)
