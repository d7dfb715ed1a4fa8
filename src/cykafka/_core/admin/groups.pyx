"""Requests about consumer groups: their members and their committed offsets."""
from cykafka._core.admin.request cimport (
    Request,
    c_text,
    node_from,
    operations_from,
    outcome_of,
    text_or_none,
)
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.common.partition cimport partitions_from, partitions_to

from cykafka._core.model import ConsumerGroupTopicPartitions
from cykafka._core.model.group import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ListConsumerGroupsResult,
    MemberAssignment,
    MemberDescription,
)

ctypedef const rd_kafka_group_result_t **(*groups_of_t)(const rd_kafka_event_t *,
                                                        size_t *) noexcept nogil


cdef class ListConsumerGroups(Request):
    """List the cluster's groups."""

    def __cinit__(self):
        self._op = RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPS

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_ListConsumerGroups(rk, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_ConsumerGroupListing_t **groups
        cdef const rd_kafka_error_t **errors
        groups = rd_kafka_ListConsumerGroups_result_valid(event, &cnt)
        valid = [
            ConsumerGroupListing(
                rd_kafka_ConsumerGroupListing_group_id(groups[i]).decode(),
                rd_kafka_ConsumerGroupListing_is_simple_consumer_group(groups[i]) != 0,
                <int>rd_kafka_ConsumerGroupListing_state(groups[i]),
                <int>rd_kafka_ConsumerGroupListing_type(groups[i]))
            for i in range(cnt)
        ]
        errors = rd_kafka_ListConsumerGroups_result_errors(event, &cnt)
        return ListConsumerGroupsResult(valid, [outcome_of(errors[i], None) for i in range(cnt)])


cdef class DescribeConsumerGroups(Request):
    """Describe groups: a list of names."""

    cdef list _names

    def __cinit__(self, list group_ids):
        self._op = RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS
        self._names = list(group_ids)  # keeps the texts in _objects
        self.reserve(len(self._names))
        for name in self._names:
            self.add(<void *>c_text(name, "group_ids"))

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DescribeConsumerGroups(rk, <const char **>self._objects, self._cnt, options,
                                        results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_ConsumerGroupDescription_t **groups
        groups = rd_kafka_DescribeConsumerGroups_result_groups(event, &cnt)
        outcomes = {}
        for i in range(cnt):
            outcome = outcome_of(rd_kafka_ConsumerGroupDescription_error(groups[i]), None)
            if outcome is None:
                outcome = _description_from(groups[i])
            outcomes[rd_kafka_ConsumerGroupDescription_group_id(groups[i]).decode()] = outcome
        return outcomes


cdef class DeleteConsumerGroups(Request):
    """Delete groups: a list of names."""

    def __cinit__(self, group_ids):
        self._op = RD_KAFKA_ADMIN_OP_DELETEGROUPS
        self.reserve(len(group_ids))
        for name in group_ids:
            self.add(rd_kafka_DeleteGroup_new(c_text(name, "group_ids")))

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            rd_kafka_DeleteGroup_destroy(<rd_kafka_DeleteGroup_t *>self._objects[i])

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DeleteGroups(rk, <rd_kafka_DeleteGroup_t **>self._objects, self._cnt, options,
                              results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_group_result_t **groups
        groups = rd_kafka_DeleteGroups_result_groups(event, &cnt)
        return {
            rd_kafka_group_result_name(groups[i]).decode():
            outcome_of(rd_kafka_group_result_error(groups[i]), None)
            for i in range(cnt)
        }


cdef class ListConsumerGroupOffsets(Request):
    """List a group's offsets: its name, and a list of TopicPartition, or None for all."""

    cdef rd_kafka_ListConsumerGroupOffsets_t *_offsets

    def __cinit__(self, group_id, partitions):
        cdef rd_kafka_topic_partition_list_t *rktparlist = NULL
        cdef const char *c_group = c_text(group_id, "group_id")
        self._op = RD_KAFKA_ADMIN_OP_LISTCONSUMERGROUPOFFSETS
        if partitions is not None:
            rktparlist = partitions_to(partitions, "topic_partitions")
        self._offsets = rd_kafka_ListConsumerGroupOffsets_new(c_group, rktparlist)
        if rktparlist is not NULL:
            rd_kafka_topic_partition_list_destroy(rktparlist)

    def __dealloc__(self):
        if self._offsets is not NULL:
            rd_kafka_ListConsumerGroupOffsets_destroy(self._offsets)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_ListConsumerGroupOffsets(rk, &self._offsets, 1, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _group_outcomes(event, rd_kafka_ListConsumerGroupOffsets_result_groups)


cdef class AlterConsumerGroupOffsets(Request):
    """Set a group's offsets: its name, and a list of TopicPartition."""

    cdef rd_kafka_AlterConsumerGroupOffsets_t *_offsets

    def __cinit__(self, group_id, partitions):
        cdef rd_kafka_topic_partition_list_t *rktparlist
        cdef const char *c_group = c_text(group_id, "group_id")
        self._op = RD_KAFKA_ADMIN_OP_ALTERCONSUMERGROUPOFFSETS
        rktparlist = partitions_to(partitions, "topic_partitions")
        self._offsets = rd_kafka_AlterConsumerGroupOffsets_new(c_group, rktparlist)
        rd_kafka_topic_partition_list_destroy(rktparlist)

    def __dealloc__(self):
        if self._offsets is not NULL:
            rd_kafka_AlterConsumerGroupOffsets_destroy(self._offsets)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_AlterConsumerGroupOffsets(rk, &self._offsets, 1, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _group_outcomes(event, rd_kafka_AlterConsumerGroupOffsets_result_groups)


cdef class DeleteConsumerGroupOffsets(Request):
    """Delete a group's offsets: its name, and a list of TopicPartition."""

    cdef rd_kafka_DeleteConsumerGroupOffsets_t *_offsets

    def __cinit__(self, group_id, partitions):
        cdef rd_kafka_topic_partition_list_t *rktparlist
        cdef const char *c_group = c_text(group_id, "group_id")
        self._op = RD_KAFKA_ADMIN_OP_DELETECONSUMERGROUPOFFSETS
        rktparlist = partitions_to(partitions, "topic_partitions")
        self._offsets = rd_kafka_DeleteConsumerGroupOffsets_new(c_group, rktparlist)
        rd_kafka_topic_partition_list_destroy(rktparlist)

    def __dealloc__(self):
        if self._offsets is not NULL:
            rd_kafka_DeleteConsumerGroupOffsets_destroy(self._offsets)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DeleteConsumerGroupOffsets(rk, &self._offsets, 1, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _group_outcomes(event, rd_kafka_DeleteConsumerGroupOffsets_result_groups)


cdef dict _group_outcomes(const rd_kafka_event_t *event, groups_of_t groups_of):
    """Return, by group name, ConsumerGroupTopicPartitions or a KafkaError."""
    cdef size_t cnt = 0
    cdef size_t i
    cdef const rd_kafka_group_result_t **groups = groups_of(event, &cnt)
    outcomes = {}
    for i in range(cnt):
        name = rd_kafka_group_result_name(groups[i]).decode()
        partitions = rd_kafka_group_result_partitions(groups[i])
        outcomes[name] = outcome_of(
            rd_kafka_group_result_error(groups[i]), ConsumerGroupTopicPartitions(
                name, None if partitions is NULL else partitions_from(partitions)))
    return outcomes


cdef object _description_from(const rd_kafka_ConsumerGroupDescription_t *group):
    cdef size_t cnt = 0
    cdef size_t i
    cdef const rd_kafka_AclOperation_t *operations
    operations = rd_kafka_ConsumerGroupDescription_authorized_operations(group, &cnt)
    authorized = operations_from(operations, cnt)
    members = [
        _member_from(rd_kafka_ConsumerGroupDescription_member(group, i))
        for i in range(rd_kafka_ConsumerGroupDescription_member_count(group))
    ]
    return ConsumerGroupDescription(
        rd_kafka_ConsumerGroupDescription_group_id(group).decode(),
        rd_kafka_ConsumerGroupDescription_is_simple_consumer_group(group) != 0, members,
        text_or_none(rd_kafka_ConsumerGroupDescription_partition_assignor(group)),
        <int>rd_kafka_ConsumerGroupDescription_state(group),
        node_from(rd_kafka_ConsumerGroupDescription_coordinator(group)), authorized,
        <int>rd_kafka_ConsumerGroupDescription_type(group))


cdef object _member_from(const rd_kafka_MemberDescription_t *member):
    return MemberDescription(
        text_or_none(rd_kafka_MemberDescription_consumer_id(member)),
        text_or_none(rd_kafka_MemberDescription_client_id(member)),
        text_or_none(rd_kafka_MemberDescription_host(member)),
        _assignment_from(rd_kafka_MemberDescription_assignment(member)),
        text_or_none(rd_kafka_MemberDescription_group_instance_id(member)),
        _assignment_from(rd_kafka_MemberDescription_target_assignment(member)))


cdef object _assignment_from(const rd_kafka_MemberAssignment_t *assignment):
    if assignment is NULL:
        return None
    return MemberAssignment(partitions_from(rd_kafka_MemberAssignment_partitions(assignment)))
