from libc.stdint cimport int64_t

from cykafka._core.client.handle cimport Handle
from cykafka._core.consume.backlog cimport Backlog

cdef dict watermarks(Handle handle, object partitions, int64_t deadline)
cdef dict lag(Handle handle, Backlog backlog, object partitions, int64_t deadline)
