/* JSON and base64, read and written. */
#include "ck_base64.h"
#include "ck_json.h"
#include "envelopes.h"

/* -- base64 */

static const char *base64_of(const char *bytes, size_t len) {
        static char text[64];

        *ck_base64_write(text, bytes, len) = '\0';
        CHECK(strlen(text) == ck_base64_size(len));
        return text;
}

static void check_base64(const char *text, const char *expected) {
        char room[64], *into = room;

        CHECK(!ck_base64_read(text, strlen(text), &into));
        CHECK((size_t)(into - room) == strlen(expected));
        CHECK(!memcmp(room, expected, strlen(expected)));
}

static void test_base64(void) {
        static const char *const wrong[] = {"Y",     "YQ",      "YQ=",      "=",
                                            "Y===",  "YQ===",   "YQ==YQ==", "YW=J",
                                            "YWJj=", "YW-j",    "YW_j",     "YW\x80j",
                                            "YWJjZ", "YQ==\x01"};
        char room[64], *into;
        size_t i;

        CHECK(!strcmp(base64_of("", 0), ""));
        CHECK(!strcmp(base64_of("a", 1), "YQ=="));
        CHECK(!strcmp(base64_of("ab", 2), "YWI="));
        CHECK(!strcmp(base64_of("abc", 3), "YWJj"));
        CHECK(!strcmp(base64_of("\xff\xfe\xfd\xfc", 4), "//79/A=="));
        check_base64("", "");
        check_base64("YQ==", "a");
        check_base64("YWI=", "ab");
        check_base64("YWJjZGVm", "abcdef");
        check_base64(" YW\r\nI\t= \n", "ab");
        check_base64("YR==", "a"); /* unused bits are ignored */
        for (i = 0; i < COUNT(wrong); i++) {
                into = room;
                CHECK(ck_base64_read(wrong[i], strlen(wrong[i]), &into));
                CHECK(into == room);
        }
        into = room;
        CHECK(ck_base64_run("YWJjZGVmZ\"==", 12, &into) == 8);
        CHECK(into == room + 6 && !memcmp(room, "abcdef", 6));
}

/* Every length, thus every remainder of a block, with an invalid character at every
 * place. */
static void test_base64_of_every_length(void) {
        uint8_t bytes[150];
        size_t len, i;

        for (i = 0; i < sizeof(bytes); i++)
                bytes[i] = (uint8_t)(i * 89 + 7);
        for (len = 0; len <= sizeof(bytes); len++) {
                size_t size = ck_base64_size(len), whole = len / 3 * 4;
                char *exact = malloc(len ? len : 1), *text = malloc(size ? size : 1);
                char *room = malloc(len ? len : 1), *into = room;

                memcpy(exact, bytes, len);
                CHECK(ck_base64_write(text, exact, len) == text + size);
                CHECK(!ck_base64_read(text, size, &into));
                CHECK(into == room + len && !memcmp(room, bytes, len));
                into = room;
                CHECK(ck_base64_run(text, size, &into) == whole);
                CHECK(into == room + len / 3 * 3 && !memcmp(room, bytes, len / 3 * 3));
                for (i = 0; i < whole; i++) {
                        char was = text[i];

                        text[i] = i % 2 ? '=' : '\x80';
                        into = room;
                        CHECK(ck_base64_run(text, size, &into) == i / 4 * 4);
                        CHECK(into == room + i / 4 * 3);
                        text[i] = was;
                }
                free(exact);
                free(text);
                free(room);
        }
}

/* -- JSON */

static void test_json_strings_are_written_and_read(void) {
        static const char *const texts[] = {
            "",
            "plain",
            "a \"quoted\" word",
            "back\\slash",
            "\b\f\n\r\t\x01\x1f and more than eight of them",
            "\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80",
            "longer than eight bytes, then \xc3\xa9, and then eight more \"",
        };
        size_t i;

        for (i = 0; i < COUNT(texts); i++) {
                char written[512], room[512];
                ck_bytes_t string;
                ck_json_t json = {.at = written, .room = room};

                written[0] = '"';
                json.end = ck_json_write(written + 1, span(texts[i]));
                CHECK((size_t)(json.end - written) == 1 + ck_json_size(span(texts[i])));
                written[json.end++ - written] = '"';
                CHECK(ck_json_string(&json, &string));
                CHECK(json.at == json.end && is(string, texts[i]));
                CHECK(ck_json_is_utf8(span(texts[i])));
        }
}

static bool reads(ck_bytes_t text, ck_json_t *json) {
        ck_bytes_t copy = copy_of(text);
        char *room = malloc(text.len + 1);
        bool whole;

        json->at = copy.ptr;
        json->end = json->at + text.len;
        json->room = room;
        json->problem = NULL;
        whole = ck_json_skip(json) && ck_json_peek(json) < 0;
        CHECK(json->at >= (const char *)copy.ptr && json->at <= json->end);
        CHECK(json->room == room);
        free(room);
        free((void *)copy.ptr);
        return whole;
}

static void test_json_values(void) {
        static const char *const right[] = {
            "null",
            "true",
            " false ",
            "0",
            "-0",
            "12",
            "-1.5e+10",
            "1E5",
            "\"\"",
            "[]",
            "{}",
            "[1, 2,[], {}]",
            "{\"a\" : [{\"b\":null}, \"c\"] , \"a\":1}",
            "\t\r\n 1",
            "\"\\u00e9\\ud83d\\ude00\\u0000\"",
            "\"\\/\\b\"",
            "\"\xc3\xa9\xf4\x8f\xbf\xbf\"",
        };
        static const char *const wrong[] = {
            "",
            " ",
            "nul",
            "nulll",
            "True",
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "0x1",
            "NaN",
            "Infinity",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "{\"a\":}",
            "{1:1}",
            "{\"a\":1]",
            "[1}",
            "{\"a\":1",
            "{,}",
            "\"",
            "\"a",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\ud800\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\"\\ud800\\ud800\"",
            "\"\n\"",
            "\"\x1f\"",
            "\"\xc3\"",
            "\"\xc0\x80\"",
            "\"\xed\xa0\x80\"",
            "\"\xe0\x80\x80\"",
            "\"\xf0\x80\x80\x80\"",
            "\"\xf4\x90\x80\x80\"",
            "\"\xff\"",
            "1 1",
            "[]]",
            "/**/1",
            "'a'",
        };
        static const char with_nul[] = {'"', '\\', '\0', '"'};
        ck_bytes_t nul = {with_nul, sizeof(with_nul)};
        ck_json_t json;
        size_t i;

        for (i = 0; i < COUNT(right); i++)
                CHECK(reads(span(right[i]), &json));
        for (i = 0; i < COUNT(wrong); i++)
                CHECK(!reads(span(wrong[i]), &json));
        CHECK(!reads(nul, &json));
}

static void test_json_nesting_is_limited(void) {
        char text[2 * CK_JSON_DEPTH + 3];
        ck_json_t json;
        int depth;

        for (depth = CK_JSON_DEPTH; depth <= CK_JSON_DEPTH + 1; depth++) {
                memset(text, '[', (size_t)depth);
                memset(text + depth, ']', (size_t)depth);
                text[2 * (size_t)depth] = '\0';
                CHECK(reads(span(text), &json) == (depth == CK_JSON_DEPTH));
        }
        CHECK(json.problem);
}

int main(void) {
        test_base64();
        test_base64_of_every_length();
        test_json_strings_are_written_and_read();
        test_json_values();
        test_json_nesting_is_limited();
        return 0;
}
