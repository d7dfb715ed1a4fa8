from libc.stdint cimport int64_t

from cykafka._core.client.handle cimport Handle
from cykafka._core.consume.backlog cimport Backlog
from cykafka._core.consume.membership cimport Membership

cdef dict watermarks(Handle handle, Membership membership, object partitions, int64_t deadline)
cdef dict lag(Handle handle, Membership membership, Backlog backlog, object partitions,
              int64_t deadline)
