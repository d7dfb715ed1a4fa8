#include "check.h"
#include "ck_batch.h"
#include "ck_ranges.h"

enum { PARTITIONS = 2, PER_PARTITION = 20, WAIT_MS = 10000 };

typedef struct source_s {
        rd_kafka_mock_cluster_t *mock;
        rd_kafka_t *producer; /* and the mock cluster's owner */
        rd_kafka_t *consumer;
        rd_kafka_queue_t *queue;
} source_t;

static source_t new_source(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_t *rkt;
        source_t source;
        int i;

        check_set(conf, "linger.ms", "0");
        source.producer = check_client(RD_KAFKA_PRODUCER, conf);
        source.mock = rd_kafka_mock_cluster_new(source.producer, 1);
        CHECK(rd_kafka_mock_topic_create(source.mock, "topic", PARTITIONS, 1) == 0);
        CHECK(rd_kafka_brokers_add(source.producer,
                                   rd_kafka_mock_cluster_bootstraps(source.mock)) > 0);
        rkt = rd_kafka_topic_new(source.producer, "topic", NULL);
        for (i = 0; i < PARTITIONS * PER_PARTITION; i++)
                CHECK(rd_kafka_produce(rkt, i % PARTITIONS, RD_KAFKA_MSG_F_COPY, "value",
                                       5, "key", 3, NULL) == 0);
        rd_kafka_topic_destroy(rkt);
        CHECK(rd_kafka_flush(source.producer, WAIT_MS) == 0);

        conf = rd_kafka_conf_new();
        check_set(conf, "bootstrap.servers",
                  rd_kafka_mock_cluster_bootstraps(source.mock));
        check_set(conf, "group.id", "g");
        check_set(conf, "enable.auto.commit", "false");
        check_set(conf, "enable.auto.offset.store", "false");
        check_set(conf, "enable.partition.eof", "true");
        check_set(conf, "fetch.wait.max.ms", "10");
        source.consumer = check_client(RD_KAFKA_CONSUMER, conf);
        CHECK(rd_kafka_poll_set_consumer(source.consumer) == 0);
        source.queue = rd_kafka_queue_get_consumer(source.consumer);
        return source;
}

static void destroy_source(source_t *source) {
        rd_kafka_queue_destroy(source->queue);
        CHECK(rd_kafka_consumer_close(source->consumer) == 0);
        rd_kafka_destroy(source->consumer);
        rd_kafka_mock_cluster_destroy(source->mock);
        rd_kafka_destroy(source->producer);
}

/* Reads the ranges from an offset of each partition; returns their number of records. */
static size_t read_ranges(source_t *source, ck_ranges_t *ranges, int64_t from,
                          size_t *bytes) {
        rd_kafka_topic_partition_list_t *list =
            rd_kafka_topic_partition_list_new(PARTITIONS);
        rd_kafka_message_t *messages[7];
        size_t rows = 0, filled, kept, i;

        for (i = 0; i < PARTITIONS; i++)
                rd_kafka_topic_partition_list_add(list, "topic", (int32_t)i)->offset =
                    from;
        CHECK(rd_kafka_assign(source->consumer, list) == 0);
        rd_kafka_topic_partition_list_destroy(list);
        while (ranges->left) {
                ssize_t cnt =
                    rd_kafka_consume_batch_queue(source->queue, WAIT_MS, messages, 1);

                CHECK(cnt >= 0);
                filled = (size_t)cnt;
                kept = ck_ranges_sift(ranges, messages, filled, bytes);
                for (i = 0; i < kept; i++) {
                        CHECK(messages[i]->err == 0);
                        rd_kafka_message_destroy(messages[i]);
                }
                rows += kept;
        }
        return rows;
}

static void test_ranges_keep_only_their_messages(void) {
        source_t source = new_source();
        ck_ranges_t *ranges = ck_ranges_new(2);
        size_t bytes = 0;

        CHECK(ck_ranges_set(ranges, 0, "topic", 1, 5, 12) == 0);
        CHECK(ck_ranges_set(ranges, 1, "topic", 0, 2, 3) == 0);
        CHECK(ck_ranges_sort(ranges) == 0);
        CHECK(ranges->left == 2);
        CHECK(read_ranges(&source, ranges, 0, &bytes) == 7 + 1);
        CHECK(bytes == 8 * strlen("valuekey"));
        CHECK(ranges->rows == 8 && ranges->bytes == bytes);
        CHECK(ck_ranges_find(ranges, "topic", 1)->next == 12);
        ck_ranges_destroy(ranges);
        destroy_source(&source);
}

