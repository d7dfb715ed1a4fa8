/*
 * ck_split: finds the pieces of a text between delimiters.
 *
 * Pieces point into the text; ck_split does not copy it.
 * Ownership: the caller owns the text, which must outlive the pieces, and frees the array
 * of pieces. Threads: any, without the GIL. Locks: none.
 */
#ifndef CK_SPLIT_H
#define CK_SPLIT_H

#include "ck_column.h"
#include "ck_runtime.h"

/* Finds the pieces that end with the delimiter, from left to right. The delimiter is not
 * empty. Returns an array for free(), or NULL if memory is short. *cnt is the number of
 * pieces, and *end is where the last delimiter ends. */
CK_EXPORT ck_bytes_t *ck_split(const void *text, size_t len, const void *delimiter,
                               size_t delimiter_len, size_t *cnt, size_t *end);

/* Splits each of cnt pieces at its first delimiter into two, both without it. Stops at
 * the first piece without a delimiter and returns its index, or returns cnt. */
CK_EXPORT size_t ck_split_first(const ck_bytes_t *pieces, size_t cnt,
                                const void *delimiter, size_t delimiter_len,
                                ck_bytes_t *before, ck_bytes_t *after);

#endif
