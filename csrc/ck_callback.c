#include "ck_callback.h"

#include <stdlib.h>
#include <string.h>

/* Whether rd_kafka_yield() may end the wait this thread is in. */
static _Thread_local bool ck_may_yield;
/* Whether this thread runs code inside a librdkafka call. */
static _Thread_local bool ck_inside;
/* The delivery this thread waits for, if any: its last report ends the wait. */
static _Thread_local const ck_delivery_t *ck_goal;
/* Whether this thread is librdkafka's background thread, inside a cykafka callback. */
static _Thread_local bool ck_background;

/* Notified of events in the calls of this thread; NULL: none. */
static _Thread_local ck_pipe_t *ck_listener;

void ck_callback_listener(ck_pipe_t *listener) {
        ck_listener = listener;
}

static bool ck_set_may_yield(bool may_yield) {
        bool before = ck_may_yield;

        ck_may_yield = may_yield;
        return before;
}

static void ck_callback_notify(ck_queue_t *queue, ck_event_t *event) {
        if (ck_queue_push(queue, event) && ck_listener)
                ck_pipe_notify(ck_listener);
}

static void ck_callback_push(rd_kafka_t *rk, ck_queue_t *queue, ck_event_t *event) {
        ck_callback_notify(queue, event);
        if (ck_may_yield && !ck_inside)
                rd_kafka_yield(rk);
}

void ck_callback_report(rd_kafka_t *rk, const rd_kafka_message_t *rkmessage,
                        void *opaque) {
        ck_report_t *report = rkmessage->_private;

        if (ck_delivery_is_opaque(report)) {
                /* Without cykafka's patches a yield would reorder the next reports. */
                if (ck_delivery_report(rkmessage, ck_goal) && CK_PATCHED &&
                    ck_may_yield && !ck_inside)
                        rd_kafka_yield(rk);
                return;
        }
        if (!report) {
                if (rkmessage->err)
                        ck_queue_add_unreported((ck_queue_t *)opaque,
                                                rd_kafka_topic_name(rkmessage->rkt),
                                                rkmessage->err, 1);
                return;
        }
        report->event.kind = CK_EVENT_REPORT;
        report->event.code = rkmessage->err;
        report->partition = rkmessage->partition;
        report->offset = rkmessage->offset;
        report->timestamp = rd_kafka_message_timestamp(
            rkmessage, (rd_kafka_timestamp_type_t *)&report->timestamp_type);
        report->latency = rd_kafka_message_latency(rkmessage);
        report->leader_epoch = rd_kafka_message_leader_epoch(rkmessage);
        /* Do not call rd_kafka_message_produce_errstr(): 2.15.1 has already freed the
         * broker's error text. */
        ck_callback_notify(opaque, &report->event);
}

/* Removes user, password and query from the URLs in a text, in place. Users and passwords
 * end at the last '@' before white space or a quote: a password may contain a '/'. If
 * that '@' is behind a '?', it may belong to either, so removes all after "://". */
static void ck_callback_redact(char *text) {
        char *mark;

        while ((mark = strstr(text, "://"))) {
                char *url = mark + 3, *end = url + strcspn(url, " \t\r\n\"'");
                char *host = end, *query = memchr(url, '?', (size_t)(end - url));
                char *kept = query ? query + 1 : end;

                while (host > url && host[-1] != '@')
                        host--;
                if (host > kept)
                        kept = host;
                text = url + (kept - host);
                memmove(url, host, (size_t)(kept - host));
                memmove(text, end, strlen(end) + 1);
        }
}

static void ck_callback_redact_notice(ck_notice_t *notice) {
        if (notice->text) {
                ck_callback_redact(notice->text);
                notice->text_len = strlen(notice->text);
        }
}

void ck_callback_print(const rd_kafka_t *rk, int level, const char *fac,
                       const char *buf) {
        char *text = strdup(buf);

        if (!text)
                return;
        ck_callback_redact(text);
        rd_kafka_log_print(rk, level, fac, text);
        free(text);
}

void ck_callback_error(rd_kafka_t *rk, int err, const char *reason, void *opaque) {
        char cause[512];
        bool fatal = err == RD_KAFKA_RESP_ERR__FATAL;
        ck_notice_t *notice;

        if (fatal) {
                err = rd_kafka_fatal_error(rk, cause, sizeof(cause));
                reason = cause;
        }
        if (!(notice = ck_event_new(CK_EVENT_ERROR, reason)))
                return;
        ck_callback_redact_notice(notice);
        notice->event.code = err;
        notice->fatal = fatal;
        ck_callback_push(rk, opaque, &notice->event);
}

void ck_callback_throttle(rd_kafka_t *rk, const char *broker_name, int32_t broker_id,
                          int throttle_ms, void *opaque) {
        ck_notice_t *notice = ck_event_new(CK_EVENT_THROTTLE, broker_name);

        if (!notice)
                return;
        notice->event.code = broker_id;
        notice->number = throttle_ms;
        ck_callback_push(rk, opaque, &notice->event);
}

