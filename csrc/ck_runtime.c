#include "ck_runtime.h"

#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

uint32_t ck_runtime_generation = 1;
bool ck_runtime_exiting;
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

int ck_runtime_spawn(void *(*run)(void *), void *arg) {
        sigset_t all, before;
        pthread_t thread;
        int err;

        /* The new thread inherits the signal mask. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        err = pthread_create(&thread, NULL, run, arg);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!err)
                pthread_detach(thread);
        return err;
}

const char *ck_runtime_version(void) {
        return CK_VERSION;
}

/* The path of the library that contains a function. */
static const char *ck_runtime_file_of(const void *function) {
        Dl_info info;

        return dladdr(function, &info) ? info.dli_fname : NULL;
}

const char *ck_runtime_librdkafka(void) {
        return ck_runtime_file_of((const void *)rd_kafka_version);
}

int ck_runtime_is_patched(void) {
        const char *theirs = ck_runtime_librdkafka();
        const char *ours = ck_runtime_file_of((const void *)ck_runtime_librdkafka);
        const char *end;

        if (!CK_PATCHED || !theirs || !ours)
                return 0;
        end = strrchr(ours, '/');
        return end && strrchr(theirs, '/') == theirs + (end - ours) &&
               !memcmp(ours, theirs, (size_t)(end - ours));
}

int64_t ck_runtime_now_ms(void) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

struct timespec ck_runtime_after(int64_t ms) {
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        ts.tv_sec += ms / 1000;
        ts.tv_nsec += (long)(ms % 1000) * 1000000;
        if (ts.tv_nsec >= 1000000000) {
                ts.tv_sec++;
                ts.tv_nsec -= 1000000000;
        }
        return ts;
}

void ck_runtime_cond_init(pthread_cond_t *cond) {
        pthread_condattr_t attr;

        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(cond, &attr);
        pthread_condattr_destroy(&attr);
}
