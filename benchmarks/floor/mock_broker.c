/*
 * librdkafka's mock cluster in a process of its own, so that its CPU is not the client's.
 *
 *     mock_broker BROKERS [TOPIC:PARTITIONS ...]
 *
 * Prints the bootstrap servers on one line and serves until stdin closes. A partition
 * keeps about 5 MB and drops what is older.
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    char reason[256];
    int brokers = argc > 1 ? atoi(argv[1]) : 0;
    if (brokers < 1) {
        fprintf(stderr, "usage: %s BROKERS [TOPIC:PARTITIONS ...]\n", argv[0]);
        return 1;
    }
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), reason,
                                  sizeof(reason));
    if (!rk) {
        fprintf(stderr, "%s\n", reason);
        return 1;
    }
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, brokers);
    if (!cluster) {
        fprintf(stderr, "the mock cluster cannot start\n");
        return 1;
    }
    for (int i = 2; i < argc; i++) {
        char *colon = strrchr(argv[i], ':');
        int partitions = colon ? atoi(colon + 1) : 0;
        if (partitions < 1) {
            fprintf(stderr, "expected TOPIC:PARTITIONS, got \"%s\"\n", argv[i]);
            return 1;
        }
        *colon = '\0';
        rd_kafka_resp_err_t err =
            rd_kafka_mock_topic_create(cluster, argv[i], partitions, 1);
        if (err) {
            fprintf(stderr, "%s: %s\n", argv[i], rd_kafka_err2str(err));
            return 1;
        }
    }
    printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(rk);
    return 0;
}
