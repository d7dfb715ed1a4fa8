#include "ck_runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

uint32_t ck_runtime_generation = 1;
int64_t ck_runtime_reports;

static _Atomic int64_t ck_alive[CK_KIND__CNT];

static void ck_runtime_forked(void) {
        ck_runtime_generation++;
}

/* Registered when the library is loaded: before any handle can exist. */
__attribute__((constructor)) static void ck_runtime_init(void) {
        pthread_atfork(NULL, NULL, ck_runtime_forked);
}

void ck_runtime_count(ck_kind_t kind, int64_t delta) {
        atomic_fetch_add_explicit(&ck_alive[kind], delta, memory_order_relaxed);
}

int64_t ck_runtime_alive(ck_kind_t kind) {
        return atomic_load_explicit(&ck_alive[kind], memory_order_relaxed);
}

const char *ck_runtime_version(void) {
        return CK_VERSION;
}

int64_t ck_runtime_now_ms(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}
