/* Preloaded into a test's process: pthread_create() fails as long as the file NO_THREADS
 * exists. librdkafka starts its threads with thrd_create(), which does not call this. */
/* NOLINTNEXTLINE(*-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef int create_t(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* The symbol under a name that pthread.h does not declare. */
/* NOLINTNEXTLINE(misc-use-internal-linkage): the process calls it */
create_t create_thread __asm__("pthread_create");

int create_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                  void *arg) {
        create_t *real = (create_t *)dlsym(RTLD_NEXT, "pthread_create");
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): only this process's start sets it */
        const char *path = getenv("NO_THREADS");

        if (path && access(path, F_OK) == 0)
                return EAGAIN;
        return real(thread, attr, run, arg);
}
