/*
 * ck_turn: which of several waiting threads serves librdkafka.
 *
 * A thread that waits for its own event (a delivery, room in the queue) serves librdkafka
 * meanwhile. If two threads slept in rd_kafka_poll(), one of them could handle the event
 * of the other, which would sleep on. Therefore they take turns: one thread serves, the
 * others sleep on a condition until their event has come or the turn is free.
 * Calls that serve librdkafka themselves (flush, the transaction calls) are guests. A
 * guest ends the turn of another thread. Guests enter one at a time, the one that has
 * waited longest first. No thread gets a turn while a guest is inside. So two threads
 * never serve at once, and delivery reports keep their order.
 *
 * Ownership: the owner frees it when no thread can be in it any more. Its lock also
 * protects the list of pending deliveries, see ck_turn_join().
 * Threads: any. Takes its own lock, and under it at most librdkafka's queue lock. No
 * callback runs under it. A thread that waits must not hold the GIL.
 */
#ifndef CK_TURN_H
#define CK_TURN_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

#include "ck_runtime.h"

typedef struct ck_turn_s ck_turn_t;

/* A link of the list of pending deliveries; each delivery embeds one. */
typedef struct ck_link_s {
        struct ck_link_s *next;
        struct ck_link_s *before;
} ck_link_t;

/* A new turn, or NULL if memory is short. */
CK_EXPORT ck_turn_t *ck_turn_new(void);

/* NULL is fine. */
CK_EXPORT void ck_turn_destroy(ck_turn_t *turn);

/* The number of turns and guests' stays that have ended. A thread that waits for an
 * effect of serving reads it first, then looks for the effect, then waits. */
CK_EXPORT unsigned ck_turn_ended(ck_turn_t *turn);

/* Waits up to timeout_ms for this thread's turn and takes it: true. False after
 * timeout_ms, when the turn was kicked, or when done(arg), called under the lock, is
 * true. With `since`, also false when ck_turn_ended() differs from *since: a turn or stay
 * has ended since the caller read it, and its effect may already be there. done and since
 * may be NULL. */
CK_EXPORT bool ck_turn_take(ck_turn_t *turn, int timeout_ms, const unsigned *since,
                            bool (*done)(const void *), const void *arg);

/* Ends the turn. */
CK_EXPORT void ck_turn_give(ck_turn_t *turn);

/* Enters as a guest. First waits until the thread that serves has ended its turn;
 * a yield of rkqu wakes that thread. Then waits up to timeout_ms (-1: without limit) for
 * the guests before it. A kick ends these waits. Returns whether the guest is inside. */
CK_EXPORT bool ck_turn_enter(ck_turn_t *turn, rd_kafka_queue_t *rkqu, int timeout_ms);

/* The guest leaves. */
CK_EXPORT void ck_turn_leave(ck_turn_t *turn);

/* Ends every wait in ck_turn_take() and ck_turn_enter(), because the handle's state has
 * changed. */
CK_EXPORT void ck_turn_kick(ck_turn_t *turn);

/* Appends a pending delivery to the list. */
CK_EXPORT void ck_turn_join(ck_turn_t *turn, ck_link_t *link);

/* Removes a finished delivery from the list and wakes the waiting threads. */
CK_EXPORT void ck_turn_part(ck_turn_t *turn, ck_link_t *link);

/* The link after `link` (NULL: the first), or NULL at the end. Only while no other thread
 * can remove `link` from the list. */
CK_EXPORT ck_link_t *ck_turn_next(ck_turn_t *turn, const ck_link_t *link);

/* Sleeps up to timeout_ms, or until a delivery is removed from the list. Returns at once
 * if done(arg) is true. */
CK_EXPORT void ck_turn_sleep(ck_turn_t *turn, int timeout_ms, bool (*done)(const void *),
                             const void *arg);

#endif
