#include "ck_call.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "ck_callback.h"
#include "ck_serving.h"

/* The longest timeout of a single librdkafka call, ms. */
enum { LONGEST = 60000 };

ck_call_t *ck_call_new(ck_call_kind_t kind) {
        ck_call_t *call = calloc(1, sizeof(*call));

        if (!call)
                return NULL;
        if (!(call->condition = ck_condition_new())) {
                free(call);
                return NULL;
        }
        call->kind = kind;
        call->controller = -1;
        call->refs = 1;
        ck_runtime_count(CK_KIND_CALL, 1);
        return call;
}

static void ck_call_drop_ends(ck_call_t *call) {
        for (int which = 0; which < 2; which++) {
                if (call->ends[which])
                        rd_kafka_topic_partition_list_destroy(call->ends[which]);
                call->ends[which] = NULL;
        }
}

void ck_call_keep(ck_call_t *call) {
        atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
}

static void ck_call_unref(ck_call_t *call) {
        if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) != 1)
                return;
        free(call->topic);
        if (call->partitions)
                rd_kafka_topic_partition_list_destroy(call->partitions);
        if (call->group)
                rd_kafka_consumer_group_metadata_destroy(call->group);
        ck_call_drop_ends(call);
        rd_kafka_error_destroy(call->error);
        if (call->metadata)
                rd_kafka_metadata_destroy(call->metadata);
        if (call->groups)
                rd_kafka_group_list_destroy(call->groups);
        rd_kafka_mem_free(NULL, call->cluster_id);
        ck_pipe_unref(call->notify);
        ck_condition_destroy(call->condition);
        free(call);
        ck_runtime_count(CK_KIND_CALL, -1);
}

static void ck_call_metadata(ck_call_t *call, rd_kafka_t *rk, int timeout_ms) {
        rd_kafka_topic_t *rkt = NULL;

        if (call->topic && !(rkt = rd_kafka_topic_new(rk, call->topic, NULL))) {
                call->err = rd_kafka_last_error();
                return;
        }
        call->err = rd_kafka_metadata(rk, !rkt, rkt, &call->metadata, timeout_ms);
        if (rkt)
                rd_kafka_topic_destroy(rkt);
        if (call->err)
                return;
        /* Both arrived with the metadata: do not wait for more. */
        call->cluster_id = rd_kafka_clusterid(rk, 0);
        call->controller = rd_kafka_controllerid(rk, 0);
}

/* Sends the request for one end of each partition. */
static void ck_call_request_end(ck_call_t *call, rd_kafka_t *rk, int which,
                                int timeout_ms, rd_kafka_queue_t *replies) {
        static const int64_t specs[2] = {RD_KAFKA_OFFSET_SPEC_EARLIEST,
                                         RD_KAFKA_OFFSET_SPEC_LATEST};
        rd_kafka_AdminOptions_t *options =
            rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_LISTOFFSETS);
        char errstr[256];

        for (int i = 0; i < call->partitions->cnt; i++)
                call->partitions->elems[i].offset = specs[which];
        rd_kafka_AdminOptions_set_opaque(options, &call->ends[which]);
        rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, errstr,
                                                  sizeof(errstr));
        if (call->committed_only)
                rd_kafka_error_destroy(rd_kafka_AdminOptions_set_isolation_level(
                    options, RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED));
        rd_kafka_ListOffsets(rk, call->partitions, options, replies);
        rd_kafka_AdminOptions_destroy(options);
}

static rd_kafka_topic_partition_list_t *
ck_call_ends_from(const rd_kafka_ListOffsets_result_t *result) {
        const rd_kafka_ListOffsetsResultInfo_t **infos;
        const rd_kafka_topic_partition_t *rktpar;
        rd_kafka_topic_partition_list_t *ends;
        rd_kafka_topic_partition_t *added;
        size_t cnt;

        infos = rd_kafka_ListOffsets_result_infos(result, &cnt);
        ends = rd_kafka_topic_partition_list_new((int)cnt);
        for (size_t i = 0; i < cnt; i++) {
                rktpar = rd_kafka_ListOffsetsResultInfo_topic_partition(infos[i]);
                added = rd_kafka_topic_partition_list_add(ends, rktpar->topic,
                                                          rktpar->partition);
                added->offset = rktpar->offset;
                added->err = rktpar->err;
        }
        return ends;
}

