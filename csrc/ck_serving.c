#include "ck_serving.h"

#include <pthread.h>
#include <stdlib.h>

/* The longest sleep, ms. It limits the effect of a missed wake-up, and lets the caller
 * check for signals. */
#define CK_SERVING_SLEEP_MS 100
/* How often a guest yields the queue to end the serving thread, ms. One waiting call
 * consumes a yield, and a call that was about to wait may miss it. */
#define CK_SERVING_YIELD_MS 5

/* A guest that waits to enter; lies on its stack. */
typedef struct ck_guest_s {
        struct ck_guest_s *next;
} ck_guest_t;

struct ck_serving_s {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool taken;          /* a thread serves */
        bool inside;         /* a guest is inside */
        int guests;          /* inside or waiting */
        ck_guest_t *waiting; /* in their order of arrival */
        int sleepers;        /* threads that sleep on `changed` */
        unsigned interrupts;
        unsigned ended;
        ck_link_t list; /* pending deliveries, in a ring */
};

ck_serving_t *ck_serving_new(void) {
        ck_serving_t *serving = calloc(1, sizeof(*serving));

        if (!serving)
                return NULL;
        serving->list.next = serving->list.before = &serving->list;
        pthread_mutex_init(&serving->lock, NULL);
        ck_runtime_cond_init(&serving->changed);
        return serving;
}

void ck_serving_destroy(ck_serving_t *serving) {
        if (!serving)
                return;
        pthread_cond_destroy(&serving->changed);
        pthread_mutex_destroy(&serving->lock);
        free(serving);
}

/* Sleeps; the caller holds the lock. */
static void ck_serving_wait(ck_serving_t *serving, int64_t ms) {
        struct timespec until =
            ck_runtime_after(ms < CK_SERVING_SLEEP_MS ? ms : CK_SERVING_SLEEP_MS);

        serving->sleepers++;
        pthread_cond_timedwait(&serving->changed, &serving->lock, &until);
        serving->sleepers--;
}

static void ck_serving_wake(ck_serving_t *serving) {
        if (serving->sleepers)
                pthread_cond_broadcast(&serving->changed);
}

unsigned ck_serving_count(ck_serving_t *serving) {
        unsigned ended;

        pthread_mutex_lock(&serving->lock);
        ended = serving->ended;
        pthread_mutex_unlock(&serving->lock);
        return ended;
}

bool ck_serving_begin(ck_serving_t *serving, int timeout_ms, const unsigned *since,
                      bool (*done)(const void *), const void *arg) {
        int64_t deadline = ck_runtime_now_ms() + timeout_ms;
        bool mine = false;
        unsigned interrupts;

        pthread_mutex_lock(&serving->lock);
        interrupts = serving->interrupts;
        while (!(done && done(arg)) && !(since && *since != serving->ended)) {
                int64_t left;

                if (!serving->taken && !serving->guests) {
                        mine = serving->taken = true;
                        break;
                }
                if (interrupts != serving->interrupts)
                        break;
                left =
                    timeout_ms < 0 ? CK_SERVING_SLEEP_MS : deadline - ck_runtime_now_ms();
                if (left <= 0)
                        break;
                ck_serving_wait(serving, left);
        }
        pthread_mutex_unlock(&serving->lock);
        return mine;
}

void ck_serving_end(ck_serving_t *serving) {
        pthread_mutex_lock(&serving->lock);
        serving->taken = false;
        serving->ended++;
        ck_serving_wake(serving);
        pthread_mutex_unlock(&serving->lock);
}

bool ck_serving_enter(ck_serving_t *serving, rd_kafka_queue_t *rkqu, int timeout_ms) {
        int64_t deadline = ck_runtime_now_ms() + timeout_ms;
        ck_guest_t me = {NULL};
        ck_guest_t **link;
        unsigned interrupts;
        bool in = true;

        pthread_mutex_lock(&serving->lock);
        interrupts = serving->interrupts;
        serving->guests++;
        for (link = &serving->waiting; *link; link = &(*link)->next)
                ;
        *link = &me;
        while (serving->taken || serving->inside || serving->waiting != &me) {
                int64_t left = CK_SERVING_SLEEP_MS;

                in = interrupts == serving->interrupts;
                if (!in)
                        break;
                if (serving->taken) {
                        rd_kafka_queue_yield(rkqu);
                        left = CK_SERVING_YIELD_MS;
                } else if (timeout_ms >= 0 &&
                           (left = deadline - ck_runtime_now_ms()) <= 0) {
                        in = false;
                        break;
                }
                ck_serving_wait(serving, left);
        }
        for (link = &serving->waiting; *link != &me; link = &(*link)->next)
                ;
        *link = me.next;
        if (in) {
                serving->inside = true;
        } else {
                serving->guests--;
                ck_serving_wake(
                    serving); /* the next guest, or a thread in ck_serving_begin() */
        }
        pthread_mutex_unlock(&serving->lock);
        return in;
}

void ck_serving_leave(ck_serving_t *serving) {
        pthread_mutex_lock(&serving->lock);
        serving->inside = false;
        serving->guests--;
        serving->ended++;
        ck_serving_wake(serving);
        pthread_mutex_unlock(&serving->lock);
}

void ck_serving_interrupt(ck_serving_t *serving) {
        pthread_mutex_lock(&serving->lock);
        serving->interrupts++;
        ck_serving_wake(serving);
        pthread_mutex_unlock(&serving->lock);
}

void ck_serving_add(ck_serving_t *serving, ck_link_t *link) {
        pthread_mutex_lock(&serving->lock);
        link->before = serving->list.before;
        link->next = &serving->list;
        link->before->next = link->next->before = link;
        pthread_mutex_unlock(&serving->lock);
}

void ck_serving_remove(ck_serving_t *serving, ck_link_t *link) {
        pthread_mutex_lock(&serving->lock);
        link->before->next = link->next;
        link->next->before = link->before;
        ck_serving_wake(serving);
        pthread_mutex_unlock(&serving->lock);
}

ck_link_t *ck_serving_next(ck_serving_t *serving, const ck_link_t *link) {
        ck_link_t *next;

        pthread_mutex_lock(&serving->lock);
        next = link ? link->next : serving->list.next;
        pthread_mutex_unlock(&serving->lock);
        return next == &serving->list ? NULL : next;
}

void ck_serving_sleep(ck_serving_t *serving, int timeout_ms, bool (*done)(const void *),
                      const void *arg) {
        pthread_mutex_lock(&serving->lock);
        if (!done(arg) && timeout_ms > 0)
                ck_serving_wait(serving, timeout_ms);
        pthread_mutex_unlock(&serving->lock);
}
