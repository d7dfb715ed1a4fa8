/* Fails the first allocation of every call that allocates, then the second, and so on. A
 * sanitizer finds memory that the call then does not free. */
#include <errno.h>
#include <unistd.h>

#include "check.h"
#include "ck_arrow.h"
#include "ck_batch.h"
#include "ck_condition.h"
#include "ck_call.h"
#include "ck_callback.h"
#include "ck_end.h"
#include "ck_envelope.h"
#include "ck_inflight.h"
#include "ck_msgref.h"
#include "ck_publish.h"
#include "ck_ranges.h"
#include "ck_split.h"
#include "failing.h"
#undef malloc
#undef calloc
#undef realloc
#undef strdup
#undef aligned_alloc

/* The number of allocations that still succeed in this thread; -1: all. */
static _Thread_local long left = -1;

static bool fails(void) {
        return left >= 0 && left-- == 0;
}

void *failing_malloc(size_t size) {
        return fails() ? NULL : malloc(size);
}

void *failing_calloc(size_t n, size_t size) {
        return fails() ? NULL : calloc(n, size);
}

void *failing_realloc(void *old, size_t size) {
        return fails() ? NULL : realloc(old, size);
}

char *failing_strdup(const char *text) {
        return fails() ? NULL : strdup(text);
}

void *failing_aligned_alloc(size_t alignment, size_t size) {
        return fails() ? NULL : aligned_alloc(alignment, size);
}

/* Evaluates `failed` with 0, 1, 2, ... successful allocations, until it is false. It must
 * be true at least `least` times. */
#define EACH_ALLOCATION(least, failed)      \
        do {                                \
                long n_ = 0;                \
                for (;; n_++) {             \
                        bool failed_;       \
                        left = n_;          \
                        failed_ = (failed); \
                        left = -1;          \
                        if (!failed_)       \
                                break;      \
                }                           \
                CHECK(n_ >= (least));       \
        } while (0)

enum { TOTAL = 500 };

static const ck_arrow_name_t all[] = {
    CK_ARROW_KEY,
    CK_ARROW_VALUE,
    CK_ARROW_TOPIC,
    CK_ARROW_PARTITION,
    CK_ARROW_OFFSET,
    CK_ARROW_TIMESTAMP,
    CK_ARROW_TIMESTAMP_TYPE,
    CK_ARROW_HEADERS,
    CK_ARROW_DELIVERY_COUNT,
};

static void check_nothing_left(void) {
        int kind;

        for (kind = 0; kind < CK_KIND__CNT; kind++)
                CHECK(ck_runtime_alive((ck_kind_t)kind) == 0);
}

static void test_small_objects(void) {
        ck_queue_t *queue;
        ck_loans_t *loans;
        ck_serving_t *serving;
        ck_condition_t *condition;
        ck_ranges_t *ranges;
        ck_call_t *call;
        ck_msgref_t *ref;
        ck_inflight_t *inflight;
        ck_report_t *report;
        ck_bytes_t *pieces;
        static const char commas[] = ",,,,,,,,,,,,,,,,,,,,";
        size_t cnt, end;

        EACH_ALLOCATION(2, !(queue = ck_queue_new()));
        EACH_ALLOCATION(1, !(loans = ck_loans_new()));
        EACH_ALLOCATION(1, !(serving = ck_serving_new()));
        EACH_ALLOCATION(1, !(condition = ck_condition_new()));
        ck_condition_destroy(condition);
        ck_serving_destroy(serving);
        ck_loans_destroy(loans);
        ck_queue_destroy(queue);
        EACH_ALLOCATION(1, !(ranges = ck_ranges_new(2)));
        EACH_ALLOCATION(1, ck_ranges_set(ranges, 0, "topic", 0, 0, 1) == ENOMEM);
        CHECK(ranges->left == 1);
        ck_ranges_destroy(ranges);
        EACH_ALLOCATION(2, !(call = ck_call_new(CK_CALL_METADATA)));
        ck_call_leave(call);
        EACH_ALLOCATION(1, !(ref = ck_msgref_new()));
        ck_msgref_unref(ref);
        EACH_ALLOCATION(
            2, !(pieces = ck_split(commas, sizeof(commas) - 1, ",", 1, &cnt, &end)));
        CHECK(cnt == sizeof(commas) - 1);
        free(pieces);
        EACH_ALLOCATION(1, !(inflight = ck_inflight_new(sizeof(*report))));
        EACH_ALLOCATION(1, !(report = ck_inflight_take(inflight)));
        ck_inflight_give(report);
        ck_inflight_destroy(inflight);
        check_nothing_left();
}

static void test_delivery_that_could_not_be_created_is_not_awaited(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *delivery;

        EACH_ALLOCATION(1, !(delivery = ck_delivery_new(queue, 10)) &&
                               !ck_delivery_is_pending(queue));
        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 1);
        ck_delivery_close(delivery, RD_KAFKA_RESP_ERR__FAIL);
        ck_delivery_release(delivery);
        CHECK(!ck_delivery_is_pending(queue));
        ck_queue_destroy(queue);
        check_nothing_left();
}

