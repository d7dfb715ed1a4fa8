#include "ck_json.h"

#include <stdint.h>
#include <string.h>

#include "ck_utf8.h"

static bool ck_json_fail(ck_json_t *json, const char *problem) {
        json->problem = problem;
        return false;
}

/* -- strings */

#define CK_JSON_ONES UINT64_C(0x0101010101010101)
#define CK_JSON_TOPS UINT64_C(0x8080808080808080)

/* Whether any of eight bytes is a quote, a backslash, a control character or not ASCII.
 * Bytes above such a byte may be flagged falsely. */
static inline bool ck_json_is_special(uint64_t eight) {
        uint64_t quote = eight ^ (CK_JSON_ONES * '"');
        uint64_t backslash = eight ^ (CK_JSON_ONES * '\\');

        return (eight | (eight - CK_JSON_ONES * 0x20) | (quote - CK_JSON_ONES) |
                (backslash - CK_JSON_ONES)) &
               CK_JSON_TOPS;
}

/* The first special byte from `at` on, or end. */
static const char *ck_json_plain(const char *at, const char *end) {
        uint64_t eight;

        for (; end - at >= 8; at += 8) {
                memcpy(&eight, at, 8);
                if (ck_json_is_special(eight))
                        break;
        }
        while (at < end && (uint8_t)*at >= 0x20 && (uint8_t)*at < 0x80 && *at != '"' &&
               *at != '\\')
                at++;
        return at;
}

bool ck_json_is_utf8(ck_bytes_t string) {
        const uint8_t *at = string.ptr, *end = at + string.len;

        while (at < end) {
                int step = ck_utf8_step(at, end);

                if (step < 0)
                        return false;
                at += step;
        }
        return true;
}

/* The number of the four hexadecimal digits at `at`, -1 if they are invalid. */
static int32_t ck_json_unit(const char *at, const char *end) {
        int32_t unit = 0;
        int i;

        if (end - at < 4)
                return -1;
        for (i = 0; i < 4; i++) {
                char c = at[i];

                if (c >= '0' && c <= '9')
                        unit = unit << 4 | (c - '0');
                else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
                        unit = unit << 4 | ((c | 0x20) - 'a' + 10);
                else
                        return -1;
        }
        return unit;
}

static char *ck_json_put(char *into, uint32_t character) {
        if (character < 0x80) {
                *into++ = (char)character;
        } else if (character < 0x800) {
                *into++ = (char)(0xc0 | character >> 6);
                *into++ = (char)(0x80 | (character & 0x3f));
        } else if (character < 0x10000) {
                *into++ = (char)(0xe0 | character >> 12);
                *into++ = (char)(0x80 | (character >> 6 & 0x3f));
                *into++ = (char)(0x80 | (character & 0x3f));
        } else {
                *into++ = (char)(0xf0 | character >> 18);
                *into++ = (char)(0x80 | (character >> 12 & 0x3f));
                *into++ = (char)(0x80 | (character >> 6 & 0x3f));
                *into++ = (char)(0x80 | (character & 0x3f));
        }
        return into;
}

/* Writes the escape whose backslash is at json->at to json->room. */
static bool ck_json_escape(ck_json_t *json) {
        static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
        const char *found;
        int32_t unit, low;

        if (json->end - json->at < 2)
                return ck_json_fail(json, "a string without an end");
        if (json->at[1] != 'u') {
                if (!json->at[1] || !(found = strchr(names, json->at[1])))
                        return ck_json_fail(json, "an invalid escape");
                *json->room++ = meant[found - names];
                json->at += 2;
                return true;
        }
        if ((unit = ck_json_unit(json->at + 2, json->end)) < 0)
                return ck_json_fail(json, "\\u without four hexadecimal digits");
        if (unit >= 0xdc00 && unit <= 0xdfff)
                return ck_json_fail(json, "an unpaired surrogate");
        if (unit >= 0xd800 && unit <= 0xdbff) {
                if (json->end - json->at < 12 || json->at[6] != '\\' ||
                    json->at[7] != 'u' ||
                    (low = ck_json_unit(json->at + 8, json->end)) < 0xdc00 ||
                    low > 0xdfff)
                        return ck_json_fail(json, "an unpaired surrogate");
                unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                json->at += 6;
        }
        json->at += 6;
        json->room = ck_json_put(json->room, (uint32_t)unit);
        return true;
}

bool ck_json_string(ck_json_t *json, ck_bytes_t *string) {
        const char *copied_to = ++json->at; /* room, if set, has all before it */
        char *room = NULL;
        size_t len;
        int step;

        string->ptr = json->at;
        for (;;) {
                json->at = ck_json_plain(json->at, json->end);
                if (json->at == json->end)
                        return ck_json_fail(json, "a string without an end");
                if (*json->at != '"' && *json->at != '\\') {
                        if ((uint8_t)*json->at < 0x20)
                                return ck_json_fail(json,
                                                    "a control character in a string");
                        step = ck_utf8_step((const uint8_t *)json->at,
                                            (const uint8_t *)json->end);
                        if (step < 0)
                                return ck_json_fail(json, "invalid UTF-8");
                        json->at += step;
                        continue;
                }
                if (*json->at == '\\' || room) {
                        if (!room)
                                room = json->room;
                        len = (size_t)(json->at - copied_to);
                        memcpy(json->room, copied_to, len);
                        json->room += len;
                }
                if (*json->at == '"')
                        break;
                if (!ck_json_escape(json))
                        return false;
                copied_to = json->at;
        }
        if (room)
                string->ptr = room;
        string->len =
            (size_t)((room ? json->room : json->at) - (const char *)string->ptr);
        json->at++;
        return true;
}

