from cykafka._handle cimport Handle

cdef class Client(Handle):
    pass
