# The parts of <librdkafka/rdkafka.h> that cykafka uses, in the header's order. Call functions that
# may block, or hold a librdkafka lock for more than an instant, `with nogil`.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport FILE

cdef extern from "<librdkafka/rdkafka.h>" nogil:
    int rd_kafka_version()
    const char *rd_kafka_version_str()

    ctypedef enum rd_kafka_type_t:
        RD_KAFKA_PRODUCER
        RD_KAFKA_CONSUMER

    ctypedef enum rd_kafka_timestamp_type_t:
        RD_KAFKA_TIMESTAMP_NOT_AVAILABLE
        RD_KAFKA_TIMESTAMP_CREATE_TIME
        RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME

    ctypedef struct rd_kafka_t
    ctypedef struct rd_kafka_topic_t
    ctypedef struct rd_kafka_conf_t
    ctypedef struct rd_kafka_topic_conf_t
    ctypedef struct rd_kafka_queue_t
    ctypedef struct rd_kafka_error_t
    ctypedef struct rd_kafka_headers_t
    ctypedef struct rd_kafka_consumer_group_metadata_t

    # -- errors
    ctypedef enum rd_kafka_resp_err_t:
        RD_KAFKA_RESP_ERR__BAD_MSG
        RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE
        RD_KAFKA_RESP_ERR__RETRY
        RD_KAFKA_RESP_ERR__DESTROY
        RD_KAFKA_RESP_ERR__TIMED_OUT
        RD_KAFKA_RESP_ERR__QUEUE_FULL
        RD_KAFKA_RESP_ERR__PARTITION_EOF
        RD_KAFKA_RESP_ERR__NOENT
        RD_KAFKA_RESP_ERR__TRANSPORT
        RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS
        RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE
        RD_KAFKA_RESP_ERR_NOT_COORDINATOR
        RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION
        RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH
        RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH
        RD_KAFKA_RESP_ERR__FATAL
        RD_KAFKA_RESP_ERR__INVALID_ARG
        RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS
        RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS
        RD_KAFKA_RESP_ERR__STATE
        RD_KAFKA_RESP_ERR__CONFLICT
        RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS
        RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST
        RD_KAFKA_RESP_ERR__PURGE_QUEUE
        RD_KAFKA_RESP_ERR__PURGE_INFLIGHT
        RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION
        RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE
        RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION
        RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND
        RD_KAFKA_RESP_ERR_INVALID_RECORD_STATE
        RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED

    struct rd_kafka_err_desc:
        rd_kafka_resp_err_t code
        const char *name

    void rd_kafka_get_err_descs(const rd_kafka_err_desc **errdescs, size_t *cntp)
    const char *rd_kafka_err2str(rd_kafka_resp_err_t err)
    const char *rd_kafka_err2name(rd_kafka_resp_err_t err)
    rd_kafka_resp_err_t rd_kafka_last_error()
    rd_kafka_resp_err_t rd_kafka_error_code(const rd_kafka_error_t *error)
    const char *rd_kafka_error_string(const rd_kafka_error_t *error)
    int rd_kafka_error_is_fatal(const rd_kafka_error_t *error)
    int rd_kafka_error_is_retriable(const rd_kafka_error_t *error)
    int rd_kafka_error_txn_requires_abort(const rd_kafka_error_t *error)
    void rd_kafka_error_destroy(rd_kafka_error_t *error)

    # -- topic partitions
    ctypedef struct rd_kafka_topic_partition_t:
        char *topic
        int32_t partition
        int64_t offset
        void *metadata
        size_t metadata_size
        rd_kafka_resp_err_t err

    ctypedef struct rd_kafka_topic_partition_list_t:
        int cnt
        rd_kafka_topic_partition_t *elems

    int32_t RD_KAFKA_PARTITION_UA
    int64_t RD_KAFKA_OFFSET_BEGINNING
    int64_t RD_KAFKA_OFFSET_END
    int64_t RD_KAFKA_OFFSET_STORED
    int64_t RD_KAFKA_OFFSET_INVALID
    int64_t RD_KAFKA_OFFSET_TAIL_BASE

    void rd_kafka_topic_partition_set_leader_epoch(rd_kafka_topic_partition_t *rktpar,
                                                   int32_t leader_epoch)
    int32_t rd_kafka_topic_partition_get_leader_epoch(const rd_kafka_topic_partition_t *rktpar)
    rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int size)
    rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_copy(
        const rd_kafka_topic_partition_list_t *src)
    void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *list)
    rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(
        rd_kafka_topic_partition_list_t *list, const char *topic, int32_t partition)
    rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_find(
        const rd_kafka_topic_partition_list_t *list, const char *topic, int32_t partition)

    # -- headers
    rd_kafka_headers_t *rd_kafka_headers_new(size_t initial_count)
    void rd_kafka_headers_destroy(rd_kafka_headers_t *hdrs)
    rd_kafka_resp_err_t rd_kafka_header_add(rd_kafka_headers_t *hdrs, const char *name,
                                            ssize_t name_size, const void *value,
                                            ssize_t value_size)
    size_t rd_kafka_header_cnt(const rd_kafka_headers_t *hdrs)
    rd_kafka_resp_err_t rd_kafka_header_get_all(const rd_kafka_headers_t *hdrs, size_t idx,
                                                const char **namep, const void **valuep,
                                                size_t *sizep)

    rd_kafka_resp_err_t rd_kafka_header_get_last(const rd_kafka_headers_t *hdrs, const char *name,
                                                 const void **valuep, size_t *sizep)
    rd_kafka_headers_t *rd_kafka_headers_copy(const rd_kafka_headers_t *src)

    # -- messages
    ctypedef struct rd_kafka_message_t:
        rd_kafka_resp_err_t err
        rd_kafka_topic_t *rkt
        int32_t partition
        void *payload
        size_t len
        void *key
        size_t key_len
        int64_t offset

    void rd_kafka_message_destroy(rd_kafka_message_t *rkmessage)
    const char *rd_kafka_message_errstr(const rd_kafka_message_t *rkmessage)
    int64_t rd_kafka_message_timestamp(const rd_kafka_message_t *rkmessage,
                                       rd_kafka_timestamp_type_t *tstype)
    rd_kafka_resp_err_t rd_kafka_message_detach_headers(rd_kafka_message_t *rkmessage,
                                                        rd_kafka_headers_t **hdrsp)
    int32_t rd_kafka_message_leader_epoch(const rd_kafka_message_t *rkmessage)

    # -- configuration
    ctypedef enum rd_kafka_conf_res_t:
        RD_KAFKA_CONF_UNKNOWN
        RD_KAFKA_CONF_OK

    rd_kafka_conf_t *rd_kafka_conf_new()
    void rd_kafka_conf_destroy(rd_kafka_conf_t *conf)
    rd_kafka_conf_res_t rd_kafka_conf_set(rd_kafka_conf_t *conf, const char *name,
                                          const char *value, char *errstr, size_t errstr_size)
    rd_kafka_conf_res_t rd_kafka_conf_get(const rd_kafka_conf_t *conf, const char *name,
                                          char *dest, size_t *dest_size)
    void rd_kafka_conf_properties_show(FILE *fp)
    rd_kafka_topic_conf_t *rd_kafka_default_topic_conf_dup(rd_kafka_t *rk)
    void rd_kafka_topic_conf_destroy(rd_kafka_topic_conf_t *topic_conf)
    rd_kafka_conf_res_t rd_kafka_topic_conf_get(const rd_kafka_topic_conf_t *conf,
                                                const char *name, char *dest, size_t *dest_size)

    ctypedef enum rd_kafka_cert_type_t:
        RD_KAFKA_CERT_PUBLIC_KEY
        RD_KAFKA_CERT_PRIVATE_KEY
        RD_KAFKA_CERT_CA

    ctypedef enum rd_kafka_cert_enc_t:
        RD_KAFKA_CERT_ENC_PKCS12
        RD_KAFKA_CERT_ENC_DER
        RD_KAFKA_CERT_ENC_PEM

    rd_kafka_conf_res_t rd_kafka_conf_set_ssl_cert(
        rd_kafka_conf_t *conf, rd_kafka_cert_type_t cert_type, rd_kafka_cert_enc_t cert_enc,
        const void *buffer, size_t size, char *errstr, size_t errstr_size)
    void rd_kafka_conf_set_opaque(rd_kafka_conf_t *conf, void *opaque)
    void rd_kafka_conf_set_dr_msg_cb(
        rd_kafka_conf_t *conf,
        void (*cb)(rd_kafka_t *, const rd_kafka_message_t *, void *) noexcept nogil)
    void rd_kafka_conf_set_error_cb(
        rd_kafka_conf_t *conf, void (*cb)(rd_kafka_t *, int, const char *, void *) noexcept nogil)
    void rd_kafka_conf_set_throttle_cb(
        rd_kafka_conf_t *conf,
        void (*cb)(rd_kafka_t *, const char *, int32_t, int, void *) noexcept nogil)
    void rd_kafka_conf_set_stats_cb(
        rd_kafka_conf_t *conf, int (*cb)(rd_kafka_t *, char *, size_t, void *) noexcept nogil)
    void rd_kafka_conf_set_log_cb(
        rd_kafka_conf_t *conf,
        void (*cb)(const rd_kafka_t *, int, const char *, const char *) noexcept nogil)
    void rd_kafka_conf_set_offset_commit_cb(
        rd_kafka_conf_t *conf,
        void (*cb)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *,
                   void *) noexcept nogil)
    void rd_kafka_conf_set_rebalance_cb(
        rd_kafka_conf_t *conf,
        void (*cb)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *,
                   void *) noexcept nogil)
    void rd_kafka_conf_set_oauthbearer_token_refresh_cb(
        rd_kafka_conf_t *conf, void (*cb)(rd_kafka_t *, const char *, void *) noexcept nogil)
    void rd_kafka_conf_enable_sasl_queue(rd_kafka_conf_t *conf, int enable)

    # -- share consumers
    ctypedef struct rd_kafka_share_t
    ctypedef struct rd_kafka_messages_t
    ctypedef struct rd_kafka_share_partition_offsets_list_t
    ctypedef enum rd_kafka_share_AcknowledgeType_t:
        RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_ACCEPT
        RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_RELEASE
        RD_KAFKA_SHARE_ACKNOWLEDGE_TYPE_REJECT
    int16_t rd_kafka_message_delivery_count(const rd_kafka_message_t *rkmessage)
    rd_kafka_resp_err_t rd_kafka_share_subscribe(
        rd_kafka_share_t *rkshare, const rd_kafka_topic_partition_list_t *topics)
    rd_kafka_resp_err_t rd_kafka_share_unsubscribe(rd_kafka_share_t *rkshare)
    rd_kafka_resp_err_t rd_kafka_share_subscription(
        rd_kafka_share_t *rkshare, rd_kafka_topic_partition_list_t **topics)
    rd_kafka_resp_err_t rd_kafka_share_acknowledge_offset(
        rd_kafka_share_t *rkshare, const char *topic, int32_t partition, int64_t offset,
        rd_kafka_share_AcknowledgeType_t type)
    rd_kafka_error_t *rd_kafka_share_commit_async(rd_kafka_share_t *rkshare)
    rd_kafka_error_t *rd_kafka_share_consumer_close_queue(
        rd_kafka_share_t *rkshare, rd_kafka_queue_t *rkqu)

    # -- handles
    int RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE
    rd_kafka_t *rd_kafka_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, char *errstr,
                             size_t errstr_size)
    void rd_kafka_destroy(rd_kafka_t *rk)
    const char *rd_kafka_name(const rd_kafka_t *rk)
    const rd_kafka_conf_t *rd_kafka_conf(rd_kafka_t *rk)
    rd_kafka_error_t *rd_kafka_sasl_background_callbacks_enable(rd_kafka_t *rk)
    rd_kafka_error_t *rd_kafka_sasl_set_credentials(rd_kafka_t *rk, const char *username,
                                                    const char *password)
    rd_kafka_resp_err_t rd_kafka_oauthbearer_set_token(
        rd_kafka_t *rk, const char *token_value, int64_t md_lifetime_ms,
        const char *md_principal_name, const char **extensions, size_t extension_size,
        char *errstr, size_t errstr_size)
    rd_kafka_resp_err_t rd_kafka_oauthbearer_set_token_failure(rd_kafka_t *rk,
                                                               const char *errstr)
    char *rd_kafka_clusterid(rd_kafka_t *rk, int timeout_ms)
    char *rd_kafka_memberid(const rd_kafka_t *rk)
    void rd_kafka_mem_free(rd_kafka_t *rk, void *ptr)
    rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *rk, const char *topic,
                                         rd_kafka_topic_conf_t *conf)
    void rd_kafka_topic_destroy(rd_kafka_topic_t *rkt)
    const char *rd_kafka_topic_name(const rd_kafka_topic_t *rkt)
    int rd_kafka_outq_len(rd_kafka_t *rk)

    # -- queues
    rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *rk)
    void rd_kafka_queue_destroy(rd_kafka_queue_t *rkqu)
    rd_kafka_queue_t *rd_kafka_queue_get_main(rd_kafka_t *rk)
    rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *rk)
    size_t rd_kafka_queue_length(rd_kafka_queue_t *rkqu)
    void rd_kafka_queue_yield(rd_kafka_queue_t *rkqu)
    void rd_kafka_queue_io_event_enable(rd_kafka_queue_t *rkqu, int fd, const void *payload,
                                        size_t size)
    int rd_kafka_queue_poll_callback(rd_kafka_queue_t *rkqu, int timeout_ms)
    rd_kafka_resp_err_t rd_kafka_set_log_queue(rd_kafka_t *rk, rd_kafka_queue_t *rkqu)

    # -- producing
    int RD_KAFKA_PURGE_F_QUEUE
    int RD_KAFKA_PURGE_F_INFLIGHT
    int RD_KAFKA_PURGE_F_NON_BLOCKING

    rd_kafka_resp_err_t rd_kafka_purge(rd_kafka_t *rk, int purge_flags)

    # -- consuming
    rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *rk, int timeout_ms)
    rd_kafka_resp_err_t rd_kafka_poll_set_consumer(rd_kafka_t *rk)
    rd_kafka_resp_err_t rd_kafka_subscribe(rd_kafka_t *rk,
                                           const rd_kafka_topic_partition_list_t *topics)
    rd_kafka_resp_err_t rd_kafka_unsubscribe(rd_kafka_t *rk)
    rd_kafka_resp_err_t rd_kafka_subscription(rd_kafka_t *rk,
                                              rd_kafka_topic_partition_list_t **topics)
    rd_kafka_resp_err_t rd_kafka_assign(rd_kafka_t *rk,
                                        const rd_kafka_topic_partition_list_t *partitions)
    rd_kafka_error_t *rd_kafka_incremental_assign(
        rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *partitions)
    rd_kafka_error_t *rd_kafka_incremental_unassign(
        rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *partitions)
    rd_kafka_resp_err_t rd_kafka_assignment(rd_kafka_t *rk,
                                            rd_kafka_topic_partition_list_t **partitions)
    int rd_kafka_assignment_lost(rd_kafka_t *rk)
    const char *rd_kafka_rebalance_protocol(rd_kafka_t *rk)
    rd_kafka_error_t *rd_kafka_consumer_close_queue(rd_kafka_t *rk, rd_kafka_queue_t *rkqu)
    int rd_kafka_consumer_closed(rd_kafka_t *rk)
    rd_kafka_resp_err_t rd_kafka_pause_partitions(rd_kafka_t *rk,
                                                  rd_kafka_topic_partition_list_t *partitions)
    rd_kafka_resp_err_t rd_kafka_resume_partitions(rd_kafka_t *rk,
                                                   rd_kafka_topic_partition_list_t *partitions)
    rd_kafka_resp_err_t rd_kafka_get_watermark_offsets(rd_kafka_t *rk, const char *topic,
                                                       int32_t partition, int64_t *low,
                                                       int64_t *high)
    rd_kafka_resp_err_t rd_kafka_offsets_store(rd_kafka_t *rk,
                                               rd_kafka_topic_partition_list_t *offsets)
    rd_kafka_resp_err_t rd_kafka_commit(rd_kafka_t *rk,
                                        const rd_kafka_topic_partition_list_t *offsets, int sync)
    rd_kafka_resp_err_t rd_kafka_commit_queue(
        rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *offsets, rd_kafka_queue_t *rkqu,
        void (*cb)(rd_kafka_t *, rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t *,
                   void *) noexcept nogil,
        void *opaque)
    rd_kafka_resp_err_t rd_kafka_position(rd_kafka_t *rk,
                                          rd_kafka_topic_partition_list_t *partitions)
    rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata(rd_kafka_t *rk)
    rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata_new(
        const char *group_id)
    void rd_kafka_consumer_group_metadata_destroy(rd_kafka_consumer_group_metadata_t *cgmd)
    rd_kafka_error_t *rd_kafka_consumer_group_metadata_write(
        const rd_kafka_consumer_group_metadata_t *cgmd, void **bufferp, size_t *sizep)
    rd_kafka_error_t *rd_kafka_consumer_group_metadata_read(
        rd_kafka_consumer_group_metadata_t **cgmdp, const void *buffer, size_t size)

    # -- metadata
    ctypedef struct rd_kafka_metadata_broker_t:
        int32_t id
        char *host
        int port

    ctypedef struct rd_kafka_metadata_partition_t:
        int32_t id
        rd_kafka_resp_err_t err
        int32_t leader
        int replica_cnt
        int32_t *replicas
        int isr_cnt
        int32_t *isrs

    ctypedef struct rd_kafka_metadata_topic_t:
        char *topic
        int partition_cnt
        rd_kafka_metadata_partition_t *partitions
        rd_kafka_resp_err_t err

    ctypedef struct rd_kafka_metadata_t:
        int broker_cnt
        rd_kafka_metadata_broker_t *brokers
        int topic_cnt
        rd_kafka_metadata_topic_t *topics
        int32_t orig_broker_id
        char *orig_broker_name

    rd_kafka_resp_err_t rd_kafka_metadata(rd_kafka_t *rk, int all_topics,
                                          rd_kafka_topic_t *only_rkt,
                                          const rd_kafka_metadata_t **metadatap, int timeout_ms)
    void rd_kafka_metadata_destroy(const rd_kafka_metadata_t *metadata)

    # -- transactions
    rd_kafka_resp_err_t rd_kafka_fatal_error(rd_kafka_t *rk, char *errstr, size_t errstr_size)
    rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *rk)

    # -- partitioners
    int32_t rd_kafka_msg_partitioner_consistent(const rd_kafka_topic_t *rkt, const void *key,
                                                size_t keylen, int32_t partition_cnt,
                                                void *rkt_opaque, void *msg_opaque)
    int32_t rd_kafka_msg_partitioner_murmur2(const rd_kafka_topic_t *rkt, const void *key,
                                             size_t keylen, int32_t partition_cnt,
                                             void *rkt_opaque, void *msg_opaque)
    int32_t rd_kafka_msg_partitioner_fnv1a(const rd_kafka_topic_t *rkt, const void *key,
                                           size_t keylen, int32_t partition_cnt,
                                           void *rkt_opaque, void *msg_opaque)

