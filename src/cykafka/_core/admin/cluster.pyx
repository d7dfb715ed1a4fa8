"""Requests about the cluster: its brokers, the configuration of topics, brokers and groups, its
users' SCRAM credentials, and access control lists.
"""
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
from cykafka._core.common.errors cimport error_from, take_error

from cykafka._core.model.acl import AclBinding
from cykafka._core.model.config import AlterConfigOpType, ConfigEntry, ConfigResource
from cykafka._core.model.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
    UserScramCredentialsDescription,
)
from cykafka._core.model.topic import DescribeClusterResult

ctypedef const rd_kafka_ConfigResource_t **(*resources_of_t)(const rd_kafka_event_t *,
                                                             size_t *) noexcept nogil
ctypedef rd_kafka_AclBinding_t *(*new_acl_t)(
    rd_kafka_ResourceType_t, const char *, rd_kafka_ResourcePatternType_t, const char *,
    const char *, rd_kafka_AclOperation_t, rd_kafka_AclPermissionType_t, char *,
    size_t) noexcept nogil


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


cdef class ConfigRequest(Request):
    """The base of the three requests that take a list of ConfigResource."""

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            rd_kafka_ConfigResource_destroy(<rd_kafka_ConfigResource_t *>self._objects[i])

    cdef int take(self, resources) except -1:
        cdef rd_kafka_ConfigResource_t *c_resource
        cdef int kind
        self.reserve(len(resources))
        for resource in resources:
            kind = resource.restype.value
            name = resource.name
            c_resource = rd_kafka_ConfigResource_new(<rd_kafka_ResourceType_t>kind,
                                                     c_text(name, "resources: name"))
            if c_resource is NULL:
                raise ValueError(f"resources: {resource!r} has an empty name")
            self.add(c_resource)
            self.fill(c_resource, resource)
        return 0

    cdef int fill(self, rd_kafka_ConfigResource_t *c_resource, resource) except -1:
        """Add a resource's changes."""
        return 0


