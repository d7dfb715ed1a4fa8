/* The encoded forms of envelopes. */
#include "ck_envelope.h"
#include "ck_json.h"
#include "envelopes.h"

/* -- envelopes */

static void test_encoded_values_are_decoded(void) {
        ck_bytes_t ids[] = {span("1"), span("a \"b\" \xc3\xa9"), {NULL, 0}};
        ck_bytes_t traces[] = {span("trace"), {NULL, 0}, span("")};
        ck_bytes_t types[] = {span("Order.Created"), span("\x01"), {NULL, 0}};
        ck_bytes_t bodies[] = {span("{\"a\": 1}"), {"\0\xff", 2}, {NULL, 0}};
        ck_sent_t sent[] = {{0, 0, CK_SENT_NOT, 0},
                            {1500000, 0, CK_SENT_LOCAL, 0},
                            {1500000, -3600, CK_SENT_OFFSET, 0}};
        int64_t expected[] = {1700000000123456, 1500000 - 3600000000,
                              1500000 + 3600000000};
        ck_envelopes_t envelopes = {3,      ids,  traces,          types,
                                    bodies, sent, 1700000000123456};
        ck_envelope_t read[3];
        ck_bytes_t values[3];
        char *arena, *read_arena;
        size_t i;

        set_zone("CET-1");
        CHECK(ck_envelope_encode(&envelopes, &arena, values) == 0);
        CHECK(is(values[2],
                 "{\"message_id\":null,\"trace_id\":\"\",\"message_type\":null,"
                 "\"sent_time\":\"1970-01-01T00:00:01.500000-01:00\",\"message\":null}"));
        memset(read, 0, sizeof(read));
        CHECK(ck_envelope_decode(values, 3, read, &read_arena) == 0);
        for (i = 0; i < 3; i++) {
                CHECK(!read[i].problem);
                CHECK(is(read[i].message_type, types[i].ptr));
                CHECK(is(read[i].message_id, ids[i].ptr));
                CHECK(is(read[i].trace_id, traces[i].ptr));
                CHECK(!read[i].body.ptr == !bodies[i].ptr &&
                      read[i].body.len == bodies[i].len);
                CHECK(!bodies[i].ptr || !bodies[i].len ||
                      !memcmp(read[i].body.ptr, bodies[i].ptr, bodies[i].len));
                CHECK(read[i].is_sent && !read[i].is_local &&
                      read[i].sent_us == expected[i]);
        }
        free(arena);
        free(read_arena);
}

/* Decodes one value; the caller frees *arena. */
static ck_envelope_t decoded(ck_bytes_t value, char **arena) {
        ck_envelope_t read;

        memset(&read, 0, sizeof(read));
        CHECK(ck_envelope_decode(&value, 1, &read, arena) == 0);
        CHECK(!read.problem || read.at <= value.len);
        return read;
}

static void test_json_of_other_writers_is_read(void) {
        ck_envelope_t read;
        char *arena;

        read = decoded(span(" { \"x\" : [1, {\"message\":\"no\"}] , \"mess\\u0061ge\" : "
                            "\"YQ\\u003d=\" , "
                            "\"sent_time\":\"2024-01-02T03:04:05\",\n\"trace_id\":"
                            "\"t\\n\\ud83d\\ude00\"} "),
                       &arena);
        CHECK(!read.problem && is(read.body, "a") &&
              is(read.trace_id, "t\n\xf0\x9f\x98\x80"));
        CHECK(read.is_sent && read.is_local && !read.message_id.ptr &&
              !read.message_type.ptr);
        free(arena);
        read = decoded(span("{\"message\":\"YW\\/+\\nYQ==\",\"correlation_id\":\"c\"}"),
                       &arena);
        CHECK(!read.problem && read.body.len == 4 && is(read.trace_id, "c"));
        free(arena);
        read = decoded(
            span("{\"correlation_id\":\"c\",\"trace_id\":\"t\",\"sent_time\":null}"),
            &arena);
        CHECK(!read.problem && is(read.trace_id, "t") && !read.is_sent);
        free(arena);
        read = decoded(
            span("{\"message\":\"\",\"message_id\":\"1\",\"message_id\":\"2\"}"), &arena);
        CHECK(!read.problem && is(read.body, "") && is(read.message_id, "2"));
        free(arena);
        read = decoded(span("{}"), &arena);
        CHECK(!read.problem && !read.body.ptr);
        free(arena);
}

