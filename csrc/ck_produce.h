/*
 * ck_produce: one record -> librdkafka, by a cached topic handle.
 *
 * Ownership: key and value are copied before the call returns. The headers pass to librdkafka on
 * success and stay the caller's on failure.
 * Threads: any; the call never waits (a full queue is an error, not a wait) and runs no callback.
 */
#ifndef CK_PRODUCE_H
#define CK_PRODUCE_H

#include <librdkafka/rdkafka.h>

#include "ck_runtime.h"

typedef struct ck_record_s {
        const void *value; /* NULL: a tombstone */
        size_t value_len;
        const void *key; /* NULL: no key */
        size_t key_len;
        rd_kafka_headers_t *headers; /* or NULL */
        int64_t timestamp;           /* ms, 0: now */
        int32_t partition;           /* RD_KAFKA_PARTITION_UA: the partitioner's choice */
        void *opaque;                /* the record's ck_report_t, or NULL */
} ck_record_t;

/* Queues the record. NULL, or why not: the caller destroys the error. */
CK_EXPORT rd_kafka_error_t *ck_produce(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                                       const ck_record_t *record);

#endif
