from cykafka._core.arrow.export cimport ArrowExport
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.common.message cimport Message

cdef class Storage:
    # The records, or NULL once released. Read or replace the pointer only with the GIL. To read
    # the batch without the GIL, take a reference first. To keep it for longer than a call, pin it.
    cdef ck_batch_t *_ptr
    # Links in the consumer's list of batches: the next Storage, and the pointer to this one.
    cdef void *_next
    cdef void **_link
    # Whether the records are pinned, because close() had too little memory to detach them.
    cdef bint _pinned

    cdef void link(self, void **first) noexcept
    cdef void unlink(self) noexcept
    cdef bint detach(self) noexcept
    cdef void release(self) noexcept

cdef class MessageBatch(ArrowExport):
    cdef object __weakref__
    cdef Storage _storage
    # The rows: _cnt records of the storage, _step apart, beginning at _start.
    cdef Py_ssize_t _start
    cdef Py_ssize_t _step
    cdef Py_ssize_t _cnt
    cdef tuple _errors
    # The number columns created so far, by ck_number_t.
    cdef dict _columns
    # The topic name that name_of() last converted, and its str.
    cdef bytes _last_name
    cdef object _last_topic

    cdef ck_batch_t *opened(self) except NULL
    cdef object name_of(self, const char *name)
    cdef Message row(self, Py_ssize_t i)
    cdef list copies(self, bint of_keys)
    cdef list views(self, bint of_keys)
    cdef int _parse_headers(self) except -1
    cdef object column(self, ck_number_t number)
    cdef rd_kafka_topic_partition_list_t *c_positions(self) except NULL

cdef MessageBatch batch_from(ck_batch_t *gathered, size_t cnt, ck_loans_t *loans, void **first,
                             tuple errors)
cdef MessageBatch empty_batch(tuple errors)
cdef void fill_batch(MessageBatch batch, ck_batch_t *taken, void **first) noexcept
cdef void detach_all(void **first) noexcept
