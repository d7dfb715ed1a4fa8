#include "ck_bell.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct ck_bell_s {
        pthread_mutex_t lock;
        pthread_cond_t rung_cond;
        bool rung;
};

ck_bell_t *ck_bell_new(void) {
        ck_bell_t *bell = calloc(1, sizeof(*bell));
        pthread_condattr_t attr;

        if (!bell)
                return NULL;
        pthread_mutex_init(&bell->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&bell->rung_cond, &attr);
        pthread_condattr_destroy(&attr);
        return bell;
}

void ck_bell_destroy(ck_bell_t *bell) {
        if (!bell)
                return;
        pthread_cond_destroy(&bell->rung_cond);
        pthread_mutex_destroy(&bell->lock);
        free(bell);
}

void ck_bell_ring(ck_bell_t *bell) {
        pthread_mutex_lock(&bell->lock);
        bell->rung = true;
        pthread_cond_signal(&bell->rung_cond);
        pthread_mutex_unlock(&bell->lock);
}

void ck_bell_wait(ck_bell_t *bell, int timeout_ms) {
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += timeout_ms / 1000;
        until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
        if (until.tv_nsec >= 1000000000) {
                until.tv_sec++;
                until.tv_nsec -= 1000000000;
        }
        pthread_mutex_lock(&bell->lock);
        while (!bell->rung &&
               pthread_cond_timedwait(&bell->rung_cond, &bell->lock, &until) == 0)
                ;
        bell->rung = false;
        pthread_mutex_unlock(&bell->lock);
}
