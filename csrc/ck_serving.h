/*
 * ck_serving: chooses the serving thread, the one of several waiting threads that serves
 * librdkafka.
 *
 * While a thread waits for its own event (a delivery, room in the queue), it serves
 * librdkafka. If two threads slept in rd_kafka_poll(), one could handle the other's
 * event, and the other would keep sleeping. So one thread serves, and the others sleep
 * on a condition until their event has occurred or the serving thread has stopped. Calls
 * that serve librdkafka themselves (flush, the transaction calls) are guests. A guest
 * stops the serving thread. Guests enter one at a time, the longest waiting first. While
 * a guest is inside, threads do not begin to serve. So two threads never serve at once,
 * and delivery reports keep their order.
 *
 * Ownership: the owner frees it when no thread can be in it any more. Its lock also
 * protects the list of pending deliveries, see ck_serving_add().
 * Threads: any. Takes its own lock, and under it at most librdkafka's queue lock. No
 * callback runs under it. A thread that waits must not hold the GIL.
 */
#ifndef CK_SERVING_H
#define CK_SERVING_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

#include "ck_runtime.h"

typedef struct ck_serving_s ck_serving_t;

/* A link of the list of pending deliveries; each delivery embeds one. */
typedef struct ck_link_s {
        struct ck_link_s *next;
        struct ck_link_s *before;
} ck_link_t;

/* A new object without a serving thread, or NULL if memory is short. */
CK_EXPORT ck_serving_t *ck_serving_new(void);

/* NULL is fine. */
CK_EXPORT void ck_serving_destroy(ck_serving_t *serving);

/* How often a thread has stopped serving or a guest has left. A thread that waits for an
 * effect of serving reads this count first, then checks for the effect, then waits. */
CK_EXPORT unsigned ck_serving_count(ck_serving_t *serving);

/* Waits up to timeout_ms until no other thread serves. Returns true if this thread now
 * serves. Returns false after timeout_ms, after ck_serving_interrupt(), or when
 * done(arg), called under the lock, is true. With `since`, also returns false when
 * ck_serving_count() differs from *since: a thread has served since the caller read the
 * count, so the effect may have occurred. done and since may be NULL. */
CK_EXPORT bool ck_serving_begin(ck_serving_t *serving, int timeout_ms,
                                const unsigned *since, bool (*done)(const void *),
                                const void *arg);

/* This thread no longer serves. */
CK_EXPORT void ck_serving_end(ck_serving_t *serving);

/* Enters as a guest. First waits until the serving thread has ended; a yield of rkqu
 * wakes that thread. Then waits up to timeout_ms (-1: without limit) for the guests
 * before it. ck_serving_interrupt() ends these waits. Returns whether the guest is
 * inside. */
CK_EXPORT bool ck_serving_enter(ck_serving_t *serving, rd_kafka_queue_t *rkqu,
                                int timeout_ms);

/* The guest leaves. */
CK_EXPORT void ck_serving_leave(ck_serving_t *serving);

/* Ends every wait in ck_serving_begin() and ck_serving_enter(), because the handle's
 * state has changed. */
CK_EXPORT void ck_serving_interrupt(ck_serving_t *serving);

/* Appends a pending delivery to the list. */
CK_EXPORT void ck_serving_add(ck_serving_t *serving, ck_link_t *link);

/* Removes a finished delivery from the list and wakes the waiting threads. */
CK_EXPORT void ck_serving_remove(ck_serving_t *serving, ck_link_t *link);

/* The link after `link` (NULL: the first), or NULL at the end. Only while no other thread
 * can remove `link` from the list. */
CK_EXPORT ck_link_t *ck_serving_next(ck_serving_t *serving, const ck_link_t *link);

/* Sleeps up to timeout_ms, or until a delivery is removed from the list. Returns at once
 * if done(arg) is true. */
CK_EXPORT void ck_serving_sleep(ck_serving_t *serving, int timeout_ms,
                                bool (*done)(const void *), const void *arg);

#endif
