from cykafka._core.admin.answers cimport Answers
from cykafka._core.client.handle cimport Handle

cdef class Admin(Handle):
    cdef Answers _answers
    # Whether every future had its answer at the beginning of close().
    cdef bint _answered
