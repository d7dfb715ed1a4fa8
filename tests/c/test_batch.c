#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "ck_batch.h"

/* Enough headers that threads parse them at the same time. */
enum {
        PARTITIONS = 3,
        PER_PARTITION = 10,
        TOTAL = PARTITIONS * PER_PARTITION,
        HEADERS = 100
};

typedef struct source_s {
        rd_kafka_mock_cluster_t *mock;
        rd_kafka_t *producer; /* and the mock cluster's owner */
        rd_kafka_t *consumer;
        rd_kafka_queue_t *queue;
} source_t;

/* A consumer with every partition of a filled topic assigned. */
static source_t new_source(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *partitions;
        rd_kafka_topic_t *rkt;
        source_t source;
        char value[16];
        int i, j;

        check_set(conf, "linger.ms", "0");
        source.producer = check_client(RD_KAFKA_PRODUCER, conf);
        source.mock = rd_kafka_mock_cluster_new(source.producer, 1);
        CHECK(rd_kafka_mock_topic_create(source.mock, "topic", PARTITIONS, 1) == 0);
        CHECK(rd_kafka_brokers_add(source.producer,
                                   rd_kafka_mock_cluster_bootstraps(source.mock)) > 0);
        rkt = rd_kafka_topic_new(source.producer, "topic", NULL);
        for (i = 0; i < TOTAL; i++) {
                snprintf(value, sizeof(value), "%d", i);
                /* Some have headers, no value, an empty value, or a key. */
                rd_kafka_headers_t *headers = i % 3 ? NULL : rd_kafka_headers_new(2);
                size_t len = i % 7 ? strlen(value) : 0;

                for (j = 0; headers && j < HEADERS; j++)
                        rd_kafka_header_add(headers, j ? "more" : "number", -1, value,
                                            -1);
                CHECK(rd_kafka_producev(
                          source.producer, RD_KAFKA_V_RKT(rkt),
                          RD_KAFKA_V_PARTITION(i % PARTITIONS),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                          RD_KAFKA_V_VALUE((i % 5 ? value : NULL), (i % 5 ? len : 0)),
                          RD_KAFKA_V_KEY((i % 2 ? value : NULL),
                                         (i % 2 ? strlen(value) : 0)),
                          RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END) == 0);
        }
        rd_kafka_topic_destroy(rkt);
        CHECK(rd_kafka_flush(source.producer, 10000) == 0);

        conf = rd_kafka_conf_new();
        check_set(conf, "bootstrap.servers",
                  rd_kafka_mock_cluster_bootstraps(source.mock));
        check_set(conf, "group.id", "g");
        check_set(conf, "enable.auto.offset.store", "false");
        check_set(conf, "enable.auto.commit", "false");
        source.consumer = check_client(RD_KAFKA_CONSUMER, conf);
        CHECK(rd_kafka_poll_set_consumer(source.consumer) == 0);
        source.queue = rd_kafka_queue_get_consumer(source.consumer);
        partitions = rd_kafka_topic_partition_list_new(PARTITIONS);
        for (i = 0; i < PARTITIONS; i++)
                rd_kafka_topic_partition_list_add(partitions, "topic", i)->offset = 0;
        CHECK(rd_kafka_assign(source.consumer, partitions) == 0);
        rd_kafka_topic_partition_list_destroy(partitions);
        return source;
}

static void destroy_source(source_t *source) {
        rd_kafka_queue_destroy(source->queue);
        CHECK(rd_kafka_consumer_close(source->consumer) == 0);
        rd_kafka_destroy(source->consumer);
        rd_kafka_mock_cluster_destroy(source->mock);
        rd_kafka_destroy(source->producer);
}

static ck_batch_t *filled_batch(source_t *source) {
        ck_batch_t *batch = ck_batch_new(1);

        while (batch->cnt < TOTAL) {
                CHECK(ck_batch_reserve(batch, TOTAL - batch->cnt) == 0);
                size_t filled =
                    ck_batch_fill(batch, source->queue, 10000, TOTAL - batch->cnt);
                CHECK(filled > 0);
                ck_batch_accept(batch, filled);
        }
        return batch;
}