int ck_callback_stats(rd_kafka_t *rk, char *json, size_t json_len, void *opaque) {
        ck_notice_t *notice = ck_event_new(CK_EVENT_STATS, NULL);

        if (!notice)
                return 0; /* librdkafka frees the JSON */
        notice->text = json;
        notice->text_len = json_len;
        ck_callback_push(rk, opaque, &notice->event);
        return 1; /* cykafka frees the JSON: librdkafka allocated it with malloc */
}

void ck_callback_log(const rd_kafka_t *rk, int level, const char *fac, const char *buf) {
        ck_notice_t *notice = ck_event_new(CK_EVENT_LOG, buf);

        if (!notice)
                return;
        ck_callback_redact_notice(notice);
        notice->event.code = level;
        notice->facility = fac ? strdup(fac) : NULL;
        ck_callback_push((rd_kafka_t *)rk, rd_kafka_opaque(rk), &notice->event);
}

/* A copy without librdkafka's references to its partitions, which rd_kafka_destroy()
 * would wait for: the event may be freed after the handle. */
static rd_kafka_topic_partition_list_t *
ck_callback_copy(const rd_kafka_topic_partition_list_t *from) {
        rd_kafka_topic_partition_list_t *list =
            rd_kafka_topic_partition_list_new(from->cnt);
        int i;

        for (i = 0; i < from->cnt; i++) {
                const rd_kafka_topic_partition_t *one = &from->elems[i];
                rd_kafka_topic_partition_t *copy =
                    rd_kafka_topic_partition_list_add(list, one->topic, one->partition);

                copy->offset = one->offset;
                copy->err = one->err;
                if (one->metadata_size && (copy->metadata = malloc(one->metadata_size))) {
                        memcpy(copy->metadata, one->metadata, one->metadata_size);
                        copy->metadata_size = one->metadata_size;
                }
                rd_kafka_topic_partition_set_leader_epoch(
                    copy, rd_kafka_topic_partition_get_leader_epoch(one));
        }
        return list;
}

void ck_callback_commit(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                        rd_kafka_topic_partition_list_t *offsets, void *opaque) {
        ck_notice_t *notice = ck_event_new(CK_EVENT_COMMIT, NULL);

        if (!notice)
                return;
        notice->event.code = err;
        if (offsets)
                notice->partitions = ck_callback_copy(offsets);
        ck_callback_push(rk, opaque, &notice->event);
}

void ck_callback_commit_result(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                               rd_kafka_topic_partition_list_t *offsets, void *opaque) {
        ck_commit_result_t *answer = opaque;
        (void)rk;

        answer->given = true;
        answer->err = err;
        if (offsets)
                answer->partitions = rd_kafka_topic_partition_list_copy(offsets);
}

void ck_callback_on_background(bool inside) {
        ck_background = inside;
}

bool ck_callback_is_background(void) {
        return ck_background;
}

bool ck_callback_inside(bool inside) {
        bool before = ck_inside;

        ck_inside = inside;
        return before;
}

int ck_callback_poll(rd_kafka_t *rk, int timeout_ms) {
        bool before = ck_set_may_yield(timeout_ms && !ck_inside);
        int served = rd_kafka_poll(rk, timeout_ms);

        ck_set_may_yield(before);
        return served;
}

int ck_callback_serve(rd_kafka_t *rk, ck_queue_t *queue, const ck_delivery_t *goal,
                      int timeout_ms, const unsigned *since) {
        ck_serving_t *serving = ck_queue_serving(queue);
        int64_t started = ck_runtime_now_ms();
        int served;

        if (!ck_serving_begin(serving, timeout_ms, since,
                              goal ? ck_delivery_check_done : NULL, goal))
                return 0;
        if (timeout_ms > 0) { /* subtract the time until this thread serves */
                int64_t left = started + timeout_ms - ck_runtime_now_ms();
                timeout_ms = left > 0 ? (int)left : 0;
        }
        ck_goal = goal;
        served = ck_callback_poll(rk, timeout_ms);
        ck_goal = NULL;
        ck_serving_end(serving);
        return served;
}

rd_kafka_resp_err_t ck_callback_flush(rd_kafka_t *rk, int timeout_ms) {
        bool before = ck_set_may_yield(timeout_ms && !ck_inside);
        rd_kafka_resp_err_t err = rd_kafka_flush(rk, timeout_ms);

        ck_set_may_yield(before);
        return err;
}

rd_kafka_message_t *ck_callback_consume(rd_kafka_t *rk, int timeout_ms) {
        bool before = ck_set_may_yield(!ck_inside);
        rd_kafka_message_t *rkmessage = rd_kafka_consumer_poll(rk, timeout_ms);

        ck_set_may_yield(before);
        return rkmessage;
}

ssize_t ck_callback_consume_batch(rd_kafka_queue_t *rkqu, int timeout_ms,
                                  rd_kafka_message_t **rkmessages, size_t size) {
        bool before = ck_set_may_yield(false);
        ssize_t cnt = rd_kafka_consume_batch_queue(rkqu, timeout_ms, rkmessages, size);

        ck_set_may_yield(before);
        return cnt;
}
