/*
 * ck_batch: consumed messages on their way from librdkafka to the application.
 *
 * A batch is filled in slices, so that signals and callbacks get their turn; between two slices
 * partitions may be revoked, and what was gathered of them must go. Offsets are stored when the
 * messages are handed over, not when they are fetched: a message that is dropped here, or that is still
 * here when the process dies, does not count as read (enable.auto.offset.store is false).
 *
 * ck_batch_take() makes the batch that the application gets. It never changes: any number of threads may read
 * it, each with a reference (or under the GIL, which the owner's reference does not go without). When the
 * messages must go back earlier than the application lets go, ck_batch_copy() makes another batch with
 * the same rows in memory of its own, and the owner exchanges the two; readers end with the one they began with.
 *
 * Ownership: a batch owns the messages it holds until ck_batch_clear(), ck_batch_destroy() or the last
 * ck_batch_unref(); they must come before the consumer's rd_kafka_destroy(), which waits for every message. In a
 * forked child they free our memory alone: the messages are the parent's.
 * Threads: while it is gathered, one thread at a time, except that ck_batch_drop() may be called by another
 * thread or by a rebalance callback while ck_batch_fill() waits: the caller (the GIL) keeps the drop apart from
 * ck_batch_accept(), and the fill writes only behind the messages that were accepted.
 */
#ifndef CK_BATCH_H
#define CK_BATCH_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_loans.h"
#include "ck_runtime.h"

/* One consumed record, where its bytes lie; valid as long as the caller has a reference to the batch. */
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
        int32_t leader_epoch; /* -1 if not known */
        rd_kafka_resp_err_t err;
} ck_row_t;

typedef struct ck_batch_s {
        struct ck_batch_s *next;         /* for the owner's list of batches */
        rd_kafka_message_t **rkmessages; /* cnt of them; NULL where one was dropped */
        size_t cnt;
        size_t size; /* room in rkmessages */
        size_t head; /* the first one not handed over */
        bool gaps;   /* whether there are NULLs */
        /* Of a batch that was handed over. */
        uint32_t generation;         /* the process that librdkafka lent the messages to */
        _Atomic uint32_t refs;       /* 1 while it is gathered */
        _Atomic uint32_t parsing;    /* held while headers are parsed: the holder's generation, or 0 */
        ck_loans_t *loans;           /* told when the messages are given back; NULL if nobody asks */
        ck_row_t *rows;              /* of a copy: in place of rkmessages */
        rd_kafka_headers_t **headers; /* of a copy: each row's, or NULL; NULL if no row has any */
        char *arena;                 /* of a copy: what the rows point to */
} ck_batch_t;

/* A new batch with room for size messages (at least one), or NULL if memory is short. */
CK_EXPORT ck_batch_t *ck_batch_new(size_t size);

/* Makes room for want more messages. 0, or ENOMEM. Not while a fill is waiting. */
CK_EXPORT int ck_batch_reserve(ck_batch_t *batch, size_t want);

/* Destroys the messages that are left and the batch. NULL is fine. Takes librdkafka's locks. */
CK_EXPORT void ck_batch_destroy(ck_batch_t *batch);

/* Destroys the messages that are left. */
CK_EXPORT void ck_batch_clear(ck_batch_t *batch);

/* Waits up to timeout_ms (-1: forever) for at most want messages, writes them behind the accepted
 * ones and returns how many. The room must have been reserved. Serves callbacks. No lock of
 * ours; the messages count only once ck_batch_accept() was told of them. */
CK_EXPORT size_t ck_batch_fill(ck_batch_t *batch, rd_kafka_queue_t *rkqu, int timeout_ms,
                               size_t want);

/* Adds the messages of the last fill to the batch. */
CK_EXPORT void ck_batch_accept(ck_batch_t *batch, size_t filled);

/* Destroys the messages of the given partitions (all, if partitions is NULL) that are not handed
 * over; their places become NULL. Returns how many. */
CK_EXPORT size_t ck_batch_drop(ck_batch_t *batch,
                               const rd_kafka_topic_partition_list_t *partitions);

/* The offset of the first message of a partition that is not handed over, or -1. */
CK_EXPORT int64_t ck_batch_first_offset(const ck_batch_t *batch, const char *topic,
                                        int32_t partition);

/* Removes the places of dropped messages, and of handed-over ones once they are the most of it, so
 * that handing over one by one costs no more in all. Not while a fill is waiting. */
