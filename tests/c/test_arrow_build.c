/* Builds arrays of a mock cluster's messages, and fails every allocation, one per run. */
#include <errno.h>

#include "check.h"
#include "ck_arrow.h"

/* The builders, compiled with an allocator that fails on demand. */
static long allocations_left = -1;

static bool allocation_fails(void) {
        return allocations_left >= 0 && allocations_left-- == 0;
}

static void *test_calloc(size_t n, size_t size) {
        return allocation_fails() ? NULL : calloc(n, size);
}

static void *test_realloc(void *old, size_t size) {
        return allocation_fails() ? NULL : realloc(old, size);
}

#define calloc test_calloc
#define realloc test_realloc
#define ck_arrow_build test_arrow_build
#define ck_arrow_schema test_arrow_schema
#define ck_arrow_stream test_arrow_stream
#define ck_arrow_name test_arrow_name
#include "../../csrc/ck_arrow_build.c"
#include "../../csrc/ck_arrow_type.c"
#undef calloc
#undef realloc
#undef ck_arrow_build
#undef ck_arrow_schema
#undef ck_arrow_stream
#undef ck_arrow_name

enum { TOTAL = 1000, TIMESTAMP = 1600000000 };

static const ck_arrow_name_t all[] = {
    CK_ARROW_KEY,    CK_ARROW_VALUE,     CK_ARROW_TOPIC,          CK_ARROW_PARTITION,
    CK_ARROW_OFFSET, CK_ARROW_TIMESTAMP, CK_ARROW_TIMESTAMP_TYPE, CK_ARROW_HEADERS,
};

static bool is(ck_bytes_t bytes, const char *text) {
        if (!text)
                return !bytes.ptr;
        return bytes.ptr && bytes.len == strlen(text) &&
               !memcmp(bytes.ptr, text, bytes.len);
}

typedef struct source_s {
        rd_kafka_mock_cluster_t *mock;
        rd_kafka_t *producer; /* and the mock cluster's owner */
        rd_kafka_t *consumer;
        ck_batch_t *batch;
} source_t;

/* Record i has a key of i % 5 letters (none at 0), a value of i % 7 (none at 0), and i %
 * 3 headers. */
static void produce(rd_kafka_t *producer, rd_kafka_topic_t *rkt, int i) {
        rd_kafka_headers_t *headers = rd_kafka_headers_new(2);
        const char *key = i % 5 ? "kkkkkkk" : NULL;
        const char *value = i % 7 ? "vvvvvvv" : NULL;
        int j;

        for (j = 0; j < i % 3; j++)
                rd_kafka_header_add(headers, j ? "n\xff\xe2\x82m" : "one", -1,
                                    j ? NULL : "v", j ? 0 : 1);
        CHECK(rd_kafka_producev(
                  producer, RD_KAFKA_V_RKT(rkt), RD_KAFKA_V_PARTITION(0),
                  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                  RD_KAFKA_V_KEY((void *)key, (size_t)(i % 5)),
                  RD_KAFKA_V_VALUE((void *)value, (size_t)(value ? i % 7 - 1 : 0)),
                  RD_KAFKA_V_TIMESTAMP(TIMESTAMP + i), RD_KAFKA_V_HEADERS(headers),
                  RD_KAFKA_V_END) == 0);
}

static source_t new_source(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *partitions;
        rd_kafka_queue_t *queue;
        rd_kafka_topic_t *rkt;
        source_t source;
        int i;

        check_set(conf, "linger.ms", "0");
        source.producer = check_client(RD_KAFKA_PRODUCER, conf);
        source.mock = rd_kafka_mock_cluster_new(source.producer, 1);
        CHECK(rd_kafka_mock_topic_create(source.mock, "topic", 1, 1) == 0);
        CHECK(rd_kafka_brokers_add(source.producer,
                                   rd_kafka_mock_cluster_bootstraps(source.mock)) > 0);
        rkt = rd_kafka_topic_new(source.producer, "topic", NULL);
        for (i = 0; i < TOTAL; i++)
                produce(source.producer, rkt, i);
        rd_kafka_topic_destroy(rkt);
        CHECK(rd_kafka_flush(source.producer, 10000) == 0);

        conf = rd_kafka_conf_new();
        check_set(conf, "bootstrap.servers",
                  rd_kafka_mock_cluster_bootstraps(source.mock));
        check_set(conf, "group.id", "g");
        check_set(conf, "enable.auto.commit", "false");
        source.consumer = check_client(RD_KAFKA_CONSUMER, conf);
        CHECK(rd_kafka_poll_set_consumer(source.consumer) == 0);
        queue = rd_kafka_queue_get_consumer(source.consumer);
        partitions = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(partitions, "topic", 0)->offset = 0;
        CHECK(rd_kafka_assign(source.consumer, partitions) == 0);
        rd_kafka_topic_partition_list_destroy(partitions);
        source.batch = ck_batch_new(TOTAL);
        while (source.batch->cnt < TOTAL) {
                size_t filled =
                    ck_batch_fill(source.batch, queue, 10000, TOTAL - source.batch->cnt);
                CHECK(filled > 0);
                ck_batch_accept(source.batch, filled);
        }
        rd_kafka_queue_destroy(queue);
        return source;
}

