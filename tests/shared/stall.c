/* Preloaded into a test's process: stalls one thread, as if the system did not run it,
 * as long as the file STALLS exists, and creates the file STALLED then. STALL_THREAD is
 * the thread's name: "rdk:broker1" waits in poll(), "rdk:main" in cnd_timedwait(). */
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

static bool stalls(void) {
        char name[16] = "";

        pthread_getname_np(pthread_self(), name, sizeof(name));
        return strcmp(name, getenv("STALL_THREAD")) == 0 &&
               access(getenv("STALLS"), F_OK) == 0;
}

static void stall(void) {
        while (stalls()) {
                int fd = open(getenv("STALLED"), O_CREAT | O_WRONLY, 0600);

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

/* As _FORTIFY_SOURCE has it. */
int __poll_chk(struct pollfd *fds, nfds_t nfds, int timeout, size_t size) {
        (void)size;
        return poll(fds, nfds, timeout);
}

int cnd_timedwait(cnd_t *cond, mtx_t *lock, const struct timespec *until) {
        int (*real)(cnd_t *, mtx_t *, const struct timespec *) =
            dlsym(RTLD_NEXT, "cnd_timedwait");

        if (stalls()) {
                /* Others go on with the queue that it waits for. */
                mtx_unlock(lock);
                stall();
                mtx_lock(lock);
        }
        return real(cond, lock, until);
}
