/*
 * ck_split: finds the pieces of a text between delimiters.
 *
 * Pieces point into the text; C copies nothing.
 * Ownership: the caller owns the text, which must outlive the pieces, and frees the array
 * of pieces. Threads: any, without the GIL. Locks: none.
 */
#ifndef CK_SPLIT_H
#define CK_SPLIT_H

#include "ck_column.h"
#include "ck_runtime.h"

/* The pieces that end with the delimiter, which is not empty; delimiters are searched
 * from the left. Returns an array for free(), NULL without memory; *cnt is the number of
 * pieces, and *end is where the last delimiter ends. */
CK_EXPORT ck_bytes_t *ck_split(const void *text, size_t len, const void *delimiter,
                               size_t delimiter_len, size_t *cnt, size_t *end);

/* Splits each of cnt pieces at its first delimiter into two, both without it. Returns the
 * index of the first piece that has none, where it stops, or cnt. */
CK_EXPORT size_t ck_split_first(const ck_bytes_t *pieces, size_t cnt,
                                const void *delimiter, size_t delimiter_len,
                                ck_bytes_t *before, ck_bytes_t *after);

#endif
