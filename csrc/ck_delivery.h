/*
 * ck_delivery: the ledger of a batch of records: what became of each.
 *
 * One block of memory, 16 bytes a record. The opaque that librdkafka carries with a
 * record is the address of its slot, plus one, so that it is told from a ck_report_t;
 * until the report comes the slot names its delivery. So a report finds its place without
 * a table or a look-up.
 *
 * Life: a delivery is pending from ck_delivery_new() on. The publisher takes the records
 * up one after the other and says when there are no more (ck_delivery_close()). Then,
 * once every record has its outcome, it is done. Each record has exactly one.
 *
 * Ownership: counted references: the caller's, the views' on the ledger, and the
 * delivery's own until it is done. An `owner` is the caller's object, lent for as long as
 * a report may be pushed: see ck_delivery_want().
 * Threads: reports may come on any thread; one thread at a time publishes; all else from
 * any thread. Until it is done the queue it was made with must live.
 */
#ifndef CK_DELIVERY_H
#define CK_DELIVERY_H

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_queue.h"
#include "ck_turn.h"

typedef struct ck_delivery_s ck_delivery_t;

/* The offset in the slot of a record that is on its way. */
#define CK_OUTCOME_IN_FLIGHT INT64_MIN

/* The outcome of one record. */
typedef struct ck_outcome_s {
        _Atomic int64_t offset; /* set last: then the rest is there */
        union {
                ck_delivery_t *delivery; /* while in flight */
                struct {
                        int32_t partition;
                        int32_t err;
                } outcome;
        } u;
} ck_outcome_t;

/* What its end is to bring about, beside waking those who wait. */
enum {
        CK_DELIVERY_RELEASE = 1, /* an event, when somebody looks */
        CK_DELIVERY_TELL = 2,    /* an event that ends the wait */
        CK_DELIVERY_DONE = 4,
};

/* A delivery of cnt records, none of them taken up yet, or NULL if memory is short. */
CK_EXPORT ck_delivery_t *ck_delivery_new(ck_queue_t *queue, size_t cnt);

/* One more reference. */
CK_EXPORT void ck_delivery_keep(ck_delivery_t *delivery);

/* One reference less; NULL is fine. */
CK_EXPORT void ck_delivery_release(ck_delivery_t *delivery);

CK_EXPORT size_t ck_delivery_cnt(const ck_delivery_t *delivery);

/* The slots: those below ck_delivery_taken() have been filled in. */
CK_EXPORT ck_outcome_t *ck_delivery_slots(ck_delivery_t *delivery);

/* How many records were taken up, refused ones included. */
CK_EXPORT size_t ck_delivery_taken(const ck_delivery_t *delivery);

/* The opaque of a slot's record. */
static inline void *ck_delivery_opaque(ck_outcome_t *slot) {
        return (char *)slot + 1;
}

/* Whether an opaque is a slot's. */
static inline bool ck_delivery_is_opaque(const void *opaque) {
        return (uintptr_t)opaque & 1;
}

/* The publisher's: records up to `until` (not included) are about to be handed to
 * librdkafka. */
CK_EXPORT void ck_delivery_take(ck_delivery_t *delivery, size_t until);

/* The publisher's: those from `from` on were not taken after all. */
CK_EXPORT void ck_delivery_untake(ck_delivery_t *delivery, size_t from);

/* The publisher's: record i was refused. */
CK_EXPORT void ck_delivery_refuse(ck_delivery_t *delivery, size_t i, int32_t partition,
                                  rd_kafka_resp_err_t err);

/* The publisher's, once and last: there are no more; those not taken up failed with err.
 */
CK_EXPORT void ck_delivery_close(ck_delivery_t *delivery, rd_kafka_resp_err_t err);

/* A report: fills in its slot. Returns the delivery if this was its last one and it has
 * to be told (CK_DELIVERY_TELL), or is `goal`, what this thread waits for; else NULL. */
CK_EXPORT const ck_delivery_t *ck_delivery_report(const rd_kafka_message_t *rkmessage,
                                                  const ck_delivery_t *goal);

/* Asks for an event (CK_EVENT_DELIVERY, in the queue) when it is done, and lends it the
 * owner, of whom it has none yet. Which: CK_DELIVERY_RELEASE, CK_DELIVERY_TELL or both.
 * Returns what was asked for before, and CK_DELIVERY_DONE if it is done: if nothing was
 * asked for before that, no event comes. Not from two threads at once (for us: with the
 * GIL). */
CK_EXPORT int ck_delivery_want(ck_delivery_t *delivery, int which, void *owner);

/* The owner of the delivery whose event was popped; what was lent is the caller's again.
 */
CK_EXPORT void *ck_delivery_of_event(ck_event_t *event, bool give_back);

/* Once more the same event, for what is left to tell. */
CK_EXPORT void ck_delivery_again(ck_event_t *event);

CK_EXPORT bool ck_delivery_is_done(const ck_delivery_t *delivery);

/* The same, for those who wait by ck_turn_take(). */
CK_EXPORT bool ck_delivery_has_come(const void *delivery);

/* How many failed by now. */
CK_EXPORT int64_t ck_delivery_failed(const ck_delivery_t *delivery);

/* Nobody will ask any more: failures from now on are noted in the queue as untold.
 * Returns how many there were before. */
CK_EXPORT int64_t ck_delivery_drop(ck_delivery_t *delivery);

/* Sleeps up to timeout_ms, or until it may be done, without serving: its handle cannot
 * be used. */
CK_EXPORT void ck_delivery_sleep(ck_queue_t *queue, const ck_delivery_t *delivery,
                                 int timeout_ms);

/* Whether any delivery of the queue's handle is not done. */
CK_EXPORT bool ck_delivery_any(const ck_queue_t *queue);

/* After rd_kafka_destroy(): what is in flight will have no report, and fails with
 * _DESTROY. No publisher may close one meanwhile (for us: both with the GIL). */
CK_EXPORT void ck_delivery_abandon_all(ck_queue_t *queue);

#endif
