from libc.stdint cimport int64_t

from cykafka._core.clib.csrc cimport ck_call_kind_t, ck_call_t
from cykafka._core.client.handle cimport Handle

cdef ck_call_t *new_call(ck_call_kind_t kind) except NULL
cdef char *copied(const char *text) except NULL

cdef class Client(Handle):
    cdef int check_handle(self) except -1
    cdef str property(self, str key)
    cdef char *await_cluster_id(self, int64_t deadline) except? NULL
    cdef int ask(self, ck_call_t *call, int64_t timeout) except -1
    cdef int start_call(self, ck_call_t *call, int64_t timeout) except -1
    cdef int await_call(self, ck_call_t *call) except -1
