/*
 * ck_produce: passes one record to librdkafka, with a cached topic handle.
 *
 * Ownership: key and value are copied before the call returns, unless
 * ck_produce_with_headers() is called without RD_KAFKA_MSG_F_COPY. On success librdkafka
 * owns the headers, on failure the caller still does. Threads: any. The call never waits
 * (a full queue is an error) and runs no callback.
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
            *report; /* or NULL; CK_EVENT_IN_FLIGHT while librdkafka has the record */
} ck_record_t;

/* Queues the record. Returns NULL, or an error that the caller destroys. */
CK_EXPORT rd_kafka_error_t *ck_produce(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                                       const ck_record_t *record);

/* Like ck_produce(), but passes headers, a timestamp, flags (RD_KAFKA_MSG_F_...) and an
 * opaque in one call. Ignores record->report. Inline, because it runs for every record of
 * a batch with headers. */
static inline rd_kafka_error_t *ck_produce_with_headers(rd_kafka_t *rk,
                                                        rd_kafka_topic_t *rkt,
                                                        const ck_record_t *record,
                                                        int msgflags, void *opaque) {
        rd_kafka_vu_t vus[8];
        size_t cnt = 0;

        vus[cnt].vtype = RD_KAFKA_VTYPE_RKT;
        vus[cnt++].u.rkt = rkt;
        vus[cnt].vtype = RD_KAFKA_VTYPE_PARTITION;
        vus[cnt++].u.i32 = record->partition;
        vus[cnt].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
        vus[cnt++].u.i = msgflags;
        vus[cnt].vtype = RD_KAFKA_VTYPE_VALUE;
        vus[cnt].u.mem.ptr = (void *)record->value;
        vus[cnt++].u.mem.size = record->value_len;
        vus[cnt].vtype = RD_KAFKA_VTYPE_KEY;
        vus[cnt].u.mem.ptr = (void *)record->key;
        vus[cnt++].u.mem.size = record->key_len;
        vus[cnt].vtype = RD_KAFKA_VTYPE_OPAQUE;
        vus[cnt++].u.ptr = opaque;
        if (record->timestamp) {
                vus[cnt].vtype = RD_KAFKA_VTYPE_TIMESTAMP;
                vus[cnt++].u.i64 = record->timestamp;
        }
        if (record->headers) {
                vus[cnt].vtype = RD_KAFKA_VTYPE_HEADERS;
                vus[cnt++].u.headers = record->headers;
        }
        return rd_kafka_produceva(rk, vus, cnt);
}

#endif
