/*
 * ck_base64: bytes as base64 and back: the standard alphabet, padded.
 *
 * Threads: any; nothing is kept.
 */
#ifndef CK_BASE64_H
#define CK_BASE64_H

#include <stddef.h>

#include "ck_runtime.h"

/* How long the text of len bytes is. */
static inline size_t ck_base64_size(size_t len) {
        return (len + 2) / 3 * 4;
}

/* Writes the text of len bytes, without a NUL; returns its end. */
CK_EXPORT char *ck_base64_write(char *into, const void *bytes, size_t len);

/* Decodes groups of four characters from text on, up to the first group with a character
 * outside of the alphabet. Returns the number of characters decoded and advances *into
 * after the bytes. Nothing is written beyond them. */
CK_EXPORT size_t ck_base64_run(const char *text, size_t len, char **into);

/* Decodes a whole text. White space (line breaks of mail) is skipped, padding is
 * required. Advances *into after the bytes; *into may point to the text itself. Returns
 * NULL, or what is wrong. */
CK_EXPORT const char *ck_base64_read(const char *text, size_t len, char **into);

#endif
