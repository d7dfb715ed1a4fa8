"""Requests about access control lists."""
from cykafka._core.admin.request cimport Request, c_text, outcome_of, text_or_none
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *

from cykafka._core.model.acl import AclBinding


ctypedef rd_kafka_AclBinding_t *(*new_acl_t)(
    rd_kafka_ResourceType_t, const char *, rd_kafka_ResourcePatternType_t, const char *,
    const char *, rd_kafka_AclOperation_t, rd_kafka_AclPermissionType_t, char *,
    size_t) noexcept nogil


cdef class AclRequest(Request):
    """The base of the three requests, which take a list of AclBinding or AclBindingFilter.

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
