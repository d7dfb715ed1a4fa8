/* librdkafka bugs that cykafka works around; docs/design/core.md lists the workarounds.
 * If a check fails here with a newer librdkafka, remove its workaround. Each check runs
 * in its own process, which the bug may crash. */
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { RECORDS = 1000, WAIT_MS = 30000 };

/* Runs the function in a process; returns its status from waitpid(). */
static int run(void (*function)(void)) {
        int status = 0;
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (!pid) {
                function();
                _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        return status;
}

static rd_kafka_t *new_client(rd_kafka_type_t type, const char *bootstrap_servers,
                              rd_kafka_conf_t *conf) {
        check_set(conf, "bootstrap.servers", bootstrap_servers);
        check_set(conf, "log_level", "0");
        if (type == RD_KAFKA_CONSUMER)
                check_set(conf, "group.id", "g");
        return check_client(type, conf);
}

/* For refuse_duplicates() of the consumer. */
static void unassign_a_partition_twice(void) {
        rd_kafka_t *rk =
            new_client(RD_KAFKA_CONSUMER, "127.0.0.1:1", rd_kafka_conf_new());
        rd_kafka_topic_partition_list_t *once = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_t *twice = rd_kafka_topic_partition_list_new(2);

        rd_kafka_topic_partition_list_add(once, "t", 0);
        rd_kafka_topic_partition_list_add(twice, "t", 0);
        rd_kafka_topic_partition_list_add(twice, "t", 0);
        CHECK(!rd_kafka_incremental_assign(rk, once));
        CHECK(freopen("/dev/null", "w", stderr)); /* the assertion's text */
        rd_kafka_error_destroy(rd_kafka_incremental_unassign(rk, twice));
        CHECK(!rd_kafka_consumer_close(rk));
}

static void count_report(rd_kafka_t *rk, const rd_kafka_message_t *message,
                         void *opaque) {
        (void)rk;
        (void)message;
        ++*(int *)opaque;
}

/* For ck_inflight. */
static void destroy_reports_nothing(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_t *rk;
        rd_kafka_topic_t *rkt;
        int reports = 0;

        rd_kafka_conf_set_dr_msg_cb(conf, count_report);
        rd_kafka_conf_set_opaque(conf, &reports);
        rk = new_client(RD_KAFKA_PRODUCER, "127.0.0.1:1", conf);
        rkt = rd_kafka_topic_new(rk, "t", NULL);
        CHECK(!rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0, NULL));
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        CHECK(reports == 0);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): rd_kafka_conf_set_stats_cb()'s */
static int yield_on_statistics(rd_kafka_t *rk, char *json, size_t json_len,
                               void *opaque) {
        (void)json;
        (void)json_len;
        (void)opaque;
        rd_kafka_yield(rk);
        return 0;
}

static void produce_records(const char *bootstrap_servers) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_t *rk;
        rd_kafka_topic_t *rkt;

        check_set(conf, "batch.num.messages", "1");
        rk = new_client(RD_KAFKA_PRODUCER, bootstrap_servers, conf);
        rkt = rd_kafka_topic_new(rk, "t", NULL);
        for (int i = 0; i < RECORDS; i++)
                CHECK(!rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, "v", 1, NULL, 0,
                                        NULL));
        CHECK(!rd_kafka_flush(rk, WAIT_MS));
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
}

/* For the flag of ck_callback.c that keeps rd_kafka_yield() out of this call. The
 * test does not destroy the consumer, which would wait for the lost message. */
static void yield_loses_a_message(void) {
        rd_kafka_t *host = check_client(RD_KAFKA_PRODUCER, NULL);
        rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(host, 1);
        const char *bootstrap_servers = rd_kafka_mock_cluster_bootstraps(cluster);
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *partitions =
            rd_kafka_topic_partition_list_new(1);
        rd_kafka_message_t *messages[10];
        rd_kafka_queue_t *queue;
        rd_kafka_t *rk;
        int64_t next = 0;
        bool lost = false;

        produce_records(bootstrap_servers);
        /* One record per response, so that statistics arrive between records. */
        check_set(conf, "max.partition.fetch.bytes", "1");
        check_set(conf, "statistics.interval.ms", "1");
        rd_kafka_conf_set_stats_cb(conf, yield_on_statistics);
        rk = new_client(RD_KAFKA_CONSUMER, bootstrap_servers, conf);
        CHECK(!rd_kafka_poll_set_consumer(rk));
        queue = rd_kafka_queue_get_consumer(rk);
        rd_kafka_topic_partition_list_add(partitions, "t", 0)->offset = 0;
        CHECK(!rd_kafka_assign(rk, partitions));
        while (!lost && next < RECORDS) {
                ssize_t cnt = rd_kafka_consume_batch_queue(queue, WAIT_MS, messages, 10);

                CHECK(cnt >= 0);
                for (ssize_t i = 0; i < cnt; i++) {
                        CHECK(!messages[i]->err);
                        lost = lost || messages[i]->offset != next;
                        next = messages[i]->offset + 1;
                        rd_kafka_message_destroy(messages[i]);
                }
        }
        CHECK(lost);
}

int main(void) {
        int status = run(unassign_a_partition_twice);

        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        CHECK(!run(destroy_reports_nothing));
        CHECK(!run(yield_loses_a_message));
        return 0;
}
