/*
 * ck_publish: passes a batch of records, given as columns, to librdkafka.
 *
 * Ownership: the caller owns everything that a ck_publish_t points to, and keeps it
 * unchanged until ck_publish() returns NO_ERROR or is not called again. With `borrow` the
 * values' bytes must stay until the delivery is done; librdkafka copies keys and headers.
 * Threads: one at a time for each ck_publish_t and its delivery. ck_publish() never waits
 * and runs no callback; call it without the GIL, in a counted call of the handle.
 */
#ifndef CK_PUBLISH_H
#define CK_PUBLISH_H

#include <librdkafka/rdkafka.h>

#include "ck_column.h"
#include "ck_delivery.h"

typedef struct ck_publish_s {
        size_t cnt;                    /* records */
        size_t next;                   /* the first record not yet processed */
        rd_kafka_topic_t *rkt;         /* the topic of every record, or */
        rd_kafka_topic_t *const *rkts; /* the topic of each, if not NULL */
        ck_column_t values;
        ck_column_t keys;
        const ck_headers_t *headers; /* NULL: none */
        ck_numbers_t timestamps;     /* ms; 0: now */
        ck_numbers_t partitions;     /* -1: the partitioner's choice */
        bool borrow;                 /* values are not copied */
        /* queue.buffering.max.kbytes in bytes: a larger value would never fit into the
         * queue. */
        int64_t room;
} ck_publish_t;

/* Passes records to librdkafka, from publish->next on, for about slice_ms. NO_ERROR: all
 * records are processed. _QUEUE_FULL: serve librdkafka to make room, and call again.
 * _IN_PROGRESS: the slice is over, call again. If librdkafka refuses a record for another
 * reason, the delivery contains its outcome. */
CK_EXPORT rd_kafka_resp_err_t ck_publish(rd_kafka_t *rk, ck_publish_t *publish,
                                         ck_delivery_t *delivery, int slice_ms);

#endif