/* Requests both ends of all partitions, with two requests per broker. */
static void ck_call_ends(ck_call_t *call, rd_kafka_t *rk, int timeout_ms) {
        rd_kafka_queue_t *replies = rd_kafka_queue_new(rk);
        rd_kafka_event_t *event;
        rd_kafka_resp_err_t err;

        ck_call_drop_ends(call);
        rd_kafka_error_destroy(call->error);
        call->error = NULL;
        call->err = RD_KAFKA_RESP_ERR_NO_ERROR;
        /* With a timeout of 0 librdkafka would wait forever for the leaders. */
        if (timeout_ms < 1)
                timeout_ms = 1;
        for (int which = 0; which < 2; which++)
                ck_call_request_end(call, rk, which, timeout_ms, replies);
        for (int i = 0; i < 2; i++) {
                /* librdkafka responds when the timeout expires, if not before. */
                event = rd_kafka_queue_poll(replies, -1);
                err = rd_kafka_event_error(event);
                if (!err)
                        *(rd_kafka_topic_partition_list_t **)rd_kafka_event_opaque(
                            event) =
                            ck_call_ends_from(rd_kafka_event_ListOffsets_result(event));
                else if (err != RD_KAFKA_RESP_ERR__NOENT && !call->error) {
                        /* _NOENT: no partition has a leader. */
                        call->err = err;
                        call->error =
                            rd_kafka_error_new(err, "Failed to get watermarks: %s",
                                               rd_kafka_event_error_string(event));
                }
                rd_kafka_event_destroy(event);
        }
        rd_kafka_queue_destroy(replies);
}

static void ck_call_as_guest(ck_call_t *call, rd_kafka_t *rk, int timeout_ms) {
        ck_serving_t *serving = ck_queue_serving(call->events);
        rd_kafka_queue_t *rkqu = rd_kafka_queue_get_main(rk);

        /* The other calls must run, so they wait without limit. */
        call->entered = ck_serving_enter(serving, rkqu,
                                         call->kind == CK_CALL_FLUSH ? timeout_ms : -1);
        rd_kafka_queue_destroy(rkqu);
        if (!call->entered)
                return;
        ck_callback_listener(call->notify);
        if (call->kind == CK_CALL_FLUSH)
                call->err = rd_kafka_flush(rk, timeout_ms);
        else if (call->kind == CK_CALL_INIT_TRANSACTIONS)
                call->error = rd_kafka_init_transactions(rk, timeout_ms);
        else if (call->kind == CK_CALL_COMMIT_TRANSACTION)
                call->error = rd_kafka_commit_transaction(rk, timeout_ms);
        else
                call->error = rd_kafka_abort_transaction(rk, timeout_ms);
        ck_callback_listener(NULL);
        ck_serving_leave(serving);
}

/* librdkafka's list refers to its partitions, which must not outlive the handle. */
static void ck_call_share_commit(ck_call_t *call, int timeout_ms) {
        rd_kafka_topic_partition_list_t *results = NULL;

        /* With a negative timeout librdkafka does not wait. */
        call->error = rd_kafka_share_commit_sync(
            call->share, timeout_ms < 0 ? INT32_MAX : timeout_ms, &results);
        if (!results)
                return;
        call->partitions = rd_kafka_topic_partition_list_new(results->cnt);
        for (int i = 0; i < results->cnt; i++)
                rd_kafka_topic_partition_list_add(call->partitions,
                                                  results->elems[i].topic,
                                                  results->elems[i].partition)
                    ->err = results->elems[i].err;
        rd_kafka_topic_partition_list_destroy(results);
}

