/*
 * ck_turn: which of several waiting threads serves librdkafka.
 *
 * A thread that waits for its own event (a delivery, room in the queue) serves librdkafka
 * meanwhile. If two threads slept in rd_kafka_poll(), one of them could handle the event
 * of the other one, which would sleep on. Therefore they take turns: one thread serves,
 * the others sleep on a condition until their event has come or the turn is free.
 * Calls that serve librdkafka themselves (flush, the transaction calls) are guests. A
 * guest ends the turn of another thread. Guests come in one at a time, the one that has
 * waited longest first. No thread gets a turn while a guest is in. So two threads never
 * serve at once, and delivery reports keep their order.
 *
 * Ownership: the owner frees it when no thread can be in it any more. It lends its lock
 * to the list of what is waited for, see ck_turn_join().
 * Threads: any. Takes its own lock, and with it no other one but librdkafka's queue lock;
 * no callback runs under it. Whoever waits must not hold the GIL.
 */
#ifndef CK_TURN_H
#define CK_TURN_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

#include "ck_runtime.h"

typedef struct ck_turn_s ck_turn_t;

/* A place in the list of what is waited for; its owner embeds it. */
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

/* Comes in as a guest: waits until the thread that has the turn, which rkqu's yield
 * wakes, has given it, and up to timeout_ms (-1: without limit) for the guests before it.
 * A kick ends these waits. Returns whether it is in. */
CK_EXPORT bool ck_turn_enter(ck_turn_t *turn, rd_kafka_queue_t *rkqu, int timeout_ms);

/* The guest leaves. */
CK_EXPORT void ck_turn_leave(ck_turn_t *turn);

/* Ends every wait in ck_turn_take() and ck_turn_enter(): something has happened to the
 * handle. */
CK_EXPORT void ck_turn_kick(ck_turn_t *turn);

/* Adds something that is waited for to the list. */
CK_EXPORT void ck_turn_join(ck_turn_t *turn, ck_link_t *link);

/* It has come: takes it off the list and wakes those who wait. */
CK_EXPORT void ck_turn_part(ck_turn_t *turn, ck_link_t *link);

/* What comes behind link in the list, or first (NULL), or NULL at the end. For when no
 * other thread can take link off it. */
CK_EXPORT ck_link_t *ck_turn_next(ck_turn_t *turn, const ck_link_t *link);

/* Sleeps up to timeout_ms, or until something is taken off the list. */
CK_EXPORT void ck_turn_sleep(ck_turn_t *turn, int timeout_ms, bool (*done)(const void *),
                             const void *arg);

#endif
