#include "ck_batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ck_callback.h"

ck_batch_t *ck_batch_new(size_t size) {
        ck_batch_t *batch = calloc(1, sizeof(*batch));

        if (!batch)
                return NULL;
        if (ck_batch_reserve(batch, size ? size : 1)) {
                free(batch);
                return NULL;
        }
        batch->generation = ck_runtime_generation;
        batch->refs = 1;
        return batch;
}

int ck_batch_reserve(ck_batch_t *batch, size_t want) {
        rd_kafka_message_t **grown;
        size_t size = batch->size;

        if (batch->cnt + want <= size)
                return 0;
        size = batch->cnt + want > size * 2 ? batch->cnt + want : size * 2;
        grown = realloc(batch->rkmessages, size * sizeof(*grown));
        if (!grown)
                return ENOMEM;
        batch->rkmessages = grown;
        batch->size = size;
        return 0;
}

void ck_batch_clear(ck_batch_t *batch) {
        if (batch->messages && batch->generation == ck_runtime_generation) {
                ck_runtime_count(CK_KIND_FETCHED,
                                 -(int64_t)rd_kafka_messages_count(batch->messages));
                rd_kafka_messages_destroy(batch->messages);
        } else if (batch->rkmessages && batch->generation == ck_runtime_generation)
                ck_batch_release(batch->rkmessages + batch->head,
                                 batch->cnt - batch->head);
        batch->messages = NULL;
        batch->cnt = batch->head = 0;
        batch->gaps = false;
}

void ck_batch_destroy(ck_batch_t *batch) {
        if (!batch)
                return;
        ck_batch_clear(batch);
        free(batch->rkmessages);
        free(batch);
}

size_t ck_batch_fill(ck_batch_t *batch, rd_kafka_queue_t *rkqu, int timeout_ms,
                     size_t want) {
        ssize_t cnt = ck_callback_consume_batch(rkqu, timeout_ms,
                                                batch->rkmessages + batch->cnt, want);

        return cnt > 0 ? (size_t)cnt : 0;
}

void ck_batch_accept(ck_batch_t *batch, size_t filled) {
        batch->cnt += filled;
        ck_runtime_count(CK_KIND_FETCHED, (int64_t)filled);
}

int ck_batch_accept_into(ck_batch_t *batch, size_t filled, ck_batch_t *into) {
        if (ck_batch_reserve(into, filled))
                return ENOMEM;
        memcpy(into->rkmessages + into->cnt, batch->rkmessages + batch->cnt,
               filled * sizeof(*into->rkmessages));
        ck_batch_accept(into, filled);
        return 0;
}

static int ck_batch_is_of(const rd_kafka_message_t *rkmessage,
                          const rd_kafka_topic_partition_list_t *partitions) {
        if (!rkmessage->rkt)
                return 0; /* an error of the consumer as a whole */
        return !partitions || rd_kafka_topic_partition_list_find(
                                  partitions, rd_kafka_topic_name(rkmessage->rkt),
                                  rkmessage->partition) != NULL;
}

size_t ck_batch_drop(ck_batch_t *batch,
                     const rd_kafka_topic_partition_list_t *partitions) {
        size_t dropped = 0;
        size_t i;

        for (i = batch->head; i < batch->cnt; i++) {
                rd_kafka_message_t *rkmessage = batch->rkmessages[i];

                if (!rkmessage || !ck_batch_is_of(rkmessage, partitions))
                        continue;
                batch->rkmessages[i] = NULL;
                ck_batch_release(&rkmessage, 1);
                batch->gaps = true;
                dropped++;
        }
        return dropped;
}

/* Whether the list contains the message's partition, without an error. */
static bool ck_batch_is_held(const rd_kafka_message_t *rkmessage,
                             const rd_kafka_topic_partition_list_t *partitions) {
        const rd_kafka_topic_partition_t *rktpar;

        if (!rkmessage || !rkmessage->rkt)
                return false;
        rktpar = rd_kafka_topic_partition_list_find(
            partitions, rd_kafka_topic_name(rkmessage->rkt), rkmessage->partition);
        return rktpar && !rktpar->err;
}

int ck_batch_hold(ck_batch_t *batch, const rd_kafka_topic_partition_list_t *partitions,
                  ck_batch_t *into) {
        size_t cnt = 0;
        size_t i;

        for (i = batch->head; i < batch->cnt; i++)
                cnt += ck_batch_is_held(batch->rkmessages[i], partitions);
        if (!cnt)
                return 0;
        if (ck_batch_reserve(into, cnt))
                return ENOMEM;
        for (i = batch->head; i < batch->cnt; i++) {
                if (!ck_batch_is_held(batch->rkmessages[i], partitions))
                        continue;
                into->rkmessages[into->cnt++] = batch->rkmessages[i];
                batch->rkmessages[i] = NULL;
        }
        batch->gaps = true;
        return 0;
}

