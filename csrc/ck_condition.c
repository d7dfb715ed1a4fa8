#include "ck_condition.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct ck_condition_s {
        pthread_mutex_t lock;
        pthread_cond_t cond;
        bool signaled;
};

ck_condition_t *ck_condition_new(void) {
        ck_condition_t *condition = calloc(1, sizeof(*condition));

        if (!condition)
                return NULL;
        pthread_mutex_init(&condition->lock, NULL);
        ck_runtime_cond_init(&condition->cond);
        return condition;
}

void ck_condition_destroy(ck_condition_t *condition) {
        if (!condition)
                return;
        pthread_cond_destroy(&condition->cond);
        pthread_mutex_destroy(&condition->lock);
        free(condition);
}

void ck_condition_signal(ck_condition_t *condition) {
        pthread_mutex_lock(&condition->lock);
        condition->signaled = true;
        pthread_cond_signal(&condition->cond);
        pthread_mutex_unlock(&condition->lock);
}

void ck_condition_wait(ck_condition_t *condition, int timeout_ms) {
        struct timespec until = ck_runtime_after(timeout_ms);

        pthread_mutex_lock(&condition->lock);
        while (!condition->signaled &&
               pthread_cond_timedwait(&condition->cond, &condition->lock, &until) == 0)
                ;
        condition->signaled = false;
        pthread_mutex_unlock(&condition->lock);
}
