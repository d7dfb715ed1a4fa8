/*
 * ck_ranges: parts of partitions that are to be read, each from an offset up to another one.
 *
 * librdkafka fetches on behind the end of a range, and offsets have gaps (compaction, markers of transactions,
 * aborted records): a range is done when anything at or behind its end has come, be it a record or the
 * partition's end, or when the position has passed it. What lies outside of the ranges is destroyed.
 *
 * Ownership: a ck_ranges_t owns copies of the topics' names. It knows no message.
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
        bool met;     /* something of it has come since the partitions were assigned */
        int64_t next; /* the first offset that was not read; the end, once it is done */
        int64_t end;  /* the offset behind the last one that is wanted */
        int64_t eof;  /* where the partition ended when all of it had been fetched; -1: not known */
} ck_range_t;

typedef struct ck_ranges_s {
        size_t cnt;
        size_t left;    /* how many are not done */
        size_t last;    /* the one found last */
        uint64_t rows;  /* records taken so far, and their bytes: how big they are */
        uint64_t bytes;
        ck_range_t ranges[];
} ck_ranges_t;

/* Room for cnt ranges, to be set one by one. NULL if memory is short. */
CK_EXPORT ck_ranges_t *ck_ranges_new(size_t cnt);

/* NULL is fine. */
CK_EXPORT void ck_ranges_destroy(ck_ranges_t *ranges);

/* Sets range i; one with start >= end is done at once. 0, or ENOMEM. */
CK_EXPORT int ck_ranges_set(ck_ranges_t *ranges, size_t i, const char *topic, int32_t partition,
                            int64_t start, int64_t end);

/* Sorts them, which all that follows needs. The place behind a partition that is there twice, or 0. */
CK_EXPORT size_t ck_ranges_sort(ck_ranges_t *ranges);

/* The range of a partition, or NULL. */
CK_EXPORT ck_range_t *ck_ranges_find(ck_ranges_t *ranges, const char *topic, int32_t partition);

/* All of a range that lies before an offset has been read, or is not there. */
CK_EXPORT void ck_ranges_advance(ck_ranges_t *ranges, ck_range_t *range, int64_t next);

/* Of the messages a fill brought, destroys those that no range wants, and ends of partitions; keeps records within a
 * range, and errors, in their order at the beginning. Adds the bytes of keys and values that are kept
 * to *bytes. Returns how many messages are kept. Takes librdkafka's locks. */
CK_EXPORT size_t ck_ranges_sift(ck_ranges_t *ranges, rd_kafka_message_t **rkmessages, size_t cnt,
                                size_t *bytes);

/* When the queue is empty: ranges whose position is behind their end, since what came last was a transaction's
 * marker, are done. The position of one of which nothing has come may still be that of an earlier
 * assignment, and counts for nothing. */
CK_EXPORT void ck_ranges_catch_up(ck_ranges_t *ranges, rd_kafka_t *rk);

/* How many messages to take at most in one go, so that about `room` bytes come: by what they were like so far. */
CK_EXPORT size_t ck_ranges_step(const ck_ranges_t *ranges, size_t want, size_t room);

#endif
