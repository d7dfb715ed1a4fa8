/*
 * librdkafka's mock cluster in a separate process, so that its CPU time does not count as
 * the client's.
 *
 *     mock_broker BROKERS
 *
 * Prints the bootstrap servers on one line and serves until stdin closes. Each line of
 * stdin, "TOPIC PARTITIONS", creates a topic. The answer is "created" or the error. A
 * partition keeps about 5 MB and drops older records.
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
        char reason[256];
        int brokers = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
        if (brokers < 1) {
                fprintf(stderr, "usage: %s BROKERS\n", argv[0]);
                return 1;
        }
        rd_kafka_t *rk =
            rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), reason, sizeof(reason));
        if (!rk) {
                fprintf(stderr, "%s\n", reason);
                return 1;
        }
        rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(rk, brokers);
        if (!cluster) {
                fprintf(stderr, "the mock cluster cannot start\n");
                return 1;
        }
        rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0);
        printf("%s\n", rd_kafka_mock_cluster_bootstraps(cluster));
        fflush(stdout);
        char line[256];
        while (fgets(line, sizeof(line), stdin)) {
                char *space = strchr(line, ' ');
                int partitions = space ? (int)strtol(space + 1, NULL, 10) : 0;
                if (partitions < 1) {
                        fprintf(stderr, "expected TOPIC PARTITIONS, got %s", line);
                        return 1;
                }
                *space = '\0';
                rd_kafka_resp_err_t err =
                    rd_kafka_mock_topic_create(cluster, line, partitions, 1);
                printf("%s\n", err ? rd_kafka_err2str(err) : "created");
                fflush(stdout);
        }
        rd_kafka_mock_cluster_destroy(cluster);
        rd_kafka_destroy(rk);
        return 0;
}
