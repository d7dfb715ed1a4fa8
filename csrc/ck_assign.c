#include "ck_assign.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
        rd_kafka_topic_t **rkts;
        int cnt;
} topics_t;

/* Refers to the list's topics, which makes librdkafka request the leaders of new topics.
 * If memory is short or a name is invalid, does nothing: the timer requests them. */
static topics_t topics_open(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *list) {
        topics_t topics = {NULL, 0};
        const char *last = NULL;

        if (list && list->cnt)
                topics.rkts = calloc(list->cnt, sizeof(*topics.rkts));
        if (!topics.rkts)
                return topics;
        for (int i = 0; i < list->cnt; i++) {
                const char *name = list->elems[i].topic;
                rd_kafka_topic_t *rkt;

                if (last && !strcmp(name, last))
                        continue;
                last = name;
                rkt = rd_kafka_topic_new(rk, name, NULL);
                if (rkt)
                        topics.rkts[topics.cnt++] = rkt;
        }
        return topics;
}

/* The assignment has its own references. */
static void topics_close(topics_t *topics) {
        for (int i = 0; i < topics->cnt; i++)
                rd_kafka_topic_destroy(topics->rkts[i]);
        free(topics->rkts);
}

rd_kafka_resp_err_t ck_assign(rd_kafka_t *rk,
                              const rd_kafka_topic_partition_list_t *list) {
        topics_t topics = topics_open(rk, list);
        rd_kafka_resp_err_t err = rd_kafka_assign(rk, list);

        topics_close(&topics);
        return err;
}

rd_kafka_error_t *ck_incremental_assign(rd_kafka_t *rk,
                                        const rd_kafka_topic_partition_list_t *list) {
        topics_t topics = topics_open(rk, list);
        rd_kafka_error_t *error = rd_kafka_incremental_assign(rk, list);

        topics_close(&topics);
        return error;
}
