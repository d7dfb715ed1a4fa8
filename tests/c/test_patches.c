/* Bugs that patches in vendor/patches fix and that only C can trigger at the right
 * moment. librdkafka calls log_cb in the thread that logs, so a log_cb can block that
 * thread at a known place. */
#include <pthread.h>
#include <time.h>

#include "check.h"

enum { WAIT_S = 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static int progress;

/* A late thread does not move it back. */
static void advance(int to) {
        pthread_mutex_lock(&lock);
        if (progress < to)
                progress = to;
        pthread_cond_broadcast(&moved);
        pthread_mutex_unlock(&lock);
}

static int reached(void) {
        pthread_mutex_lock(&lock);
        int step = progress;
        pthread_mutex_unlock(&lock);
        return step;
}

/* Fails if the step is not reached in WAIT_S. */
static void wait_for(int step) {
        struct timespec deadline;
        int err = 0;

        clock_gettime(CLOCK_REALTIME, &deadline);
        deadline.tv_sec += WAIT_S;
        pthread_mutex_lock(&lock);
        while (progress < step && !err)
                err = pthread_cond_timedwait(&moved, &lock, &deadline);
        pthread_mutex_unlock(&lock);
        CHECK(!err);
}

static rd_kafka_t *new_client(const char *bootstrap_servers, const char *debug,
                              void (*log_cb)(const rd_kafka_t *, int, const char *,
                                             const char *)) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();

        progress = 0;
        check_set(conf, "bootstrap.servers", bootstrap_servers);
        check_set(conf, "debug", debug);
        rd_kafka_conf_set_log_cb(conf, log_cb);
        return check_client(RD_KAFKA_PRODUCER, conf);
}

static void connect_client(rd_kafka_t *rk) {
        const struct rd_kafka_metadata *metadata;

        CHECK(!rd_kafka_metadata(rk, 0, NULL, &metadata, WAIT_S * 1000));
        rd_kafka_metadata_destroy(metadata);
}

/* -- 0004 */

enum { ANSWERED = 1, TERMINATING, PARSED };

/* librdkafka's main thread logs "worker called" after it has seen that the client is not
 * terminating, and before the response parser checks that again. The thread that
 * destroys the client logs "Interrupting timers" once the client is terminating, and
 * before it notifies the main thread. */
static void block_parser(const rd_kafka_t *rk, int level, const char *fac,
                         const char *text) {
        (void)rk, (void)level, (void)fac;
        if (strstr(text, "worker called in state waiting for response")) {
                advance(ANSWERED);
                wait_for(TERMINATING);
        } else if (strstr(text, "Interrupting timers")) {
                advance(TERMINATING);
                wait_for(PARSED);
        }
}

static void *destroy(void *rk) {
        wait_for(ANSWERED);
        rd_kafka_destroy(rk);
        return NULL;
}

/* A response that librdkafka parses while the client terminates has no metadata. */
static void describe_topics_of_a_terminating_client(const char *bootstrap_servers) {
        rd_kafka_t *rk = new_client(bootstrap_servers, "admin,generic", block_parser);
        rd_kafka_AdminOptions_t *options =
            rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        rd_kafka_queue_t *results = rd_kafka_queue_new(rk);
        const char *names[] = {"topic"};
        rd_kafka_TopicCollection_t *topics =
            rd_kafka_TopicCollection_of_topic_names(names, 1);
        pthread_t destroyer;
        char errstr[512];

        connect_client(rk);
        /* librdkafka would send the request to the controller, which the mock lacks. */
        CHECK(!rd_kafka_AdminOptions_set_broker(options, 1, errstr, sizeof(errstr)));
        rd_kafka_DescribeTopics(rk, topics, options, results);
        rd_kafka_AdminOptions_destroy(options);
        CHECK(!pthread_create(&destroyer, NULL, destroy, rk));

        rd_kafka_event_t *event = rd_kafka_queue_poll(results, WAIT_S * 1000);
        CHECK(event);
        CHECK(rd_kafka_event_type(event) == RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT);
        CHECK(rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__DESTROY);
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(results);
        advance(PARSED);
        CHECK(!pthread_join(destroyer, NULL));
        rd_kafka_TopicCollection_destroy(topics);
}

/* -- 0006 */

enum { CONNECTED = 1, RECEIVED, DOWN, REBOOTSTRAPPED };

/* The main thread logs "Received metadata" before it parses the response. A broker's
 * thread logs "brokers are down" after it has requested a re-bootstrap. */
static void block_answer(const rd_kafka_t *rk, int level, const char *fac,
                         const char *text) {
        (void)rk, (void)level, (void)fac;
        if (reached() == CONNECTED && strstr(text, "===== Received metadata")) {
                advance(RECEIVED);
                wait_for(DOWN);
        } else if (strstr(text, "brokers are down")) {
                advance(DOWN);
        } else if (strstr(text, "Starting re-bootstrap")) {
                advance(REBOOTSTRAPPED);
        }
}

static void *request_metadata(void *rk) {
        const struct rd_kafka_metadata *metadata;

        if (!rd_kafka_metadata(rk, 0, NULL, &metadata, WAIT_S * 1000))
                rd_kafka_metadata_destroy(metadata);
        return NULL;
}