static bool is_unreported_without_words(ck_queue_t *queue) {
        ck_event_t *first;
        bool without;

        CHECK(ck_queue_take_unreported(queue, &first) == 1);
        without = !first;
        ck_event_destroy(first);
        return without;
}

/* Delivery reports allocate nothing. Only other events may be lost. */
static void test_events(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        ck_notice_t *notice;
        ck_event_t *first;
        rd_kafka_t *rk;
        int taken;

        rd_kafka_conf_set_opaque(conf, queue);
        rk = check_client(RD_KAFKA_PRODUCER, conf);
        EACH_ALLOCATION(2, !(notice = ck_event_new(CK_EVENT_ERROR, "text")));
        ck_event_destroy(&notice->event);
        EACH_ALLOCATION(
            2, (ck_callback_error(rk, -1, "reason", queue), ck_queue_is_empty(queue)));
        EACH_ALLOCATION(2, (ck_callback_throttle(rk, "broker", 1, 5, queue),
                            ck_queue_length(queue) < 2));
        EACH_ALLOCATION(
            1, (ck_callback_commit(rk, 0, NULL, queue), ck_queue_length(queue) < 3));
        char *json = strdup("{}");
        EACH_ALLOCATION(1, !(taken = ck_callback_stats(rk, json, 2, queue)));
        CHECK(taken == 1); /* else librdkafka would free it */
        /* The facility of a log line may be missing. */
        EACH_ALLOCATION(
            2, (ck_callback_log(rk, 3, "facility", "text"), ck_queue_length(queue) < 5));
        CHECK(ck_queue_length(queue) == 5);
        while ((first = ck_queue_pop(queue)))
                ck_event_destroy(first);
        /* The queue counts failures even without memory for the first one's text. */
        EACH_ALLOCATION(2, (ck_queue_add_unreported(queue, "topic", -1, 1),
                            is_unreported_without_words(queue)));
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
        check_nothing_left();
}

static rd_kafka_t *filled_cluster(rd_kafka_mock_cluster_t **mock) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_t *producer;
        rd_kafka_topic_t *rkt;
        int i;

        check_set(conf, "linger.ms", "0");
        producer = check_client(RD_KAFKA_PRODUCER, conf);
        *mock = rd_kafka_mock_cluster_new(producer, 1);
        CHECK(rd_kafka_mock_topic_create(*mock, "topic", 1, 1) == 0);
        CHECK(rd_kafka_brokers_add(producer, rd_kafka_mock_cluster_bootstraps(*mock)) >
              0);
        rkt = rd_kafka_topic_new(producer, "topic", NULL);
        for (i = 0; i < TOTAL; i++) {
                rd_kafka_headers_t *headers = i % 3 ? NULL : rd_kafka_headers_new(1);

                if (headers)
                        rd_kafka_header_add(headers, "name", -1, "v", 1);
                CHECK(rd_kafka_producev(
                          producer, RD_KAFKA_V_RKT(rkt), RD_KAFKA_V_PARTITION(0),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                          RD_KAFKA_V_VALUE("value", 5), RD_KAFKA_V_KEY("k", 1),
                          RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END) == 0);
        }
        rd_kafka_topic_destroy(rkt);
        CHECK(rd_kafka_flush(producer, 10000) == 0);
        return producer;
}

static rd_kafka_t *new_consumer(rd_kafka_mock_cluster_t *mock) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *partitions;
        rd_kafka_t *consumer;

        check_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(mock));
        check_set(conf, "group.id", "g");
        check_set(conf, "enable.auto.commit", "false");
        consumer = check_client(RD_KAFKA_CONSUMER, conf);
        CHECK(rd_kafka_poll_set_consumer(consumer) == 0);
        partitions = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(partitions, "topic", 0)->offset = 0;
        CHECK(rd_kafka_assign(consumer, partitions) == 0);
        rd_kafka_topic_partition_list_destroy(partitions);
        return consumer;
}

static void test_headers_of_envelopes(const ck_batch_t *batch) {
        static ck_envelope_t read[TOTAL];
        static uint32_t at[TOTAL];
        char *block;

        EACH_ALLOCATION(1, ck_envelope_headers(batch, 0, 1, TOTAL, read, at, &block) ==
                               ENOMEM);
        CHECK(block && at[0] == 0 && at[1] == UINT32_MAX);
        free(block);
}