CK_EXPORT void ck_batch_compact(ck_batch_t *batch);

/* Moves the messages not handed over from one batch to the end of another. 0, or ENOMEM (then
 * nothing has moved). */
CK_EXPORT int ck_batch_move(ck_batch_t *from, ck_batch_t *into);

/* The place (counted from the head) of the first message with an error that is not the end of a partition, or how many
 * messages there are. No gaps. */
CK_EXPORT size_t ck_batch_find_error(const ck_batch_t *batch);

/* Waits up to timeout_ms for messages and destroys them, serving callbacks: how a consumer that is closing
 * serves its queue. (rd_kafka_queue_poll_callback() aborts the process when it meets a message.)
 * Returns how many there were. */
CK_EXPORT size_t ck_batch_skip(rd_kafka_queue_t *rkqu, int timeout_ms);

/* Stores the offsets behind the messages at rkmessages (KIP-320 epochs included). Messages with an
 * error and those of partitions no longer assigned are passed over: nothing can be stored. */
CK_EXPORT void ck_batch_store_offsets(rd_kafka_message_t *const *rkmessages, size_t cnt);

/* Stores the positions of all that is assigned. For when everything fetched was handed over: the position may
 * be further than the last message, behind the marker of a transaction. Asks librdkafka's main thread. */
CK_EXPORT void ck_batch_store_positions(rd_kafka_t *rk);

/* Destroys cnt messages that were accepted by a batch; NULLs are passed over. */
CK_EXPORT void ck_batch_release(rd_kafka_message_t *const *rkmessages, size_t cnt);

/* -- batches that were handed over: in ck_batch_rows.c */

/* Takes the next cnt messages (no gaps) out of a batch that is gathered: the records become a new batch with one
 * reference, the errors are destroyed. NULL if memory is short; then nothing was taken. loans is told
 * when the messages are given back; it may be NULL. */
CK_EXPORT ck_batch_t *ck_batch_take(ck_batch_t *from, size_t cnt, ck_loans_t *loans);

/* Another batch with the same rows, headers included, in memory of its own; it has one reference. Parses every
 * header. NULL if memory is short. */
CK_EXPORT ck_batch_t *ck_batch_copy(const ck_batch_t *batch);

/* One more reference; for no longer than a call. Takes no lock. */
CK_EXPORT void ck_batch_ref(ck_batch_t *batch);

/* One less; with the last one the messages are destroyed, which takes librdkafka's locks. NULL is fine. */
CK_EXPORT void ck_batch_unref(ck_batch_t *batch);

/* A reference for as long as the application likes: whoever destroys the consumer does not wait for it. */
CK_EXPORT void ck_batch_pin(ck_batch_t *batch);
CK_EXPORT void ck_batch_unpin(ck_batch_t *batch);

/* Message i (counted from the head; no gaps), as a row. Takes no lock. */
CK_EXPORT void ck_batch_row(const ck_batch_t *batch, size_t i, ck_row_t *row);

/* The headers of message i, which stay the batch's; NULL if there are none. Parses them at the first call for
 * a message. Any thread: it takes a lock of the batch for that long. */
CK_EXPORT rd_kafka_headers_t *ck_batch_headers(const ck_batch_t *batch, size_t i);

/* Has the headers of cnt messages from start on, step apart, parsed. */
CK_EXPORT void ck_batch_parse_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step,
                                      size_t cnt);

/* Columns of numbers. */
typedef enum ck_number_e {
        CK_NUMBER_OFFSET = 0,     /* int64_t */
        CK_NUMBER_TIMESTAMP,      /* int64_t, ms */
        CK_NUMBER_TIMESTAMP_TYPE, /* int32_t, as all that follow */
        CK_NUMBER_PARTITION,
        CK_NUMBER_LEADER_EPOCH,
} ck_number_t;

/* Writes the numbers of cnt messages from start on, step apart, to out. Takes no lock. */
CK_EXPORT void ck_batch_numbers(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                                ck_number_t number, void *out);

/* The positions behind these messages, one of each partition, with the leaders' epochs; the caller destroys the
 * list. Takes no lock. */
CK_EXPORT rd_kafka_topic_partition_list_t *
ck_batch_positions(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt);

/* The value, the key and the topic's name of message i: what is read of millions. */
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
