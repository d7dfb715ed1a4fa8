#include "ck_bell.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct ck_bell_s {
        pthread_mutex_t lock;
        pthread_cond_t rung_cond;
        bool rung;
};

ck_bell_t *ck_bell_new(void) {
        ck_bell_t *bell = calloc(1, sizeof(*bell));

        if (!bell)
                return NULL;
        pthread_mutex_init(&bell->lock, NULL);
        ck_runtime_cond_init(&bell->rung_cond);
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
        struct timespec until = ck_runtime_after(timeout_ms);

        pthread_mutex_lock(&bell->lock);
        while (!bell->rung &&
               pthread_cond_timedwait(&bell->rung_cond, &bell->lock, &until) == 0)
                ;
        bell->rung = false;
        pthread_mutex_unlock(&bell->lock);
}