static void test_malformed_value_fails_only_its_record(void) {
        static const struct {
                const char *value, *field;
        } wrong[] = {
            {NULL, NULL},
            {"", NULL},
            {"null", NULL},
            {"[]", NULL},
            {"{", NULL},
            {"{}{}", NULL},
            {"{\"a\":1,}", NULL},
            {"{\"a\" 1}", NULL},
            {"{\"a\":tru}", NULL},
            {"{\"message_id\":1}", "message_id"},
            {"{\"trace_id\":{}}", "trace_id"},
            {"{\"message_type\":\"\xff\"}", "message_type"},
            {"{\"message\":1}", "message"},
            {"{\"message\":\"YQ\"}", "message"},
            {"{\"message\":\"YQ==", "message"},
            {"{\"message\":\"Y!==\"}", "message"},
            {"{\"message\":\"YQ=\\u00ff\"}", "message"},
            {"{\"sent_time\":\"yesterday\"}", "sent_time"},
            {"{\"sent_time\":1700000000}", "sent_time"},
        };
        ck_bytes_t values[COUNT(wrong) + 1];
        ck_envelope_t read[COUNT(wrong) + 1];
        char *arena;
        size_t i;

        for (i = 0; i < COUNT(wrong); i++)
                values[i] = wrong[i].value ? copy_of(span(wrong[i].value)) : span(NULL);
        values[i] = span("{\"message_id\":\"1\\u0041\"}");
        memset(read, 0, sizeof(read));
        CHECK(ck_envelope_decode(values, COUNT(values), read, &arena) == 0);
        for (i = 0; i < COUNT(wrong); i++) {
                CHECK(read[i].problem && read[i].at <= values[i].len);
                CHECK(!read[i].field == !wrong[i].field);
                CHECK(!read[i].field || !strcmp(read[i].field, wrong[i].field));
                free((void *)values[i].ptr);
        }
        CHECK(!read[i].problem && is(read[i].message_id, "1A"));
        free(arena);
}

static uint32_t next_number(uint32_t *state) {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        return *state;
}

/* For any mutated value, only its own bytes are read, and the result is valid
 * UTF-8. */
static void test_mutated_values_are_read_or_refused(void) {
        static const char *const seeds[] = {
            "{\"message_id\":\"b5ab\\u00e9\",\"trace_id\":\"\\ud83d\\ude00\",\"message_"
            "type\":\"t\","
            "\"sent_time\":\"2024-01-02T03:04:05.123456+01:00\",\"message\":"
            "\"aGVsbG8gd29ybGQ=\"}",
            "{\"x\":[{\"y\":[1,-2.5e3,null,true,{}]},\"\xf0\x9f\x98\x80\\n\"],"
            "\"correlation_id\":\"c\","
            "\"message\":\"YQ\\u003d=\", \"message\" : null }",
        };
        static const char pieces[] = "\"\\{}[]:,u0d8=+/ \n\x80\xc3\xff-1eE.nt";
        uint32_t state = 2463534242;
        int round, accepted = 0;

        for (round = 0; round < 100000; round++) {
                const char *seed = seeds[next_number(&state) % COUNT(seeds)];
                size_t len = strlen(seed), i;
                char *text = malloc(len), *fitting;
                int changes = (int)(next_number(&state) % 4);
                ck_envelope_t read;
                ck_bytes_t value;
                char *arena;

                memcpy(text, seed, len);
                for (; changes; changes--) {
                        size_t at = next_number(&state) % len;

                        switch (next_number(&state) % 4) {
                        case 0:
                                text[at] = (char)next_number(&state);
                                break;
                        case 1:
                                text[at] =
                                    pieces[next_number(&state) % (sizeof(pieces) - 1)];
                                break;
                        case 2: /* a part of itself in another place */
                                i = next_number(&state) % len;
                                text[at] = text[i];
                                break;
                        default:
                                len = at ? at : 1;
                        }
                }
                fitting = realloc(text, len);
                CHECK(fitting);
                value.ptr = text = fitting;
                value.len = len;
                read = decoded(value, &arena);
                if (!read.problem) {
                        accepted++;
                        CHECK(!read.message_id.ptr || ck_json_is_utf8(read.message_id));
                        CHECK(!read.trace_id.ptr || ck_json_is_utf8(read.trace_id));
                        CHECK(!read.message_type.ptr ||
                              ck_json_is_utf8(read.message_type));
                }
                free(arena);
                free(text);
        }
        CHECK(accepted > 25000 && accepted < 75000);
}

/* -- headers */

