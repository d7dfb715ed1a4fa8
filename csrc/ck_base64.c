#include "ck_base64.h"

#include <stdint.h>
#include <string.h>

static const char ck_base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* The 6 bits of each character; 0x80: invalid, 0x40: white space. */
#define NO 0x80
#define WS 0x40
static const uint8_t ck_base64_digits[256] = {
    NO, NO, NO, NO, NO, NO, NO, NO, NO, WS, WS, NO, NO, WS, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, WS, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, 62, NO, NO, NO, 63, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, NO, NO,
    NO, NO, NO, NO, NO, 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,
    15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, NO, NO, NO, NO, NO, NO, 26, 27, 28,
    29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48,
    49, 50, 51, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO,
    NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO};
#undef NO
#undef WS

char *ck_base64_write(char *into, const void *bytes, size_t len) {
        const uint8_t *at = bytes;

        for (; len >= 3; len -= 3, at += 3, into += 4) {
                unsigned three = (unsigned)(at[0] << 16 | at[1] << 8 | at[2]);

                into[0] = ck_base64_alphabet[three >> 18];
                into[1] = ck_base64_alphabet[three >> 12 & 63];
                into[2] = ck_base64_alphabet[three >> 6 & 63];
                into[3] = ck_base64_alphabet[three & 63];
        }
        if (!len)
                return into;
        into[0] = ck_base64_alphabet[at[0] >> 2];
        into[1] = ck_base64_alphabet[(at[0] & 3) << 4 | (len > 1 ? at[1] >> 4 : 0)];
        into[2] = len > 1 ? ck_base64_alphabet[(at[1] & 15) << 2] : '=';
        into[3] = '=';
        return into + 4;
}

/* Uses the table: vector arithmetic (SSE2, as every x86-64 has) is no faster. */
size_t ck_base64_run(const char *text, size_t len, char **into) {
        const uint8_t *at = (const uint8_t *)text;
        char *to = *into;
        size_t left = len;

        for (; left >= 4; left -= 4, at += 4, to += 3) {
                unsigned a = ck_base64_digits[at[0]], b = ck_base64_digits[at[1]];
                unsigned c = ck_base64_digits[at[2]], d = ck_base64_digits[at[3]];

                if ((a | b | c | d) & 0xc0)
                        break;
                to[0] = (char)(a << 2 | b >> 4);
                to[1] = (char)(b << 4 | c >> 2);
                to[2] = (char)(c << 6 | d);
        }
        *into = to;
        return len - left;
}

const char *ck_base64_read(const char *text, size_t len, char **into) {
        unsigned digits[4], cnt = 0, padding = 0;
        char *to = *into;
        size_t i;

        for (i = 0; i < len; i++) {
                unsigned digit = ck_base64_digits[(uint8_t)text[i]];

                if (digit == 0x40)
                        continue;
                if (text[i] == '=') {
                        padding++;
                        if (cnt < 2 || cnt + padding > 4)
                                return "misplaced base64 padding";
                        continue;
                }
                if (digit & 0x80)
                        return "an invalid base64 character";
                if (padding)
                        return "data after the base64 padding";
                digits[cnt++] = digit;
                if (cnt == 4) {
                        *to++ = (char)(digits[0] << 2 | digits[1] >> 4);
                        *to++ = (char)(digits[1] << 4 | digits[2] >> 2);
                        *to++ = (char)(digits[2] << 6 | digits[3]);
                        cnt = 0;
                }
        }
        if (cnt == 1 || (cnt && cnt + padding != 4))
                return "truncated or unpadded base64";
        if (cnt) {
                *to++ = (char)(digits[0] << 2 | digits[1] >> 4);
                if (cnt == 3)
                        *to++ = (char)(digits[1] << 4 | digits[2] >> 2);
        }
        *into = to;
        return NULL;
}
