from cykafka._core.admin.in_flight cimport InFlightRequests
from cykafka._core.client.handle cimport Handle

cdef class Admin(Handle):
    cdef InFlightRequests _requests
    # Whether every future had its response when close() began.
    cdef bint _responded