# The type of the partitioners above; rdkafka.h has no name for it.
ctypedef int32_t (*partitioner_t)(const rd_kafka_topic_t *, const void *, size_t, int32_t, void *,
                                  void *) noexcept nogil


# <librdkafka/rdkafka_mock.h>, which upstream calls experimental. Any thread may call these
# functions. Most of them wait for the cluster's own thread.
cdef extern from "<librdkafka/rdkafka_mock.h>" nogil:
    ctypedef struct rd_kafka_mock_cluster_t
    ctypedef struct rd_kafka_mock_request_t

    rd_kafka_mock_cluster_t *rd_kafka_mock_cluster_new(rd_kafka_t *rk, int broker_cnt)
    void rd_kafka_mock_cluster_destroy(rd_kafka_mock_cluster_t *mcluster)
    const char *rd_kafka_mock_cluster_bootstraps(const rd_kafka_mock_cluster_t *mcluster)

    rd_kafka_resp_err_t rd_kafka_mock_topic_create(
        rd_kafka_mock_cluster_t *mcluster, const char *topic, int partition_cnt,
        int replication_factor)
    void rd_kafka_mock_topic_set_error(
        rd_kafka_mock_cluster_t *mcluster, const char *topic, rd_kafka_resp_err_t err)

    rd_kafka_resp_err_t rd_kafka_mock_partition_set_leader(
        rd_kafka_mock_cluster_t *mcluster, const char *topic, int32_t partition,
        int32_t broker_id)
    rd_kafka_resp_err_t rd_kafka_mock_partition_set_follower(
        rd_kafka_mock_cluster_t *mcluster, const char *topic, int32_t partition,
        int32_t broker_id)
    rd_kafka_resp_err_t rd_kafka_mock_coordinator_set(
        rd_kafka_mock_cluster_t *mcluster, const char *key_type, const char *key,
        int32_t broker_id)

    rd_kafka_resp_err_t rd_kafka_mock_broker_set_down(
        rd_kafka_mock_cluster_t *mcluster, int32_t broker_id)
    rd_kafka_resp_err_t rd_kafka_mock_broker_set_up(
        rd_kafka_mock_cluster_t *mcluster, int32_t broker_id)
    rd_kafka_resp_err_t rd_kafka_mock_broker_set_rtt(
        rd_kafka_mock_cluster_t *mcluster, int32_t broker_id, int rtt_ms)

    void rd_kafka_mock_push_request_errors_array(
        rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey, size_t cnt,
        const rd_kafka_resp_err_t *errors)
    rd_kafka_resp_err_t rd_kafka_mock_broker_push_request_error_rtts(
        rd_kafka_mock_cluster_t *mcluster, int32_t broker_id, int16_t ApiKey, size_t cnt, ...)
    void rd_kafka_mock_clear_request_errors(rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey)
    rd_kafka_resp_err_t rd_kafka_mock_set_apiversion(
        rd_kafka_mock_cluster_t *mcluster, int16_t ApiKey, int16_t MinVersion,
        int16_t MaxVersion)

    void rd_kafka_mock_group_initial_rebalance_delay_ms(
        rd_kafka_mock_cluster_t *mcluster, int32_t delay_ms)
    void rd_kafka_mock_set_group_consumer_session_timeout_ms(
        rd_kafka_mock_cluster_t *mcluster, int group_consumer_session_timeout_ms)
    void rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(
        rd_kafka_mock_cluster_t *mcluster, int group_consumer_heartbeat_interval_ms)

    void rd_kafka_mock_sharegroup_set_session_timeout(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_sharegroup_set_heartbeat_interval(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_sharegroup_set_max_delivery_attempts(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_sharegroup_set_record_lock_duration(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_sharegroup_set_isolation_level(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_sharegroup_set_max_size(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_sharegroup_set_max_record_locks(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_sharegroup_set_auto_offset_reset(
        rd_kafka_mock_cluster_t *mcluster, int value)
    void rd_kafka_mock_start_request_tracking(rd_kafka_mock_cluster_t *mcluster)
    void rd_kafka_mock_stop_request_tracking(rd_kafka_mock_cluster_t *mcluster)
    void rd_kafka_mock_clear_requests(rd_kafka_mock_cluster_t *mcluster)
    rd_kafka_mock_request_t **rd_kafka_mock_get_requests(
        rd_kafka_mock_cluster_t *mcluster, size_t *cntp)
    void rd_kafka_mock_request_destroy_array(rd_kafka_mock_request_t **mreqs, size_t mreq_cnt)
    int32_t rd_kafka_mock_request_id(rd_kafka_mock_request_t *mreq)
    int16_t rd_kafka_mock_request_api_key(rd_kafka_mock_request_t *mreq)
    int64_t rd_kafka_mock_request_timestamp(rd_kafka_mock_request_t *mreq)
