/*
 * ck_produce: hands one record to librdkafka, by a cached topic handle.
 *
 * Ownership: key and value are copied before the call returns, unless ck_produce_any() is
 * called without RD_KAFKA_MSG_F_COPY. On success librdkafka owns the headers, on failure
 * the caller still does. Threads: any. The call never waits (a full queue is an error)
 * and runs no callback.
 */
#ifndef CK_PRODUCE_H
#define CK_PRODUCE_H

#include <librdkafka/rdkafka.h>

#include "ck_queue.h"

typedef struct ck_record_s {
        const void *value; /* NULL: a tombstone */
        size_t value_len;
        const void *key; /* NULL: no key */
        size_t key_len;
        rd_kafka_headers_t *headers; /* or NULL */
        int64_t timestamp;           /* ms, 0: now */
        int32_t partition;           /* RD_KAFKA_PARTITION_UA: the partitioner's choice */
        ck_report_t
            *report; /* or NULL; CK_EVENT_FLYING while librdkafka has the record */
} ck_record_t;

/* Queues the record. NULL, or the error, which the caller destroys. */
CK_EXPORT rd_kafka_error_t *ck_produce(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                                       const ck_record_t *record);

/* As ck_produce(), in one call that takes headers and a timestamp, with these flags
 * (RD_KAFKA_MSG_F_...) and this opaque. Ignores record->report. */
CK_EXPORT rd_kafka_error_t *ck_produce_any(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                                           const ck_record_t *record, int msgflags,
                                           void *opaque);

#endif
