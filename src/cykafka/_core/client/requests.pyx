"""Convert arguments and responses of calls to the brokers (csrc/ck_call)."""
from libc.string cimport strdup

from cykafka._core.clib.csrc cimport *
from cykafka._core.common.arguments cimport hidden_utf8, plain_str, str_argument
from cykafka._core.common.errors cimport check_doing
from cykafka._core.common.metadata cimport metadata_from
from cykafka._core.common.partition cimport c_name


cdef ck_call_t *new_call(ck_call_kind_t kind) except NULL:
    """Create a call for Handle.run_call(). The caller ends it with ck_call_leave()."""
    cdef ck_call_t *call = ck_call_new(kind)
    if call is NULL:
        raise MemoryError
    return call


cdef int name_topic(ck_call_t *call, object topic) except -1:
    """Set the topic of a metadata request; None: all topics."""
    if topic is None:
        return 0
    if not isinstance(topic, str):
        raise TypeError(f"topic: expected a str or None, got {type(topic).__name__}")
    topic = plain_str(topic)
    call.topic = copied(c_name(topic))
    return 0


cdef object cluster_of(ck_call_t *call):
    """Convert the response to a metadata request."""
    check_doing(call.err, "Failed to get metadata")
    cluster = metadata_from(call.metadata)
    cluster.cluster_id = None if call.cluster_id is NULL else call.cluster_id.decode()
    cluster.controller_id = call.controller
    return cluster


cdef char *copied(const char *text) except NULL:
    """Copy a text for a ck_call_t, which frees the copy."""
    cdef char *copy = strdup(text)
    if copy is NULL:
        raise MemoryError
    return copy


cdef bytes credential(object text, str argument):
    """Encode a credential as UTF-8. Errors never show it."""
    encoded = hidden_utf8(str_argument(text, argument), argument)
    if b"\0" in encoded:
        raise ValueError(f"{argument}: the value contains a NUL character")
    return encoded
