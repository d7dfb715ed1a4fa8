/* Preloaded into a test's process: stalls one thread, as if the system did not run it,
 * as long as the file STALLS exists, and creates the file STALLED then. STALL_THREAD is
 * the thread's name: "rdk:broker1" waits in poll(), "rdk:main" in cnd_timedwait(). A
 * thread that waits in neither, like the application's, is only slowed: it sleeps after
 * each read-write lock. */
/* NOLINTNEXTLINE(*-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <unistd.h>

static const char *thread = "", *stalls_path = "", *stalled_path = "";

__attribute__((constructor)) static void stall_init(void) {
        /* NOLINTBEGIN(concurrency-mt-unsafe): before any other thread */
        const char *values[] = {getenv("STALL_THREAD"), getenv("STALLS"),
                                getenv("STALLED")};
        /* NOLINTEND(concurrency-mt-unsafe) */

        if (!values[0] || !values[1] || !values[2])
                return;
        thread = values[0];
        stalls_path = values[1];
        stalled_path = values[2];
}

static bool stalls(void) {
        char name[16] = "";

        pthread_getname_np(pthread_self(), name, sizeof(name));
        return strcmp(name, thread) == 0 && access(stalls_path, F_OK) == 0;
}

static void stall(void) {
        while (stalls()) {
                int fd = open(stalled_path, O_CREAT | O_WRONLY, 0600);

                if (fd >= 0)
                        close(fd);
                usleep(10000);
        }
}

int poll(struct pollfd *fds, nfds_t nfds, int timeout) {
        int (*real)(struct pollfd *, nfds_t, int) = dlsym(RTLD_NEXT, "poll");

        stall();
        return real(fds, nfds, timeout);
}

int cnd_timedwait(cnd_t *cond, mtx_t *mutex, const struct timespec *time_point) {
        int (*real)(cnd_t *, mtx_t *, const struct timespec *) =
            dlsym(RTLD_NEXT, "cnd_timedwait");

        if (stalls()) {
                /* Other threads can still use the queue that it waits for. */
                (void)mtx_unlock(mutex);
                stall();
                (void)mtx_lock(mutex);
        }
        return real(cond, mutex, time_point);
}

int pthread_rwlock_unlock(pthread_rwlock_t *lock) {
        int (*real)(pthread_rwlock_t *) = dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
        int error = real(lock);

        if (stalls())
                usleep(20000);
        return error;
}