static void destroy_source(source_t *source) {
        ck_batch_destroy(source->batch);
        CHECK(rd_kafka_consumer_close(source->consumer) == 0);
        rd_kafka_destroy(source->consumer);
        rd_kafka_mock_cluster_destroy(source->mock);
        rd_kafka_destroy(source->producer);
}

/* Reads an array of all columns with the reading half: row j is record first + j *
 * step. */
static void check_rows(const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int first, int step) {
        ck_column_t key, value, topic;
        ck_numbers_t partition = {0}, offset = {0}, timestamp = {.missing = -1},
                     type = {0};
        ck_headers_t headers;
        ck_arrow_problem_t problem;
        ck_arrow_view_t view, field[8];
        size_t i;

        CHECK(!ck_arrow_root(schema, array, &view, &problem));
        for (i = 0; i < 8; i++)
                CHECK(!ck_arrow_field(&view, (int64_t)i, &field[i], &problem));
        CHECK(!ck_arrow_column(&field[0], &key, &problem));
        CHECK(!ck_arrow_column(&field[1], &value, &problem));
        CHECK(!ck_arrow_column(&field[2], &topic, &problem));
        CHECK(!ck_arrow_numbers(&field[3], false, &partition, &problem));
        CHECK(!ck_arrow_numbers(&field[4], false, &offset, &problem));
        CHECK(!ck_arrow_numbers(&field[5], true, &timestamp, &problem));
        CHECK(!ck_arrow_numbers(&field[6], false, &type, &problem));
        CHECK(!ck_arrow_headers(&field[7], &headers, &problem));
        for (i = 0; i < (size_t)array->length; i++) {
                int n = first + (int)i * step;
                ck_bytes_t bytes = ck_column_get(&key, i);
                size_t at;

                CHECK(n % 5 ? bytes.len == (size_t)(n % 5) : !bytes.ptr);
                CHECK(!bytes.len || !memcmp(bytes.ptr, "kkkk", bytes.len));
                bytes = ck_column_get(&value, i);
                CHECK(n % 7 ? bytes.ptr && bytes.len == (size_t)(n % 7 - 1) : !bytes.ptr);
                CHECK(!bytes.len || !memcmp(bytes.ptr, "vvvvvv", bytes.len));
                CHECK(is(ck_column_get(&topic, i), "topic"));
                CHECK(ck_numbers_get(&partition, i) == 0);
                CHECK(ck_numbers_get(&offset, i) == n);
                CHECK(ck_numbers_get(&timestamp, i) == TIMESTAMP + n);
                CHECK(ck_numbers_get(&type, i) == 0);
                CHECK(ck_column_valid(headers.validity, (int64_t)i) == (n % 3 > 0));
                at = (size_t)headers.starts32[i];
                CHECK(headers.starts32[i + 1] - headers.starts32[i] == n % 3);
                if (n % 3)
                        CHECK(is(ck_column_get(&headers.keys, at), "one") &&
                              is(ck_column_get(&headers.values, at), "v"));
                if (n % 3 == 2)
                        CHECK(is(ck_column_get(&headers.keys, at + 1),
                                 "n\xef\xbf\xbd\xef\xbf\xbdm") &&
                              is(ck_column_get(&headers.values, at + 1), NULL));
        }
}