static int64_t stored_offset(source_t *source, int32_t partition) {
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_resp_err_t err;
        int64_t offset;

        rd_kafka_topic_partition_list_add(list, "topic", partition);
        err = rd_kafka_commit(source->consumer, NULL, 0);
        CHECK(err == 0 || err == RD_KAFKA_RESP_ERR__NO_OFFSET);
        CHECK(rd_kafka_committed(source->consumer, list, 10000) == 0);
        offset = list->elems[0].offset;
        rd_kafka_topic_partition_list_destroy(list);
        return offset;
}

static void test_drop_removes_only_the_named_partitions(void) {
        source_t source = new_source();
        ck_batch_t *batch = filled_batch(&source);
        rd_kafka_topic_partition_list_t *revoked = rd_kafka_topic_partition_list_new(1);
        size_t i;

        rd_kafka_topic_partition_list_add(revoked, "topic", 1);
        CHECK(ck_batch_drop(batch, revoked) == PER_PARTITION);
        CHECK(ck_batch_drop(batch, revoked) == 0);
        ck_batch_compact(batch);
        CHECK(batch->cnt == TOTAL - PER_PARTITION);
        for (i = 0; i < batch->cnt; i++)
                CHECK(batch->rkmessages[i]->partition != 1);
        CHECK(ck_batch_drop(batch, NULL) == TOTAL - PER_PARTITION);
        ck_batch_compact(batch);
        CHECK(batch->cnt == 0);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        rd_kafka_topic_partition_list_destroy(revoked);
        ck_batch_destroy(batch);
        destroy_source(&source);
}

static void test_move_keeps_the_order_and_skips_returned_messages(void) {
        source_t source = new_source();
        ck_batch_t *batch = filled_batch(&source);
        ck_batch_t *into = ck_batch_new(1);
        rd_kafka_message_t *second = batch->rkmessages[1];

        /* The first message was returned, so it must not move. */
        ck_batch_release(batch->rkmessages, 1);
        batch->head = 1;
        CHECK(ck_batch_move(batch, into) == 0);
        CHECK(into->cnt == TOTAL - 1 && into->rkmessages[0] == second);
        CHECK(batch->cnt == 0);
        ck_batch_destroy(batch);
        ck_batch_destroy(into);
        ck_batch_destroy(NULL);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        destroy_source(&source);
}

static void test_only_returned_messages_count_as_read(void) {
        source_t source = new_source();
        ck_batch_t *batch = filled_batch(&source);
        int64_t expected[PARTITIONS] = {RD_KAFKA_OFFSET_INVALID, RD_KAFKA_OFFSET_INVALID,
                                        RD_KAFKA_OFFSET_INVALID};
        size_t i;

        CHECK(stored_offset(&source, 0) == RD_KAFKA_OFFSET_INVALID);
        for (i = 0; i < TOTAL / 2; i++)
                expected[batch->rkmessages[i]->partition] =
                    batch->rkmessages[i]->offset + 1;
        ck_batch_store_offsets(batch->rkmessages, TOTAL / 2);
        for (i = 0; i < PARTITIONS; i++)
                CHECK(stored_offset(&source, (int32_t)i) == expected[i]);
        ck_batch_destroy(batch);
        destroy_source(&source);
}

static void test_skip_destroys_messages(void) {
        source_t source = new_source();
        size_t skipped = 0;

        while (skipped < TOTAL)
                skipped += ck_batch_skip(source.queue, 100);
        CHECK(skipped == TOTAL);
        CHECK(ck_batch_skip(source.queue, 0) == 0);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        destroy_source(&source);
}

