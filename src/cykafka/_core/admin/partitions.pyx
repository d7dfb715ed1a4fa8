"""Requests about partitions: their offsets, records and leaders."""
from cykafka._core.admin.request cimport Request, outcome_of
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.common.errors cimport error_from
from cykafka._core.common.partition cimport partition_from, partitions_to

from cykafka._core.model.offset import DeletedRecords, ListOffsetsResultInfo


cdef class ListOffsets(Request):
    """Look up offsets: a list of TopicPartition whose offset is the OffsetSpec's value."""

    cdef rd_kafka_topic_partition_list_t *_partitions

    def __cinit__(self, partitions):
        self._op = RD_KAFKA_ADMIN_OP_LISTOFFSETS
        self._partitions = partitions_to(partitions, "topic_partition_offsets")

    def __dealloc__(self):
        if self._partitions is not NULL:
            rd_kafka_topic_partition_list_destroy(self._partitions)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_ListOffsets(rk, self._partitions, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_topic_partition_t *rktpar
        cdef const rd_kafka_ListOffsetsResultInfo_t **infos
        infos = rd_kafka_ListOffsets_result_infos(event, &cnt)
        outcomes = {}
        for i in range(cnt):
            rktpar = rd_kafka_ListOffsetsResultInfo_topic_partition(infos[i])
            if rktpar.err:
                outcome = error_from(rktpar.err, NULL)
            elif rktpar.offset == RD_KAFKA_OFFSET_INVALID:
                # If a broker's connection breaks, librdkafka omits its partitions from the result.
                outcome = error_from(RD_KAFKA_RESP_ERR__TRANSPORT, "No response from the leader")
            else:
                outcome = ListOffsetsResultInfo(
                    rktpar.offset, rd_kafka_ListOffsetsResultInfo_timestamp(infos[i]),
                    rd_kafka_topic_partition_get_leader_epoch(rktpar))
            outcomes[partition_from(rktpar)] = outcome
        return outcomes


cdef class DeleteRecords(Request):
    """Delete the records before an offset: a list of TopicPartition."""

    cdef rd_kafka_DeleteRecords_t *_records

    def __cinit__(self, partitions):
        cdef rd_kafka_topic_partition_list_t *rktparlist
        self._op = RD_KAFKA_ADMIN_OP_DELETERECORDS
        rktparlist = partitions_to(partitions, "topic_partition_offsets")
        self._records = rd_kafka_DeleteRecords_new(rktparlist)
        rd_kafka_topic_partition_list_destroy(rktparlist)

    def __dealloc__(self):
        if self._records is not NULL:
            rd_kafka_DeleteRecords_destroy(self._records)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DeleteRecords(rk, &self._records, 1, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef int i
        cdef const rd_kafka_topic_partition_t *rktpar
        cdef const rd_kafka_topic_partition_list_t *rktparlist
        rktparlist = rd_kafka_DeleteRecords_result_offsets(event)
        outcomes = {}
        for i in range(rktparlist.cnt):
            rktpar = &rktparlist.elems[i]
            outcomes[partition_from(rktpar)] = (error_from(rktpar.err, NULL) if rktpar.err
                                                else DeletedRecords(rktpar.offset))
        return outcomes


cdef class ElectLeaders(Request):
    """Elect leaders: an ElectionType's value, and a list of TopicPartition, or None for all."""

    cdef rd_kafka_ElectLeaders_t *_election

    def __cinit__(self, election_type, partitions):
        cdef rd_kafka_topic_partition_list_t *rktparlist = NULL
        cdef int kind = election_type
        self._op = RD_KAFKA_ADMIN_OP_ELECTLEADERS
        if partitions is not None:
            rktparlist = partitions_to(partitions, "partitions")
        self._election = rd_kafka_ElectLeaders_new(<rd_kafka_ElectionType_t>kind, rktparlist)
        if rktparlist is not NULL:
            rd_kafka_topic_partition_list_destroy(rktparlist)

    def __dealloc__(self):
        if self._election is not NULL:
            rd_kafka_ElectLeaders_destroy(self._election)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_ElectLeaders(rk, self._election, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_topic_partition_result_t **partitions
        partitions = rd_kafka_ElectLeaders_result_partitions(event, &cnt)
        return {
            partition_from(rd_kafka_topic_partition_result_partition(partitions[i])):
            outcome_of(rd_kafka_topic_partition_result_error(partitions[i]), None)
            for i in range(cnt)
        }
