#include "ck_end.h"

#include <pthread.h>
#include <stdlib.h>

#include "ck_batch.h"
#include "ck_share.h"

/* The longest single wait for a closing consumer's events, ms. */
enum { SLICE = 100 };

struct ck_end_s {
        rd_kafka_t *rk;
        rd_kafka_share_t *share;
        int flags;
        rd_kafka_queue_t *closing;
        ck_loans_t *loans;
        void (*ended)(void *opaque);
        void *opaque;
        bool done;
        bool left; /* the closer has stopped waiting */
};

static pthread_mutex_t ck_end_lock;
static pthread_cond_t ck_end_changed;
static int ck_end_running;

/* Also runs in a forked child, where the threads do not exist and the lock may be held.
 */
static void ck_end_reset(void) {
        pthread_mutex_init(&ck_end_lock, NULL);
        ck_runtime_cond_init(&ck_end_changed);
        ck_end_running = 0;
}

__attribute__((constructor)) static void ck_end_init(void) {
        ck_end_reset();
        pthread_atfork(NULL, NULL, ck_end_reset);
}

bool ck_end_serve(rd_kafka_t *rk, rd_kafka_share_t *share, rd_kafka_queue_t *closing,
                  int timeout_ms) {
        return share ? ck_share_serve(rk, closing, timeout_ms)
                     : ck_batch_skip(closing, timeout_ms) > 0;
}

void ck_end_now(rd_kafka_t *rk, rd_kafka_share_t *share, int flags,
                rd_kafka_queue_t *closing, ck_loans_t *loans) {
        if (closing) {
                while (!rd_kafka_consumer_closed(rk))
                        ck_end_serve(rk, share, closing, SLICE);
                rd_kafka_queue_destroy(closing);
        }
        ck_loans_wait(loans);
        if (share)
                /* It fails only inside another call, and there is none. */
                rd_kafka_error_destroy(rd_kafka_share_destroy_flags(share, flags));
        else
                rd_kafka_destroy_flags(rk, flags);
        ck_loans_destroy(loans);
        ck_runtime_count(CK_KIND_HANDLE, -1);
}

static void ck_end_count(int delta) {
        pthread_mutex_lock(&ck_end_lock);
        ck_end_running += delta;
        pthread_cond_broadcast(&ck_end_changed);
        pthread_mutex_unlock(&ck_end_lock);
}

static void *ck_end_main(void *arg) {
        ck_end_t *end = arg;
        uint32_t generation = ck_runtime_generation;
        bool left;

        ck_end_now(end->rk, end->share, end->flags, end->closing, end->loans);
        pthread_mutex_lock(&ck_end_lock);
        left = end->left;
        end->done = true; /* unless `left`, the other thread may now free `end` */
        pthread_cond_broadcast(&ck_end_changed);
        pthread_mutex_unlock(&ck_end_lock);
        if (left) {
                end->ended(end->opaque);
                free(end);
        }
        /* Not in a child that ended() has forked: the count is the parent's. */
        if (generation == ck_runtime_generation)
                ck_end_count(-1);
        return NULL;
}

ck_end_t *ck_end_start(rd_kafka_t *rk, rd_kafka_share_t *share, int flags,
                       rd_kafka_queue_t *closing, ck_loans_t *loans,
                       void (*ended)(void *opaque), void *opaque) {
        ck_end_t *end = calloc(1, sizeof(*end));

        if (!end)
                return NULL;
        end->rk = rk;
        end->share = share;
        end->flags = flags;
        end->closing = closing;
        end->loans = loans;
        end->ended = ended;
        end->opaque = opaque;
        ck_end_count(1);
        if (!ck_runtime_spawn(ck_end_main, end))
                return end;
        ck_end_count(-1);
        free(end);
        return NULL;
}

bool ck_end_wait(ck_end_t *end, int timeout_ms) {
        struct timespec until = ck_runtime_after(timeout_ms);
        bool done;

        pthread_mutex_lock(&ck_end_lock);
        while (!end->done &&
               pthread_cond_timedwait(&ck_end_changed, &ck_end_lock, &until) == 0)
                ;
        done = end->done;
        pthread_mutex_unlock(&ck_end_lock);
        return done;
}

bool ck_end_leave(ck_end_t *end) {
        bool done;

        pthread_mutex_lock(&ck_end_lock);
        done = end->done;
        end->left = true;
        pthread_mutex_unlock(&ck_end_lock);
        if (done)
                free(end);
        return done;
}

bool ck_end_all(int timeout_ms) {
        struct timespec until = ck_runtime_after(timeout_ms);
        bool none;

        pthread_mutex_lock(&ck_end_lock);
        while (ck_end_running &&
               pthread_cond_timedwait(&ck_end_changed, &ck_end_lock, &until) == 0)
                ;
        none = !ck_end_running;
        pthread_mutex_unlock(&ck_end_lock);
        return none;
}
