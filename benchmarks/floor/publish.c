/*
 * The floor of publish(): batches of FLOOR_CHUNK records, with delivery reports.
 *
 * Modes:
 *   batch_copy       rd_kafka_produce_batch(), librdkafka copies each value
 *   batch_borrow     the same without RD_KAFKA_MSG_F_COPY: values stay where they are
 *   headers_copy     rd_kafka_produceva() by topic handle with a key and two headers
 *   headers_borrow   the same without RD_KAFKA_MSG_F_COPY
 *
 * The partitioner chooses. If the queue is full, the program serves reports until there
 * is room, as a publisher does under back pressure. Then it continues the batch.
 */
#include "floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL_POLL_MS 10

static int64_t delivered;

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        (void)rk;
        (void)opaque;
        if (message->err)
                floor_die("delivery failed: %s", rd_kafka_err2str(message->err));
        delivered++;
}

static void publish_batch(rd_kafka_t *rk, rd_kafka_topic_t *topic, int flags,
                          rd_kafka_message_t *batch) {
        int sent = 0;
        for (;;) {
                /* A full queue refuses a record and all records after it. */
                sent += rd_kafka_produce_batch(topic, RD_KAFKA_PARTITION_UA, flags,
                                               batch + sent, FLOOR_CHUNK - sent);
                if (sent == FLOOR_CHUNK)
                        return;
                if (batch[sent].err != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        floor_die("produce: %s", rd_kafka_err2str(batch[sent].err));
                rd_kafka_poll(rk, FULL_POLL_MS);
        }
}

static void publish_with_headers(rd_kafka_t *rk, rd_kafka_topic_t *topic, int flags,
                                 rd_kafka_message_t *batch) {
        rd_kafka_vu_t vus[6] = {
            {.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic},
            {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = flags},
            {.vtype = RD_KAFKA_VTYPE_VALUE},
            {.vtype = RD_KAFKA_VTYPE_KEY},
            {.vtype = RD_KAFKA_VTYPE_HEADER},
            {.vtype = RD_KAFKA_VTYPE_HEADER},
        };
        for (int i = 0; i < FLOOR_CHUNK;) {
                rd_kafka_message_t *record = batch + i;
                vus[2].u.mem.ptr = record->payload;
                vus[2].u.mem.size = record->len;
                vus[3].u.mem.ptr = record->key;
                vus[3].u.mem.size = record->key_len;
                floor_header(vus + 4, 0, batch[i % FLOOR_TYPES].key, FLOOR_KEY_SIZE);
                floor_header(vus + 5, 1, record->key, record->key_len);
                rd_kafka_error_t *error = rd_kafka_produceva(rk, vus, 6);
                if (!error) {
                        i++;
                } else {
                        if (rd_kafka_error_code(error) != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                                floor_die("produce: %s", rd_kafka_error_string(error));
                        rd_kafka_error_destroy(error);
                        rd_kafka_poll(rk, FULL_POLL_MS);
                }
        }
}

typedef void publish_fn_t(rd_kafka_t *, rd_kafka_topic_t *, int, rd_kafka_message_t *);

static void publish_all(rd_kafka_t *rk, rd_kafka_topic_t *topic, publish_fn_t *publish,
                        int flags, rd_kafka_message_t *batch, int64_t messages) {
        for (int64_t sent = 0; sent < messages; sent += FLOOR_CHUNK) {
                publish(rk, topic, flags, batch);
                rd_kafka_poll(rk, 0);
        }
        rd_kafka_flush(rk, -1);
}

int main(int argc, char **argv) {
        floor_args_t args;
        floor_clock_t clock;
        floor_parse(argc, argv, &args);
        if (args.messages % FLOOR_CHUNK)
                floor_die("MESSAGES: expected a multiple of %d", FLOOR_CHUNK);
        int headers = !strncmp(args.mode, "headers_", 8);
        const char *how = strchr(args.mode, '_');
        int copy = how && !strcmp(how, "_copy");
        if ((!headers && strncmp(args.mode, "batch_", 6) != 0) ||
            (!copy && (!how || strcmp(how, "_borrow") != 0)))
                floor_die(
                    "unknown mode \"%s\": expected batch_ or headers_, copy or borrow",
                    args.mode);
        publish_fn_t *publish = headers ? publish_with_headers : publish_batch;
        int flags = copy ? RD_KAFKA_MSG_F_COPY : 0;

        rd_kafka_conf_set_dr_msg_cb(args.conf, on_delivery);
        rd_kafka_topic_t *topic;
        rd_kafka_t *rk = floor_producer(&args, &topic);
        char *values = floor_values(FLOOR_CHUNK, args.value_size);
        char *keys = headers ? floor_keys(FLOOR_CHUNK) : NULL;
        rd_kafka_message_t *batch = calloc(FLOOR_CHUNK, sizeof(*batch));
        if (!batch)
                floor_die("out of memory");
        for (size_t i = 0; i < FLOOR_CHUNK; i++) {
                batch[i].payload = values + i * args.value_size;
                batch[i].len = args.value_size;
                if (keys) {
                        batch[i].key = keys + i * FLOOR_KEY_SIZE;
                        batch[i].key_len = FLOOR_KEY_SIZE;
                }
        }

        publish_all(rk, topic, publish, flags, batch, FLOOR_CHUNK);
        floor_start(&clock);
        publish_all(rk, topic, publish, flags, batch, args.messages);
        floor_report(&clock, args.messages, FLOOR_CHUNK + args.messages, NULL);
        if (delivered != FLOOR_CHUNK + args.messages)
                floor_die("delivered %lld of %lld", (long long)delivered,
                          (long long)(FLOOR_CHUNK + args.messages));

        rd_kafka_topic_destroy(topic);
        rd_kafka_destroy(rk);
        free(batch);
        free(keys);
        free(values);
        return 0;
}
