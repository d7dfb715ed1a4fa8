from cykafka._offsets cimport Offsets

cdef class Consumer(Offsets):
    pass
