"""Commit: a commit whose response an event loop awaits."""
cimport cython

from cykafka._core.clib.csrc cimport *
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.batch cimport MessageBatch
from cykafka._core.client.event_loop cimport Watch
from cykafka._core.common.errors cimport check_doing
from cykafka._core.common.partition cimport partitions_from
from cykafka._core.consume.consumer cimport Consumer
from cykafka._core.consume.offsets cimport offsets_to


@cython.final
@cython.no_gc_clear
cdef class Commit:
    """A commit in progress. The caller must call end(), which does not stop the commit.

    Parameters
    ----------
    consumer : Consumer
    message : Message or MessageBatch, optional
    offsets : list of TopicPartition, optional
        Instead of a message. Without both, the consumer commits the stored offsets.
    watch : Watch
        Its loop serves the consumer when the response arrives.
    """

    cdef Consumer _consumer
    cdef ck_loans_t *_loans
    cdef rd_kafka_queue_t *_replies
    cdef ck_commit_result_t _answer
    cdef Watch _watch
    cdef object _generation

    def __cinit__(self, Consumer consumer not None, message, offsets, Watch watch not None):
        cdef rd_kafka_topic_partition_list_t *c_offsets = NULL
        cdef rd_kafka_resp_err_t err
        self._watch = watch
        self._consumer = consumer
        self._generation = ck_runtime_generation
        if message is not None or offsets is not None:
            c_offsets = offsets_to(message, offsets, False)
        try:
            if isinstance(message, MessageBatch) and c_offsets.cnt == 0:
                consumer.check_open()
                self._answer.given = True
                return
            consumer.check_open()  # in a forked child the watch's lock may stay locked
            pipe = watch.pipe()
            rk = consumer.enter()
            # The rd_kafka_t must not be destroyed before the queue.
            self._loans = consumer._loans
            ck_loans_add(self._loans)
            ck_loans_pin(self._loans)
            self._replies = rd_kafka_queue_new(rk)
            rd_kafka_queue_io_event_enable(self._replies, ck_pipe_writer(pipe), b"1", 1)
            with nogil:
                err = rd_kafka_commit_queue(rk, c_offsets, self._replies,
                                            ck_callback_commit_result, &self._answer)
            consumer.leave()
        finally:
            if c_offsets is not NULL:
                rd_kafka_topic_partition_list_destroy(c_offsets)
        check_doing(err, "Commit failed")

    def __dealloc__(self):
        self.end()

    def is_done(self):
        """Whether the response has arrived. Raises if the consumer is closed during the commit."""
        if not self._answer.given and self._replies is not NULL:
            self._consumer.check_open()
            rd_kafka_queue_poll_callback(self._replies, 0)
        return self._answer.given

    def result(self):
        """The committed offsets, list of TopicPartition, each with its ``error``."""
        check_doing(self._answer.err, "Commit failed")
        return [] if self._answer.partitions is NULL else partitions_from(self._answer.partitions)

    def end(self):
        """Free the queue, and drop a response that has not arrived yet."""
        cdef rd_kafka_queue_t *replies = self._replies
        self._replies = NULL
        # In a forked child the queue belongs to the parent, and may be locked.
        if replies is not NULL and self._generation == ck_runtime_generation:
            rd_kafka_queue_io_event_enable(replies, -1, NULL, 0)
            rd_kafka_queue_destroy(replies)
            ck_loans_unpin(self._loans)
            ck_loans_sub(self._loans)
        if self._answer.partitions is not NULL:
            rd_kafka_topic_partition_list_destroy(self._answer.partitions)
            self._answer.partitions = NULL
