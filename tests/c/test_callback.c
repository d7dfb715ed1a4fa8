#include "check.h"
#include "ck_callback.h"
#include "ck_produce.h"

static rd_kafka_t *new_producer(ck_queue_t *queue, const char *key, const char *value) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();

        check_set(conf, "test.mock.num.brokers", "1");
        check_set(conf, "linger.ms", "0");
        if (key)
                check_set(conf, key, value);
        rd_kafka_conf_set_opaque(conf, queue);
        rd_kafka_conf_set_dr_msg_cb(conf, ck_callback_report);
        return check_client(RD_KAFKA_PRODUCER, conf);
}

static void test_report_has_partition_and_offset(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, NULL, NULL);
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        ck_report_t report = {0};
        ck_record_t record = {
            .value = "v", .value_len = 1, .partition = 2, .report = &report};

        CHECK(ck_produce(rk, rkt, &record) == NULL);
        CHECK(ck_callback_flush(rk, 10000) == RD_KAFKA_RESP_ERR_NO_ERROR);
        CHECK(ck_queue_pop(queue) == &report.event);
        CHECK(report.event.kind == CK_EVENT_REPORT && report.event.code == 0);
        CHECK(report.partition == 2 && report.offset == 0 && report.latency > 0);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

static void test_failure_without_a_report_is_counted(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, NULL, NULL);
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        ck_record_t record = {
            .value = "v", .value_len = 1, .partition = RD_KAFKA_PARTITION_UA};
        ck_event_t *first;

        CHECK(ck_produce(rk, rkt, &record) == NULL);
        CHECK(rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT) ==
              0);
        CHECK(ck_callback_flush(rk, 10000) == RD_KAFKA_RESP_ERR_NO_ERROR);
        CHECK(ck_queue_pop(queue) == NULL);
        CHECK(ck_queue_take_unreported(queue, &first) == 1);
        CHECK(first && first->code == RD_KAFKA_RESP_ERR__PURGE_QUEUE);
        CHECK(first && strcmp(((ck_notice_t *)first)->text, "topic") == 0);
        ck_event_destroy(first);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

static void test_refused_record_leaves_the_headers_to_the_caller(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, "message.max.bytes", "1000");
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        char value[2000] = "too large";
        ck_record_t record = {.value = value,
                              .value_len = sizeof(value),
                              .partition = RD_KAFKA_PARTITION_UA,
                              .headers = rd_kafka_headers_new(1)};
        rd_kafka_error_t *error;

        CHECK(rd_kafka_header_add(record.headers, "h", 1, "1", 1) == 0);
        error = ck_produce(rk, rkt, &record);
        CHECK(rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
        rd_kafka_error_destroy(error);
        rd_kafka_headers_destroy(record.headers); /* twice under ASan if it was taken */
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

static void test_refusal_is_reported_if_the_fast_call_sets_no_error(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, "transactional.id", "t");
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        ck_record_t record = {
            .value = "v", .value_len = 1, .partition = RD_KAFKA_PARTITION_UA};
        rd_kafka_error_t *error = ck_produce(rk, rkt, &record);

        /* Without a transaction 2.15.1 fails but does not set rd_kafka_last_error(). */
        CHECK(rd_kafka_error_code(error) == RD_KAFKA_RESP_ERR__STATE);
        CHECK(strlen(rd_kafka_error_string(error)) > 0);
        rd_kafka_error_destroy(error);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

static void test_event_ends_the_wait(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_t *rk;
        rd_kafka_message_t *rkmessage;
        ck_event_t *event;
        int64_t started;

        check_set(conf, "test.mock.num.brokers", "1");
        check_set(conf, "group.id", "g");
        check_set(conf, "statistics.interval.ms", "50");
        rd_kafka_conf_set_opaque(conf, queue);
        rd_kafka_conf_set_stats_cb(conf, ck_callback_stats);
        rk = check_client(RD_KAFKA_CONSUMER, conf);
        CHECK(rd_kafka_poll_set_consumer(rk) == 0);
        started = ck_runtime_now_ms();
        rkmessage = ck_callback_consume(rk, 20000);
        CHECK(rkmessage == NULL);
        CHECK(ck_runtime_now_ms() - started < 10000);
        event = ck_queue_pop(queue);
        CHECK(event && event->kind == CK_EVENT_STATS &&
              ((ck_notice_t *)event)->text[0] == '{');
        CHECK(((ck_notice_t *)event)->text_len > 1);
        ck_event_destroy(event);
        CHECK(rd_kafka_consumer_close(rk) == 0);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
        CHECK(ck_runtime_alive(CK_KIND_EVENT) == 0);
}

static void test_marks_of_the_thread_are_restored(void) {
        CHECK(!ck_callback_inside(true));
        CHECK(ck_callback_inside(false));
        CHECK(!ck_callback_is_background());
        ck_callback_on_background(true);
        CHECK(ck_callback_is_background());
        ck_callback_on_background(false);
}

int main(void) {
        test_report_has_partition_and_offset();
        test_failure_without_a_report_is_counted();
        test_refused_record_leaves_the_headers_to_the_caller();
        test_refusal_is_reported_if_the_fast_call_sets_no_error();
        test_event_ends_the_wait();
        test_marks_of_the_thread_are_restored();
        return 0;
}
