/* Envelopes in headers, and packed headers. */
#include <stdbool.h>

#include "check.h"
#include "ck_envelope.h"

static ck_bytes_t span(const char *text) {
        ck_bytes_t bytes = {text, text ? strlen(text) : 0};

        return bytes;
}

static bool is(ck_bytes_t bytes, const char *text) {
        if (!text)
                return !bytes.ptr;
        return bytes.ptr && bytes.len == strlen(text) &&
               !memcmp(bytes.ptr, text, bytes.len);
}

static ck_envelope_t read_of(const char *const (*headers)[2]) {
        ck_envelope_t read;
        int rank = 0;

        memset(&read, 0, sizeof(read));
        for (; (*headers)[0]; headers++)
                ck_envelope_header(&read, &rank, span((*headers)[0]),
                                   span((*headers)[1]));
        return read;
}

static void test_the_trace_id_is_that_of_the_best_header(void) {
        static const char *const all[][2] = {
            {"correlation_id", "c"}, {"message_type", "first"},
            {"trace_id", NULL},      {"trace_id", "t"},
            {"trace_id", "u"},       {"message_type", "t"},
            {"correlation_id", "d"}, {NULL, NULL}};
        static const char *const older[][2] = {
            {"trace_id", NULL}, {"correlation_id", "c"}, {NULL, NULL}};
        static const char *const others[][2] = {{"traceparent", "c"},
                                                {"message_type", NULL},
                                                {"message_typ", "t"},
                                                {"message_type", "t"},
                                                {"", "t"},
                                                {NULL, NULL}};
        ck_envelope_t read;

        read = read_of(all);
        CHECK(is(read.trace_id, "t") && is(read.message_type, "first"));
        read = read_of(older);
        CHECK(is(read.trace_id, "c") && !read.message_type.ptr);
        read = read_of(others);
        CHECK(!read.trace_id.ptr && !read.message_type.ptr);
}

static void test_packed_headers_keep_the_added_values(void) {
        ck_pack_t pack = {0};
        uint32_t at[3];
        char *block;
        int i, k;

        CHECK(!ck_pack_take(&pack));
        for (i = 0; i < 3; i++) {
                rd_kafka_headers_t *headers = rd_kafka_headers_new(4);
                char name[32];

                for (k = 0; k < i; k++) {
                        snprintf(name, sizeof(name), "n%d%d", i, k);
                        rd_kafka_header_add(headers, name, -1, k ? "value" : NULL,
                                            k ? 5 : 0);
                }
                rd_kafka_header_add(headers, "", 0, "", 0);
                CHECK(ck_pack_add(&pack, headers, &at[i]) == 0);
                rd_kafka_headers_destroy(headers);
        }
        block = ck_pack_take(&pack);
        CHECK(block && !pack.block);
        for (i = 0; i < 3; i++) {
                const char *place = block + at[i];
                ck_bytes_t name, value;

                CHECK(ck_pack_cnt(&place) == (uint32_t)i + 1);
                for (k = 0; k < i; k++) {
                        ck_pack_next(&place, &name, &value);
                        CHECK(name.len == 3 && !strcmp(name.ptr, k        ? "n21"
                                                                 : i == 1 ? "n10"
                                                                          : "n20"));
                        CHECK(is(value, k ? "value" : NULL));
                }
                ck_pack_next(&place, &name, &value);
                CHECK(is(name, "") && is(value, ""));
        }
        free(block);
}

int main(void) {
        test_the_trace_id_is_that_of_the_best_header();
        test_packed_headers_keep_the_added_values();
        return 0;
}
