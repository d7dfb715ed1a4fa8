#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ck_msgref.h"

static rd_kafka_t *client;

/* A record with one header, like one that librdkafka fetches. */
static rd_kafka_message_t *new_message(void) {
        rd_kafka_message_t *rkmessage = NULL;
        rd_kafka_headers_t *headers = rd_kafka_headers_new(1);

        rd_kafka_header_add(headers, "name", -1, "value", -1);
        CHECK(rd_kafka_producev(client, RD_KAFKA_V_TOPIC("topic"),
                                RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_HEADERS(headers),
                                RD_KAFKA_V_END) == 0);
        CHECK(rd_kafka_flush(client, 10000) == 0);
        while (!rkmessage) {
                rkmessage = rd_kafka_consumer_poll(rd_kafka_opaque(client), 10000);
                if (rkmessage && rkmessage->err) {
                        rd_kafka_message_destroy(rkmessage);
                        rkmessage = NULL;
                }
        }
        return rkmessage;
}

static void check_and_destroy(rd_kafka_headers_t *headers) {
        const void *value;
        size_t size;

        CHECK(headers && rd_kafka_header_get_last(headers, "name", &value, &size) == 0);
        CHECK(size == 5 && memcmp(value, "value", 5) == 0);
        rd_kafka_headers_destroy(headers);
}

static void test_headers_are_taken_while_the_message_is_lent(void) {
        ck_msgref_t *ref = ck_msgref_new();

        CHECK(ck_msgref_is_free(ref));
        ck_msgref_put(ref, new_message());
        CHECK(!ck_msgref_is_free(ref));
        check_and_destroy(ck_msgref_take_headers(ref));
        CHECK(!ref->rkmessage);
        ck_msgref_drop(ref);
        CHECK(ck_msgref_is_free(ref));
        /* Reuse the same ck_msgref_t. */
        ck_msgref_put(ref, new_message());
        ck_msgref_drop(ref);
        CHECK(ck_msgref_is_free(ref) && !ref->rkmessage);
        ck_msgref_unref(ref);
}

static void test_headers_outlive_the_consumer(void) {
        ck_msgref_t *ref = ck_msgref_new();

        ck_msgref_put(ref, new_message());
        ck_msgref_return(ref);
        ck_msgref_return(ref);
        ck_msgref_unref(ref);
        check_and_destroy(ck_msgref_take_headers(ref));
        ck_msgref_drop(ref);

        ref = ck_msgref_new();
        ck_msgref_put(ref, new_message());
        ck_msgref_return(ref);
        ck_msgref_unref(ref);
        ck_msgref_drop(ref); /* the headers were never read */
}

static void test_child_reads_and_destroys_nothing(void) {
        ck_msgref_t *ref = ck_msgref_new(), *dropped = ck_msgref_new();
        rd_kafka_message_t *rkmessage = new_message();
        int status;
        pid_t child;

        ck_msgref_put(ref, rkmessage);
        ck_msgref_put(dropped, new_message());
        child = fork();
        if (child == 0) {
                ck_msgref_unref(ref); /* the consumer is freed first */
                check_and_destroy(ck_msgref_take_headers(ref));
                ck_msgref_drop(ref);
                ck_msgref_drop(dropped);
                ck_msgref_unref(dropped);
                /* Still alive: if it was destroyed, a sanitizer would report this
                 * access. */
                _exit(rkmessage->offset >= 0 && rkmessage->partition == 0 ? 0 : 1);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        check_and_destroy(ck_msgref_take_headers(ref));
        ck_msgref_drop(ref);
        ck_msgref_unref(ref);
        ck_msgref_drop(dropped);
        ck_msgref_unref(dropped);
}

int main(void) {
        rd_kafka_topic_partition_list_t *partitions =
            rd_kafka_topic_partition_list_new(1);
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_mock_cluster_t *mock;
        rd_kafka_t *owner = check_client(RD_KAFKA_PRODUCER, rd_kafka_conf_new()),
                   *consumer;
        const char *servers;

        mock = rd_kafka_mock_cluster_new(owner, 1);
        servers = rd_kafka_mock_cluster_bootstraps(mock);
        CHECK(rd_kafka_mock_topic_create(mock, "topic", 1, 1) == 0);
        check_set(conf, "bootstrap.servers", servers);
        check_set(conf, "group.id", "g");
        check_set(conf, "enable.auto.commit", "false");
        consumer = check_client(RD_KAFKA_CONSUMER, conf);
        CHECK(rd_kafka_poll_set_consumer(consumer) == 0);
        rd_kafka_topic_partition_list_add(partitions, "topic", 0)->offset = 0;
        CHECK(rd_kafka_assign(consumer, partitions) == 0);
        rd_kafka_topic_partition_list_destroy(partitions);
        conf = rd_kafka_conf_new();
        check_set(conf, "bootstrap.servers", servers);
        check_set(conf, "linger.ms", "0");
        rd_kafka_conf_set_opaque(conf, consumer);
        client = check_client(RD_KAFKA_PRODUCER, conf);

        test_headers_are_taken_while_the_message_is_lent();
        test_headers_outlive_the_consumer();
        test_child_reads_and_destroys_nothing();

        CHECK(rd_kafka_consumer_close(consumer) == 0);
        rd_kafka_destroy(consumer);
        rd_kafka_destroy(client);
        rd_kafka_mock_cluster_destroy(mock);
        rd_kafka_destroy(owner);
        return 0;
}
