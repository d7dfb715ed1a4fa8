from libc.stdint cimport int32_t

from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.consume.backlog cimport Backlog

cdef class Progress:
    cdef Backlog _backlog
    # Assigned partitions, as (topic, partition), from which the consumer has not returned a
    # message yet. Empty unless a transaction may commit this consumer's offsets.
    cdef set _unread
    # Whether _unread has entries.
    cdef bint starting
    # The partition of the last message while _unread has entries; it is not in the set.
    cdef str _noted_topic
    cdef int32_t _noted_partition
    # By (topic, partition): the offset where reading began, or the last committed offset.
    cdef dict _starts
    # Whether a transaction failed and the consumer has not yet sought back to the committed
    # offsets.
    cdef bint _behind
    # By (topic, partition): the positions when a transaction last committed or failed. Messages
    # returned since then are beyond them.
    cdef dict _marks
    # By (topic, partition): a KafkaError if the consumer has returned messages that the next
    # transaction can no longer commit, because the position is gone.
    cdef dict _given_up
    # Whether a transaction may commit this consumer's offsets; -1 if not known yet.
    cdef int _suitable

    cdef bint suits(self, Handle handle) except -1
    cdef int note_starts(self, rd_kafka_message_t **first, size_t cnt) except -1
    cdef int begin_reading(self, Handle handle, list partitions) except -1
    cdef int begin_anew(self) except -1
    cdef int give_up(self, Handle handle, list partitions, rd_kafka_resp_err_t err,
                     str words) except -1
    cdef int check_suitable(self, Handle handle) except -1
    cdef list transaction_offsets(self, Handle handle)
    cdef int note_committed(self, list places) except -1
    cdef int note_failed(self, Handle handle) except -1
    cdef list _read_positions(self, Handle handle)
    cdef list _uncommitted(self, Handle handle, list partitions)
    cdef list _handed_over(self, Handle handle, list partitions)
