#include "ck_split.h"

#include <stdlib.h>
#include <string.h>

/* The array's first size assumes pieces of PIECE_BYTES bytes. */
enum { PIECE_BYTES = 64, PIECES_MIN = 16 };

static inline const char *find(const char *at, const char *end, const char *delimiter,
                               size_t delimiter_len) {
        if (delimiter_len == 1)
                return memchr(at, *delimiter, (size_t)(end - at));
        return memmem(at, (size_t)(end - at), delimiter, delimiter_len);
}

ck_bytes_t *ck_split(const void *text, size_t len, const void *delimiter,
                     size_t delimiter_len, size_t *cnt, size_t *end) {
        const char *at = text, *text_end = at + len, *found;
        size_t size = len / PIECE_BYTES + PIECES_MIN, used = 0;
        ck_bytes_t *pieces = malloc(size * sizeof(*pieces));

        while (pieces && (found = find(at, text_end, delimiter, delimiter_len))) {
                if (used == size) {
                        ck_bytes_t *more;

                        size *= 2;
                        more = realloc(pieces, size * sizeof(*pieces));
                        if (!more) {
                                free(pieces);
                                return NULL;
                        }
                        pieces = more;
                }
                pieces[used].ptr = at;
                pieces[used++].len = (size_t)(found - at);
                at = found + delimiter_len;
        }
        *cnt = used;
        *end = (size_t)(at - (const char *)text);
        return pieces;
}

size_t ck_split_first(const ck_bytes_t *pieces, size_t cnt, const void *delimiter,
                      size_t delimiter_len, ck_bytes_t *before, ck_bytes_t *after) {
        size_t i;

        for (i = 0; i < cnt; i++) {
                const char *at = pieces[i].ptr, *end = at + pieces[i].len;
                const char *found = find(at, end, delimiter, delimiter_len);

                if (!found)
                        break;
                before[i].ptr = at;
                before[i].len = (size_t)(found - at);
                after[i].ptr = found + delimiter_len;
                after[i].len = (size_t)(end - found) - delimiter_len;
        }
        return i;
}