static void test_partition_eof_ends_a_range_that_reaches_it(void) {
        source_t source = new_source();
        ck_ranges_t *ranges = ck_ranges_new(1);
        size_t bytes = 0;

        /* Only the end follows the last record. */
        CHECK(ck_ranges_set(ranges, 0, "topic", 0, PER_PARTITION - 1, PER_PARTITION) ==
              0);
        CHECK(ck_ranges_sort(ranges) == 0);
        CHECK(read_ranges(&source, ranges, PER_PARTITION, &bytes) == 0);
        CHECK(ranges->ranges[0].eof == PER_PARTITION);
        ck_ranges_destroy(ranges);
        destroy_source(&source);
}

static void test_positions_count_only_after_the_first_message(void) {
        source_t source = new_source();
        ck_ranges_t *ranges = ck_ranges_new(1);
        size_t bytes = 0;

        CHECK(ck_ranges_set(ranges, 0, "topic", 0, 0, PER_PARTITION) == 0);
        CHECK(ck_ranges_sort(ranges) == 0);
        read_ranges(&source, ranges, 0, &bytes);
        ck_ranges_destroy(ranges);

        /* The earlier assignment and its position remain. */
        ranges = ck_ranges_new(1);
        CHECK(ck_ranges_set(ranges, 0, "topic", 0, 0, PER_PARTITION) == 0);
        CHECK(ck_ranges_sort(ranges) == 0);
        ck_ranges_catch_up(ranges, source.consumer);
        CHECK(ranges->left == 1 && ranges->ranges[0].next == 0);
        ranges->ranges[0].met = true;
        ck_ranges_catch_up(ranges, source.consumer);
        CHECK(ranges->left == 0 && ranges->ranges[0].next == PER_PARTITION);
        ck_ranges_destroy(ranges);
        destroy_source(&source);
}

static void test_ranges_are_found_and_distinguished(void) {
        ck_ranges_t *ranges = ck_ranges_new(4);

        CHECK(ck_ranges_set(ranges, 0, "b", 1, 0, 10) == 0);
        CHECK(ck_ranges_set(ranges, 1, "a", 1, 0, 20) == 0);
        CHECK(ck_ranges_set(ranges, 2, "b", 0, 5, 5) == 0);
        CHECK(ck_ranges_set(ranges, 3, "a", 7, 9, 3) == 0);
        CHECK(ranges->left == 2); /* the others are empty */
        CHECK(ck_ranges_sort(ranges) == 0);
        CHECK(ck_ranges_find(ranges, "a", 1)->end == 20);
        CHECK(ck_ranges_find(ranges, "b", 1)->end == 10);
        CHECK(ck_ranges_find(ranges, "b", 0)->end == 5);
        CHECK(ck_ranges_find(ranges, "b", 2) == NULL);
        CHECK(ck_ranges_find(ranges, "", 0) == NULL);

        ck_ranges_advance(ranges, ck_ranges_find(ranges, "a", 1), 19);
        ck_ranges_advance(ranges, ck_ranges_find(ranges, "a", 1), 3);
        CHECK(ranges->left == 2 && ck_ranges_find(ranges, "a", 1)->next == 19);
        ck_ranges_advance(ranges, ck_ranges_find(ranges, "a", 1), 99);
        ck_ranges_advance(ranges, ck_ranges_find(ranges, "a", 1), 100);
        CHECK(ranges->left == 1 && ck_ranges_find(ranges, "a", 1)->next == 20);
        ck_ranges_destroy(ranges);

        ranges = ck_ranges_new(3);
        CHECK(ck_ranges_set(ranges, 0, "a", 1, 0, 1) == 0);
        CHECK(ck_ranges_set(ranges, 1, "a", 0, 0, 1) == 0);
        CHECK(ck_ranges_set(ranges, 2, "a", 1, 5, 6) == 0);
        CHECK(ck_ranges_sort(ranges) == 2);
        ck_ranges_destroy(ranges);
        ck_ranges_destroy(NULL);
}

static void test_steps_follow_the_size_of_records(void) {
        ck_ranges_t *ranges = ck_ranges_new(0);

        CHECK(ck_ranges_step(ranges, 10, 1) == 10);
        CHECK(ck_ranges_step(ranges, 100000, 1) == 256);
        ranges->rows = 10;
        ranges->bytes = ranges->rows * 999;
        CHECK(ck_ranges_step(ranges, 100000, 50000) == 51);
        CHECK(ck_ranges_step(ranges, 20, 50000) == 20);
        CHECK(ck_ranges_step(ranges, 20, 1) == 1);
        ck_ranges_destroy(ranges);
}

int main(void) {
        test_ranges_are_found_and_distinguished();
        test_steps_follow_the_size_of_records();
        test_ranges_keep_only_their_messages();
        test_partition_eof_ends_a_range_that_reaches_it();
        test_positions_count_only_after_the_first_message();
        return 0;
}
