from cykafka._core.admin.answers cimport Answers
from cykafka._core.client.handle cimport Handle

cdef class Admin(Handle):
    cdef Answers _answers
    # Whether every future had its response when close() began.
    cdef bint _answered
