/* Shared by the C tests: a check that prints its failure, and a mock cluster with a
 * consumer. */
#ifndef CHECK_H
#define CHECK_H

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                 \
        do {                                                                             \
                if (!(condition)) {                                                      \
                        fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, \
                                __func__, #condition);                                   \
                        exit(1);                                                         \
                }                                                                        \
        } while (0)

static inline rd_kafka_t *check_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
        char errstr[512];
        rd_kafka_t *rk = rd_kafka_new(type, conf, errstr, sizeof(errstr));

        if (!rk) {
                fprintf(stderr, "rd_kafka_new: %s\n", errstr);
                exit(1);
        }
        return rk;
}

static inline void check_set(rd_kafka_conf_t *conf, const char *name, const char *value) {
        char errstr[512];

        if (rd_kafka_conf_set(conf, name, value, errstr, sizeof(errstr)) !=
            RD_KAFKA_CONF_OK) {
                fprintf(stderr, "%s=%s: %s\n", name, value, errstr);
                exit(1);
        }
}

#endif
