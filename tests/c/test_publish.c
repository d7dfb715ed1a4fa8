#include "check.h"
#include "ck_callback.h"
#include "ck_publish.h"

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

/* Publishes all records, serves when the queue is full, and waits. Returns the delivery,
 * which the caller releases. */
static ck_delivery_t *publish_all(rd_kafka_t *rk, ck_queue_t *queue,
                                  ck_publish_t *publish) {
        ck_delivery_t *delivery = ck_delivery_new(queue, publish->cnt);
        rd_kafka_resp_err_t err;

        while ((err = ck_publish(rk, publish, delivery, 1)))
                if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        ck_callback_serve(rk, queue, NULL, 1000, NULL);
        ck_delivery_close(delivery, RD_KAFKA_RESP_ERR__FAIL);
        while (!ck_delivery_is_done(delivery))
                ck_callback_serve(rk, queue, delivery, 10000, NULL);
        return delivery;
}

static void test_every_form_of_batch_is_published(void) {
        enum { RECORDS = 5000 };
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, "queue.buffering.max.messages", "700");
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        rd_kafka_topic_t *other = rd_kafka_topic_new(rk, "other", NULL);
        static rd_kafka_topic_t *rkts[RECORDS];
        static int64_t timestamps[RECORDS], starts[RECORDS + 1];
        static int8_t partitions[RECORDS];
        ck_bytes_t name = {"name", 4}, pair_name = {"pair", 4};
        ck_column_t named = {.kind = CK_COLUMN_CONSTANT, .u.constant = {"v", 1}};
        ck_headers_t headers = {
            .starts64 = starts,
            .keys = {.kind = CK_COLUMN_CONSTANT, .u.constant = pair_name}};
        int form;
        size_t i;

        for (i = 0; i < RECORDS; i++) {
                rkts[i] = i % 3 ? rkt : other;
                timestamps[i] = i % 7 == 0;
                partitions[i] = (int8_t)(i / 100 % 4);
                starts[i + 1] = starts[i] + (i % 11 == 0 ? 2 : 0);
        }
        for (form = 0; form < 64; form++) {
                ck_publish_t publish = {
                    .cnt = RECORDS,
                    .rkt = rkt,
                    .values = {.kind = CK_COLUMN_CONSTANT, .u.constant = {"value", 5}},
                    .partitions = {.missing = RD_KAFKA_PARTITION_UA}};
                ck_delivery_t *delivery;

                publish.borrow = form & 1;
                if (form & 2)
                        publish.rkts = rkts;
                if (form & 4)
                        publish.timestamps = (ck_numbers_t){
                            .width = 8, .base = (char *)timestamps, .stride = 8};
                if (form & 8)
                        publish.partitions = (ck_numbers_t){
                            .width = 1, .base = (char *)partitions, .stride = 1};
                if (form & 16)
                        publish.headers = &headers;
                headers.named_cnt = form & 32 ? 1 : 0;
                headers.names = &name;
                headers.named = &named;
                delivery = publish_all(rk, queue, &publish);
                CHECK(ck_delivery_failed(delivery) == 0);
                for (i = 0; i < RECORDS; i++) {
                        const ck_outcome_t *slot = &ck_delivery_slots(delivery)[i];

                        CHECK(slot->offset >= 0);
                        CHECK(!(form & 8) || slot->u.outcome.partition == partitions[i]);
                        /* In order, as published. */
                        CHECK(!(form & 8) || !i || i % 100 == 0 || form & 2 ||
                              slot->offset == slot[-1].offset + 1);
                }
                ck_delivery_release(delivery);
        }
        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 0);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_topic_destroy(other);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

static void test_publish_continues_after_a_slice_ends(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, NULL, NULL);
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        ck_publish_t publish = {.cnt = 50000, .rkt = rkt, .partitions = {.missing = 1}};
        ck_delivery_t *delivery = ck_delivery_new(queue, publish.cnt);
        int calls = 1;

        while (ck_publish(rk, &publish, delivery, 0) == RD_KAFKA_RESP_ERR__IN_PROGRESS) {
                CHECK(publish.next == ck_delivery_taken(delivery));
                calls++;
        }
        CHECK(calls > 10 && publish.next == 50000);
        ck_delivery_close(delivery, 0);
        while (!ck_delivery_is_done(delivery))
                ck_callback_serve(rk, queue, delivery, 10000, NULL);
        CHECK(ck_delivery_failed(delivery) == 0);
        CHECK(ck_delivery_slots(delivery)[49999].offset == 49999);
        ck_delivery_release(delivery);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

static void test_invalid_partition_numbers_are_refused(void) {
        static const int64_t partitions[] = {INT64_MAX, 0, (int64_t)INT32_MAX + 1, -2};
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, NULL, NULL);
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        ck_publish_t publish = {
            .cnt = 4,
            .rkt = rkt,
            .partitions = {.width = 8, .base = (const char *)partitions, .stride = 8}};
        ck_delivery_t *delivery = publish_all(rk, queue, &publish);

        CHECK(ck_delivery_failed(delivery) == 3);
        CHECK(ck_delivery_slots(delivery)[1].offset == 0);
        ck_delivery_release(delivery);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

static void test_wrong_transaction_state_fails_every_record(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_t *rk = new_producer(queue, "transactional.id", "t");
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, "topic", NULL);
        ck_publish_t publish = {
            .cnt = 1000, .rkt = rkt, .partitions = {.missing = RD_KAFKA_PARTITION_UA}};
        ck_delivery_t *delivery = publish_all(rk, queue, &publish);
        size_t i;

        CHECK(ck_delivery_failed(delivery) == 1000);
        for (i = 0; i < 1000; i++)
                CHECK(ck_delivery_slots(delivery)[i].u.outcome.err ==
                      RD_KAFKA_RESP_ERR__STATE);
        ck_delivery_release(delivery);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
}

int main(void) {
        test_every_form_of_batch_is_published();
        test_publish_continues_after_a_slice_ends();
        test_invalid_partition_numbers_are_refused();
        test_wrong_transaction_state_fails_every_record();
        return 0;
}
