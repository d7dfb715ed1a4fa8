# The parts of csrc's headers that cykafka uses. The headers describe ownership and threads.
from cpython.ref cimport PyObject
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from cykafka._core.clib.librdkafka cimport (
    rd_kafka_conf_t,
    rd_kafka_consumer_group_metadata_t,
    rd_kafka_error_t,
    rd_kafka_headers_t,
    rd_kafka_message_t,
    rd_kafka_messages_t,
    rd_kafka_metadata_t,
    rd_kafka_queue_t,
    rd_kafka_resp_err_t,
    rd_kafka_share_AcknowledgeType_t,
    rd_kafka_share_partition_offsets_list_t,
    rd_kafka_share_t,
    rd_kafka_t,
    rd_kafka_topic_partition_list_t,
    rd_kafka_topic_t,
)
from cykafka._core.clib.librdkafka_admin cimport rd_kafka_group_list

cdef extern from "ck_runtime.h" nogil:
    uint32_t ck_runtime_generation
    bint ck_runtime_exiting
    int64_t ck_runtime_reports

    ctypedef enum ck_kind_t:
        CK_KIND_HANDLE
        CK_KIND_TOPIC
        CK_KIND_EVENT
        CK_KIND_FETCHED
        CK_KIND_DELIVERY
        CK_KIND_CALL

    void ck_runtime_count(ck_kind_t kind, int64_t delta)
    int64_t ck_runtime_alive(ck_kind_t kind)
    const char *ck_runtime_librdkafka()
    int ck_runtime_is_patched()
    const char *ck_runtime_version()
    int64_t ck_runtime_now_ms()

cdef extern from "ck_condition.h" nogil:
    ctypedef struct ck_condition_t

    ck_condition_t *ck_condition_new()
    void ck_condition_destroy(ck_condition_t *condition)
    void ck_condition_signal(ck_condition_t *condition)
    void ck_condition_wait(ck_condition_t *condition, int timeout_ms)

cdef extern from "ck_serving.h" nogil:
    ctypedef struct ck_serving_t

    unsigned ck_serving_count(ck_serving_t *serving)
    bint ck_serving_enter(ck_serving_t *serving, rd_kafka_queue_t *rkqu, int timeout_ms)
    void ck_serving_leave(ck_serving_t *serving)
    void ck_serving_interrupt(ck_serving_t *serving)

cdef extern from "ck_queue.h" nogil:
    ctypedef enum ck_event_kind_t:
        CK_EVENT_REPORT
        CK_EVENT_ERROR
        CK_EVENT_THROTTLE
        CK_EVENT_STATS
        CK_EVENT_LOG
        CK_EVENT_COMMIT
        CK_EVENT_ACKNOWLEDGED
        CK_EVENT_DELIVERY

    ctypedef struct ck_event_t:
        ck_event_t *next
        ck_event_kind_t kind
        int32_t code

    ctypedef struct ck_notice_t:
        ck_event_t event
        char *text
        size_t text_len
        int64_t number
        bint fatal
        char *facility
        rd_kafka_topic_partition_list_t *partitions

    ctypedef struct ck_report_t:
        ck_event_t event
        int64_t offset
        int64_t timestamp
        int64_t latency
        int32_t partition
        int32_t leader_epoch
        int32_t timestamp_type

    ctypedef struct ck_queue_t

    ctypedef enum ck_slot_t:
        CK_SLOT_CLIENT
        CK_SLOT_TOKENS
        CK_SLOT_INFLIGHT
        CK_SLOT_HANDLE

    ck_queue_t *ck_queue_new()
    void ck_queue_attach(ck_queue_t *queue, ck_slot_t slot, void *object)
    void *ck_queue_attached(const ck_queue_t *queue, ck_slot_t slot)
    ck_serving_t *ck_queue_serving(const ck_queue_t *queue)
    void ck_queue_keep(ck_queue_t *queue)
    bint ck_queue_is_last(const ck_queue_t *queue)
    void ck_queue_destroy(ck_queue_t *queue)
    bint ck_queue_push(ck_queue_t *queue, ck_event_t *event)
    ck_event_t *ck_queue_pop(ck_queue_t *queue)
    bint ck_queue_is_empty(const ck_queue_t *queue)
    int64_t ck_queue_length(const ck_queue_t *queue)
    void ck_queue_add_unreported(ck_queue_t *queue, const char *topic, rd_kafka_resp_err_t err,
                                 int64_t cnt)
    int64_t ck_queue_take_unreported(ck_queue_t *queue, ck_event_t **first)
    void ck_event_destroy(ck_event_t *event)