int64_t ck_batch_first_offset(const ck_batch_t *batch, const char *topic,
                              int32_t partition) {
        size_t i;

        for (i = batch->head; i < batch->cnt; i++) {
                const rd_kafka_message_t *rkmessage = batch->rkmessages[i];
                if (rkmessage && !rkmessage->err && rkmessage->partition == partition &&
                    strcmp(rd_kafka_topic_name(rkmessage->rkt), topic) == 0)
                        return rkmessage->offset;
        }
        return -1;
}

void ck_batch_compact(ck_batch_t *batch) {
        size_t kept = 0;
        size_t i;

        if (!batch->gaps && batch->head < (batch->cnt + 1) / 2)
                return;
        for (i = batch->head; i < batch->cnt; i++)
                if (batch->rkmessages[i])
                        batch->rkmessages[kept++] = batch->rkmessages[i];
        batch->head = 0;
        batch->cnt = kept;
        batch->gaps = false;
}

int ck_batch_move(ck_batch_t *from, ck_batch_t *into) {
        size_t i;

        if (ck_batch_reserve(into, from->cnt - from->head))
                return ENOMEM;
        for (i = from->head; i < from->cnt; i++)
                if (from->rkmessages[i])
                        into->rkmessages[into->cnt++] = from->rkmessages[i];
        from->cnt = from->head = 0;
        from->gaps = false;
        return 0;
}

size_t ck_batch_find_error(const ck_batch_t *batch) {
        size_t i;

        for (i = batch->head; i < batch->cnt; i++)
                if (batch->rkmessages[i]->err &&
                    batch->rkmessages[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                        break;
        return i - batch->head;
}

size_t ck_batch_skip(rd_kafka_queue_t *rkqu, int timeout_ms) {
        rd_kafka_message_t *rkmessages[256];
        ssize_t cnt = ck_callback_consume_batch(rkqu, timeout_ms, rkmessages,
                                                sizeof(rkmessages) / sizeof(*rkmessages));

        if (cnt <= 0)
                return 0;
        ck_runtime_count(CK_KIND_FETCHED, cnt);
        ck_batch_release(rkmessages, (size_t)cnt);
        return (size_t)cnt;
}

void ck_batch_store_offsets(rd_kafka_message_t *const *rkmessages, size_t cnt) {
        size_t i;

        for (i = 0; i < cnt; i++) {
                rd_kafka_message_t *rkmessage = rkmessages[i];

                if (rkmessage->err)
                        continue;
                /* In a run of one partition, store only the last message's offset. */
                if (i + 1 < cnt && !rkmessages[i + 1]->err &&
                    rkmessages[i + 1]->rkt == rkmessage->rkt &&
                    rkmessages[i + 1]->partition == rkmessage->partition)
                        continue;
                rd_kafka_error_destroy(rd_kafka_offset_store_message(rkmessage));
        }
}

void ck_batch_store_positions(rd_kafka_t *rk,
                              const rd_kafka_topic_partition_list_t *but) {
        rd_kafka_topic_partition_list_t *assigned = NULL;
        rd_kafka_topic_partition_list_t *known;
        int i;

        if (rd_kafka_assignment(rk, &assigned))
                return;
        known = rd_kafka_topic_partition_list_new(assigned->cnt);
        if (rd_kafka_position(rk, assigned) == RD_KAFKA_RESP_ERR_NO_ERROR) {
                for (i = 0; i < assigned->cnt; i++) {
                        rd_kafka_topic_partition_t *from = &assigned->elems[i];
                        rd_kafka_topic_partition_t *to;
                        if (from->err || from->offset < 0 ||
                            (but && rd_kafka_topic_partition_list_find(but, from->topic,
                                                                       from->partition)))
                                continue;
                        to = rd_kafka_topic_partition_list_add(known, from->topic,
                                                               from->partition);
                        to->offset = from->offset;
                        rd_kafka_topic_partition_set_leader_epoch(
                            to, rd_kafka_topic_partition_get_leader_epoch(from));
                }
        }
        if (known->cnt)
                rd_kafka_offsets_store(rk, known);
        rd_kafka_topic_partition_list_destroy(known);
        rd_kafka_topic_partition_list_destroy(assigned);
}

void ck_batch_release(rd_kafka_message_t *const *rkmessages, size_t cnt) {
        int64_t released = 0;
        size_t i;

        for (i = 0; i < cnt; i++) {
                if (!rkmessages[i])
                        continue;
                rd_kafka_message_destroy(rkmessages[i]);
                released++;
        }
        ck_runtime_count(CK_KIND_FETCHED, -released);
}
