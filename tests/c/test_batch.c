#include "check.h"
#include "ck_batch.h"

enum { PARTITIONS = 3, PER_PARTITION = 10, TOTAL = PARTITIONS * PER_PARTITION };

typedef struct source_s {
        rd_kafka_t *producer; /* and the mock cluster's owner */
        rd_kafka_t *consumer;
        rd_kafka_queue_t *queue;
} source_t;

/* A consumer that is assigned every partition of a filled topic. */
static source_t new_source(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *partitions;
        rd_kafka_mock_cluster_t *mock;
        rd_kafka_topic_t *rkt;
        source_t source;
        char value[16];
        int i;

        check_set(conf, "linger.ms", "0");
        source.producer = check_client(RD_KAFKA_PRODUCER, conf);
        mock = rd_kafka_mock_cluster_new(source.producer, 1);
        CHECK(rd_kafka_mock_topic_create(mock, "topic", PARTITIONS, 1) == 0);
        CHECK(rd_kafka_brokers_add(source.producer, rd_kafka_mock_cluster_bootstraps(mock)) > 0);
        rkt = rd_kafka_topic_new(source.producer, "topic", NULL);
        for (i = 0; i < TOTAL; i++) {
                snprintf(value, sizeof(value), "%d", i);
                CHECK(rd_kafka_produce(rkt, i % PARTITIONS, RD_KAFKA_MSG_F_COPY, value,
                                       strlen(value), NULL, 0, NULL) == 0);
        }
        rd_kafka_topic_destroy(rkt);
        CHECK(rd_kafka_flush(source.producer, 10000) == 0);

        conf = rd_kafka_conf_new();
        check_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(mock));
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
        rd_kafka_destroy(source->producer);
}

static ck_batch_t *filled_batch(source_t *source) {
        ck_batch_t *batch = ck_batch_new(1);

        while (batch->cnt < TOTAL) {
                CHECK(ck_batch_reserve(batch, TOTAL - batch->cnt) == 0);
                size_t filled = ck_batch_fill(batch, source->queue, 10000, TOTAL - batch->cnt);
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

static void test_drop_takes_the_partitions_named_and_no_others(void) {
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

static void test_move_keeps_the_order_and_what_was_there(void) {
        source_t source = new_source();
        ck_batch_t *batch = filled_batch(&source);
        ck_batch_t *into = ck_batch_new(1);
        rd_kafka_message_t *second = batch->rkmessages[1];

        /* The first is handed over: it must not move. */
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

static void test_only_what_is_handed_over_counts_as_read(void) {
        source_t source = new_source();
        ck_batch_t *batch = filled_batch(&source);
        int64_t expected[PARTITIONS] = {RD_KAFKA_OFFSET_INVALID, RD_KAFKA_OFFSET_INVALID,
                                        RD_KAFKA_OFFSET_INVALID};
        size_t i;

        CHECK(stored_offset(&source, 0) == RD_KAFKA_OFFSET_INVALID);
        for (i = 0; i < TOTAL / 2; i++)
                expected[batch->rkmessages[i]->partition] = batch->rkmessages[i]->offset + 1;
        ck_batch_store_offsets(batch->rkmessages, TOTAL / 2);
        for (i = 0; i < PARTITIONS; i++)
                CHECK(stored_offset(&source, (int32_t)i) == expected[i]);
        ck_batch_destroy(batch);
        destroy_source(&source);
}

static void test_skip_destroys_what_comes(void) {
        source_t source = new_source();
        size_t skipped = 0;

        while (skipped < TOTAL)
                skipped += ck_batch_skip(source.queue, 100);
        CHECK(skipped == TOTAL);
        CHECK(ck_batch_skip(source.queue, 0) == 0);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        destroy_source(&source);
}

int main(void) {
        test_drop_takes_the_partitions_named_and_no_others();
        test_move_keeps_the_order_and_what_was_there();
        test_only_what_is_handed_over_counts_as_read();
        test_skip_destroys_what_comes();
        return 0;
}
