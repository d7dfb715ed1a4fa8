/*
 * The floor of the consumers. It touches every payload and copies none.
 *
 * Modes:
 *   consume     rd_kafka_consume_batch_queue(), 10,000 messages at a time
 *   headers     the same, and reads each header
 *   poll        rd_kafka_consumer_poll(), one by one
 *   prefetched  the same, after all MESSAGES were fetched before the measured section
 *
 * It first reads TOPIC-warm, one partition with at least FLOOR_CHUNK messages. So the
 * connections exist before the measured section. Then it assigns all PARTITIONS of TOPIC
 * from the beginning and reads MESSAGES messages from them.
 */
#include "floor.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS 1000

static uint64_t touched;
static int with_headers;

static void take_headers(rd_kafka_message_t *message) {
        rd_kafka_headers_t *headers;
        const char *name;
        const void *value;
        size_t size;
        if (rd_kafka_message_headers(message, &headers))
                floor_die("consume: a message without headers");
        for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size);
             i++)
                touched += size;
}

static void take(rd_kafka_message_t *message) {
        if (message->err)
                floor_die("consume: %s", rd_kafka_message_errstr(message));
        touched += *(const unsigned char *)message->payload;
        if (with_headers)
                take_headers(message);
        rd_kafka_message_destroy(message);
}

static void consume(rd_kafka_queue_t *queue, int64_t messages) {
        static rd_kafka_message_t *batch[FLOOR_CHUNK];
        while (messages > 0) {
                size_t wanted = messages < FLOOR_CHUNK ? (size_t)messages : FLOOR_CHUNK;
                ssize_t n =
                    rd_kafka_consume_batch_queue(queue, TIMEOUT_MS, batch, wanted);
                if (n < 0)
                        floor_die("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
                for (ssize_t i = 0; i < n; i++)
                        take(batch[i]);
                messages -= n;
        }
}

static void poll_each(rd_kafka_t *rk, int64_t messages) {
        while (messages > 0) {
                rd_kafka_message_t *message = rd_kafka_consumer_poll(rk, TIMEOUT_MS);
                if (message) {
                        take(message);
                        messages--;
                }
        }
}

static void assign(rd_kafka_t *rk, const char *topic, int32_t partitions) {
        rd_kafka_topic_partition_list_t *list =
            rd_kafka_topic_partition_list_new(partitions);
        for (int32_t partition = 0; partition < partitions; partition++)
                rd_kafka_topic_partition_list_add(list, topic, partition)->offset =
                    RD_KAFKA_OFFSET_BEGINNING;
        rd_kafka_resp_err_t err = rd_kafka_assign(rk, list);
        if (err)
                floor_die("assign: %s", rd_kafka_err2str(err));
        rd_kafka_topic_partition_list_destroy(list);
}

/* Checks by the positions after the run that each record was read once. */
static void check_positions(rd_kafka_t *rk, const floor_args_t *args) {
        rd_kafka_topic_partition_list_t *list;
        int64_t read = 0;
        if (rd_kafka_assignment(rk, &list) || rd_kafka_position(rk, list))
                floor_die("cannot read the consumer's positions");
        for (int i = 0; i < list->cnt; i++)
                if (list->elems[i].offset > 0)
                        read += list->elems[i].offset;
        if (read != args->messages)
                floor_die("read up to %lld instead of %lld", (long long)read,
                          (long long)args->messages);
        rd_kafka_topic_partition_list_destroy(list);
}

int main(int argc, char **argv) {
        char reason[256], warm[256];
        floor_args_t args;
        floor_clock_t clock;
        floor_parse(argc, argv, &args);
        int prefetched = !strcmp(args.mode, "prefetched");
        int one_by_one = prefetched || !strcmp(args.mode, "poll");
        with_headers = !strcmp(args.mode, "headers");
        if (!one_by_one && !with_headers && strcmp(args.mode, "consume") != 0)
                floor_die(
                    "unknown mode \"%s\": expected consume, headers, poll or prefetched",
                    args.mode);
        rd_kafka_t *rk =
            rd_kafka_new(RD_KAFKA_CONSUMER, args.conf, reason, sizeof(reason));
        if (!rk)
                floor_die("%s", reason);
        rd_kafka_poll_set_consumer(rk);
        rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);

        snprintf(warm, sizeof(warm), "%s-warm", args.topic);
        assign(rk, warm, 1);
        if (one_by_one)
                poll_each(rk, FLOOR_CHUNK);
        else
                consume(queue, FLOOR_CHUNK);

        floor_start(&clock);
        assign(rk, args.topic, args.partitions);
        if (prefetched) {
                floor_wait_idle();
                floor_start(&clock);
        }
        if (one_by_one)
                poll_each(rk, args.messages);
        else
                consume(queue, args.messages);
        floor_report(&clock, args.messages, 0, NULL);

        check_positions(rk, &args);
        rd_kafka_queue_destroy(queue);
        rd_kafka_consumer_close(rk);
        rd_kafka_destroy(rk);
        return touched == 0;
}
