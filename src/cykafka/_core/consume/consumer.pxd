from libc.stdint cimport int64_t

from cykafka._core.client.handle cimport Handle
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.fetcher cimport Fetcher
from cykafka._core.consume.membership cimport Membership
from cykafka._core.consume.progress cimport Progress

cdef class Consumer(Handle):
    cdef Backlog _backlog
    cdef Progress _progress
    cdef Membership _membership
    cdef Fetcher _fetcher
