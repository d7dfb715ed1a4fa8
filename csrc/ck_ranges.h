/*
 * ck_ranges: parts of partitions to read, each from a first offset up to an end.
 *
 * librdkafka fetches beyond the end of a range, and offsets have gaps (compaction,
 * transaction markers, aborted records). A range is therefore done when a record or
 * the partition's end arrives at or after its end, or when the position has passed it.
 * ck_ranges_sift() destroys messages outside the ranges.
 *
 * Ownership: a ck_ranges_t owns copies of the topic names. It does not refer to messages.
 * Threads: one at a time.
 */
#ifndef CK_RANGES_H
#define CK_RANGES_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_runtime.h"

typedef struct ck_range_s {
        char *topic;
        int32_t partition;
        bool met;     /* a message or the partition's end arrived since the assignment */
        int64_t next; /* the first offset not read; when done, `end` */
        int64_t end;  /* the offset after the last one to read */
        int64_t eof;  /* where the partition ended when last fetched completely; -1: not
                         known */
} ck_range_t;

typedef struct ck_ranges_s {
        size_t cnt;
        size_t left;   /* the number of ranges not done */
        size_t last;   /* the index of the range found last */
        uint64_t rows; /* records kept so far, and their bytes: for the mean size */
        uint64_t bytes;
        ck_range_t ranges[];
} ck_ranges_t;

/* Room for cnt ranges, to be set one by one. NULL if memory is short. */
CK_EXPORT ck_ranges_t *ck_ranges_new(size_t cnt);

/* NULL is fine. */
CK_EXPORT void ck_ranges_destroy(ck_ranges_t *ranges);

/* Sets range i, which is done at once if start >= end. Returns 0 or ENOMEM. */
CK_EXPORT int ck_ranges_set(ck_ranges_t *ranges, size_t i, const char *topic,
                            int32_t partition, int64_t start, int64_t end);

/* Sorts the ranges, which all functions below require. Returns the index after the first
 * of two equal partitions, or 0 if there are none. */
CK_EXPORT size_t ck_ranges_sort(ck_ranges_t *ranges);

/* The range of a partition, or NULL. */
CK_EXPORT ck_range_t *ck_ranges_find(ck_ranges_t *ranges, const char *topic,
                                     int32_t partition);

/* Marks all of a range before an offset as read or nonexistent. */
CK_EXPORT void ck_ranges_advance(ck_ranges_t *ranges, ck_range_t *range, int64_t next);

/* Filters the messages of a fill. Destroys those outside the ranges and the ends of
 * partitions. Keeps records within a range and errors, in order, at the beginning. Adds
 * the bytes of the kept keys and values to *bytes. Returns the number of messages kept.
 * Takes librdkafka's locks. */
CK_EXPORT size_t ck_ranges_sift(ck_ranges_t *ranges, rd_kafka_message_t **rkmessages,
                                size_t cnt, size_t *bytes);

/* Call it when the queue is empty. Marks ranges as done whose position is after their
 * end, because the last offsets were a transaction's marker. Skips ranges of which
 * nothing has arrived: their position may belong to an earlier assignment. */
CK_EXPORT void ck_ranges_catch_up(ck_ranges_t *ranges, rd_kafka_t *rk);

/* The number of messages to take in one step, so that about `room` bytes arrive,
 * estimated from the mean size so far; at most want. */
CK_EXPORT size_t ck_ranges_step(const ck_ranges_t *ranges, size_t want, size_t room);

#endif
