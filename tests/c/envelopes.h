/* Shared by the tests of envelopes and of their encodings. */
#ifndef ENVELOPES_H
#define ENVELOPES_H

#include <stdbool.h>
#include <time.h>

#include "check.h"
#include "ck_column.h"

#define COUNT(items) (sizeof(items) / sizeof((items)[0]))

static inline ck_bytes_t span(const char *text) {
        ck_bytes_t bytes = {text, text ? strlen(text) : 0};

        return bytes;
}

static inline bool is(ck_bytes_t bytes, const char *text) {
        if (!text)
                return !bytes.ptr;
        return bytes.ptr && bytes.len == strlen(text) &&
               !memcmp(bytes.ptr, text, bytes.len);
}

/* Copies the text to memory of its exact size, so a sanitizer detects reads beyond. */
static inline ck_bytes_t copy_of(ck_bytes_t text) {
        char *copy = malloc(text.len ? text.len : 1);

        memcpy(copy, text.ptr, text.len);
        text.ptr = copy;
        return text;
}

static inline void set_zone(const char *zone) {
        setenv("TZ", zone, 1);
        tzset();
}

#endif