cdef extern from "ck_loans.h" nogil:
    ctypedef struct ck_loans_t

    ck_loans_t *ck_loans_new()
    void ck_loans_destroy(ck_loans_t *loans)
    void ck_loans_add(ck_loans_t *loans)
    void ck_loans_sub(ck_loans_t *loans)
    void ck_loans_pin(ck_loans_t *loans)
    void ck_loans_unpin(ck_loans_t *loans)
    bint ck_loans_settle(ck_loans_t *loans)

cdef extern from "ck_pipe.h" nogil:
    ctypedef struct ck_pipe_t

    ck_pipe_t *ck_pipe_new()
    ck_pipe_t *ck_pipe_ref(ck_pipe_t *self)
    void ck_pipe_unref(ck_pipe_t *self)
    int ck_pipe_reader(const ck_pipe_t *self)
    int ck_pipe_writer(const ck_pipe_t *self)
    void ck_pipe_notify(ck_pipe_t *self)
    bint ck_pipe_empty(ck_pipe_t *self)

cdef extern from "ck_call.h" nogil:
    ctypedef enum ck_call_kind_t:
        CK_CALL_METADATA
        CK_CALL_GROUPS
        CK_CALL_COMMITTED
        CK_CALL_TIMES
        CK_CALL_WATERMARKS
        CK_CALL_ENDS
        CK_CALL_SEEK
        CK_CALL_SEND_OFFSETS
        CK_CALL_SHARE_COMMIT
        CK_CALL_FLUSH
        CK_CALL_INIT_TRANSACTIONS
        CK_CALL_COMMIT_TRANSACTION
        CK_CALL_ABORT_TRANSACTION

    ctypedef struct ck_call_t:
        ck_call_kind_t kind
        char *topic
        int32_t partition
        rd_kafka_topic_partition_list_t *partitions
        rd_kafka_consumer_group_metadata_t *group
        rd_kafka_share_t *share
        bint committed_only
        rd_kafka_resp_err_t err
        rd_kafka_error_t *error
        const rd_kafka_metadata_t *metadata
        const rd_kafka_group_list *groups
        char *cluster_id
        int32_t controller
        int64_t low
        int64_t high
        rd_kafka_topic_partition_list_t *ends[2]
        ck_queue_t *events
        ck_pipe_t *notify
        bint entered

    ck_call_t *ck_call_new(ck_call_kind_t kind)
    int ck_call_start(ck_call_t *call, rd_kafka_t *rk, ck_loans_t *loans, int64_t timeout_ms)
    void ck_call_now(ck_call_t *call, rd_kafka_t *rk, int timeout_ms)
    bint ck_call_wait(ck_call_t *call, int timeout_ms)
    void ck_call_keep(ck_call_t *call)
    void ck_call_leave(ck_call_t *call)

cdef extern from "ck_msgref.h" nogil:
    ctypedef struct ck_msgref_t

    ck_msgref_t *ck_msgref_new()
    void ck_msgref_return(ck_msgref_t *ref)
    void ck_msgref_unref(ck_msgref_t *ref)
    bint ck_msgref_is_free(const ck_msgref_t *ref)
    void ck_msgref_put(ck_msgref_t *ref, rd_kafka_message_t *rkmessage)
    rd_kafka_headers_t *ck_msgref_take_headers(ck_msgref_t *ref)
    void ck_msgref_drop(ck_msgref_t *ref)

cdef extern from "ck_inflight.h" nogil:
    ctypedef struct ck_inflight_t

    ck_inflight_t *ck_inflight_new(size_t size)
    void ck_inflight_destroy(ck_inflight_t *inflight)
    ck_report_t *ck_inflight_take(ck_inflight_t *inflight)
    void ck_inflight_give(ck_report_t *report)
    ck_event_t *ck_inflight_lost(ck_inflight_t *inflight)

