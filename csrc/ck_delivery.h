/*
 * ck_delivery: the outcome of each record of a batch.
 *
 * A delivery is one block of memory with a 16-byte slot per record. A record's opaque in
 * librdkafka is its slot's address plus one. The odd address distinguishes it from a
 * ck_report_t. Until the report arrives, the slot points to its delivery, so a report
 * finds its slot and its delivery without a look-up.
 *
 * Life: a delivery is pending from ck_delivery_new() on. The publisher takes the records
 * one after the other and ends with ck_delivery_close(). The delivery is done when it is
 * closed and every record has its outcome. Each record has exactly one outcome.
 *
 * Ownership: reference-counted. The caller has a reference, each view of the slots has
 * one, and the delivery keeps one itself until it is done. `owner` is the caller's
 * object; the caller keeps it alive while a report may be pushed, see ck_delivery_want().
 * Threads: reports may arrive on any thread. One thread at a time publishes. All other
 * functions may be called on any thread. The delivery's queue must live until the
 * delivery is done.
 */
#ifndef CK_DELIVERY_H
#define CK_DELIVERY_H

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_queue.h"
#include "ck_serving.h"

typedef struct ck_delivery_s ck_delivery_t;

/* The offset in the slot of a record that is in flight. */
#define CK_OUTCOME_IN_FLIGHT INT64_MIN

/* The outcome of one record. */
typedef struct ck_outcome_s {
        _Atomic int64_t offset; /* written last: then the other fields are valid */
        union {
                ck_delivery_t *delivery; /* while in flight */
                struct {
                        int32_t partition;
                        int32_t err;
                } outcome;
        } u;
} ck_outcome_t;

/* The event that a finished delivery pushes, besides waking the waiting threads. */
enum {
        CK_DELIVERY_RELEASE = 1, /* an event that ends no wait */
        CK_DELIVERY_NOTIFY = 2,  /* an event that ends the wait */
        CK_DELIVERY_DONE = 4,
};

/* A delivery of cnt records, none taken yet, or NULL if memory is short. */
CK_EXPORT ck_delivery_t *ck_delivery_new(ck_queue_t *queue, size_t cnt);

/* Adds a reference. */
CK_EXPORT void ck_delivery_keep(ck_delivery_t *delivery);

/* Drops a reference; NULL is fine. */
CK_EXPORT void ck_delivery_release(ck_delivery_t *delivery);

CK_EXPORT size_t ck_delivery_cnt(const ck_delivery_t *delivery);

/* The slots; those below ck_delivery_taken() are initialized. */
CK_EXPORT ck_outcome_t *ck_delivery_slots(ck_delivery_t *delivery);

/* The number of records taken, refused ones included. */
CK_EXPORT size_t ck_delivery_taken(const ck_delivery_t *delivery);

/* The opaque of a slot's record. */
static inline void *ck_delivery_opaque(ck_outcome_t *slot) {
        return (char *)slot + 1;
}

/* Whether an opaque belongs to a slot. */
static inline bool ck_delivery_is_opaque(const void *opaque) {
        return (uintptr_t)opaque & 1;
}

/* For the publisher, before it passes the records up to `until` (exclusive) to
 * librdkafka. */
CK_EXPORT void ck_delivery_take(ck_delivery_t *delivery, size_t until);

/* For the publisher: librdkafka did not take the records from `from` on. */
CK_EXPORT void ck_delivery_untake(ck_delivery_t *delivery, size_t from);

/* For the publisher: librdkafka refused record i. */
CK_EXPORT void ck_delivery_refuse(ck_delivery_t *delivery, size_t i, int32_t partition,
                                  rd_kafka_resp_err_t err);

/* For the publisher, once, at the end: the records not taken fail with err. */
CK_EXPORT void ck_delivery_close(ck_delivery_t *delivery, rd_kafka_resp_err_t err);

/* Writes a report into its slot. Returns the delivery if this was its last report and
 * either CK_DELIVERY_NOTIFY is set or the delivery is `goal`, for which this thread
 * waits. Otherwise NULL. */
CK_EXPORT const ck_delivery_t *ck_delivery_report(const rd_kafka_message_t *rkmessage,
                                                  const ck_delivery_t *goal);

/* Requests an event (CK_EVENT_DELIVERY, in the queue) when the delivery is done. which:
 * CK_DELIVERY_RELEASE, CK_DELIVERY_NOTIFY or both. The first request sets the owner.
 * Returns the previous requests, and CK_DELIVERY_DONE if the delivery is done. A done
 * delivery without an earlier request pushes no event. Never call this function from two
 * threads at once (cykafka holds the GIL). */
CK_EXPORT int ck_delivery_want(ck_delivery_t *delivery, int which, void *owner);

/* The owner of the delivery whose event was popped. With release the delivery clears
 * its pointer to the owner. */
CK_EXPORT void *ck_delivery_of_event(ck_event_t *event, bool release);

/* Pushes the popped event again, for the callbacks that have not run yet. */
CK_EXPORT void ck_delivery_push_again(ck_event_t *event);

CK_EXPORT bool ck_delivery_is_done(const ck_delivery_t *delivery);

/* ck_delivery_is_done() as a condition for ck_serving_begin(). */
CK_EXPORT bool ck_delivery_check_done(const void *delivery);

/* The number of records that have failed so far. */
CK_EXPORT int64_t ck_delivery_failed(const ck_delivery_t *delivery);

/* The application drops the delivery. From now on the queue counts its failures
 * (ck_queue_add_unreported()). Returns the number of failures before. */
CK_EXPORT int64_t ck_delivery_drop(ck_delivery_t *delivery);

/* Sleeps up to timeout_ms, or until the delivery may be done. Does not serve librdkafka,
 * because the handle cannot be used. */
CK_EXPORT void ck_delivery_sleep(ck_queue_t *queue, const ck_delivery_t *delivery,
                                 int timeout_ms);

/* Whether any delivery of the queue's handle is not done. */
CK_EXPORT bool ck_delivery_is_pending(const ck_queue_t *queue);

/* After rd_kafka_destroy(), which ends all reports: fails the records in flight with
 * _DESTROY. A publisher must not close a delivery during this call (cykafka holds the
 * GIL for both). */
CK_EXPORT void ck_delivery_abandon_all(ck_queue_t *queue);

#endif
