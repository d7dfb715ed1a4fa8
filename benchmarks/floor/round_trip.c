/*
 * The floor of the latencies: one record at a time, with each wait timed.
 *
 * Modes:
 *   publish_one   rd_kafka_produce(), then poll until the delivery report comes
 *   end_to_end    rd_kafka_produce(), then poll a consumer of the same process until it
 *                 returns the record
 *
 * The topic has one partition. The consumer of end_to_end begins at its end.
 */
#include "floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_ROUNDS 200
#define TIMEOUT_MS 10000

static int64_t delivered;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        (void)rk;
        (void)opaque;
        if (message->err)
                floor_die("delivery failed: %s", rd_kafka_err2str(message->err));
        delivered++;
}

static void produce(rd_kafka_topic_t *topic, char *value, size_t size) {
        if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, value, size, NULL, 0, NULL))
                floor_die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
}

static void publish_one(rd_kafka_t *rk, rd_kafka_topic_t *topic, char *value,
                        size_t size) {
        int64_t before = delivered;
        produce(topic, value, size);
        while (delivered == before)
                rd_kafka_poll(rk, TIMEOUT_MS);
}

static void send_and_read(rd_kafka_t *rk, rd_kafka_topic_t *topic, rd_kafka_t *reader,
                          char *value, size_t size) {
        produce(topic, value, size);
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader, TIMEOUT_MS);
        if (!message || message->err)
                floor_die("consume: %s",
                          message ? rd_kafka_message_errstr(message) : "no record came");
        if (message->len != size)
                floor_die("consume: %zu bytes instead of %zu", message->len, size);
        rd_kafka_message_destroy(message);
        rd_kafka_poll(rk, 0);
}

static rd_kafka_t *open_reader(const floor_args_t *args, rd_kafka_conf_t *conf) {
        char reason[256];
        /* Query the watermarks first: otherwise the reader's start position might be
         * determined after the first record. */
        int64_t low, end;
        rd_kafka_conf_set_dr_msg_cb(conf, NULL);
        rd_kafka_t *reader =
            rd_kafka_new(RD_KAFKA_CONSUMER, conf, reason, sizeof(reason));
        if (!reader)
                floor_die("%s", reason);
        rd_kafka_poll_set_consumer(reader);
        rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(
            reader, args->topic, 0, &low, &end, TIMEOUT_MS);
        if (err)
                floor_die("%s: %s", args->topic, rd_kafka_err2str(err));
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, args->topic, 0)->offset = end;
        err = rd_kafka_assign(reader, list);
        if (err)
                floor_die("assign: %s", rd_kafka_err2str(err));
        rd_kafka_topic_partition_list_destroy(list);
        return reader;
}

int main(int argc, char **argv) {
        floor_args_t args;
        floor_clock_t clock;
        floor_parse(argc, argv, &args);
        int end_to_end = !strcmp(args.mode, "end_to_end");
        if (!end_to_end && strcmp(args.mode, "publish_one") != 0)
                floor_die("unknown mode \"%s\": expected publish_one or end_to_end",
                          args.mode);
        rd_kafka_t *reader =
            end_to_end ? open_reader(&args, rd_kafka_conf_dup(args.conf)) : NULL;
        rd_kafka_conf_set_dr_msg_cb(args.conf, on_delivery);
        rd_kafka_topic_t *topic;
        rd_kafka_t *rk = floor_producer(&args, &topic);
        char *values = floor_values(FLOOR_CHUNK, args.value_size);
        double *latencies = malloc((size_t)args.messages * sizeof(*latencies));
        if (!latencies)
                floor_die("out of memory");

        for (int64_t i = -WARM_ROUNDS; i < args.messages; i++) {
                if (i == 0)
                        floor_start(&clock);
                char *value =
                    values + (size_t)(i + WARM_ROUNDS) % FLOOR_CHUNK * args.value_size;
                double start = floor_now();
                if (end_to_end)
                        send_and_read(rk, topic, reader, value, args.value_size);
                else
                        publish_one(rk, topic, value, args.value_size);
                if (i >= 0)
                        latencies[i] = floor_now() - start;
        }
        floor_report(&clock, args.messages, WARM_ROUNDS + args.messages, latencies);
        if (rd_kafka_flush(rk, TIMEOUT_MS) || delivered != WARM_ROUNDS + args.messages)
                floor_die("delivered %lld of %lld", (long long)delivered,
                          (long long)(WARM_ROUNDS + args.messages));

        free(latencies);
        free(values);
        rd_kafka_topic_destroy(topic);
        rd_kafka_destroy(rk);
        if (reader) {
                rd_kafka_consumer_close(reader);
                rd_kafka_destroy(reader);
        }
        return 0;
}