static void test_messages_become_an_array(source_t *source) {
        static const ptrdiff_t steps[] = {1, 3, -2};
        struct ArrowSchema schema;
        struct ArrowArray array;
        size_t built, i;

        CHECK(ck_arrow_schema(all, 8, &schema) == 0);
        for (i = 0; i < 3; i++) {
                size_t start = steps[i] > 0 ? 1 : TOTAL - 1;
                size_t cnt = TOTAL / (size_t)labs(steps[i]);

                CHECK(ck_arrow_build(source->batch, start, steps[i], cnt - 1, all, 8,
                                     CK_ARROW_MAX_BYTES, &built, &array) == 0);
                CHECK(built == cnt - 1 && array.length == (int64_t)built);
                check_rows(&schema, &array, (int)start, (int)steps[i]);
                array.release(&array);
                CHECK(!array.release);
        }
        schema.release(&schema);
        CHECK(!schema.release);
}

static void test_a_child_outlives_its_parent(source_t *source) {
        const ck_arrow_name_t names[] = {CK_ARROW_OFFSET, CK_ARROW_VALUE};
        struct ArrowArray array, child;
        struct ArrowSchema schema, child_schema;
        ck_arrow_problem_t problem;
        ck_arrow_view_t view;
        ck_column_t column;
        size_t built;

        CHECK(ck_arrow_schema(names, 2, &schema) == 0);
        CHECK(ck_arrow_build(source->batch, 0, 1, 20, names, 2, CK_ARROW_MAX_BYTES,
                             &built, &array) == 0);
        child = *array.children[1];
        array.children[1]->release = NULL;
        array.release(&array);
        child_schema = *schema.children[1];
        schema.children[1]->release = NULL;
        schema.release(&schema);
        CHECK(!strcmp(child_schema.name, "value"));
        CHECK(!ck_arrow_root(&child_schema, &child, &view, &problem));
        CHECK(!ck_arrow_column(&view, &column, &problem));
        CHECK(is(ck_column_get(&column, 6), "vvvvv"));
        child.release(&child);
        child_schema.release(&child_schema);
}

/* A column's bytes stay within the bound, and the stream omits nothing. */
static void test_a_stream_splits_what_an_array_cannot_hold(source_t *source) {
        struct ArrowArrayStream stream;
        struct ArrowSchema schema;
        struct ArrowArray array;
        int rows = 0, arrays = 0;
        size_t built;

        CHECK(ck_arrow_build(source->batch, 0, 1, TOTAL, all, 8, 100, &built, &array) ==
              0);
        CHECK(built > 0 && built < TOTAL && array.length == (int64_t)built);
        CHECK(((const int32_t *)array.children[2]->buffers[1])[built] == 100);
        array.release(&array);
        CHECK(ck_arrow_stream(source->batch, 0, 1, TOTAL, all, 8, 3000, &stream) == 0);
        CHECK(stream.get_schema(&stream, &schema) == 0);
        for (;;) {
                CHECK(stream.get_next(&stream, &array) == 0);
                if (!array.release)
                        break;
                check_rows(&schema, &array, rows, 1);
                rows += (int)array.length;
                array.release(&array);
                /* The stream frees the last one. */
                if (++arrays == 1)
                        CHECK(rows == 600);
        }
        CHECK(rows == TOTAL && arrays == 2);
        CHECK(!stream.get_last_error(&stream));
        schema.release(&schema);
        stream.release(&stream);
        CHECK(!stream.release);
        CHECK(ck_arrow_stream(source->batch, 0, 1, TOTAL, all, 8, 3000, &stream) == 0);
        stream.release(&stream); /* with arrays left in it */
        CHECK(ck_arrow_stream(source->batch, 0, 1, TOTAL, all, 8, 3, &stream) ==
              EOVERFLOW);
        CHECK(!stream.release);
        CHECK(ck_arrow_stream(source->batch, 0, 1, 0, all, 8, 3000, &stream) == 0);
        CHECK(stream.get_next(&stream, &array) == 0 && !array.release);
        stream.release(&stream);
}

