/* The application's batches: see ck_batch.h. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ck_batch.h"

ck_batch_t *ck_batch_take(ck_batch_t *from, size_t cnt, ck_loans_t *loans) {
        ck_batch_t *batch = ck_batch_new(cnt);
        size_t i;

        if (!batch)
                return NULL;
        for (i = from->head; i < from->head + cnt; i++) {
                if (from->rkmessages[i]->err)
                        ck_batch_release(&from->rkmessages[i], 1);
                else
                        batch->rkmessages[batch->cnt++] = from->rkmessages[i];
        }
        from->head += cnt;
        if (loans && batch->cnt) {
                ck_loans_add(loans);
                batch->loans = loans;
        }
        return batch;
}

/* The memory that a batch's copy needs for its bytes and names. The copy stores a topic's
 * name once per run of its records. */
static size_t ck_batch_arena_size(const ck_batch_t *batch) {
        const char *topic = NULL;
        size_t size = 1; /* never 0: all values may be empty */
        size_t i;

        for (i = 0; i < batch->cnt - batch->head; i++) {
                const char *name = ck_batch_topic(batch, i);
                size_t len;

                ck_batch_value(batch, i, &len);
                size += len;
                ck_batch_key(batch, i, &len);
                size += len;
                if (name != topic)
                        size += strlen(name) + 1;
                topic = name;
        }
        return size;
}

static const void *ck_batch_keep(char **into, const void *bytes, size_t len) {
        const void *kept = *into;

        if (!bytes)
                return NULL;
        memcpy(*into, bytes, len);
        *into += len;
        return kept;
}

ck_batch_t *ck_batch_copy(const ck_batch_t *batch) {
        size_t cnt = batch->cnt - batch->head;
        ck_batch_t *copy = calloc(1, sizeof(*copy));
        const char *topic = NULL, *kept = NULL;
        char *into;
        size_t i;

        if (!copy)
                return NULL;
        copy->generation = batch->generation;
        copy->refs = 1;
        copy->rows = malloc((cnt ? cnt : 1) * sizeof(*copy->rows));
        copy->arena = into = malloc(ck_batch_arena_size(batch));
        if (!copy->rows || !into)
                goto fail;
        for (i = 0; i < cnt; i++) {
                ck_row_t *row = &copy->rows[i];
                rd_kafka_headers_t *headers = ck_batch_headers(batch, i);

                ck_batch_row(batch, i, row);
                if (row->topic != topic) {
                        topic = row->topic;
                        /* NOLINTNEXTLINE(*.NonNullParamChecker): a record has a topic. */
                        kept = ck_batch_keep(&into, topic, strlen(topic) + 1);
                }
                row->topic = kept;
                row->value = ck_batch_keep(&into, row->value, row->value_len);
                row->key = ck_batch_keep(&into, row->key, row->key_len);
                copy->cnt++;
                if (!headers)
                        continue;
                if (!copy->headers &&
                    !(copy->headers = calloc(cnt, sizeof(*copy->headers))))
                        goto fail;
                copy->headers[i] = rd_kafka_headers_copy(headers);
        }
        return copy;

fail:
        ck_batch_unref(copy);
        return NULL;
}

void ck_batch_ref(ck_batch_t *batch) {
        atomic_fetch_add_explicit(&batch->refs, 1, memory_order_relaxed);
}

void ck_batch_unref(ck_batch_t *batch) {
        ck_loans_t *loans;
        bool inherited;
        size_t i;

        /* acq_rel: the last thread frees memory that the others have read. */
        if (!batch ||
            atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) != 1)
                return;
        loans = batch->loans;
        inherited = batch->generation != ck_runtime_generation;
        if (batch->headers)
                for (i = 0; i < batch->cnt; i++)
                        if (batch->headers[i])
                                rd_kafka_headers_destroy(batch->headers[i]);
        free(batch->headers);
        free(batch->rows);
        free(batch->arena);
        ck_batch_destroy(batch);
        /* Last: after this the handle may be destroyed. */
        if (loans && !inherited)
                ck_loans_sub(loans);
}

void ck_batch_pin(ck_batch_t *batch) {
        ck_batch_ref(batch);
        if (batch->loans && batch->generation == ck_runtime_generation)
                ck_loans_pin(batch->loans);
}

void ck_batch_unpin(ck_batch_t *batch) {
        if (batch->loans && batch->generation == ck_runtime_generation)
                ck_loans_unpin(batch->loans);
        ck_batch_unref(batch);
}

void ck_batch_row(const ck_batch_t *batch, size_t i, ck_row_t *row) {
        const rd_kafka_message_t *rkmessage;
        rd_kafka_timestamp_type_t type;

        if (batch->rows) {
                *row = batch->rows[i];
                return;
        }
        rkmessage = batch->rkmessages[batch->head + i];
        row->topic = rkmessage->rkt ? rd_kafka_topic_name(rkmessage->rkt) : NULL;
        row->value = rkmessage->payload;
        row->value_len = rkmessage->len;
        row->key = rkmessage->key;
        row->key_len = rkmessage->key_len;
        row->offset = rkmessage->offset;
        row->timestamp = rd_kafka_message_timestamp(rkmessage, &type);
        row->timestamp_type = type;
        row->partition = rkmessage->partition;
        row->leader_epoch = rd_kafka_message_leader_epoch(rkmessage);
        row->delivery_count =
            batch->messages ? rd_kafka_message_delivery_count(rkmessage) : -1;
        row->err = rkmessage->err;
}

