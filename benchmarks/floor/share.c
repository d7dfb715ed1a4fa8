/*
 * The floor of the share consumers. It touches every payload and copies none.
 *
 * Modes:
 *   read         rd_kafka_share_poll(), which accepts the records of the last poll
 *   acknowledge  the same in explicit mode, with rd_kafka_share_acknowledge() per record
 *
 * It first reads FLOOR_CHUNK messages of TOPIC-warm. Then it subscribes to TOPIC, reads
 * MESSAGES messages, and commits the last acknowledgements.
 */
#include "floor.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS 1000
#define COMMIT_MS 60000

static uint64_t touched;

static void check(rd_kafka_error_t *error) {
        if (error)
                floor_die("share: %s", rd_kafka_error_string(error));
}

static void read_all(rd_kafka_share_t *share, int64_t messages, int acknowledge) {
        rd_kafka_topic_partition_list_t *results = NULL;
        while (messages > 0) {
                rd_kafka_messages_t *polled;
                check(rd_kafka_share_poll(share, TIMEOUT_MS, &polled));
                size_t cnt = polled ? rd_kafka_messages_count(polled) : 0;
                for (size_t i = 0; i < cnt; i++) {
                        rd_kafka_message_t *message = rd_kafka_messages_get(polled, i);
                        if (message->err)
                                floor_die("share: %s", rd_kafka_message_errstr(message));
                        touched += *(const unsigned char *)message->payload;
                        if (acknowledge && rd_kafka_share_acknowledge(share, message))
                                floor_die("share: cannot acknowledge");
                }
                messages -= (int64_t)cnt;
                if (polled)
                        rd_kafka_messages_destroy(polled);
        }
        check(rd_kafka_share_commit_sync(share, COMMIT_MS, &results));
        if (results)
                rd_kafka_topic_partition_list_destroy(results);
}

static void subscribe(rd_kafka_share_t *share, const char *topic) {
        rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(topics, topic, RD_KAFKA_PARTITION_UA);
        if (rd_kafka_share_subscribe(share, topics))
                floor_die("share: cannot subscribe");
        rd_kafka_topic_partition_list_destroy(topics);
}

int main(int argc, char **argv) {
        char reason[256], warm[256];
        floor_args_t args;
        floor_clock_t clock;
        floor_parse(argc, argv, &args);
        int acknowledge = !strcmp(args.mode, "acknowledge");
        if (!acknowledge && strcmp(args.mode, "read") != 0)
                floor_die("unknown mode \"%s\": expected read or acknowledge", args.mode);
        rd_kafka_share_t *share =
            rd_kafka_share_consumer_new(args.conf, reason, sizeof(reason));
        if (!share)
                floor_die("%s", reason);

        snprintf(warm, sizeof(warm), "%s-warm", args.topic);
        subscribe(share, warm);
        read_all(share, FLOOR_CHUNK, acknowledge);

        floor_start(&clock);
        subscribe(share, args.topic);
        read_all(share, args.messages, acknowledge);
        floor_report(&clock, args.messages, 0, NULL);

        rd_kafka_share_consumer_close(share);
        rd_kafka_share_destroy(share);
        return touched == 0;
}
