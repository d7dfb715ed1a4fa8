/*
 * ck_batch: consumed messages on their way from librdkafka to the application.
 *
 * The caller fills a batch in slices, so that signals and callbacks can run in between.
 * If the group revokes partitions between two slices, the caller drops their messages.
 * The consumer stores offsets when it returns messages, not when it fetches them
 * (enable.auto.offset.store is false). So the group reads a message again if it was
 * dropped here, or was still here when the process died.
 *
 * ck_batch_take() creates the application's batch, which never changes. Any number of
 * threads may read it, each with a reference. (A thread with the GIL needs no reference,
 * because the owner drops its reference only with the GIL.) If the messages must return
 * to librdkafka before the application releases the batch, ck_batch_copy() creates a
 * batch with the same rows in its own memory, and the owner swaps the two. A reader
 * keeps the batch it began with.
 *
 * Ownership: a batch owns its messages until ck_batch_clear(), ck_batch_destroy() or the
 * last ck_batch_unref(). These must come before the consumer's rd_kafka_destroy(), which
 * waits for every message. In a forked child they free only cykafka's memory: the
 * messages belong to the parent. Threads: while a batch is filled, only one thread at a
 * time may use it, with one exception. While ck_batch_fill() waits, another thread or a
 * rebalance callback may call ck_batch_drop(). The caller (the GIL) keeps the drop apart
 * from ck_batch_accept(), and the fill writes only after the accepted messages.
 */
#ifndef CK_BATCH_H
#define CK_BATCH_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_loans.h"
#include "ck_runtime.h"

/* One consumed record; its pointers are valid as long as the caller has a reference to
 * the batch. */
typedef struct ck_row_s {
        const char *topic;
        const void *value; /* NULL: a tombstone */
        const void *key;   /* NULL: none */
        size_t value_len;
        size_t key_len;
        int64_t offset;
        int64_t timestamp;      /* ms, -1 if not known */
        int32_t timestamp_type; /* rd_kafka_timestamp_type_t */
        int32_t partition;
        int32_t leader_epoch;   /* -1 if not known */
        int32_t delivery_count; /* in a share group, or -1 */
        rd_kafka_resp_err_t err;
} ck_row_t;

typedef struct ck_batch_s {
        struct ck_batch_s *next;         /* for the owner's list of batches */
        rd_kafka_message_t **rkmessages; /* cnt messages; NULL where one was dropped */
        rd_kafka_messages_t *messages; /* of a share consumer: what owns them, or NULL */
        size_t cnt;
        size_t size; /* room in rkmessages */
        size_t head; /* the first message not returned */
        bool gaps;   /* whether there are NULLs */
        /* Only in the application's batches. */
        uint32_t generation;   /* the process that fetched the messages */
        _Atomic uint32_t refs; /* 1 while the batch is filled */
        _Atomic uint32_t
            parsing; /* held while headers are parsed: the holder's generation, or 0 */
        ck_loans_t *loans; /* counts the batch until its messages are returned, or NULL */
        ck_row_t *rows;    /* of a copy: in place of rkmessages */
        rd_kafka_headers_t *
            *headers; /* of a copy: each row's, or NULL; NULL if no row has any */
        char *arena;  /* of a copy: what the rows point to */
} ck_batch_t;

/* A new batch with room for size messages (at least one), or NULL if memory is short. */
CK_EXPORT ck_batch_t *ck_batch_new(size_t size);

/* Reserves room for want more messages. Returns 0 or ENOMEM. Not while a fill waits. */
CK_EXPORT int ck_batch_reserve(ck_batch_t *batch, size_t want);

/* Destroys the remaining messages and the batch. NULL is fine. Takes librdkafka's
 * locks. */
CK_EXPORT void ck_batch_destroy(ck_batch_t *batch);

/* Destroys the remaining messages. */
CK_EXPORT void ck_batch_clear(ck_batch_t *batch);

/* Waits up to timeout_ms (-1: forever) for at most want messages, writes them after the
 * accepted ones and returns their number. The room must have been reserved. Serves
 * callbacks. Takes no cykafka lock. ck_batch_accept() then adds them to the batch. */
CK_EXPORT size_t ck_batch_fill(ck_batch_t *batch, rd_kafka_queue_t *rkqu, int timeout_ms,
                               size_t want);

/* Adds the messages of the last fill to the batch. */
CK_EXPORT void ck_batch_accept(ck_batch_t *batch, size_t filled);

/* Instead of ck_batch_accept(): appends the last fill's messages to another batch.
 * Returns 0, or ENOMEM without moving anything. */
CK_EXPORT int ck_batch_accept_into(ck_batch_t *batch, size_t filled, ck_batch_t *into);

/* Destroys the unreturned messages of the given partitions (NULL: of all partitions);
 * their places become NULL. Returns the number of destroyed messages. */
CK_EXPORT size_t ck_batch_drop(ck_batch_t *batch,
                               const rd_kafka_topic_partition_list_t *partitions);

/* Appends the unreturned messages of the given partitions to another batch; their places
 * become NULL. Skips partitions whose list entry has an error. Returns 0, or ENOMEM
 * without moving anything. Call it whenever ck_batch_drop() is allowed, unless a fill
 * waits for `into`. */
CK_EXPORT int ck_batch_hold(ck_batch_t *batch,
                            const rd_kafka_topic_partition_list_t *partitions,
                            ck_batch_t *into);

/* The offset of a partition's first unreturned message, or -1. */
CK_EXPORT int64_t ck_batch_first_offset(const ck_batch_t *batch, const char *topic,
                                        int32_t partition);

