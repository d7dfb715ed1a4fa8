from libc.stdint cimport int64_t, uint32_t

from cykafka._core.arrow.read cimport ArrowData
from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.client.handle cimport Handle
from cykafka._core.client.role cimport Role
from cykafka._core.common.message cimport Message
from cykafka._core.produce.columns cimport Columns
from cykafka._core.produce.delivery cimport Delivery
from cykafka._core.produce.transaction cimport Transactions

cdef class Topic:
    cdef rd_kafka_topic_t *_ptr
    cdef uint32_t _generation

    cdef void release(self) noexcept

cdef class Batch:
    # The C columns, and what they point to.
    cdef ck_publish_t c
    cdef ck_headers_t c_headers
    cdef object owner
    # The Delivery's topic or topics.
    cdef object topic
    # Keeps borrowed values alive; None if librdkafka copies the values.
    cdef object kept
    cdef Delivery delivery

    cdef int borrow_large(self, object kept) except -1

# Gets the reports of a producer's single records, without a Python call. It gets every report,
# even with delivery.report.only.error.
cdef class Receiver:
    cdef int receive(self, object future, object error, Message message) except -1

cdef class Publisher(Role):
    cdef Transactions _transactions
    # Topic handles by name, and the last used name and handle.
    cdef dict _topics
    cdef object last_name
    cdef Topic last_topic
    # queue.buffering.max.kbytes, in bytes.
    cdef int64_t _room
    # If not None, single records have futures instead of callbacks, and this Receiver gets them.
    cdef Receiver receiver
    # Whether callbacks of single records run only for failed records.
    cdef bint only_errors
    # Memory for the reports in flight, freed with the event queue.
    cdef ck_inflight_t *inflight
    # Until when close() waits for the reports of purged records, ms; 0 if it has not purged.
    cdef int64_t purged_until
    # The number of records still without a report just before rd_kafka_destroy().
    cdef int64_t unreported

    cdef int register(self, Handle handle, rd_kafka_conf_t *conf) except -1
    cdef int deliver(self, ck_report_t *report) except -1
    cdef int purge(self, Handle handle) except -1
    cdef void drop_reports(self, Handle handle) noexcept
    cdef rd_kafka_topic_t *topic_of(self, Handle handle, object name) except NULL
    cdef void release_topics(self) noexcept
    cdef object topics_column(self, Handle handle, object topic, Columns columns,
                              ck_publish_t *publish)
    cdef tuple arrow_topics(self, Handle handle, ArrowData arrow, Columns columns,
                            ck_publish_t *publish)
    cdef Delivery send(self, Handle handle, Batch batch, int64_t ms)
    cdef int begin(self, Handle handle, Batch batch) except -1
    cdef object step(self, Handle handle, Batch batch)
    cdef int end(self, Batch batch, object raised) except -1
    cdef int64_t serve_reports(self, Handle handle) except -1
    cdef int _hand_over(self, Handle handle, Batch batch, int64_t deadline) except -1