cdef extern from "ck_delivery.h" nogil:
    ctypedef struct ck_delivery_t

    int64_t CK_OUTCOME_IN_FLIGHT

    struct ck_outcome_values:
        int32_t partition
        int32_t err

    union ck_outcome_u:
        ck_outcome_values outcome

    ctypedef struct ck_outcome_t:
        int64_t offset
        ck_outcome_u u

    int CK_DELIVERY_RELEASE
    int CK_DELIVERY_NOTIFY
    int CK_DELIVERY_DONE

    ck_delivery_t *ck_delivery_new(ck_queue_t *queue, size_t cnt)
    void ck_delivery_keep(ck_delivery_t *delivery)
    void ck_delivery_release(ck_delivery_t *delivery)
    size_t ck_delivery_cnt(const ck_delivery_t *delivery)
    ck_outcome_t *ck_delivery_slots(ck_delivery_t *delivery)
    size_t ck_delivery_taken(const ck_delivery_t *delivery)
    void ck_delivery_close(ck_delivery_t *delivery, rd_kafka_resp_err_t err)
    int ck_delivery_want(ck_delivery_t *delivery, int which, void *owner)
    void *ck_delivery_of_event(ck_event_t *event, bint release)
    void ck_delivery_push_again(ck_event_t *event)
    bint ck_delivery_is_done(const ck_delivery_t *delivery)
    int64_t ck_delivery_failed(const ck_delivery_t *delivery)
    int64_t ck_delivery_drop(ck_delivery_t *delivery)
    void ck_delivery_sleep(ck_queue_t *queue, const ck_delivery_t *delivery, int timeout_ms)
    bint ck_delivery_is_pending(const ck_queue_t *queue)
    void ck_delivery_abandon_all(ck_queue_t *queue)

cdef extern from "ck_callback.h" nogil:
    void ck_callback_report(rd_kafka_t *, const rd_kafka_message_t *, void *) noexcept
    void ck_callback_error(rd_kafka_t *, int, const char *, void *) noexcept
    void ck_callback_throttle(rd_kafka_t *, const char *, int32_t, int, void *) noexcept
    int ck_callback_stats(rd_kafka_t *, char *, size_t, void *) noexcept
    void ck_callback_log(const rd_kafka_t *, int, const char *, const char *) noexcept
    void ck_callback_print(const rd_kafka_t *, int, const char *, const char *) noexcept
    void ck_callback_commit(rd_kafka_t *, rd_kafka_resp_err_t,
                            rd_kafka_topic_partition_list_t *, void *) noexcept
    ctypedef struct ck_commit_result_t:
        bint given
        rd_kafka_resp_err_t err
        rd_kafka_topic_partition_list_t *partitions

    void ck_callback_commit_result(rd_kafka_t *, rd_kafka_resp_err_t,
                                   rd_kafka_topic_partition_list_t *, void *) noexcept
    void ck_callback_on_background(bint inside)
    bint ck_callback_is_background()
    bint ck_callback_inside(bint inside)
    int ck_callback_poll(rd_kafka_t *rk, int timeout_ms)
    int ck_callback_serve(rd_kafka_t *rk, ck_queue_t *queue, const ck_delivery_t *goal,
                          int timeout_ms, const unsigned *since)
    rd_kafka_resp_err_t ck_callback_flush(rd_kafka_t *rk, int timeout_ms)
    rd_kafka_message_t *ck_callback_consume(rd_kafka_t *rk, int timeout_ms)

cdef extern from "ck_assign.h" nogil:
    rd_kafka_resp_err_t ck_assign(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *list)
    rd_kafka_error_t *ck_incremental_assign(rd_kafka_t *rk,
                                            const rd_kafka_topic_partition_list_t *list)

cdef extern from "ck_end.h" nogil:
    ctypedef struct ck_end_t
    bint ck_end_serve(rd_kafka_t *rk, rd_kafka_share_t *share, rd_kafka_queue_t *closing,
                      int timeout_ms)
    void ck_end_now(rd_kafka_t *rk, rd_kafka_share_t *share, int flags,
                    rd_kafka_queue_t *closing, ck_loans_t *loans)
    ck_end_t *ck_end_start(rd_kafka_t *rk, rd_kafka_share_t *share, int flags,
                           rd_kafka_queue_t *closing, ck_loans_t *loans,
                           void (*ended)(void *) noexcept nogil, void *opaque)
    bint ck_end_wait(ck_end_t *end, int timeout_ms)
    bint ck_end_leave(ck_end_t *end)
    bint ck_end_all(int timeout_ms)