/* librdkafka parses headers at the first access and keeps them in the message, without a
 * lock. cykafka's lock is free when it is 0, or when its holder is a thread of the parent
 * process, from before a fork. That thread has either not yet written to the message or
 * is done with it, because it writes only a pointer. */
rd_kafka_headers_t *ck_batch_headers(const ck_batch_t *batch, size_t i) {
        _Atomic uint32_t *parsing = &((ck_batch_t *)batch)->parsing;
        rd_kafka_headers_t *headers = NULL;

        if (batch->rows)
                return batch->headers ? batch->headers[i] : NULL;
        for (;;) {
                uint32_t holder = atomic_load_explicit(parsing, memory_order_relaxed);
                if (holder != ck_runtime_generation &&
                    atomic_compare_exchange_weak_explicit(
                        parsing, &holder, ck_runtime_generation, memory_order_acquire,
                        memory_order_relaxed))
                        break;
                sched_yield();
        }
        if (rd_kafka_message_headers(batch->rkmessages[batch->head + i], &headers))
                headers = NULL;
        atomic_store_explicit(parsing, 0, memory_order_release);
        return headers;
}

static inline size_t ck_batch_at(size_t start, ptrdiff_t step, size_t i) {
        return (size_t)((ptrdiff_t)start + (ptrdiff_t)i * step);
}

void ck_batch_parse_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step,
                            size_t cnt) {
        size_t i;

        if (batch->rows)
                return;
        for (i = 0; i < cnt; i++)
                ck_batch_headers(batch, ck_batch_at(start, step, i));
}

/* Reads only the requested number: each one lies in other memory or costs a call. */
static int64_t ck_batch_number(const ck_batch_t *batch, size_t i, ck_number_t number) {
        const ck_row_t *row = batch->rows ? &batch->rows[i] : NULL;
        const rd_kafka_message_t *rkmessage =
            row ? NULL : batch->rkmessages[batch->head + i];
        rd_kafka_timestamp_type_t type;

        switch (number) {
        case CK_NUMBER_OFFSET:
                return row ? row->offset : rkmessage->offset;
        case CK_NUMBER_PARTITION:
                return row ? row->partition : rkmessage->partition;
        case CK_NUMBER_LEADER_EPOCH:
                return row ? row->leader_epoch : rd_kafka_message_leader_epoch(rkmessage);
        case CK_NUMBER_DELIVERY_COUNT:
                if (row)
                        return row->delivery_count;
                return batch->messages ? rd_kafka_message_delivery_count(rkmessage) : -1;
        case CK_NUMBER_TIMESTAMP:
                return row ? row->timestamp
                           : rd_kafka_message_timestamp(rkmessage, &type);
        default:
                if (row)
                        return row->timestamp_type;
                rd_kafka_message_timestamp(rkmessage, &type);
                return type;
        }
}

void ck_batch_numbers(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                      ck_number_t number, void *out) {
        size_t i;

        for (i = 0; i < cnt; i++) {
                int64_t value =
                    ck_batch_number(batch, ck_batch_at(start, step, i), number);

                if (number <= CK_NUMBER_TIMESTAMP)
                        ((int64_t *)out)[i] = value;
                else
                        ((int32_t *)out)[i] = (int32_t)value;
        }
}

static void ck_batch_add_position(rd_kafka_topic_partition_list_t *list,
                                  const char *topic, int32_t partition, int64_t offset,
                                  int32_t leader_epoch) {
        rd_kafka_topic_partition_t *rktpar =
            rd_kafka_topic_partition_list_add(list, topic, partition);

        rktpar->offset = offset;
        if (leader_epoch >= 0)
                rd_kafka_topic_partition_set_leader_epoch(rktpar, leader_epoch);
}

rd_kafka_topic_partition_list_t *ck_batch_positions(const ck_batch_t *batch, size_t start,
                                                    ptrdiff_t step, size_t cnt) {
        rd_kafka_topic_partition_list_t *runs = rd_kafka_topic_partition_list_new(64);
        rd_kafka_topic_partition_list_t *positions =
            rd_kafka_topic_partition_list_new(64);
        ck_row_t run = {0}, row;
        size_t i;
        int j;

        /* First the furthest offset of each run of records of a partition. Then, after
         * sorting, the furthest of each partition. */
        for (i = 0; i < cnt; i++) {
                ck_batch_row(batch, ck_batch_at(start, step, i), &row);
                if (i && row.topic == run.topic && row.partition == run.partition) {
                        if (row.offset > run.offset)
                                run = row;
                        continue;
                }
                if (i)
                        ck_batch_add_position(runs, run.topic, run.partition,
                                              run.offset + 1, run.leader_epoch);
                run = row;
        }
        if (cnt)
                ck_batch_add_position(runs, run.topic, run.partition, run.offset + 1,
                                      run.leader_epoch);
        rd_kafka_topic_partition_list_sort(runs, NULL, NULL);
        for (j = 0; j < runs->cnt; j++) {
                const rd_kafka_topic_partition_t *from = &runs->elems[j];
                rd_kafka_topic_partition_t *last =
                    positions->cnt ? &positions->elems[positions->cnt - 1] : NULL;

                if (last && last->partition == from->partition &&
                    strcmp(last->topic, from->topic) == 0) {
                        if (from->offset <= last->offset)
                                continue;
                        last->offset = from->offset;
                        rd_kafka_topic_partition_set_leader_epoch(
                            last, rd_kafka_topic_partition_get_leader_epoch(from));
                        continue;
                }
                ck_batch_add_position(positions, from->topic, from->partition,
                                      from->offset,
                                      rd_kafka_topic_partition_get_leader_epoch(from));
        }
        rd_kafka_topic_partition_list_destroy(runs);
        return positions;
}