/* Under a sanitizer this also finds leaks. */
static void test_no_memory_at_any_place_leaves_nothing(source_t *source) {
        struct ArrowArrayStream stream;
        struct ArrowSchema schema;
        struct ArrowArray array;
        size_t built;
        long n;
        int failed = 1;

        for (n = 0; failed; n++) {
                allocations_left = n;
                failed = test_arrow_build(source->batch, 0, 1, TOTAL, all, 8,
                                          CK_ARROW_MAX_BYTES, &built, &array);
                CHECK(!failed || (failed == ENOMEM && !array.release));
        }
        CHECK(n > 25);
        array.release(&array);
        for (n = 0, failed = 1; failed; n++) {
                allocations_left = n;
                failed = test_arrow_schema(all, 8, &schema);
                CHECK(!failed || (failed == ENOMEM && !schema.release));
        }
        schema.release(&schema);
        for (n = 0, failed = 1; failed; n++) {
                allocations_left = n;
                failed =
                    test_arrow_stream(source->batch, 0, 1, TOTAL, all, 8, 3000, &stream);
                CHECK(!failed || (failed == ENOMEM && !stream.release));
        }
        allocations_left = 0;
        CHECK(stream.get_schema(&stream, &schema) == ENOMEM && !schema.release);
        CHECK(stream.get_last_error(&stream));
        allocations_left = -1;
        stream.release(&stream);
}

/* A mock cluster cannot send these rows, but a copied batch has its own rows. */
static void test_unknown_values_are_null(void) {
        ck_row_t rows[] = {
            {.topic = "a",
             .timestamp = -1,
             .timestamp_type = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE},
            {.topic = "bc",
             .timestamp = -1,
             .timestamp_type = RD_KAFKA_TIMESTAMP_CREATE_TIME},
            {.topic = "a",
             .timestamp = -5,
             .timestamp_type = RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME},
            {.topic = "a",
             .timestamp = INT64_MAX,
             .timestamp_type = RD_KAFKA_TIMESTAMP_CREATE_TIME},
        };
        ck_batch_t batch = {.rows = rows, .cnt = 4, .refs = 1};
        struct ArrowArray array;
        const int64_t *timestamps;
        const int32_t *ends, *types;
        size_t built;

        CHECK(ck_arrow_build(&batch, 0, 1, 4, all, 8, CK_ARROW_MAX_BYTES, &built,
                             &array) == 0);
        CHECK(built == 4);
        ends = array.children[2]->buffers[1];
        CHECK(ends[0] == 0 && ends[1] == 1 && ends[2] == 3 && ends[3] == 4 &&
              ends[4] == 5);
        CHECK(!memcmp(array.children[2]->buffers[2], "abcaa", 5));
        CHECK(array.children[5]->null_count == 3);
        CHECK((*(const uint8_t *)array.children[5]->buffers[0] & 0xf) == 0x4);
        timestamps = array.children[5]->buffers[1];
        CHECK(timestamps[2] == -5000);
        types = array.children[6]->buffers[1];
        CHECK(types[0] == -1 && types[1] == 0 && types[2] == 1 && types[3] == 0);
        CHECK(array.children[0]->null_count == 4 && array.children[7]->null_count == 4);
        array.release(&array);
}

/* The bitmap of list items also grows after the last null. */
static void test_values_after_the_last_null_are_kept(void) {
        enum { ROWS = 2000 };
        static ck_row_t rows[ROWS];
        static rd_kafka_headers_t *headers[ROWS];
        const ck_arrow_name_t names[] = {CK_ARROW_HEADERS};
        ck_batch_t batch = {.rows = rows, .headers = headers, .cnt = ROWS, .refs = 1};
        const struct ArrowArray *values;
        struct ArrowArray array;
        size_t built;
        int i;

        for (i = 0; i < ROWS; i++) {
                rows[i].topic = "t";
                headers[i] = rd_kafka_headers_new(1);
                rd_kafka_header_add(headers[i], "n", 1, i == 1 ? NULL : "v",
                                    i == 1 ? 0 : 1);
        }
        CHECK(ck_arrow_build(&batch, 0, 1, ROWS, names, 1, CK_ARROW_MAX_BYTES, &built,
                             &array) == 0);
        values = array.children[0]->children[0]->children[1];
        CHECK(values->length == ROWS && values->null_count == 1);
        for (i = 0; i < ROWS; i++) {
                CHECK(ck_column_valid(values->buffers[0], i) == (i != 1));
                rd_kafka_headers_destroy(headers[i]);
        }
        array.release(&array);
}

int main(void) {
        source_t source = new_source();

        test_messages_become_an_array(&source);
        test_a_child_outlives_its_parent(&source);
        test_a_stream_splits_what_an_array_cannot_hold(&source);
        test_no_memory_at_any_place_leaves_nothing(&source);
        destroy_source(&source);
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        test_unknown_values_are_null();
        test_values_after_the_last_null_are_kept();
        return 0;
}
