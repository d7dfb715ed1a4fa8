/*
 * C11 threads on top of POSIX threads, for ThreadSanitizer.
 *
 * librdkafka calls mtx_lock() and the like, which the sanitizer does not intercept. So
 * it sees no happens-before order through librdkafka's queues. A test links these
 * functions, which replace the C library's. The sanitizer then sees every librdkafka
 * lock. In glibc mtx_t and cnd_t have the size and alignment of the types used here, and
 * librdkafka creates them only with mtx_init() and cnd_init().
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

#define EXPORT __attribute__((visibility("default")))

_Static_assert(sizeof(mtx_t) >= sizeof(pthread_mutex_t), "a mtx_t has room for a mutex");
_Static_assert(sizeof(once_flag) == sizeof(pthread_once_t), "one is the other");
_Static_assert(sizeof(cnd_t) >= sizeof(pthread_cond_t),
               "a cnd_t has room for a condition");

static pthread_mutex_t *mutex_of(mtx_t *mtx) {
        return (pthread_mutex_t *)mtx;
}

static pthread_cond_t *cond_of(cnd_t *cnd) {
        return (pthread_cond_t *)cnd;
}

static int result_of(int error) {
        switch (error) {
        case 0:
                return thrd_success;
        case EBUSY:
                return thrd_busy;
        case ETIMEDOUT:
                return thrd_timedout;
        case ENOMEM:
                return thrd_nomem;
        default:
                return thrd_error;
        }
}

EXPORT int mtx_init(mtx_t *mtx, int type) {
        pthread_mutexattr_t attr;
        int error;

        pthread_mutexattr_init(&attr);
        if (type & mtx_recursive)
                pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
        error = pthread_mutex_init(mutex_of(mtx), &attr);
        pthread_mutexattr_destroy(&attr);
        return result_of(error);
}

EXPORT void mtx_destroy(mtx_t *mtx) {
        pthread_mutex_destroy(mutex_of(mtx));
}

EXPORT int mtx_lock(mtx_t *mtx) {
        return result_of(pthread_mutex_lock(mutex_of(mtx)));
}

EXPORT int mtx_trylock(mtx_t *mtx) {
        return result_of(pthread_mutex_trylock(mutex_of(mtx)));
}

EXPORT int mtx_unlock(mtx_t *mtx) {
        return result_of(pthread_mutex_unlock(mutex_of(mtx)));
}

EXPORT int cnd_init(cnd_t *cnd) {
        return result_of(pthread_cond_init(cond_of(cnd), NULL));
}

EXPORT void cnd_destroy(cnd_t *cnd) {
        pthread_cond_destroy(cond_of(cnd));
}

EXPORT int cnd_signal(cnd_t *cnd) {
        return result_of(pthread_cond_signal(cond_of(cnd)));
}

EXPORT int cnd_broadcast(cnd_t *cnd) {
        return result_of(pthread_cond_broadcast(cond_of(cnd)));
}

EXPORT int cnd_wait(cnd_t *cnd, mtx_t *mtx) {
        return result_of(pthread_cond_wait(cond_of(cnd), mutex_of(mtx)));
}

EXPORT int cnd_timedwait(cnd_t *restrict cnd, mtx_t *restrict mtx,
                         const struct timespec *restrict until) {
        return result_of(pthread_cond_timedwait(cond_of(cnd), mutex_of(mtx), until));
}

EXPORT void call_once(once_flag *flag, void (*func)(void)) {
        pthread_once((pthread_once_t *)flag, func);
}

typedef struct start_s {
        thrd_start_t main;
        void *arg;
} start_t;

static void *start(void *arg) {
        start_t given = *(start_t *)arg;

        free(arg);
        /* NOLINTNEXTLINE(performance-no-int-to-ptr): an int becomes pthread's result. */
        return (void *)(intptr_t)given.main(given.arg);
}

EXPORT int thrd_create(thrd_t *thread, thrd_start_t main, void *arg) {
        start_t *given = malloc(sizeof(*given));
        int error;

        if (!given)
                return thrd_nomem;
        *given = (start_t){main, arg};
        if ((error = pthread_create(thread, NULL, start, given)))
                free(given);
        return result_of(error);
}

EXPORT int thrd_join(thrd_t thread, int *result) {
        void *returned;
        int error = pthread_join(thread, &returned);

        if (!error && result)
                *result = (int)(intptr_t)returned;
        return result_of(error);
}