cdef extern from "ck_produce.h" nogil:
    ctypedef struct ck_record_t:
        const void *value
        size_t value_len
        const void *key
        size_t key_len
        rd_kafka_headers_t *headers
        int64_t timestamp
        int32_t partition
        ck_report_t *report

    rd_kafka_error_t *ck_produce(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                                 const ck_record_t *record)

cdef extern from "ck_column.h" nogil:
    ctypedef struct ck_bytes_t:
        const void *ptr
        size_t len

    ctypedef enum ck_column_kind_t:
        CK_COLUMN_NONE
        CK_COLUMN_CONSTANT
        CK_COLUMN_POINTERS
        CK_COLUMN_FIXED
        CK_COLUMN_PADDED

    struct ck_column_fixed:
        const char *base
        ptrdiff_t stride
        size_t width

    union ck_column_u:
        ck_bytes_t constant
        const ck_bytes_t *items
        ck_column_fixed fixed

    ctypedef struct ck_column_t:
        ck_column_kind_t kind
        ck_column_u u

    ctypedef struct ck_numbers_t:
        int width
        const char *base
        ptrdiff_t stride
        int64_t missing

    ctypedef struct ck_headers_t:
        size_t named_cnt
        const ck_bytes_t *names
        const ck_column_t *named
        const int64_t *starts64
        ck_column_t keys
        ck_column_t values

    ck_bytes_t ck_column_get(const ck_column_t *column, size_t i)
    void ck_headers_pairs(const ck_headers_t *headers, size_t i, int64_t *begin, int64_t *end)
    int64_t ck_numbers_get(const ck_numbers_t *numbers, size_t i)

cdef extern from "ck_murmur2.h" nogil:
    uint32_t ck_murmur2(const void *key, size_t length)

cdef extern from "ck_pack.h" nogil:
    int CK_PACK_MESSAGES

    uint32_t ck_pack_cnt(const char **place)
    void ck_pack_next(const char **place, ck_bytes_t *name, ck_bytes_t *value)

cdef extern from "ck_split.h" nogil:
    ck_bytes_t *ck_split(const void *text, size_t length, const void *delimiter,
                         size_t delimiter_len, size_t *cnt, size_t *end)
    size_t ck_split_first(const ck_bytes_t *pieces, size_t cnt, const void *delimiter,
                          size_t delimiter_len, ck_bytes_t *before, ck_bytes_t *after)

cdef extern from "ck_time.h" nogil:
    ctypedef struct ck_zone_t:
        pass

    ctypedef struct ck_civil_t:
        int year
        int month
        int day
        int hour
        int minute
        int second
        int microsecond
        int fold

    bint ck_time_local(ck_zone_t *zone, int64_t us, ck_civil_t *civil)

cdef extern from "ck_utf8.h" nogil:
    bint ck_utf8_is_ascii(const void *text, size_t len)

cdef extern from "ck_publish.h" nogil:
    ctypedef struct ck_publish_t:
        size_t cnt
        rd_kafka_topic_t *rkt
        rd_kafka_topic_t **rkts
        ck_column_t values
        ck_column_t keys
        const ck_headers_t *headers
        ck_numbers_t timestamps
        ck_numbers_t partitions
        bint borrow
        int64_t room

    rd_kafka_resp_err_t ck_publish(rd_kafka_t *rk, ck_publish_t *publish,
                                   ck_delivery_t *delivery, int slice_ms)

