from cykafka._lag cimport Lag

cdef class Consumer(Lag):
    pass
