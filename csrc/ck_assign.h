/*
 * ck_assign: assigns partitions and requests the leaders of new topics at once.
 *
 * After rd_kafka_assign(), a 1 s timer requests the leaders of topics that the client
 * does not know yet. rd_kafka_topic_new() requests them at once.
 *
 * Ownership: the caller owns the list. Threads: any, as for librdkafka's functions.
 */
#ifndef CK_ASSIGN_H
#define CK_ASSIGN_H

#include <librdkafka/rdkafka.h>

#include "ck_runtime.h"

/* rd_kafka_assign(). The list may be NULL. */
CK_EXPORT rd_kafka_resp_err_t ck_assign(rd_kafka_t *rk,
                                        const rd_kafka_topic_partition_list_t *list);

/* rd_kafka_incremental_assign(). */
CK_EXPORT rd_kafka_error_t *
ck_incremental_assign(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *list);

#endif