cdef extern from "ck_ranges.h" nogil:
    ctypedef struct ck_range_t:
        char *topic
        int32_t partition
        int64_t next
        int64_t end
        int64_t eof

    ctypedef struct ck_ranges_t:
        size_t cnt
        size_t left
        ck_range_t *ranges

    ck_ranges_t *ck_ranges_new(size_t cnt)
    void ck_ranges_destroy(ck_ranges_t *ranges)
    int ck_ranges_set(ck_ranges_t *ranges, size_t i, const char *topic, int32_t partition,
                      int64_t start, int64_t end)
    size_t ck_ranges_sort(ck_ranges_t *ranges)
    ck_range_t *ck_ranges_find(ck_ranges_t *ranges, const char *topic, int32_t partition)
    void ck_ranges_advance(ck_ranges_t *ranges, ck_range_t *range, int64_t next)
    size_t ck_ranges_sift(ck_ranges_t *ranges, rd_kafka_message_t **rkmessages, size_t cnt,
                          size_t *bytes)
    void ck_ranges_catch_up(ck_ranges_t *ranges, rd_kafka_t *rk)
    size_t ck_ranges_step(const ck_ranges_t *ranges, size_t want, size_t room)

cdef extern from "ck_batch.h" nogil:
    ctypedef struct ck_row_t:
        const char *topic
        const void *value
        const void *key
        size_t value_len
        size_t key_len
        int64_t offset
        int64_t timestamp
        int32_t timestamp_type
        int32_t partition
        int32_t leader_epoch
        int32_t delivery_count

    ctypedef enum ck_number_t:
        CK_NUMBER_OFFSET
        CK_NUMBER_TIMESTAMP
        CK_NUMBER_TIMESTAMP_TYPE
        CK_NUMBER_PARTITION
        CK_NUMBER_LEADER_EPOCH
        CK_NUMBER_DELIVERY_COUNT

    ctypedef struct ck_batch_t:
        ck_batch_t *next
        rd_kafka_message_t **rkmessages
        rd_kafka_messages_t *messages
        size_t cnt
        size_t head
        uint32_t generation
        ck_row_t *rows

    ck_batch_t *ck_batch_new(size_t size)
    int ck_batch_reserve(ck_batch_t *batch, size_t want)
    void ck_batch_destroy(ck_batch_t *batch)
    void ck_batch_clear(ck_batch_t *batch)
    size_t ck_batch_fill(ck_batch_t *batch, rd_kafka_queue_t *rkqu, int timeout_ms, size_t want)
    void ck_batch_accept(ck_batch_t *batch, size_t filled)
    int ck_batch_accept_into(ck_batch_t *batch, size_t filled, ck_batch_t *into)
    size_t ck_batch_drop(ck_batch_t *batch, const rd_kafka_topic_partition_list_t *partitions)
    int ck_batch_hold(ck_batch_t *batch, const rd_kafka_topic_partition_list_t *partitions,
                      ck_batch_t *into)
    int64_t ck_batch_first_offset(const ck_batch_t *batch, const char *topic, int32_t partition)
    void ck_batch_compact(ck_batch_t *batch)
    int ck_batch_move(ck_batch_t *source, ck_batch_t *into)
    void ck_batch_store_offsets(rd_kafka_message_t **rkmessages, size_t cnt)
    void ck_batch_store_positions(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *but)
    void ck_batch_release(rd_kafka_message_t **rkmessages, size_t cnt)
    size_t ck_batch_find_error(const ck_batch_t *batch)

    ck_batch_t *ck_batch_take(ck_batch_t *source, size_t cnt, ck_loans_t *loans)
    ck_batch_t *ck_batch_copy(const ck_batch_t *batch)
    void ck_batch_ref(ck_batch_t *batch)
    void ck_batch_unref(ck_batch_t *batch)
    void ck_batch_pin(ck_batch_t *batch)
    void ck_batch_unpin(ck_batch_t *batch)
    void ck_batch_row(const ck_batch_t *batch, size_t i, ck_row_t *row)
    rd_kafka_headers_t *ck_batch_headers(const ck_batch_t *batch, size_t i)
    void ck_batch_parse_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt)
    void ck_batch_numbers(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                          ck_number_t number, void *out)
    rd_kafka_topic_partition_list_t *ck_batch_positions(const ck_batch_t *batch, size_t start,
                                                        ptrdiff_t step, size_t cnt)
    const void *ck_batch_value(const ck_batch_t *batch, size_t i, size_t *len)
    const void *ck_batch_key(const ck_batch_t *batch, size_t i, size_t *len)
    const char *ck_batch_topic(const ck_batch_t *batch, size_t i)

