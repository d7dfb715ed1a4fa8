#include "ck_turn.h"

#include <pthread.h>
#include <stdlib.h>

/* The longest sleep, ms. It limits the effect of a missed wake-up, and lets the caller
 * check for signals. */
#define CK_TURN_SLEEP_MS 100
/* How often a guest yields the queue to get the turn, ms. One waiting call consumes a
 * yield, and a call that was about to wait may miss it. */
#define CK_TURN_ASK_MS 5

/* A guest that waits to enter; lies on its stack. */
typedef struct ck_guest_s {
        struct ck_guest_s *next;
} ck_guest_t;

struct ck_turn_s {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool taken;
        bool inside;         /* a guest is inside */
        int guests;          /* inside or waiting */
        ck_guest_t *waiting; /* in their order of arrival */
        int sleepers;        /* threads that sleep on `changed` */
        unsigned kicks;
        unsigned ended;
        ck_link_t list; /* pending deliveries, in a ring */
};

ck_turn_t *ck_turn_new(void) {
        ck_turn_t *turn = calloc(1, sizeof(*turn));

        if (!turn)
                return NULL;
        turn->list.next = turn->list.before = &turn->list;
        pthread_mutex_init(&turn->lock, NULL);
        ck_runtime_cond_init(&turn->changed);
        return turn;
}

void ck_turn_destroy(ck_turn_t *turn) {
        if (!turn)
                return;
        pthread_cond_destroy(&turn->changed);
        pthread_mutex_destroy(&turn->lock);
        free(turn);
}

/* Sleeps; the caller holds the lock. */
static void ck_turn_wait(ck_turn_t *turn, int64_t ms) {
        struct timespec until =
            ck_runtime_after(ms < CK_TURN_SLEEP_MS ? ms : CK_TURN_SLEEP_MS);

        turn->sleepers++;
        pthread_cond_timedwait(&turn->changed, &turn->lock, &until);
        turn->sleepers--;
}

static void ck_turn_wake(ck_turn_t *turn) {
        if (turn->sleepers)
                pthread_cond_broadcast(&turn->changed);
}

unsigned ck_turn_ended(ck_turn_t *turn) {
        unsigned ended;

        pthread_mutex_lock(&turn->lock);
        ended = turn->ended;
        pthread_mutex_unlock(&turn->lock);
        return ended;
}

bool ck_turn_take(ck_turn_t *turn, int timeout_ms, const unsigned *since,
                  bool (*done)(const void *), const void *arg) {
        int64_t deadline = ck_runtime_now_ms() + timeout_ms;
        bool mine = false;
        unsigned kicks;

        pthread_mutex_lock(&turn->lock);
        kicks = turn->kicks;
        while (!(done && done(arg)) && !(since && *since != turn->ended)) {
                int64_t left;

                if (!turn->taken && !turn->guests) {
                        mine = turn->taken = true;
                        break;
                }
                if (kicks != turn->kicks)
                        break;
                left = timeout_ms < 0 ? CK_TURN_SLEEP_MS : deadline - ck_runtime_now_ms();
                if (left <= 0)
                        break;
                ck_turn_wait(turn, left);
        }
        pthread_mutex_unlock(&turn->lock);
        return mine;
}

void ck_turn_give(ck_turn_t *turn) {
        pthread_mutex_lock(&turn->lock);
        turn->taken = false;
        turn->ended++;
        ck_turn_wake(turn);
        pthread_mutex_unlock(&turn->lock);
}

bool ck_turn_enter(ck_turn_t *turn, rd_kafka_queue_t *rkqu, int timeout_ms) {
        int64_t deadline = ck_runtime_now_ms() + timeout_ms;
        ck_guest_t me = {NULL};
        ck_guest_t **link;
        unsigned kicks;
        bool in = true;

        pthread_mutex_lock(&turn->lock);
        kicks = turn->kicks;
        turn->guests++;
        for (link = &turn->waiting; *link; link = &(*link)->next)
                ;
        *link = &me;
        while (turn->taken || turn->inside || turn->waiting != &me) {
                int64_t left = CK_TURN_SLEEP_MS;

                in = kicks == turn->kicks;
                if (!in)
                        break;
                if (turn->taken) {
                        rd_kafka_queue_yield(rkqu);
                        left = CK_TURN_ASK_MS;
                } else if (timeout_ms >= 0 &&
                           (left = deadline - ck_runtime_now_ms()) <= 0) {
                        in = false;
                        break;
                }
                ck_turn_wait(turn, left);
        }
        for (link = &turn->waiting; *link != &me; link = &(*link)->next)
                ;
        *link = me.next;
        if (in) {
                turn->inside = true;
        } else {
                turn->guests--;
                ck_turn_wake(turn); /* the next guest, or a thread in ck_turn_take() */
        }
        pthread_mutex_unlock(&turn->lock);
        return in;
}

void ck_turn_leave(ck_turn_t *turn) {
        pthread_mutex_lock(&turn->lock);
        turn->inside = false;
        turn->guests--;
        turn->ended++;
        ck_turn_wake(turn);
        pthread_mutex_unlock(&turn->lock);
}

void ck_turn_kick(ck_turn_t *turn) {
        pthread_mutex_lock(&turn->lock);
        turn->kicks++;
        ck_turn_wake(turn);
        pthread_mutex_unlock(&turn->lock);
}

void ck_turn_join(ck_turn_t *turn, ck_link_t *link) {
        pthread_mutex_lock(&turn->lock);
        link->before = turn->list.before;
        link->next = &turn->list;
        link->before->next = link->next->before = link;
        pthread_mutex_unlock(&turn->lock);
}

void ck_turn_part(ck_turn_t *turn, ck_link_t *link) {
        pthread_mutex_lock(&turn->lock);
        link->before->next = link->next;
        link->next->before = link->before;
        ck_turn_wake(turn);
        pthread_mutex_unlock(&turn->lock);
}

ck_link_t *ck_turn_next(ck_turn_t *turn, const ck_link_t *link) {
        ck_link_t *next;

        pthread_mutex_lock(&turn->lock);
        next = link ? link->next : turn->list.next;
        pthread_mutex_unlock(&turn->lock);
        return next == &turn->list ? NULL : next;
}

void ck_turn_sleep(ck_turn_t *turn, int timeout_ms, bool (*done)(const void *),
                   const void *arg) {
        pthread_mutex_lock(&turn->lock);
        if (!done(arg) && timeout_ms > 0)
                ck_turn_wait(turn, timeout_ms);
        pthread_mutex_unlock(&turn->lock);
}
