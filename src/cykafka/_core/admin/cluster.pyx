"""Requests about the cluster: its brokers, and its users' SCRAM credentials."""
from libc.stdint cimport INT32_MAX

from cykafka._core.admin.request cimport (
    Request,
    c_text,
    node_from,
    nodes_from,
    operations_from,
    outcome_of,
    text_or_none,
)
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.common.arguments cimport check_value_size, int_argument

from cykafka._core.model.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
    UserScramCredentialsDescription,
)
from cykafka._core.model.topic import DescribeClusterResult


cdef class DescribeCluster(Request):
    """Describe the cluster."""

    def __cinit__(self):
        self._op = RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DescribeCluster(rk, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef const rd_kafka_Node_t **nodes
        cdef const rd_kafka_AclOperation_t *operations
        nodes = rd_kafka_DescribeCluster_result_nodes(event, &cnt)
        brokers = nodes_from(nodes, cnt)
        operations = rd_kafka_DescribeCluster_result_authorized_operations(event, &cnt)
        return DescribeClusterResult(
            node_from(rd_kafka_DescribeCluster_result_controller(event)), brokers,
            text_or_none(rd_kafka_DescribeCluster_result_cluster_id(event)),
            operations_from(operations, cnt))


cdef class DescribeUserScramCredentials(Request):
    """Describe credentials: a list of users, or None for all."""

    cdef list _users

    def __cinit__(self, users):
        self._op = RD_KAFKA_ADMIN_OP_DESCRIBEUSERSCRAMCREDENTIALS
        self._users = [] if users is None else list(users)  # keeps the texts in _objects
        self.reserve(len(self._users))
        for user in self._users:
            self.add(<void *>c_text(user, "users"))

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DescribeUserScramCredentials(rk, <const char **>self._objects, self._cnt,
                                              options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_UserScramCredentialsDescription_t **users
        users = rd_kafka_DescribeUserScramCredentials_result_descriptions(event, &cnt)
        outcomes = {}
        for i in range(cnt):
            outcome = outcome_of(rd_kafka_UserScramCredentialsDescription_error(users[i]), None)
            if outcome is None:
                outcome = _description_from(users[i])
            elif not self._users:
                return outcome  # a single future has one outcome
            outcomes[rd_kafka_UserScramCredentialsDescription_user(users[i]).decode()] = outcome
        return outcomes


cdef class AlterUserScramCredentials(Request):
    """Change credentials: a list of UserScramCredentialUpsertion and ...Deletion."""

    def __cinit__(self, alterations):
        self._op = RD_KAFKA_ADMIN_OP_ALTERUSERSCRAMCREDENTIALS
        self.reserve(len(alterations))
        for alteration in alterations:
            if isinstance(alteration, UserScramCredentialUpsertion):
                self.add(_upsertion_to(alteration))
            else:
                self.add(_deletion_to(alteration))

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            rd_kafka_UserScramCredentialAlteration_destroy(
                <rd_kafka_UserScramCredentialAlteration_t *>self._objects[i])

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_AlterUserScramCredentials(
            rk, <rd_kafka_UserScramCredentialAlteration_t **>self._objects, self._cnt, options,
            results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_AlterUserScramCredentials_result_response_t **users
        users = rd_kafka_AlterUserScramCredentials_result_responses(event, &cnt)
        return {
            rd_kafka_AlterUserScramCredentials_result_response_user(users[i]).decode():
            outcome_of(rd_kafka_AlterUserScramCredentials_result_response_error(users[i]), None)
            for i in range(cnt)
        }


cdef object _description_from(const rd_kafka_UserScramCredentialsDescription_t *user):
    cdef size_t i
    infos = []
    for i in range(rd_kafka_UserScramCredentialsDescription_scramcredentialinfo_count(user)):
        info = rd_kafka_UserScramCredentialsDescription_scramcredentialinfo(user, i)
        infos.append(ScramCredentialInfo(
            ScramMechanism(<int>rd_kafka_ScramCredentialInfo_mechanism(info)),
            rd_kafka_ScramCredentialInfo_iterations(info)))
    return UserScramCredentialsDescription(
        rd_kafka_UserScramCredentialsDescription_user(user).decode(), infos)


cdef rd_kafka_UserScramCredentialAlteration_t *_upsertion_to(upsertion) except NULL:
    cdef bytes password = upsertion.password
    cdef bytes salt = upsertion.salt
    cdef const unsigned char *c_password = password
    cdef const unsigned char *c_salt = NULL
    user, info = upsertion.user, upsertion.scram_credential_info
    cdef int mechanism = info.mechanism.value
    cdef int iterations = <int>int_argument(info.iterations, "iterations", 1, INT32_MAX)
    check_value_size(len(password), "password")
    if salt is not None:
        check_value_size(len(salt), "salt")
        c_salt = salt
    return rd_kafka_UserScramCredentialUpsertion_new(
        c_text(user, "user"), <rd_kafka_ScramMechanism_t>mechanism, iterations, c_password,
        len(password), c_salt, 0 if salt is None else len(salt))


cdef rd_kafka_UserScramCredentialAlteration_t *_deletion_to(deletion) except NULL:
    cdef int mechanism = deletion.mechanism.value
    user = deletion.user
    return rd_kafka_UserScramCredentialDeletion_new(c_text(user, "user"),
                                                    <rd_kafka_ScramMechanism_t>mechanism)
