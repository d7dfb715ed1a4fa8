/*
 * ck_base64: encodes bytes as base64 and decodes them: the standard alphabet, padded.
 *
 * Threads: any; there is no state.
 */
#ifndef CK_BASE64_H
#define CK_BASE64_H

#include <stddef.h>

#include "ck_runtime.h"

/* The length of the base64 text of len bytes. */
static inline size_t ck_base64_size(size_t len) {
        return (len + 2) / 3 * 4;
}

/* Writes len bytes as base64, without a NUL; returns the end of the text. */
CK_EXPORT char *ck_base64_write(char *into, const void *bytes, size_t len);

/* Decodes groups of four characters from text on, up to the first group with a character
 * outside of the alphabet. Returns the number of characters decoded and advances *into
 * after the bytes. Nothing is written beyond them. */
CK_EXPORT size_t ck_base64_run(const char *text, size_t len, char **into);

/* Decodes a whole text. White space (line breaks of mail) is skipped, padding is
 * required. Advances *into after the bytes; *into may point to the text itself. Returns
 * NULL, or a description of the fault. */
CK_EXPORT const char *ck_base64_read(const char *text, size_t len, char **into);

#endif