/* Removes the places of dropped and returned messages if any message was dropped or at
 * least half were returned, so that the total cost stays linear. Not while a fill
 * waits. */
CK_EXPORT void ck_batch_compact(ck_batch_t *batch);

/* Appends one batch's unreturned messages to another batch. Returns 0, or ENOMEM without
 * moving anything. */
CK_EXPORT int ck_batch_move(ck_batch_t *from, ck_batch_t *into);

/* The index (from the head) of the first message with an error other than the end of a
 * partition, or the number of messages. The batch must have no gaps. */
CK_EXPORT size_t ck_batch_find_error(const ck_batch_t *batch);

/* Waits up to timeout_ms for messages and destroys them, serving callbacks. A closing
 * consumer serves its queue this way, because rd_kafka_queue_poll_callback() aborts the
 * process when it finds a message. Returns the number of messages destroyed. */
CK_EXPORT size_t ck_batch_skip(rd_kafka_queue_t *rkqu, int timeout_ms);

/* Stores the offsets after the messages at rkmessages (KIP-320 epochs included). Skips
 * messages with an error and messages of partitions that are no longer assigned: their
 * offsets cannot be stored. */
CK_EXPORT void ck_batch_store_offsets(rd_kafka_message_t *const *rkmessages, size_t cnt);

/* Stores the positions of all assigned partitions except those in `but` (NULL: no
 * exceptions). Call it after the consumer has returned all fetched messages of the other
 * partitions. A position may be beyond the last message, after a transaction's marker.
 * Waits for librdkafka's main thread. */
CK_EXPORT void ck_batch_store_positions(rd_kafka_t *rk,
                                        const rd_kafka_topic_partition_list_t *but);

/* Destroys cnt accepted messages; skips NULLs. */
CK_EXPORT void ck_batch_release(rd_kafka_message_t *const *rkmessages, size_t cnt);

/* -- the application's batches: in ck_batch_rows.c */

/* Takes the next cnt messages (no gaps) out of a filled batch. Puts the records into a
 * new batch with one reference, and destroys the errors. Returns NULL without taking
 * anything if memory is short. loans, which may be NULL, counts the batch until its
 * messages are returned. */
CK_EXPORT ck_batch_t *ck_batch_take(ck_batch_t *from, size_t cnt, ck_loans_t *loans);

/* Another batch with the same rows and headers in its own memory, with one reference.
 * Parses every header. NULL if memory is short. */
CK_EXPORT ck_batch_t *ck_batch_copy(const ck_batch_t *batch);

/* Adds a reference, which the caller keeps for at most one call. Takes no lock. */
CK_EXPORT void ck_batch_ref(ck_batch_t *batch);

/* Drops a reference. The last drop destroys the messages, which takes librdkafka's locks.
 * NULL is fine. */
CK_EXPORT void ck_batch_unref(ck_batch_t *batch);

/* Adds a reference that the application may keep for any time. Destroying the consumer
 * does not wait for it. */
CK_EXPORT void ck_batch_pin(ck_batch_t *batch);
CK_EXPORT void ck_batch_unpin(ck_batch_t *batch);

/* Message i (counted from the head; no gaps), as a row. Takes no lock. */
CK_EXPORT void ck_batch_row(const ck_batch_t *batch, size_t i, ck_row_t *row);

/* The headers of message i, owned by the batch; NULL without headers. The first call for
 * a message parses them under the batch's lock. Any thread. */
CK_EXPORT rd_kafka_headers_t *ck_batch_headers(const ck_batch_t *batch, size_t i);

/* Parses the headers of cnt messages from start on, step apart. */
CK_EXPORT void ck_batch_parse_headers(const ck_batch_t *batch, size_t start,
                                      ptrdiff_t step, size_t cnt);

/* Columns of numbers. */
typedef enum ck_number_e {
        CK_NUMBER_OFFSET = 0,     /* int64_t */
        CK_NUMBER_TIMESTAMP,      /* int64_t, ms */
        CK_NUMBER_TIMESTAMP_TYPE, /* int32_t, as all that follow */
        CK_NUMBER_PARTITION,
        CK_NUMBER_LEADER_EPOCH,
        CK_NUMBER_DELIVERY_COUNT, /* -1 outside of a share group */
} ck_number_t;

/* Writes the numbers of cnt messages from start on, step apart, to out. Takes no lock. */
CK_EXPORT void ck_batch_numbers(const ck_batch_t *batch, size_t start, ptrdiff_t step,
                                size_t cnt, ck_number_t number, void *out);

/* The positions after these messages, one for each partition, with the leaders' epochs.
 * The caller destroys the list. Takes no lock. */
CK_EXPORT rd_kafka_topic_partition_list_t *
ck_batch_positions(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt);

/* The value, the key and the topic's name of message i, inline because they are read for
 * millions of messages. */
static inline const void *ck_batch_value(const ck_batch_t *batch, size_t i, size_t *len) {
        if (batch->rows) {
                *len = batch->rows[i].value_len;
                return batch->rows[i].value;
        }
        *len = batch->rkmessages[batch->head + i]->len;
        return batch->rkmessages[batch->head + i]->payload;
}

static inline const void *ck_batch_key(const ck_batch_t *batch, size_t i, size_t *len) {
        if (batch->rows) {
                *len = batch->rows[i].key_len;
                return batch->rows[i].key;
        }
        *len = batch->rkmessages[batch->head + i]->key_len;
        return batch->rkmessages[batch->head + i]->key;
}

static inline const char *ck_batch_topic(const ck_batch_t *batch, size_t i) {
        if (batch->rows)
                return batch->rows[i].topic;
        return rd_kafka_topic_name(batch->rkmessages[batch->head + i]->rkt);
}

#endif
