/*
 * ck_utf8: checks UTF-8.
 *
 * Threads: any; there is no state.
 */
#ifndef CK_UTF8_H
#define CK_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The length of the character at `at`, which is before `end`, or minus the length of the
 * invalid bytes there. */
static inline int ck_utf8_step(const uint8_t *at, const uint8_t *end) {
        uint8_t low = 0x80, high = 0xbf;
        int length, i;

        if (at[0] < 0x80)
                return 1;
        if (at[0] < 0xc2 || at[0] > 0xf4)
                return -1;
        length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
        if (at[0] == 0xe0)
                low = 0xa0; /* overlong below */
        else if (at[0] == 0xed)
                high = 0x9f; /* no surrogates */
        else if (at[0] == 0xf0)
                low = 0x90; /* overlong below */
        else if (at[0] == 0xf4)
                high = 0x8f; /* beyond Unicode */
        for (i = 1; i < length; i++) {
                if (at + i == end || at[i] < low || at[i] > high)
                        return -i;
                low = 0x80;
                high = 0xbf;
        }
        return length;
}

/* Whether all bytes are ASCII. */
static inline bool ck_utf8_is_ascii(const void *text, size_t len) {
        const char *at = text;
        uint64_t eight, seen = 0;

        for (; len >= sizeof(eight); at += sizeof(eight), len -= sizeof(eight)) {
                memcpy(&eight, at, sizeof(eight));
                seen |= eight;
        }
        while (len--)
                seen |= (uint8_t)at[len];
        return !(seen & UINT64_C(0x8080808080808080));
}

#endif
