/*
 * ck_column: columns of byte strings, numbers and headers, in any memory layout.
 *
 * A column is a view: it describes foreign memory (Python objects, Arrow buffers, numpy
 * arrays, pointers collected for the call) without copying it. All layouts share one
 * reader, so each loop that publishes or encodes records exists only once.
 *
 * Ownership: a column owns nothing. The code that fills it in keeps the memory alive and
 * unchanged while the column is read and, if payloads are borrowed, until they are
 * delivered. Threads: reading takes no lock; any number of threads may read.
 */
#ifndef CK_COLUMN_H
#define CK_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A byte string; ptr is NULL for a null, and never NULL for an empty string. */
typedef struct ck_bytes_s {
        const void *ptr;
        size_t len;
} ck_bytes_t;

typedef enum ck_column_kind_e {
        CK_COLUMN_NONE = 0,  /* every value is null */
        CK_COLUMN_CONSTANT,  /* every value is u.constant */
        CK_COLUMN_POINTERS,  /* u.items[i] */
        CK_COLUMN_FIXED,     /* width bytes at base + i * stride */
        CK_COLUMN_PADDED,    /* as FIXED, without trailing NULs, as numpy reads "S"
                                arrays */
        CK_COLUMN_OFFSETS32, /* Arrow binary and string: data between int32 offsets */
        CK_COLUMN_OFFSETS64, /* Arrow's large types: int64 offsets */
        CK_COLUMN_VIEWS,     /* Arrow binary_view and string_view */
} ck_column_kind_t;

/* One value of Arrow's view types: up to 12 bytes inline, or the index of a buffer and an
 * offset. */
typedef struct ck_view_s {
        int32_t len;
        union {
                uint8_t inlined[12];
                struct {
                        uint8_t prefix[4];
                        int32_t buffer;
                        int32_t offset;
                } ref;
        } u;
} ck_view_t;

typedef struct ck_column_s {
        ck_column_kind_t kind;
        /* Arrow's bitmap, least significant bit first: 0 is a null. NULL: no nulls. */
        const uint8_t *validity;
        /* The index of the first value, in the bitmap and in the buffers or from base. */
        int64_t first;
        union {
                ck_bytes_t constant;
                const ck_bytes_t *items;
                struct {
                        const char *base;
                        ptrdiff_t stride;
                        size_t width;
                } fixed;
                struct {
                        const int32_t *offsets;
                        const char *data;
                } offsets32;
                struct {
                        const int64_t *offsets;
                        const char *data;
                } offsets64;
                struct {
                        const ck_view_t *views;
                        const void *const *buffers; /* Arrow's variadic buffers */
                } views;
        } u;
} ck_column_t;

/* Signed integers of 1, 2, 4 or 8 bytes. A null reads as `missing`. */
typedef struct ck_numbers_s {
        int width; /* bytes each; 0: every number is `missing` */
        const char *base;
        ptrdiff_t stride;
        const uint8_t *validity; /* as above */
        int64_t first;
        int64_t missing;
        int64_t divide;   /* the divisor, rounding down; 0 and 1: none */
        int64_t multiply; /* the factor; 0 and 1: none */
} ck_numbers_t;

/* The headers of each record, in one of two forms. */
typedef struct ck_headers_s {
        /* A column for each name: every record has all of them; a null is a header
         * without a value. */
        size_t named_cnt;
        const ck_bytes_t *names;
        const ck_column_t *named;
        /* A list of pairs for each record: record i has the pairs starts[first + i] to
         * starts[first + i + 1] of `keys` and `values`. One of the two arrays is set, or
         * neither. */
        const int32_t *starts32;
        const int64_t *starts64;
        const uint8_t *validity;
        int64_t first;
        ck_column_t keys;
        ck_column_t values;
} ck_headers_t;

static inline bool ck_column_valid(const uint8_t *validity, int64_t i) {
        return !validity || (validity[i >> 3] >> (i & 7)) & 1;
}

/* Record i has the pairs from *begin up to *end; none if it has no list. */
static inline void ck_headers_pairs(const ck_headers_t *headers, size_t i, int64_t *begin,
                                    int64_t *end) {
        int64_t at = headers->first + (int64_t)i;

        *begin = *end = 0;
        if (!ck_column_valid(headers->validity, at))
                return;
        if (headers->starts32) {
                *begin = headers->starts32[at];
                *end = headers->starts32[at + 1];
        } else if (headers->starts64) {
                *begin = headers->starts64[at];
                *end = headers->starts64[at + 1];
        }
}

/* Value i. */
static inline ck_bytes_t ck_column_get(const ck_column_t *column, size_t i) {
        static const char empty[1] = "";
        int64_t at = column->first + (int64_t)i;
        ck_bytes_t bytes = {NULL, 0};

        if (!ck_column_valid(column->validity, at))
                return bytes;
        switch (column->kind) {
        case CK_COLUMN_NONE:
                return bytes;
        case CK_COLUMN_CONSTANT:
                return column->u.constant;
        case CK_COLUMN_POINTERS:
                return column->u.items[at];
        case CK_COLUMN_FIXED:
        case CK_COLUMN_PADDED:
                bytes.ptr = column->u.fixed.base + at * column->u.fixed.stride;
                bytes.len = column->u.fixed.width;
                if (column->kind == CK_COLUMN_PADDED)
                        while (bytes.len &&
                               ((const char *)bytes.ptr)[bytes.len - 1] == '\0')
                                bytes.len--;
                break;
        case CK_COLUMN_OFFSETS32: {
                const int32_t *offsets = column->u.offsets32.offsets + at;
                bytes.ptr = column->u.offsets32.data + offsets[0];
                bytes.len = (size_t)(offsets[1] - offsets[0]);
                break;
        }
        case CK_COLUMN_OFFSETS64: {
                const int64_t *offsets = column->u.offsets64.offsets + at;
                bytes.ptr = column->u.offsets64.data + offsets[0];
                bytes.len = (size_t)(offsets[1] - offsets[0]);
                break;
        }
        case CK_COLUMN_VIEWS: {
                const ck_view_t *view = column->u.views.views + at;
                bytes.len = (size_t)view->len;
                if (view->len <= 12)
                        bytes.ptr = view->u.inlined;
                else
                        bytes.ptr =
                            (const char *)column->u.views.buffers[view->u.ref.buffer] +
                            view->u.ref.offset;
                break;
        }
        }
        /* Arrow may omit empty buffers. */
        if (!bytes.len)
                bytes.ptr = empty;
        return bytes;
}

/* Number i. */
static inline int64_t ck_numbers_get(const ck_numbers_t *numbers, size_t i) {
        int64_t at = numbers->first + (int64_t)i;
        const char *place;
        int64_t number;

        if (!numbers->width || !ck_column_valid(numbers->validity, at))
                return numbers->missing;
        place = numbers->base + at * numbers->stride;
        switch (numbers->width) {
        case 1:
                number = *(const int8_t *)place;
                break;
        case 2: {
                int16_t narrow;
                memcpy(&narrow, place, sizeof(narrow));
                number = narrow;
                break;
        }
        case 4: {
                int32_t narrow;
                memcpy(&narrow, place, sizeof(narrow));
                number = narrow;
                break;
        }
        default:
                memcpy(&number, place, sizeof(number));
        }
        if (numbers->divide > 1)
                number = number / numbers->divide - (number % numbers->divide < 0);
        if (numbers->multiply > 1 &&
            __builtin_mul_overflow(number, numbers->multiply, &number))
                number = INT64_MAX; /* brokers reject it as a time or a partition */
        return number;
}

#endif