cdef class DescribeConfigs(ConfigRequest):
    """Describe configurations."""

    def __cinit__(self, resources):
        self._op = RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS
        self.take(resources)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DescribeConfigs(rk, <rd_kafka_ConfigResource_t **>self._objects, self._cnt,
                                 options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _config_outcomes(event, rd_kafka_DescribeConfigs_result_resources, True)


cdef class AlterConfigs(ConfigRequest):
    """Replace configurations by each resource's `set_config_dict`."""

    def __cinit__(self, resources):
        self._op = RD_KAFKA_ADMIN_OP_ALTERCONFIGS
        self.take(resources)

    cdef int fill(self, rd_kafka_ConfigResource_t *c_resource, resource) except -1:
        for name, value in list(resource.set_config_dict.items()):
            if value is None:
                raise TypeError(f"set_config: expected a str for {name!r}, got None")
            value = str(value)
            if rd_kafka_ConfigResource_set_config(
                    c_resource, c_text(name, "set_config"), c_text(value, f"set_config: {name}")):
                # Without this error, the request would reset the whole configuration.
                raise ValueError(f"set_config: {resource!r} has a property without a name")
        return 0

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_AlterConfigs(rk, <rd_kafka_ConfigResource_t **>self._objects, self._cnt, options,
                              results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _config_outcomes(event, rd_kafka_AlterConfigs_result_resources, False)


cdef class IncrementalAlterConfigs(ConfigRequest):
    """Change configurations by each resource's `incremental_configs`."""

    def __cinit__(self, resources):
        self._op = RD_KAFKA_ADMIN_OP_INCREMENTALALTERCONFIGS
        self.take(resources)

    cdef int fill(self, rd_kafka_ConfigResource_t *c_resource, resource) except -1:
        cdef rd_kafka_error_t *error
        cdef const char *c_value
        cdef int operation
        entries = resource.incremental_configs
        if not isinstance(entries, (list, tuple)):
            raise TypeError("incremental_configs: expected a list of ConfigEntry, "
                            f"got {type(entries).__name__}")
        entries = list(entries)
        if not entries:
            raise ValueError(f"incremental_configs: {resource!r} has no changes")
        for entry in entries:
            if not isinstance(entry, ConfigEntry):
                raise TypeError("incremental_configs: expected a list of ConfigEntry, "
                                f"found a {type(entry).__name__} in it")
            wanted = entry.incremental_operation
            if not isinstance(wanted, AlterConfigOpType):
                raise TypeError(f"incremental_operation: expected {entry.name!r} to have an "
                                f"AlterConfigOpType, got {type(wanted).__name__}")
            name, value = entry.name, entry.value
            operation = wanted.value
            c_value = NULL
            if wanted is not AlterConfigOpType.DELETE:
                if value is None:
                    raise TypeError(
                        f"incremental_configs: expected a value of {entry.name!r}, got None")
                value = str(value)
                c_value = c_text(value, f"incremental_configs: {name}")
            error = rd_kafka_ConfigResource_add_incremental_config(
                c_resource, c_text(name, "incremental_configs: name"),
                <rd_kafka_AlterConfigOpType_t>operation, c_value)
            if error is not NULL:
                raise ValueError(f"incremental_configs: {name!r}: {take_error(error).str()}")
        return 0

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_IncrementalAlterConfigs(rk, <rd_kafka_ConfigResource_t **>self._objects,
                                         self._cnt, options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        return _config_outcomes(event, rd_kafka_IncrementalAlterConfigs_result_resources, False)


cdef dict _config_outcomes(const rd_kafka_event_t *event, resources_of_t resources_of,
                           bint described):
    """Return, by resource, the entries by name, or None, or a KafkaError."""
    cdef size_t cnt = 0
    cdef size_t entry_cnt = 0
    cdef size_t i
    cdef rd_kafka_resp_err_t err
    cdef const rd_kafka_ConfigResource_t **resources = resources_of(event, &cnt)
    cdef const rd_kafka_ConfigEntry_t **entries
    outcomes = {}
    for i in range(cnt):
        if resources[i] is NULL:  # missing in the response
            continue
        err = rd_kafka_ConfigResource_error(resources[i])
        if err:
            outcome = error_from(err, rd_kafka_ConfigResource_error_string(resources[i]))
        elif described:
            entries = rd_kafka_ConfigResource_configs(resources[i], &entry_cnt)
            outcome = _entries_from(entries, entry_cnt)
        else:
            outcome = None
        key = ConfigResource(<int>rd_kafka_ConfigResource_type(resources[i]),
                             rd_kafka_ConfigResource_name(resources[i]).decode())
        outcomes[key] = outcome
    return outcomes


cdef dict _entries_from(const rd_kafka_ConfigEntry_t **entries, size_t cnt):
    cdef size_t i
    cdef size_t synonym_cnt = 0
    cdef const rd_kafka_ConfigEntry_t *entry
    cdef const rd_kafka_ConfigEntry_t **synonyms
    result = {}
    for i in range(cnt):
        entry = entries[i]
        synonyms = rd_kafka_ConfigEntry_synonyms(entry, &synonym_cnt)
        name = rd_kafka_ConfigEntry_name(entry).decode()
        result[name] = ConfigEntry(
            name, text_or_none(rd_kafka_ConfigEntry_value(entry)),
            rd_kafka_ConfigEntry_source(entry), rd_kafka_ConfigEntry_is_read_only(entry),
            rd_kafka_ConfigEntry_is_default(entry), rd_kafka_ConfigEntry_is_sensitive(entry),
            rd_kafka_ConfigEntry_is_synonym(entry), _entries_from(synonyms, synonym_cnt))
    return result


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


cdef class AclRequest(Request):
    """The base of the three requests that take a list of AclBinding or AclBindingFilter.

    The responses keep the list's order.
    """

    cdef list _acls

    def __dealloc__(self):
        cdef size_t i
        for i in range(self._cnt):
            rd_kafka_AclBinding_destroy(<rd_kafka_AclBinding_t *>self._objects[i])

    cdef int take(self, acls, new_acl_t new) except -1:
        self._acls = list(acls)
        self.reserve(len(self._acls))
        for acl in self._acls:
            self.add(_acl_to(acl, new))
        return 0


cdef class CreateAcls(AclRequest):
    """Create rules: a list of AclBinding."""

    def __cinit__(self, acls):
        self._op = RD_KAFKA_ADMIN_OP_CREATEACLS
        self.take(acls, rd_kafka_AclBinding_new)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_CreateAcls(rk, <rd_kafka_AclBinding_t **>self._objects, self._cnt, options,
                            results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t i
        cdef const rd_kafka_acl_result_t **results
        results = rd_kafka_CreateAcls_result_acls(event, &cnt)
        outcomes = [outcome_of(rd_kafka_acl_result_error(results[i]), None) for i in range(cnt)]
        return dict(zip(self._acls, outcomes))


cdef class DescribeAcls(AclRequest):
    """List the rules that match a filter: a list with one AclBindingFilter."""

    def __cinit__(self, acls):
        self._op = RD_KAFKA_ADMIN_OP_DESCRIBEACLS
        self.take(acls, rd_kafka_AclBindingFilter_new)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DescribeAcls(rk, <rd_kafka_AclBinding_t *>self._objects[0], options, results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef const rd_kafka_AclBinding_t **acls
        acls = rd_kafka_DescribeAcls_result_acls(event, &cnt)
        return _bindings_from(acls, cnt)


cdef class DeleteAcls(AclRequest):
    """Delete rules: a list of AclBindingFilter."""

    def __cinit__(self, acls):
        self._op = RD_KAFKA_ADMIN_OP_DELETEACLS
        self.take(acls, rd_kafka_AclBindingFilter_new)

    cdef void submit(self, rd_kafka_t *rk, const rd_kafka_AdminOptions_t *options,
                     rd_kafka_queue_t *results) noexcept nogil:
        rd_kafka_DeleteAcls(rk, <rd_kafka_AclBinding_t **>self._objects, self._cnt, options,
                            results)

    cdef object decode(self, rd_kafka_event_t *event):
        cdef size_t cnt = 0
        cdef size_t acl_cnt = 0
        cdef size_t i
        cdef const rd_kafka_DeleteAcls_result_response_t **responses
        cdef const rd_kafka_AclBinding_t **acls
        responses = rd_kafka_DeleteAcls_result_responses(event, &cnt)
        outcomes = []
        for i in range(cnt):
            acls = rd_kafka_DeleteAcls_result_response_matching_acls(responses[i], &acl_cnt)
            outcomes.append(outcome_of(rd_kafka_DeleteAcls_result_response_error(responses[i]),
                                       _bindings_from(acls, acl_cnt)))
        return dict(zip(self._acls, outcomes))


cdef rd_kafka_AclBinding_t *_acl_to(object acl, new_acl_t new) except NULL:
    cdef char errstr[256]
    cdef rd_kafka_AclBinding_t *c_acl
    cdef int restype = acl.restype.value
    cdef int pattern = acl.resource_pattern_type.value
    cdef int operation = acl.operation.value
    cdef int permission = acl.permission_type.value
    name, principal, host = acl.name, acl.principal, acl.host
    c_acl = new(
        <rd_kafka_ResourceType_t>restype, _c_text_or_null(name, "name"),
        <rd_kafka_ResourcePatternType_t>pattern, _c_text_or_null(principal, "principal"),
        _c_text_or_null(host, "host"), <rd_kafka_AclOperation_t>operation,
        <rd_kafka_AclPermissionType_t>permission, errstr, sizeof(errstr))
    if c_acl is NULL:
        raise ValueError(f"{acl!r}: {errstr.decode('utf-8', 'replace')}")
    return c_acl


cdef const char *_c_text_or_null(object text, str argument) except? NULL:
    if text is None:
        return NULL
    return c_text(text, argument)


cdef list _bindings_from(const rd_kafka_AclBinding_t **acls, size_t cnt):
    cdef size_t i
    return [AclBinding(<int>rd_kafka_AclBinding_restype(acls[i]),
                       text_or_none(rd_kafka_AclBinding_name(acls[i])),
                       <int>rd_kafka_AclBinding_resource_pattern_type(acls[i]),
                       text_or_none(rd_kafka_AclBinding_principal(acls[i])),
                       text_or_none(rd_kafka_AclBinding_host(acls[i])),
                       <int>rd_kafka_AclBinding_operation(acls[i]),
                       <int>rd_kafka_AclBinding_permission_type(acls[i]))
            for i in range(cnt)]
