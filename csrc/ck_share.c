#include "ck_share.h"

#include <stdlib.h>
#include <string.h>

#include "ck_callback.h"

/* NOLINTBEGIN(readability-non-const-parameter): librdkafka's type */
static rd_kafka_resp_err_t ck_share_on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf,
                                           void *opaque, char *errstr,
                                           size_t errstr_size) {
        (void)conf;
        (void)errstr;
        (void)errstr_size;
        *(rd_kafka_t **)opaque = rk;
        return RD_KAFKA_RESP_ERR_NO_ERROR;
}
/* NOLINTEND(readability-non-const-parameter) */

/* The acknowledgement commit callback: pushes one event for each partition. */
static void ck_share_on_commit(rd_kafka_share_t *share,
                               rd_kafka_share_partition_offsets_list_t *partitions,
                               rd_kafka_resp_err_t err, void *opaque) {
        size_t cnt = rd_kafka_share_partition_offsets_list_count(partitions);

        (void)share;
        for (size_t i = 0; i < cnt; i++) {
                const rd_kafka_share_partition_offsets_t *from =
                    rd_kafka_share_partition_offsets_list_get(partitions, i);
                const rd_kafka_topic_partition_t *rktpar =
                    rd_kafka_share_partition_offsets_partition(from);
                size_t size =
                    rd_kafka_share_partition_offsets_offsets_cnt(from) * sizeof(int64_t);
                ck_notice_t *notice = ck_event_new(CK_EVENT_ACKNOWLEDGED, NULL);

                if (!notice)
                        continue;
                notice->event.code = err;
                notice->partitions = rd_kafka_topic_partition_list_new(1);
                rd_kafka_topic_partition_list_add(notice->partitions, rktpar->topic,
                                                  rktpar->partition);
                if (!(notice->text = malloc(size ? size : 1))) {
                        ck_event_destroy(&notice->event);
                        continue;
                }
                memcpy(notice->text, rd_kafka_share_partition_offsets_offsets(from),
                       size);
                notice->text_len = size;
                ck_queue_push(opaque, &notice->event);
        }
}

rd_kafka_share_t *ck_share_new(rd_kafka_conf_t *conf, rd_kafka_t **rk, char *errstr,
                               size_t errstr_size) {
        rd_kafka_share_t *share;

        /* The interceptor is called once, before rd_kafka_share_consumer_new() returns.
         */
        rd_kafka_conf_interceptor_add_on_new(conf, "cykafka", ck_share_on_new, rk);
        share = rd_kafka_share_consumer_new(conf, errstr, errstr_size);
        if (share) /* the call fails only on a closed consumer */
                rd_kafka_error_destroy(rd_kafka_share_set_acknowledgement_commit_cb(
                    share, ck_share_on_commit, rd_kafka_opaque(*rk)));
        return share;
}

rd_kafka_error_t *ck_share_poll(rd_kafka_share_t *share, int timeout_ms,
                                ck_batch_t *batch) {
        rd_kafka_error_t *error;
        size_t cnt;

        if (!batch->messages) {
                if ((error = rd_kafka_share_poll(share, timeout_ms, &batch->messages)))
                        return error;
                ck_runtime_count(CK_KIND_FETCHED,
                                 (int64_t)rd_kafka_messages_count(batch->messages));
        }
        if (!(cnt = rd_kafka_messages_count(batch->messages)))
                return NULL;
        if (ck_batch_reserve(batch, cnt))
                return rd_kafka_error_new(RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE,
                                          "Not enough memory for %zu messages", cnt);
        for (size_t i = 0; i < cnt; i++)
                batch->rkmessages[i] = rd_kafka_messages_get(batch->messages, i);
        batch->cnt = cnt;
        return NULL;
}

void ck_share_take(ck_batch_t *batch, ck_loans_t *loans) {
        size_t kept = 0;

        for (size_t i = 0; i < batch->cnt; i++)
                if (!batch->rkmessages[i]->err)
                        batch->rkmessages[kept++] = batch->rkmessages[i];
        batch->cnt = kept;
        if (loans && batch->messages) {
                ck_loans_add(loans);
                batch->loans = loans;
        }
}

size_t ck_share_acknowledge(rd_kafka_share_t *share, const ck_batch_t *batch,
                            size_t start, ptrdiff_t step, size_t cnt,
                            rd_kafka_share_AcknowledgeType_t type,
                            rd_kafka_resp_err_t *err) {
        for (size_t i = 0; i < cnt; i++) {
                size_t at = (size_t)((ptrdiff_t)start + (ptrdiff_t)i * step);

                if (batch->rows)
                        *err = rd_kafka_share_acknowledge_offset(
                            share, batch->rows[at].topic, batch->rows[at].partition,
                            batch->rows[at].offset, type);
                else
                        *err = rd_kafka_share_acknowledge_type(
                            share, batch->rkmessages[batch->head + at], type);
                if (*err)
                        return i;
        }
        return cnt;
}

bool ck_share_serve(rd_kafka_t *rk, rd_kafka_queue_t *closing, int timeout_ms) {
        rd_kafka_event_t *event = rd_kafka_queue_poll(closing, timeout_ms);
        const char *facility, *text;
        int level;

        if (!event)
                return false;
        /* Other callbacks, and the acknowledgement commit callback, ran in the poll. */
        if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_ERROR)
                ck_callback_error(rk, rd_kafka_event_error(event),
                                  rd_kafka_event_error_string(event),
                                  rd_kafka_opaque(rk));
        else if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_LOG &&
                 !rd_kafka_event_log(event, &facility, &text, &level))
                ck_callback_log(rk, level, facility, text);
        rd_kafka_event_destroy(event);
        return true;
}
