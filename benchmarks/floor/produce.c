/*
 * The floor of produce(): rd_kafka_produce() one by one, with copied payloads and
 * delivery reports.
 *
 * Modes:
 *   produce        the partitioner chooses, as for produce(topic, value); measured
 *   unserved       the same, but serves no report before all MESSAGES are produced
 *   chunks         the same, but flushes after each 10,000, as asyncio's programs do
 *   flush          flushes and times each message before the next one; measured
 *   preload        MESSAGES to each partition, for the consumers
 *   preload_keyed  the same with a key and two headers
 */
#include "floor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_FLUSHES 200

static int64_t delivered;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        (void)rk;
        (void)opaque;
        if (message->err)
                floor_die("delivery failed: %s", rd_kafka_err2str(message->err));
        delivered++;
}

static void produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, int32_t partition,
                    char *value, size_t size) {
        while (rd_kafka_produce(topic, partition, RD_KAFKA_MSG_F_COPY, value, size, NULL,
                                0, NULL)) {
                if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        floor_die("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 100);
        }
}

static void produce_keyed(rd_kafka_t *rk, rd_kafka_topic_t *topic, int32_t partition,
                          char *value, size_t size, char *key, char *type) {
        rd_kafka_vu_t vus[7] = {
            {.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic},
            {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = partition},
            {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
            {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {value, size}},
            {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {key, FLOOR_KEY_SIZE}},
        };
        floor_header(vus + 5, 0, type, FLOOR_KEY_SIZE);
        floor_header(vus + 6, 1, key, FLOOR_KEY_SIZE);
        rd_kafka_error_t *error;
        while ((error = rd_kafka_produceva(rk, vus, 7))) {
                if (rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        floor_die("produce: %s", rd_kafka_error_string(error));
                rd_kafka_error_destroy(error);
                rd_kafka_poll(rk, 100);
        }
}

static void produce_all(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t messages,
                        char *values, size_t size, int serve) {
        for (int64_t sent = 0; sent < messages; sent += FLOOR_CHUNK) {
                int64_t left = messages - sent;
                for (int64_t i = 0; i < FLOOR_CHUNK && i < left; i++)
                        produce(rk, topic, RD_KAFKA_PARTITION_UA,
                                values + (size_t)i * size, size);
                if (serve)
                        rd_kafka_poll(rk, 0);
        }
}

/* Fills the partitions in turns, so that their timestamps increase together. Otherwise a
 * reader that merges by timestamp would read one partition at a time. */
static void preload(rd_kafka_t *rk, rd_kafka_topic_t *topic, const floor_args_t *args,
                    char *values, char *keys) {
        for (int64_t i = 0; i < args->messages; i++) {
                size_t n = (size_t)(i % FLOOR_CHUNK);
                char *value = values + n * args->value_size;
                for (int32_t partition = 0; partition < args->partitions; partition++) {
                        if (keys)
                                produce_keyed(rk, topic, partition, value,
                                              args->value_size, keys + n * FLOOR_KEY_SIZE,
                                              keys + n % FLOOR_TYPES * FLOOR_KEY_SIZE);
                        else
                                produce(rk, topic, partition, value, args->value_size);
                }
                if (i % 100 == 0)
                        rd_kafka_poll(rk, 0);
        }
}

static void flush(rd_kafka_t *rk, int64_t expected) {
        rd_kafka_resp_err_t err = rd_kafka_flush(rk, -1);
        if (err || delivered != expected)
                floor_die("flush: %s, delivered %lld of %lld", rd_kafka_err2str(err),
                          (long long)delivered, (long long)expected);
}

static void produce_chunks(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t messages,
                           char *values, size_t size) {
        for (int64_t sent = 0; sent < messages; sent += FLOOR_CHUNK) {
                produce_all(rk, topic, FLOOR_CHUNK, values, size, 0);
                rd_kafka_flush(rk, -1);
        }
}

static void produce_and_flush(rd_kafka_t *rk, rd_kafka_topic_t *topic, int64_t messages,
                              char *values, size_t size, double *latencies) {
        for (int64_t i = 0; i < messages; i++) {
                double start = floor_now();
                produce(rk, topic, RD_KAFKA_PARTITION_UA,
                        values + (size_t)i % FLOOR_CHUNK * size, size);
                rd_kafka_flush(rk, -1);
                latencies[i] = floor_now() - start;
        }
}

int main(int argc, char **argv) {
        floor_args_t args;
        floor_clock_t clock;
        floor_parse(argc, argv, &args);
        rd_kafka_conf_set_dr_msg_cb(args.conf, on_delivery);
        rd_kafka_topic_t *topic;
        rd_kafka_t *rk = floor_producer(&args, &topic);
        char *values = floor_values(FLOOR_CHUNK, args.value_size);

        int serve = !strcmp(args.mode, "produce");
        int chunks = !strcmp(args.mode, "chunks");
        if (serve || chunks || !strcmp(args.mode, "unserved")) {
                produce_all(rk, topic, FLOOR_CHUNK, values, args.value_size, 1);
                flush(rk, FLOOR_CHUNK);
                floor_start(&clock);
                if (chunks)
                        produce_chunks(rk, topic, args.messages, values, args.value_size);
                else
                        produce_all(rk, topic, args.messages, values, args.value_size,
                                    serve);
                rd_kafka_flush(rk, -1);
                floor_report(&clock, args.messages, FLOOR_CHUNK + args.messages, NULL);
                flush(rk, FLOOR_CHUNK + args.messages);
        } else if (!strcmp(args.mode, "flush")) {
                double *latencies = malloc((size_t)args.messages * sizeof(*latencies));
                double warm[WARM_FLUSHES];
                if (!latencies)
                        floor_die("out of memory");
                produce_and_flush(rk, topic, WARM_FLUSHES, values, args.value_size, warm);
                floor_start(&clock);
                produce_and_flush(rk, topic, args.messages, values, args.value_size,
                                  latencies);
                floor_report(&clock, args.messages, WARM_FLUSHES + args.messages,
                             latencies);
                flush(rk, WARM_FLUSHES + args.messages);
                free(latencies);
        } else if (!strncmp(args.mode, "preload", 7)) {
                int keyed = !strcmp(args.mode, "preload_keyed");
                char *keys = keyed ? floor_keys(FLOOR_CHUNK) : NULL;
                preload(rk, topic, &args, values, keys);
                flush(rk, args.messages * args.partitions);
                free(keys);
        } else {
                floor_die(
                    "unknown mode \"%s\": expected produce, unserved, chunks, flush or "
                    "preload[_keyed]",
                    args.mode);
        }
        free(values);
        rd_kafka_topic_destroy(topic);
        rd_kafka_destroy(rk);
        return 0;
}