cdef extern from "ck_share.h" nogil:
    rd_kafka_share_t *ck_share_new(rd_kafka_conf_t *conf, rd_kafka_t **rk, char *errstr,
                                   size_t errstr_size)
    rd_kafka_error_t *ck_share_poll(rd_kafka_share_t *share, int timeout_ms, ck_batch_t *batch)
    void ck_share_take(ck_batch_t *batch, ck_loans_t *loans)
    size_t ck_share_acknowledge(rd_kafka_share_t *share, const ck_batch_t *batch, size_t start,
                                ptrdiff_t step, size_t cnt, rd_kafka_share_AcknowledgeType_t type,
                                rd_kafka_resp_err_t *err)

cdef extern from "ck_envelope.h" nogil:
    ctypedef struct ck_envelope_t:
        ck_bytes_t trace_id
        ck_bytes_t message_type

    void ck_envelope_header(ck_envelope_t *envelope, int *rank, ck_bytes_t name, ck_bytes_t value)
    int ck_envelope_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                            ck_envelope_t *envelopes, uint32_t *at, char **block)

cdef extern from "ck_arrow.h" nogil:
    struct ArrowSchema:
        const char *format
        const char *name
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept nogil

    struct ArrowArray:
        int64_t length
        void (*release)(ArrowArray *) noexcept nogil

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *out) noexcept nogil
        int (*get_next)(ArrowArrayStream *, ArrowArray *out) noexcept nogil
        const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept nogil

    ctypedef enum ck_arrow_result_t:
        CK_ARROW_TYPE
        CK_ARROW_BROKEN
        CK_ARROW_WIDEN

    ctypedef struct ck_arrow_problem_t:
        const char *text
        const ArrowSchema *schema
        int64_t row

    ctypedef struct ck_arrow_view_t:
        const ArrowSchema *schema
        const ArrowArray *array
        int64_t first
        int64_t length

    ck_arrow_result_t ck_arrow_root(const ArrowSchema *schema, const ArrowArray *array,
                                    ck_arrow_view_t *view, ck_arrow_problem_t *problem)
    int64_t ck_arrow_find(const ArrowSchema *schema, const char *name, size_t len)
    ck_arrow_result_t ck_arrow_field(const ck_arrow_view_t *parent, int64_t i,
                                     ck_arrow_view_t *view, ck_arrow_problem_t *problem)
    int64_t ck_arrow_first_null(const ck_arrow_view_t *view)
    ck_arrow_result_t ck_arrow_column(const ck_arrow_view_t *view, ck_column_t *column,
                                      ck_arrow_problem_t *problem)
    ck_arrow_result_t ck_arrow_numbers(const ck_arrow_view_t *view, bint times,
                                       ck_numbers_t *numbers, ck_arrow_problem_t *problem)
    void ck_arrow_widen(const ck_arrow_view_t *view, int64_t missing, int64_t *into)
    ck_arrow_result_t ck_arrow_headers(const ck_arrow_view_t *view, ck_headers_t *headers,
                                       ck_arrow_problem_t *problem)

    ctypedef enum ck_arrow_name_t:
        CK_ARROW_HEADERS
        CK_ARROW_NAME__CNT

    enum:
        CK_ARROW_MAX_BYTES

    const char *ck_arrow_name(ck_arrow_name_t name)
    int ck_arrow_schema(const ck_arrow_name_t *names, size_t names_cnt, ArrowSchema *out)
    int ck_arrow_build(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                       const ck_arrow_name_t *names, size_t names_cnt, size_t max_bytes,
                       size_t *built, ArrowArray *out)
    int ck_arrow_stream(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                        const ck_arrow_name_t *names, size_t names_cnt, size_t max_bytes,
                        ArrowArrayStream *out)

# CPython functions that Cython does not declare.
cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil
    bint PyGC_Disable()
    bint PyGC_Enable()
    object PyUnicode_InternFromString(const char *text)

    ctypedef struct PyTypeObject:
        object (*tp_new)(PyTypeObject *, object args, void *kwargs)
        int (*tp_setattro)(object, object name, object value) except -1

    PyTypeObject *Py_TYPE(object)