static void test_batches(void) {
        rd_kafka_mock_cluster_t *mock;
        rd_kafka_t *producer = filled_cluster(&mock), *consumer = new_consumer(mock);
        rd_kafka_queue_t *rkqu = rd_kafka_queue_get_consumer(consumer);
        ck_loans_t *loans = ck_loans_new();
        rd_kafka_topic_partition_list_t *partitions;
        ck_batch_t *gathered, *moved, *held, *batch, *copy;
        rd_kafka_message_t *first;
        struct ArrowArrayStream stream;
        struct ArrowSchema schema;
        struct ArrowArray array;
        size_t built;

        EACH_ALLOCATION(2, !(gathered = ck_batch_new(1)));
        EACH_ALLOCATION(1, ck_batch_reserve(gathered, TOTAL) == ENOMEM);
        while (gathered->cnt < TOTAL)
                ck_batch_accept(gathered, ck_batch_fill(gathered, rkqu, 10000,
                                                        TOTAL - gathered->cnt));
        first = gathered->rkmessages[0];
        moved = ck_batch_new(1);
        partitions = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(partitions, "topic", 0);
        held = ck_batch_new(1);
        EACH_ALLOCATION(1, ck_batch_hold(gathered, partitions, held) == ENOMEM);
        CHECK(held->cnt == TOTAL && gathered->gaps && !gathered->rkmessages[TOTAL - 1]);
        CHECK(ck_batch_hold(held, partitions, gathered) == 0);
        ck_batch_compact(gathered);
        ck_batch_compact(held);
        CHECK(gathered->cnt == TOTAL && gathered->rkmessages[0] == first &&
              held->cnt == 0);
        ck_batch_destroy(held);
        rd_kafka_topic_partition_list_destroy(partitions);
        EACH_ALLOCATION(1, ck_batch_move(gathered, moved) == ENOMEM);
        CHECK(moved->cnt == TOTAL && moved->rkmessages[0] == first && gathered->cnt == 0);
        /* Without memory, the call neither takes nor keeps anything. */
        EACH_ALLOCATION(2, !(batch = ck_batch_take(moved, TOTAL, loans)) &&
                               moved->head == 0 && ck_loans_settle(loans));
        CHECK(batch->cnt == TOTAL && batch->rkmessages[0] == first);
        EACH_ALLOCATION(4, !(copy = ck_batch_copy(batch)));
        CHECK(copy->cnt == TOTAL && ck_batch_headers(copy, 0));
        EACH_ALLOCATION(3, ck_arrow_schema(all, 8, &schema) == ENOMEM);
        schema.release(&schema);
        EACH_ALLOCATION(25, ck_arrow_build(copy, 0, 1, TOTAL, all, 8, CK_ARROW_MAX_BYTES,
                                           &built, &array) == ENOMEM);
        CHECK(built == TOTAL);
        array.release(&array);
        EACH_ALLOCATION(20, ck_arrow_stream(batch, 0, 1, TOTAL, all, 8, 2000, &stream) ==
                                ENOMEM);
        test_headers_of_envelopes(batch);
        ck_batch_unref(batch);
        ck_batch_unref(copy);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0 && ck_loans_settle(loans));
        stream.release(&stream);
        ck_batch_destroy(gathered);
        ck_batch_destroy(moved);
        rd_kafka_queue_destroy(rkqu);
        /* Without memory for the thread's argument, the handle stays alive. */
        left = 0;
        CHECK(!ck_end_start(consumer, NULL, 0, NULL, loans, NULL, NULL) && left == -1);
        CHECK(rd_kafka_consumer_close(consumer) == 0);
        ck_runtime_count(CK_KIND_HANDLE, 1);
        ck_end_now(consumer, NULL, 0, NULL, loans);
        rd_kafka_mock_cluster_destroy(mock);
        rd_kafka_destroy(producer);
        check_nothing_left();
}

/* Publishing itself allocates nothing. */
static void test_publishing(void) {
        ck_queue_t *queue = ck_queue_new();
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_t *rk;
        rd_kafka_topic_t *rkt;
        ck_delivery_t *delivery;

        check_set(conf, "test.mock.num.brokers", "1");
        check_set(conf, "linger.ms", "0");
        rd_kafka_conf_set_opaque(conf, queue);
        rd_kafka_conf_set_dr_msg_cb(conf, ck_callback_report);
        rk = check_client(RD_KAFKA_PRODUCER, conf);
        rkt = rd_kafka_topic_new(rk, "topic", NULL);
        ck_publish_t publish = {
            .cnt = TOTAL,
            .rkt = rkt,
            .values = {.kind = CK_COLUMN_CONSTANT, .u.constant = {"value", 5}},
            .partitions = {.missing = RD_KAFKA_PARTITION_UA}};
        delivery = ck_delivery_new(queue, TOTAL);
        left = 0;
        while (ck_publish(rk, &publish, delivery, 100))
                continue;
        ck_delivery_close(delivery, RD_KAFKA_RESP_ERR__FAIL);
        while (!ck_delivery_is_done(delivery))
                ck_callback_serve(rk, queue, delivery, 10000, false);
        CHECK(left == 0);
        left = -1;
        CHECK(ck_delivery_failed(delivery) == 0);
        ck_delivery_release(delivery);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        ck_queue_destroy(queue);
        check_nothing_left();
}

int main(void) {
        test_small_objects();
        test_delivery_that_could_not_be_created_is_not_awaited();
        test_events();
        test_batches();
        test_publishing();
        return 0;
}