/* A response that arrives before the last broker is lost does not cancel the
 * re-bootstrap. */
static void rebootstrap_beside_a_metadata_answer(rd_kafka_mock_cluster_t *cluster) {
        rd_kafka_t *rk = new_client(rd_kafka_mock_cluster_bootstraps(cluster),
                                    "generic,metadata", block_answer);
        pthread_t requester;

        connect_client(rk);
        advance(CONNECTED);
        CHECK(!pthread_create(&requester, NULL, request_metadata, rk));
        wait_for(RECEIVED);
        CHECK(!rd_kafka_mock_broker_set_down(cluster, 1));
        wait_for(REBOOTSTRAPPED);
        CHECK(!rd_kafka_mock_broker_set_up(cluster, 1));
        CHECK(!pthread_join(requester, NULL));
        connect_client(rk);
        rd_kafka_destroy(rk);
}

/* -- 0035 */

enum { SERVING = 1, ENQUEUED };

/* The main thread logs each operation that it serves. */
static void block_operation(const rd_kafka_t *rk, int level, const char *fac,
                            const char *text) {
        (void)rk, (void)level, (void)fac;
        if (strstr(text, "received op NAME")) {
                advance(SERVING);
                wait_for(ENQUEUED);
        }
}

static void *ask_for_member_id(void *rk) {
        char *id = rd_kafka_memberid(rk);

        if (id)
                rd_kafka_mem_free(rk, id);
        return NULL;
}

/* A commit that librdkafka serves between the last event of a group and its end. */
static void commit_while_the_group_ends(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(1);
        pthread_t asking;

        progress = 0;
        check_set(conf, "bootstrap.servers", "127.0.0.1:1");
        check_set(conf, "group.id", "group");
        check_set(conf, "debug", "cgrp");
        rd_kafka_conf_set_log_cb(conf, block_operation);
        rd_kafka_t *rk = check_client(RD_KAFKA_CONSUMER, conf);
        rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);

        rd_kafka_topic_partition_list_add(offsets, "topic", 0)->offset = 1;
        CHECK(!pthread_create(&asking, NULL, ask_for_member_id, rk));
        wait_for(SERVING);
        CHECK(!rd_kafka_consumer_close_queue(rk, queue));
        CHECK(!rd_kafka_commit(rk, offsets, 1));
        advance(ENQUEUED);
        CHECK(!pthread_join(asking, NULL));
        while (!rd_kafka_consumer_closed(rk))
                rd_kafka_event_destroy(rd_kafka_queue_poll(queue, 10));
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
}

/* -- 0042 */

enum { NUMBERED = 1 };

static _Thread_local int pauses;
static int outdated;

/* Blocks the pausing thread after its operation has a version. With the patch, the seek
 * waits meanwhile, so there is no event to wait for. */
static void block_pause(const rd_kafka_t *rk, int level, const char *fac,
                        const char *text) {
        const struct timespec half_a_second = {.tv_nsec = 500000000};

        (void)rk, (void)level, (void)fac;
        if (pauses && strstr(text, "new version barrier")) {
                advance(NUMBERED);
                nanosleep(&half_a_second, NULL);
        } else if (strstr(text, "received outdated op")) {
                outdated = 1;
        }
}

struct pause {
        rd_kafka_t *rk;
        rd_kafka_topic_partition_list_t *partitions;
};

static void *pause_partitions(void *arg) {
        const struct pause *pause = arg;

        pauses = 1;
        CHECK(!rd_kafka_pause_partitions(pause->rk, pause->partitions));
        return NULL;
}

/* Operations of a partition are enqueued in the order of their versions. */
static void seek_beside_a_pause(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *partitions =
            rd_kafka_topic_partition_list_new(1);
        pthread_t pausing;

        progress = 0;
        check_set(conf, "bootstrap.servers", "127.0.0.1:1");
        check_set(conf, "group.id", "group");
        check_set(conf, "debug", "topic");
        rd_kafka_conf_set_log_cb(conf, block_pause);
        rd_kafka_t *rk = check_client(RD_KAFKA_CONSUMER, conf);
        struct pause pause = {rk, partitions};

        rd_kafka_topic_partition_list_add(partitions, "topic", 0)->offset = 1;
        CHECK(!rd_kafka_assign(rk, partitions));
        CHECK(!pthread_create(&pausing, NULL, pause_partitions, &pause));
        wait_for(NUMBERED);
        rd_kafka_error_destroy(rd_kafka_seek_partitions(rk, partitions, WAIT_S * 1000));
        CHECK(!pthread_join(pausing, NULL));
        CHECK(!rd_kafka_consumer_close(rk));
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
        CHECK(!outdated);
}

int main(void) {
        rd_kafka_t *host = check_client(RD_KAFKA_PRODUCER, NULL);
        rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(host, 1);

        CHECK(cluster);
        describe_topics_of_a_terminating_client(
            rd_kafka_mock_cluster_bootstraps(cluster));
        rebootstrap_beside_a_metadata_answer(cluster);
        commit_while_the_group_ends();
        seek_beside_a_pause();
        rd_kafka_mock_cluster_destroy(cluster);
        rd_kafka_destroy(host);
        return 0;
}
