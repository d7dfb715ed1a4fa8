/*
 * ck_checksum: whether two runs of a task had the same records, in any order.
 *
 * The sum of a hash of each record: topic, partition, timestamp, key, value and headers.
 * It detects differing records; it does not protect against deliberate collisions. Sums
 * are stored outside of the process, so a change of the hash invalidates old ones. They
 * differ between processors of different byte order.
 *
 * Ownership: the caller owns everything that a ck_checksum_t points to. Threads: reading
 * takes no lock; call it without the GIL.
 */
#ifndef CK_CHECKSUM_H
#define CK_CHECKSUM_H

#include "ck_column.h"
#include "ck_runtime.h"

/* Records; columns that are zero have nulls only. */
typedef struct ck_checksum_s {
        size_t cnt;
        ck_column_t topics;
        ck_column_t keys;
        ck_column_t values;
        ck_numbers_t partitions;
        ck_numbers_t timestamps;
        const ck_headers_t *headers; /* lists of pairs; NULL: none */
} ck_checksum_t;

/* The sum, modulo 2^64, and in *size the bytes of keys and values. */
CK_EXPORT uint64_t ck_checksum(const ck_checksum_t *records, uint64_t *size);

#endif