/* Checks that two batches have the same rows. */
static void check_same(const ck_batch_t *batch, const ck_batch_t *other) {
        size_t i;

        CHECK(batch->cnt - batch->head == other->cnt - other->head);
        for (i = 0; i < batch->cnt - batch->head; i++) {
                rd_kafka_headers_t *headers = ck_batch_headers(batch, i);
                rd_kafka_headers_t *others = ck_batch_headers(other, i);
                const void *value, *other_value;
                size_t len, other_len;
                ck_row_t row, same;

                ck_batch_row(batch, i, &row);
                ck_batch_row(other, i, &same);
                CHECK(strcmp(row.topic, same.topic) == 0);
                CHECK(row.partition == same.partition && row.offset == same.offset);
                CHECK(row.timestamp == same.timestamp && row.timestamp > 0);
                CHECK(row.timestamp_type == same.timestamp_type);
                CHECK(row.leader_epoch == same.leader_epoch && !same.err);
                CHECK(!row.value == !same.value && row.value_len == same.value_len);
                CHECK(!row.key == !same.key && row.key_len == same.key_len);
                CHECK(memcmp(row.value ? row.value : "", same.value ? same.value : "",
                             row.value_len) == 0);
                CHECK(memcmp(row.key ? row.key : "", same.key ? same.key : "",
                             row.key_len) == 0);
                CHECK(ck_batch_value(other, i, &len) == same.value &&
                      len == same.value_len);
                CHECK(ck_batch_key(other, i, &len) == same.key && len == same.key_len);
                CHECK(strcmp(ck_batch_topic(other, i), same.topic) == 0);
                CHECK(!headers == !others);
                if (!headers)
                        continue;
                CHECK(headers != others && rd_kafka_header_cnt(others) == HEADERS);
                CHECK(!rd_kafka_header_get_last(headers, "number", &value, &len));
                CHECK(!rd_kafka_header_get_last(others, "number", &other_value,
                                                &other_len));
                CHECK(len == other_len && memcmp(value, other_value, len) == 0);
        }
}

static void test_copy_has_the_same_rows_and_outlives_the_consumer(void) {
        source_t source = new_source();
        ck_loans_t *loans = ck_loans_new();
        ck_batch_t *gathered = filled_batch(&source);
        ck_batch_t *batch = ck_batch_take(gathered, TOTAL, loans);
        ck_batch_t *copy = ck_batch_copy(batch);
        ck_batch_t *again = ck_batch_copy(copy);
        rd_kafka_topic_partition_list_t *positions;
        int64_t offsets[TOTAL], copied[TOTAL];
        int32_t partitions[TOTAL];
        size_t i;

        CHECK(batch->cnt == TOTAL && gathered->cnt == gathered->head);
        check_same(batch, copy);
        check_same(copy, again);
        ck_batch_numbers(batch, 0, 1, TOTAL, CK_NUMBER_OFFSET, offsets);
        ck_batch_numbers(copy, TOTAL - 1, -1, TOTAL, CK_NUMBER_OFFSET, copied);
        ck_batch_numbers(copy, 0, 1, TOTAL, CK_NUMBER_PARTITION, partitions);
        for (i = 0; i < TOTAL; i++) {
                CHECK(offsets[i] == copied[TOTAL - 1 - i]);
                CHECK(partitions[i] == batch->rkmessages[i]->partition);
        }
        positions = ck_batch_positions(copy, TOTAL - 1, -1, TOTAL);
        CHECK(positions->cnt == PARTITIONS);
        for (i = 0; i < PARTITIONS; i++)
                CHECK(positions->elems[i].offset == PER_PARTITION);
        rd_kafka_topic_partition_list_destroy(positions);
        ck_batch_unref(copy);
        ck_batch_unref(batch);
        ck_batch_destroy(gathered);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        CHECK(ck_loans_settle(loans));
        ck_loans_destroy(loans);
        destroy_source(&source);
        CHECK(strcmp(ck_batch_topic(again, 0), "topic") == 0);
        ck_batch_unref(again);
        ck_batch_unref(NULL);
}

static void test_take_leaves_the_rest(void) {
        source_t source = new_source();
        ck_batch_t *gathered = filled_batch(&source);
        rd_kafka_message_t *next = gathered->rkmessages[7];
        ck_batch_t *batch = ck_batch_take(gathered, 7, NULL);

        CHECK(batch->cnt == 7);
        ck_batch_compact(gathered);
        CHECK(gathered->rkmessages[gathered->head] == next);
        CHECK(ck_batch_find_error(gathered) == TOTAL - 7);
        ck_batch_unref(batch);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == TOTAL - 7);
        ck_batch_destroy(gathered);
        destroy_source(&source);
}

static void *unpin(void *arg) {
        usleep(20000);
        ck_batch_unpin(arg);
        return NULL;
}