static const char *trace_of(const char *const (*headers)[2], bool traceparent,
                            ck_envelope_t *read) {
        static char text[128];
        int rank = 0;

        memset(read, 0, sizeof(*read));
        for (; (*headers)[0]; headers++)
                ck_envelope_header(read, &rank, traceparent, span((*headers)[0]),
                                   span((*headers)[1]));
        if (!read->trace_id.ptr)
                return NULL;
        memcpy(text, read->trace_id.ptr, read->trace_id.len);
        text[read->trace_id.len] = '\0';
        return text;
}

#define PARENT "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

static void test_the_trace_id_is_that_of_the_best_header(void) {
        static const char *const all[][2] = {
            {"traceparent", PARENT}, {"correlation_id", "c"}, {"message_type", "first"},
            {"trace_id", NULL},      {"trace_id", "t"},       {"trace_id", "u"},
            {"message_type", "t"},   {"correlation_id", "d"}, {NULL, NULL}};
        static const char *const older[][2] = {{"trace_id", NULL},
                                               {"correlation_id", "c"},
                                               {"traceparent", PARENT},
                                               {NULL, NULL}};
        static const char *const others[][2] = {{"traceparent", PARENT},
                                                {"message_type", NULL},
                                                {"message_typ", "t"},
                                                {NULL, NULL}};
        ck_envelope_t read;

        CHECK(!strcmp(trace_of(all, true, &read), "t") && is(read.message_type, "first"));
        CHECK(!strcmp(trace_of(older, true, &read), "c"));
        CHECK(!strcmp(trace_of(others, true, &read), "0123456789abcdef0123456789abcdef"));
        CHECK(!trace_of(others, false, &read) && !read.message_type.ptr);
}

static void test_traceparents(void) {
        static const char *const wrong[] = {
            "",
            "00",
            "00-0123456789abcdef0123456789abcdef-0123456789abcdef-0",
            PARENT "-",
            PARENT "0",
            "ff"
            "-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
            "00-00000000000000000000000000000000-0123456789abcdef-01",
            "00-0123456789abcdef0123456789abcdef-0000000000000000-01",
            "00-0123456789ABCDEF0123456789abcdef-0123456789abcdef-01",
            "00-0123456789abcdef0123456789abcdef-0123456789abcdef-0x",
            "00_0123456789abcdef0123456789abcdef-0123456789abcdef-01",
        };
        ck_bytes_t ids[] = {span("0123456789ABCDEF0123456789abcdef"),
                            {NULL, 0},
                            span("short"),
                            span("00000000000000000000000000000000"),
                            span("0123456789abcdef0123456789abcdeg"),
                            span("fedcba9876543210fedcba9876543210")};
        char arena[COUNT(ids) * CK_TRACEPARENT];
        ck_bytes_t values[COUNT(ids)];
        int64_t starts[COUNT(ids) + 1];
        ck_envelope_t read;
        size_t i;

        for (i = 0; i < COUNT(wrong); i++) {
                ck_bytes_t copy = copy_of(span(wrong[i]));
                int rank = 0;

                memset(&read, 0, sizeof(read));
                ck_envelope_header(&read, &rank, true, span("traceparent"), copy);
                CHECK(!read.trace_id.ptr);
                free((void *)copy.ptr);
        }
        ck_envelope_traceparents(ids, COUNT(ids), 7, arena, values, starts);
        CHECK(starts[0] == 0 && starts[1] == 1 && starts[5] == 1 && starts[6] == 2);
        for (i = 0; i < 2; i++) {
                int rank = 0;

                memset(&read, 0, sizeof(read));
                CHECK(values[i].len == CK_TRACEPARENT);
                ck_envelope_header(&read, &rank, true, span("traceparent"), values[i]);
                CHECK(is(read.trace_id, i ? "fedcba9876543210fedcba9876543210"
                                          : "0123456789abcdef0123456789abcdef"));
        }
        CHECK(memcmp((const char *)values[0].ptr + 36, (const char *)values[1].ptr + 36,
                     16) != 0);
        /* A later version may append more after a dash. */
        static const char later[] =
            "01-0123456789abcdef0123456789abcdef-0123456789abcdef-00-more";
        int rank = 0;

        memset(&read, 0, sizeof(read));
        ck_envelope_header(&read, &rank, true, span("traceparent"), span(later));
        CHECK(read.trace_id.ptr == later + 3);
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
        test_encoded_values_are_decoded();
        test_json_of_other_writers_is_read();
        test_malformed_value_fails_only_its_record();
        test_mutated_values_are_read_or_refused();
        test_the_trace_id_is_that_of_the_best_header();
        test_traceparents();
        test_packed_headers_keep_the_added_values();
        return 0;
}