static void ck_call_run(ck_call_t *call, rd_kafka_t *rk, int timeout_ms) {
        switch (call->kind) {
        case CK_CALL_METADATA:
                ck_call_metadata(call, rk, timeout_ms);
                break;
        case CK_CALL_GROUPS:
                call->err =
                    rd_kafka_list_groups(rk, call->topic, &call->groups, timeout_ms);
                break;
        case CK_CALL_COMMITTED:
                call->err = rd_kafka_committed(rk, call->partitions, timeout_ms);
                break;
        case CK_CALL_TIMES:
                call->err = rd_kafka_offsets_for_times(rk, call->partitions, timeout_ms);
                break;
        case CK_CALL_WATERMARKS:
                call->err =
                    rd_kafka_query_watermark_offsets(rk, call->topic, call->partition,
                                                     &call->low, &call->high, timeout_ms);
                break;
        case CK_CALL_ENDS:
                ck_call_ends(call, rk, timeout_ms);
                break;
        case CK_CALL_SEEK:
                call->error = rd_kafka_seek_partitions(rk, call->partitions, timeout_ms);
                break;
        case CK_CALL_SEND_OFFSETS:
                call->error = rd_kafka_send_offsets_to_transaction(
                    rk, call->partitions, call->group, timeout_ms);
                break;
        case CK_CALL_SHARE_COMMIT:
                ck_call_share_commit(call, timeout_ms);
                break;
        case CK_CALL_FLUSH:
        case CK_CALL_INIT_TRANSACTIONS:
        case CK_CALL_COMMIT_TRANSACTION:
        case CK_CALL_ABORT_TRANSACTION:
                ck_call_as_guest(call, rk, timeout_ms);
                break;
        }
}

/* The timeout of the next librdkafka call, ms; -1: forever. */
static int ck_call_ms(const ck_call_t *call) {
        int64_t left = call->deadline < 0 ? -1 : call->deadline - ck_runtime_now_ms();

        if (call->deadline >= 0 && left < 0)
                left = 0;
        if (call->kind >= CK_CALL_SEEK)
                return left > INT32_MAX ? INT32_MAX : (int)left;
        return left < 0 || left > LONGEST ? LONGEST : (int)left;
}

/* Whether a librdkafka timeout expired before the caller's deadline: a request's timeout
 * (socket.timeout.ms; rd_kafka_committed() does not repeat it), or LONGEST, which some
 * calls report as a broker error. */
static bool ck_call_again(const ck_call_t *call, int64_t until) {
        int64_t now = ck_runtime_now_ms();

        if (atomic_load(&call->left) || (call->deadline >= 0 && now >= call->deadline))
                return false;
        return call->err == RD_KAFKA_RESP_ERR__TIMED_OUT ||
               call->err == RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE ||
               ((call->err == RD_KAFKA_RESP_ERR__TRANSPORT ||
                 call->err == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) &&
                now >= until);
}

static void *ck_call_main(void *arg) {
        ck_call_t *call = arg;
        ck_loans_t *loans = call->loans;
        int64_t until;
        int ms;

        do {
                ms = ck_call_ms(call);
                until = ck_runtime_now_ms() + ms;
                ck_call_run(call, call->rk, ms);
        } while (ck_call_again(call, until));
        /* From here on the handle may be destroyed. */
        ck_loans_unpin(loans);
        ck_loans_sub(loans);
        atomic_store(&call->done, true);
        ck_condition_signal(call->condition);
        if (call->notify)
                ck_pipe_notify(call->notify);
        ck_call_unref(call);
        return NULL;
}

int ck_call_start(ck_call_t *call, rd_kafka_t *rk, ck_loans_t *loans,
                  int64_t timeout_ms) {
        int err;

        call->rk = rk;
        call->loans = loans;
        call->deadline = timeout_ms < 0 ? -1 : ck_runtime_now_ms() + timeout_ms;
        ck_call_keep(call);
        ck_loans_add(loans);
        ck_loans_pin(loans);
        if (!(err = ck_runtime_spawn(ck_call_main, call)))
                return 0;
        ck_call_unref(call);
        ck_loans_unpin(loans);
        ck_loans_sub(loans);
        return err;
}

void ck_call_now(ck_call_t *call, rd_kafka_t *rk, int timeout_ms) {
        ck_call_run(call, rk, timeout_ms);
        atomic_store(&call->done, true);
}

bool ck_call_wait(ck_call_t *call, int timeout_ms) {
        if (!atomic_load(&call->done) && timeout_ms > 0)
                ck_condition_wait(call->condition, timeout_ms);
        return atomic_load(&call->done);
}

void ck_call_leave(ck_call_t *call) {
        if (!call)
                return;
        atomic_store(&call->left, true);
        ck_call_unref(call);
}