static void test_settle_waits_for_loans(void) {
        source_t source = new_source();
        ck_loans_t *loans = ck_loans_new();
        ck_batch_t *gathered = filled_batch(&source);
        ck_batch_t *batch = ck_batch_take(gathered, TOTAL, loans);
        pthread_t thread;

        CHECK(ck_loans_settle(NULL));
        ck_batch_pin(batch);
        ck_batch_unref(batch);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == TOTAL);
        CHECK(!ck_loans_settle(loans)); /* pinned: does not wait */
        CHECK(!pthread_create(&thread, NULL, unpin, batch));
        ck_loans_wait(loans);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        CHECK(!pthread_join(thread, NULL));
        CHECK(ck_loans_settle(loans));
        ck_loans_destroy(loans);
        ck_loans_destroy(NULL);
        ck_batch_destroy(gathered);
        destroy_source(&source);
}

/* All threads must get the same headers, whichever thread parses them. */
static pthread_barrier_t start;

static void *read_headers(void *arg) {
        rd_kafka_headers_t **seen = calloc(TOTAL, sizeof(*seen));
        size_t i;

        pthread_barrier_wait(&start);
        for (i = 0; i < TOTAL; i++)
                seen[i] = ck_batch_headers(arg, i);
        return seen;
}

static void test_headers_are_parsed_once_by_many_threads(void) {
        enum { THREADS = 4 };
        source_t source = new_source();
        ck_batch_t *gathered = filled_batch(&source);
        ck_batch_t *batch = ck_batch_take(gathered, TOTAL, NULL);
        pthread_t threads[THREADS];
        void *seen[THREADS];
        int i;

        CHECK(!pthread_barrier_init(&start, NULL, THREADS));
        for (i = 0; i < THREADS; i++)
                CHECK(!pthread_create(&threads[i], NULL, read_headers, batch));
        for (i = 0; i < THREADS; i++)
                CHECK(!pthread_join(threads[i], &seen[i]));
        for (i = 0; i < THREADS; i++) {
                CHECK(memcmp(seen[i], seen[0], TOTAL * sizeof(rd_kafka_headers_t *)) ==
                      0);
                if (i)
                        free(seen[i]);
        }
        free(seen[0]);
        pthread_barrier_destroy(&start);
        ck_batch_unref(batch);
        ck_batch_destroy(gathered);
        destroy_source(&source);
}

static void test_held_messages_return_in_order(void) {
        source_t source = new_source();
        ck_batch_t *batch = filled_batch(&source);
        ck_batch_t *held = ck_batch_new(1);
        rd_kafka_topic_partition_list_t *partitions =
            rd_kafka_topic_partition_list_new(2);
        size_t i;

        rd_kafka_topic_partition_list_add(partitions, "topic", 1);
        /* A partition that could not be paused. */
        rd_kafka_topic_partition_list_add(partitions, "topic", 2)->err =
            RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
        CHECK(ck_batch_hold(batch, partitions, held) == 0);
        CHECK(held->cnt == PER_PARTITION && ck_batch_first_offset(held, "topic", 1) == 0);
        CHECK(ck_batch_first_offset(batch, "topic", 1) == -1);
        CHECK(ck_batch_first_offset(batch, "topic", 2) == 0);
        ck_batch_compact(batch);
        CHECK(batch->cnt == TOTAL - PER_PARTITION);
        CHECK(ck_batch_hold(held, partitions, batch) == 0);
        ck_batch_compact(held);
        CHECK(held->cnt == 0 && batch->cnt == TOTAL);
        for (i = 0; i < PER_PARTITION; i++) {
                const rd_kafka_message_t *rkmessage =
                    batch->rkmessages[TOTAL - PER_PARTITION + i];
                CHECK(rkmessage->partition == 1 && rkmessage->offset == (int64_t)i);
        }
        rd_kafka_topic_partition_list_destroy(partitions);
        ck_batch_destroy(held);
        ck_batch_destroy(batch);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        destroy_source(&source);
}

int main(void) {
        test_copy_has_the_same_rows_and_outlives_the_consumer();
        test_take_leaves_the_rest();
        test_settle_waits_for_loans();
        test_headers_are_parsed_once_by_many_threads();
        test_drop_removes_only_the_named_partitions();
        test_held_messages_return_in_order();
        test_move_keeps_the_order_and_skips_returned_messages();
        test_only_returned_messages_count_as_read();
        test_skip_destroys_messages();
        return 0;
}
