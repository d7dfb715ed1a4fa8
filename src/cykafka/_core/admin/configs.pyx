"""Requests about the configuration of topics, brokers and groups."""
from cykafka._core.admin.request cimport Request, c_text, text_or_none
from cykafka._core.clib.librdkafka cimport *
from cykafka._core.clib.librdkafka_admin cimport *
from cykafka._core.common.errors cimport error_from, take_error

from cykafka._core.model.config import AlterConfigOpType, ConfigEntry, ConfigResource

ctypedef const rd_kafka_ConfigResource_t **(*resources_of_t)(const rd_kafka_event_t *,
                                                             size_t *) noexcept nogil


cdef class ConfigRequest(Request):
    """The base of the three requests, which take a list of ConfigResource."""

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
        return _outcomes(event, rd_kafka_DescribeConfigs_result_resources, True)


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
        return _outcomes(event, rd_kafka_AlterConfigs_result_resources, False)


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
        return _outcomes(event, rd_kafka_IncrementalAlterConfigs_result_resources, False)


cdef dict _outcomes(const rd_kafka_event_t *event, resources_of_t resources_of, bint described):
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
