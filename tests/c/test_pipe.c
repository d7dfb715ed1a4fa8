#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "check.h"
#include "ck_pipe.h"

static int bytes_in(const ck_pipe_t *pipe) {
        int cnt = -1;

        CHECK(ioctl(ck_pipe_reader(pipe), FIONREAD, &cnt) == 0);
        return cnt;
}

static void test_notifications_write_one_byte_until_the_pipe_is_emptied(void) {
        ck_pipe_t *pipe = ck_pipe_new();

        CHECK(pipe && bytes_in(pipe) == 0);
        CHECK(!ck_pipe_empty(pipe));
        for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 5; i++)
                        ck_pipe_notify(pipe);
                CHECK(bytes_in(pipe) == 1);
                CHECK(ck_pipe_empty(pipe));
                CHECK(bytes_in(pipe) == 0 && !ck_pipe_empty(pipe));
        }
        ck_pipe_unref(pipe);
}

static void test_others_write_to_it_too(void) {
        ck_pipe_t *pipe = ck_pipe_new();

        CHECK(write(ck_pipe_writer(pipe), "1", 1) == 1); /* as librdkafka does */
        CHECK(bytes_in(pipe) == 1);
        ck_pipe_notify(pipe);
        CHECK(bytes_in(pipe) == 2);
        CHECK(ck_pipe_empty(pipe) && bytes_in(pipe) == 0);
        ck_pipe_notify(pipe);
        CHECK(bytes_in(pipe) == 1);
        ck_pipe_unref(pipe);
}

enum { THREADS = 3, NOTIFICATIONS = 100000 };

static ck_pipe_t *shared;
static _Atomic int pushed;

static void *push(void *arg) {
        for (int i = 0; i < NOTIFICATIONS; i++) {
                atomic_fetch_add_explicit(&pushed, 1, memory_order_release);
                ck_pipe_notify(shared);
        }
        return arg;
}

/* A reader that checks only after reading a byte sees every change. */
static void test_no_notification_is_lost(void) {
        pthread_t threads[THREADS];
        struct pollfd reader;

        shared = ck_pipe_new();
        reader = (struct pollfd){.fd = ck_pipe_reader(shared), .events = POLLIN};
        for (int i = 0; i < THREADS; i++)
                CHECK(pthread_create(&threads[i], NULL, push, NULL) == 0);
        for (int seen = 0; seen < THREADS * NOTIFICATIONS;) {
                CHECK(poll(&reader, 1, 30000) == 1);
                ck_pipe_empty(shared);
                seen = atomic_load_explicit(&pushed, memory_order_acquire);
        }
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        ck_pipe_unref(shared);
}

int main(void) {
        test_notifications_write_one_byte_until_the_pipe_is_emptied();
        test_others_write_to_it_too();
        test_no_notification_is_lost();
        return 0;
}
