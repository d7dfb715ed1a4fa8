/*
 * ck_json: reads JSON (RFC 8259) from a span of bytes, value by value, and writes
 * strings.
 *
 * Strict: no comments, no NaN, no trailing commas, UTF-8 checked, an unpaired surrogate
 * is an error. Strings without escapes are not copied. Others are unescaped into `room`,
 * where they are never longer than in the text.
 *
 * Ownership: the caller owns everything; nothing is allocated. Threads: one at a time for
 * each ck_json_t.
 */
#ifndef CK_JSON_H
#define CK_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include "ck_column.h"
#include "ck_runtime.h"

/* How deep arrays and objects may be nested in a value that is skipped. */
#define CK_JSON_DEPTH 64

typedef struct ck_json_s {
        const char *at;
        const char *end;
        char *room; /* where strings with escapes are written; as large as the text */
        const char *problem; /* the error at `at`, static; NULL: none so far */
} ck_json_t;

/* Skips white space. Returns the character after it, or -1 at the end. */
CK_EXPORT int ck_json_peek(ck_json_t *json);

/* Skips white space and the character c. Returns whether c was there; if not, sets
 * problem. */
CK_EXPORT bool ck_json_take(ck_json_t *json, char c, const char *problem);

/* Reads a string that begins at `at`. */
CK_EXPORT bool ck_json_string(ck_json_t *json, ck_bytes_t *string);

/* Skips the word null, if it is next. Returns whether it was; never sets problem. */
CK_EXPORT bool ck_json_null(ck_json_t *json);

/* Skips white space and any value. */
CK_EXPORT bool ck_json_skip(ck_json_t *json);

/* The length of a UTF-8 string as JSON, without the quotes. */
CK_EXPORT size_t ck_json_size(ck_bytes_t string);

/* Writes a string as JSON, without the quotes; returns its end. */
CK_EXPORT char *ck_json_write(char *into, ck_bytes_t string);

/* Whether bytes are UTF-8. */
CK_EXPORT bool ck_json_is_utf8(ck_bytes_t string);

#endif
