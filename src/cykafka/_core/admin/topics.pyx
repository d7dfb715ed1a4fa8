"""Requests about topics, and about partitions: their offsets, records and leaders."""
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t
from libc.stdlib cimport free, malloc

from cykafka._core.admin.request cimport (
    Request,
    c_text,
    node_from,
    nodes_from,
    operations_from,
    outcome_of,
)
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.common.arguments cimport int_argument
from cykafka._core.common.errors cimport error_from
from cykafka._core.common.partition cimport partition_from, partitions_to

from cykafka._core.common.library import Uuid
from cykafka._core.model import TopicPartitionInfo
from cykafka._core.model.offset import DeletedRecords, ListOffsetsResultInfo
from cykafka._core.model.topic import TopicDescription

ctypedef const rd_kafka_topic_result_t **(*topics_of_t)(const rd_kafka_event_t *,
                                                        size_t *) noexcept nogil
ctypedef rd_kafka_resp_err_t (*assign_t)(void *, int32_t, int32_t *, size_t, char *,
                                         size_t) noexcept nogil


cdef class CreateTopics(Request):
    """Create topics: a list of NewTopic."""

    def __cinit__(self, new_topics):
        cdef rd_kafka_NewTopic_t *c_topic
        cdef char errstr[256]
        self._op = RD_KAFKA_ADMIN_OP_CREATETOPICS
        self.reserve(len(new_topics))
        for new_topic in new_topics:
            assignment = _checked_assignment(new_topic)
            topic, count = new_topic.topic, new_topic.num_partitions
            if assignment and count == -1:
                count = len(assignment)
            c_topic = rd_kafka_NewTopic_new(
                c_text(topic, "new_topics: topic"),
                <int>int_argument(count, "num_partitions", INT32_MIN, INT32_MAX),
                <int>int_argument(new_topic.replication_factor, "replication_factor", INT32_MIN,
                                  INT32_MAX),
                errstr, sizeof(errstr))
            if c_topic is NULL:
                raise _invalid(new_topic, errstr)
            self.add(c_topic)
            if assignment:
                if len(assignment) != count:
                    raise ValueError(
                        "replica_assignment must be a list of int lists with an outer size of "
                        f"num_partitions: {new_topic!r} has {count} partitions, but "
                        f"{len(assignment)} lists of replicas")
                _assign(c_topic, <assign_t>rd_kafka_NewTopic_set_replica_assignment, assignment,
                        new_topic)
            for name, value in (new_topic.config or {}).items():
                # Convert numbers and other types by str(), as confluent_kafka does.
                if value is None:
                    raise TypeError(f"config: expected a str for {name!r}, got None")
                value = str(value)
                rd_kafka_NewTopic_set_config(c_topic, c_text(name, "config"),
                                             c_text(value, f"config: {name}"))

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            rd_kafka_NewTopic_destroy(<rd_kafka_NewTopic_t *>self._objects[i])

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_CreateTopics(rk, <rd_kafka_NewTopic_t **>self._objects, self._cnt, options,
                              results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _outcomes(event, rd_kafka_CreateTopics_result_topics)


cdef class DeleteTopics(Request):
    """Delete topics: a list of names."""

    def __cinit__(self, topics):
        self._op = RD_KAFKA_ADMIN_OP_DELETETOPICS
        self.reserve(len(topics))
        for topic in topics:
            self.add(rd_kafka_DeleteTopic_new(c_text(topic, "topics")))

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            rd_kafka_DeleteTopic_destroy(<rd_kafka_DeleteTopic_t *>self._objects[i])

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DeleteTopics(rk, <rd_kafka_DeleteTopic_t **>self._objects, self._cnt, options,
                              results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _outcomes(event, rd_kafka_DeleteTopics_result_topics)


cdef class CreatePartitions(Request):
    """Add partitions to topics: a list of NewPartitions."""

    def __cinit__(self, new_partitions):
        cdef rd_kafka_NewPartitions_t *c_partitions
        cdef char errstr[256]
        self._op = RD_KAFKA_ADMIN_OP_CREATEPARTITIONS
        self.reserve(len(new_partitions))
        for wanted in new_partitions:
            topic = wanted.topic
            assignment = _checked_assignment(wanted)
            c_partitions = rd_kafka_NewPartitions_new(
                c_text(topic, "new_partitions: topic"),
                # A negative number becomes a huge one, which librdkafka also rejects.
                <size_t>int_argument(wanted.new_total_count, "new_total_count", INT32_MIN,
                                     INT32_MAX),
                errstr, sizeof(errstr))
            if c_partitions is NULL:
                raise _invalid(wanted, errstr)
            self.add(c_partitions)
            if assignment:
                if len(assignment) > wanted.new_total_count:
                    raise ValueError(f"replica_assignment: {wanted!r} has {len(assignment)} lists "
                                     "of replicas, more than partitions")
                _assign(c_partitions, <assign_t>rd_kafka_NewPartitions_set_replica_assignment,
                        assignment, wanted)

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            rd_kafka_NewPartitions_destroy(<rd_kafka_NewPartitions_t *>self._objects[i])

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_CreatePartitions(rk, <rd_kafka_NewPartitions_t **>self._objects, self._cnt,
                                  options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _outcomes(event, rd_kafka_CreatePartitions_result_topics)


cdef class DescribeTopics(Request):
    """Describe topics: a list of names."""

    cdef rd_kafka_TopicCollection_t *_topics

    def __cinit__(self, list topic_names):
        self._op = RD_KAFKA_ADMIN_OP_DESCRIBETOPICS
        self.reserve(len(topic_names))
        for name in topic_names:
            self.add(<void *>c_text(name, "topics"))  # the list keeps the str
        self._topics = rd_kafka_TopicCollection_of_topic_names(<const char **>self._objects,
                                                               self._cnt)

    def __dealloc__(self):
        if self._topics is not NULL:
            rd_kafka_TopicCollection_destroy(self._topics)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DescribeTopics(rk, self._topics, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_TopicDescription_t **topics
        topics = rd_kafka_DescribeTopics_result_topics(event, &cnt)
        outcomes = {}
        for i in range(cnt):
            if topics[i] is NULL:  # missing in the response
                continue
            outcome = outcome_of(rd_kafka_TopicDescription_error(topics[i]), None)
            if outcome is None:
                outcome = _description_from(topics[i])
            outcomes[rd_kafka_TopicDescription_name(topics[i]).decode()] = outcome
        return outcomes


cdef dict _outcomes(const rd_kafka_event_t *event, topics_of_t topics_of):
    """Return, by topic name, None or a KafkaError."""
    cdef size_t cnt = 0
    cdef size_t i
    cdef rd_kafka_resp_err_t err
    cdef const rd_kafka_topic_result_t **topics = topics_of(event, &cnt)
    outcomes = {}
    for i in range(cnt):
        if topics[i] is NULL:  # the brokers respond once to a duplicate topic
            continue
        err = rd_kafka_topic_result_error(topics[i])
        outcomes[rd_kafka_topic_result_name(topics[i]).decode()] = (
            error_from(err, rd_kafka_topic_result_error_string(topics[i])) if err else None)
    return outcomes


cdef object _invalid(object plan, const char *errstr):
    return ValueError(f"{plan!r}: {errstr.decode('utf-8', 'replace')}")


cdef object _checked_assignment(object plan):
    """Return the plan's replica assignment, a list of non-empty lists of int, or None."""
    assignment = plan.replica_assignment
    if assignment is None:
        return None
    if getattr(plan, "replication_factor", -1) != -1:
        raise ValueError("replication_factor and replica_assignment are mutually exclusive: "
                         f"{plan!r}")
    if (not isinstance(assignment, (list, tuple)) or not assignment
            or not all(isinstance(replicas, (list, tuple)) and replicas
                       and all(isinstance(replica, int) for replica in replicas)
                       for replicas in assignment)):
        size = ("num_partitions" if hasattr(plan, "num_partitions")
                else "new_total_count - existing partition count")
        raise ValueError("replica_assignment must be a list of int lists with an outer size of "
                         f"{size}: {plan!r} needs a list with a non-empty list of broker ids for "
                         f"each partition, got {assignment!r}")
    return [list(replicas) for replicas in assignment]


cdef int _assign(void *c_object, assign_t assign, list assignment, object plan) except -1:
    cdef char errstr[256]
    cdef int32_t *ids
    cdef size_t cnt, i
    cdef rd_kafka_resp_err_t err
    for partition, replicas in enumerate(assignment):
        cnt = len(replicas)
        ids = <int32_t *>malloc(cnt * sizeof(int32_t))
        if ids is NULL:
            raise MemoryError
        try:
            for i in range(cnt):
                ids[i] = <int32_t>int_argument(replicas[i], "replica_assignment", 0, INT32_MAX)
            err = assign(c_object, partition, ids, cnt, errstr, sizeof(errstr))
        finally:
            free(ids)
        if err:
            raise _invalid(plan, errstr)
    return 0


cdef object _description_from(const rd_kafka_TopicDescription_t *topic):
    cdef size_t cnt = 0
    cdef size_t i
    cdef const rd_kafka_TopicPartitionInfo_t **partitions
    cdef const rd_kafka_AclOperation_t *operations
    infos = []
    partitions = rd_kafka_TopicDescription_partitions(topic, &cnt)
    for i in range(cnt):
        infos.append(_partition_from(partitions[i]))
    operations = rd_kafka_TopicDescription_authorized_operations(topic, &cnt)
    uuid = rd_kafka_TopicDescription_topic_id(topic)
    return TopicDescription(
        rd_kafka_TopicDescription_name(topic).decode(),
        Uuid(rd_kafka_Uuid_most_significant_bits(uuid),
             rd_kafka_Uuid_least_significant_bits(uuid)),
        rd_kafka_TopicDescription_is_internal(topic) != 0, infos,
        operations_from(operations, cnt))


cdef object _partition_from(const rd_kafka_TopicPartitionInfo_t *partition):
    cdef size_t cnt = 0
    cdef const rd_kafka_Node_t **nodes
    nodes = rd_kafka_TopicPartitionInfo_replicas(partition, &cnt)
    replicas = nodes_from(nodes, cnt)
    nodes = rd_kafka_TopicPartitionInfo_isr(partition, &cnt)
    return TopicPartitionInfo(rd_kafka_TopicPartitionInfo_partition(partition),
                              node_from(rd_kafka_TopicPartitionInfo_leader(partition)),
                              replicas, nodes_from(nodes, cnt))


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
