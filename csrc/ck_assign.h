/*
 * ck_assign: assignments whose new topics are looked up at once.
 *
 * rd_kafka_assign() leaves it to a timer of 1 s to find the leaders of topics that the
 * client does not know yet. rd_kafka_topic_new() asks for them at once.
 *
 * Ownership: the list stays the caller's. Threads: any, as for librdkafka's functions.
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
