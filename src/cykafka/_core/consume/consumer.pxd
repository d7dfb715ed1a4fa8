from cykafka._core.clib.csrc cimport ck_batch_t
from cykafka._core.clib.librdkafka cimport (
    rd_kafka_resp_err_t,
    rd_kafka_topic_partition_list_t,
)
from cykafka._core.consume.lag cimport Lag

cdef class Consumer(Lag):
    # Whether a transaction failed and the consumer has not yet gone back to the committed offsets.
    cdef bint _behind
    # By (topic, partition): the positions when a transaction has last committed or failed. What
    # was handed over since is beyond them.
    cdef dict _marks
    # By (topic, partition): the KafkaErrors of partitions of which messages were handed over that
    # the next transaction can no longer commit, because the position is gone.
    cdef dict _given_up
    # Whether a transaction may commit this consumer's offsets; -1 until it is known.
    cdef int _suitable

    cdef bint suits(self) except -1
    cdef list _read_positions(self)
    cdef list _uncommitted(self, list partitions)
    cdef list _handed_over(self, list partitions)
    cdef int give_up(self, list partitions, rd_kafka_resp_err_t err, str words) except -1
    cdef int begin_reading(self, list partitions) except -1
    cdef int rebalance(self, rd_kafka_resp_err_t err,
                       rd_kafka_topic_partition_list_t *partitions) except -1
    cdef list seek_to(self, list partitions)
    cdef void forget(self, ck_batch_t *aside,
                     const rd_kafka_topic_partition_list_t *partitions) noexcept