/* -- other values */

int ck_json_peek(ck_json_t *json) {
        while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' ||
                                        *json->at == '\r' || *json->at == '\t'))
                json->at++;
        return json->at < json->end ? (uint8_t)*json->at : -1;
}

bool ck_json_take(ck_json_t *json, char c, const char *problem) {
        if (ck_json_peek(json) != c)
                return ck_json_fail(json, problem);
        json->at++;
        return true;
}

static bool ck_json_word(ck_json_t *json, const char *word) {
        size_t len = strlen(word);

        if ((size_t)(json->end - json->at) < len || memcmp(json->at, word, len) != 0)
                return false;
        json->at += len;
        return true;
}

bool ck_json_null(ck_json_t *json) {
        return ck_json_word(json, "null");
}

/* Skips digits. Returns whether there were any. */
static bool ck_json_digits(ck_json_t *json) {
        const char *start = json->at;

        while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
                json->at++;
        return json->at > start;
}

static bool ck_json_is(const ck_json_t *json, char c) {
        return json->at < json->end && *json->at == c;
}

static bool ck_json_number(ck_json_t *json) {
        static const char problem[] = "an invalid number";

        if (ck_json_is(json, '-'))
                json->at++;
        if (ck_json_is(json, '0'))
                json->at++;
        else if (!ck_json_digits(json))
                return ck_json_fail(json, problem);
        if (ck_json_is(json, '.')) {
                json->at++;
                if (!ck_json_digits(json))
                        return ck_json_fail(json, problem);
        }
        if (ck_json_is(json, 'e') || ck_json_is(json, 'E')) {
                json->at++;
                if (ck_json_is(json, '+') || ck_json_is(json, '-'))
                        json->at++;
                if (!ck_json_digits(json))
                        return ck_json_fail(json, problem);
        }
        return true;
}

/* Skips a string. */
static bool ck_json_skip_string(ck_json_t *json) {
        char *room = json->room;
        ck_bytes_t string;
        bool is_string = ck_json_string(json, &string);

        json->room = room;
        return is_string;
}

/* Skips a member's name and its colon. */
static bool ck_json_skip_name(ck_json_t *json) {
        if (ck_json_peek(json) != '"')
                return ck_json_fail(json, "expected the name of a member");
        return ck_json_skip_string(json) &&
               ck_json_take(json, ':', "expected a colon after the name");
}

bool ck_json_skip(ck_json_t *json) {
        uint64_t objects = 0; /* a bit for each level: whether it is an object */
        int depth = 0;

        for (;;) {
                int c = ck_json_peek(json);

                if (c == '{' || c == '[') {
                        if (depth == CK_JSON_DEPTH)
                                return ck_json_fail(json, "values are nested too deep");
                        depth++;
                        objects = objects << 1 | (c == '{');
                        json->at++;
                        if (ck_json_peek(json) != (c == '{' ? '}' : ']')) {
                                if (c == '{' && !ck_json_skip_name(json))
                                        return false;
                                continue;
                        }
                } else if (c == '"') {
                        if (!ck_json_skip_string(json))
                                return false;
                } else if (c == '-' || (c >= '0' && c <= '9')) {
                        if (!ck_json_number(json))
                                return false;
                } else if (!ck_json_word(json, "true") && !ck_json_word(json, "false") &&
                           !ck_json_word(json, "null")) {
                        return ck_json_fail(json, "expected a JSON value");
                }
                /* After a value, or before the end of an empty array or object. */
                for (;;) {
                        if (!depth)
                                return true;
                        c = ck_json_peek(json);
                        if (c != (objects & 1 ? '}' : ']'))
                                break;
                        json->at++;
                        depth--;
                        objects >>= 1;
                }
                if (c != ',')
                        return ck_json_fail(json,
                                            "expected a comma or the end after a value");
                json->at++;
                if ((objects & 1) && !ck_json_skip_name(json))
                        return false;
        }
}

/* -- writing */

/* The width of a byte in a JSON string. Control characters have short escapes or long
 * ones. */
static size_t ck_json_width(uint8_t byte) {
        if (byte == '"' || byte == '\\' || byte == '\n' || byte == '\r' || byte == '\t')
                return 2;
        return byte < 0x20 ? 6 : 1;
}

/* As ck_json_plain(), but UTF-8 is not special. */
static const char *ck_json_unescaped(const char *at, const char *end) {
        while ((at = ck_json_plain(at, end)) < end && (uint8_t)*at >= 0x80)
                at++;
        return at;
}

size_t ck_json_size(ck_bytes_t string) {
        const char *at = string.ptr, *end = at + string.len;
        size_t size = string.len;

        while ((at = ck_json_unescaped(at, end)) < end)
                size += ck_json_width((uint8_t)*at++) - 1;
        return size;
}

char *ck_json_write(char *into, ck_bytes_t string) {
        static const char hex[] = "0123456789abcdef";
        const char *at = string.ptr, *end = at + string.len;

        for (;;) {
                const char *plain = at;
                uint8_t byte;

                at = ck_json_unescaped(at, end);
                memcpy(into, plain, (size_t)(at - plain));
                into += at - plain;
                if (at == end)
                        return into;
                byte = (uint8_t)*at++;
                *into++ = '\\';
                if (ck_json_width(byte) == 2) {
                        *into++ = (char)(byte == '\n'   ? 'n'
                                         : byte == '\r' ? 'r'
                                         : byte == '\t' ? 't'
                                                        : byte);
                        continue;
                }
                memcpy(into, "u00", 3);
                into[3] = hex[byte >> 4];
                into[4] = hex[byte & 15];
                into += 5;
        }
}
