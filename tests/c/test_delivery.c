#include <pthread.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "ck_callback.h"
#include "ck_delivery.h"

/* A report like librdkafka's. */
static const ck_delivery_t *report(ck_delivery_t *delivery, size_t i, int32_t partition,
                                   int64_t offset, rd_kafka_resp_err_t err,
                                   const ck_delivery_t *goal) {
        rd_kafka_message_t rkmessage = {
            .err = err,
            .partition = partition,
            .offset = offset,
            ._private = ck_delivery_opaque(&ck_delivery_slots(delivery)[i])};

        CHECK(ck_delivery_is_opaque(rkmessage._private));
        return ck_delivery_report(&rkmessage, goal);
}

static void test_delivery_is_done_with_its_last_report(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *delivery = ck_delivery_new(queue, 3);
        ck_outcome_t *slots = ck_delivery_slots(delivery);

        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 1);
        CHECK(ck_delivery_cnt(delivery) == 3 && ck_delivery_taken(delivery) == 0);
        ck_delivery_take(delivery, 3);
        CHECK(!report(delivery, 2, 7, 100, 0, delivery));
        CHECK(!report(delivery, 0, 8, 200, 0, delivery));
        CHECK(slots[1].offset == CK_OUTCOME_IN_FLIGHT && slots[2].offset == 100);
        CHECK(!report(delivery, 1, 9, 300, 0, delivery));
        CHECK(!ck_delivery_is_done(delivery)); /* the publisher may add records */
        ck_delivery_close(delivery, 0);
        CHECK(ck_delivery_is_done(delivery) && ck_delivery_failed(delivery) == 0);
        CHECK(slots[1].u.outcome.partition == 9 && slots[1].u.outcome.err == 0);
        CHECK(ck_queue_is_empty(queue)); /* no event was requested */
        ck_delivery_release(delivery);
        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 0);
        ck_queue_destroy(queue);
}

static void test_last_report_ends_the_wait_for_its_delivery(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *delivery = ck_delivery_new(queue, 2),
                      *other = ck_delivery_new(queue, 1);

        ck_delivery_take(delivery, 2);
        ck_delivery_take(other, 1);
        ck_delivery_close(delivery, 0);
        ck_delivery_close(other, 0);
        CHECK(!report(delivery, 0, 0, 0, 0, delivery));
        /* Done, but another delivery is awaited. */
        CHECK(!report(other, 0, 0, 0, 0, delivery));
        CHECK(report(delivery, 1, 0, 1, 0, delivery) == delivery);
        ck_delivery_release(delivery);
        ck_delivery_release(other);
        ck_queue_destroy(queue);
}

static void test_untaken_and_refused_records_fail(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *delivery = ck_delivery_new(queue, 5);
        ck_outcome_t *slots = ck_delivery_slots(delivery);
        size_t i;

        ck_delivery_take(delivery, 4);
        ck_delivery_refuse(delivery, 0, 3, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
        ck_delivery_untake(delivery, 2);
        CHECK(!report(delivery, 1, 0, 5, 0, NULL));
        ck_delivery_close(delivery, RD_KAFKA_RESP_ERR__QUEUE_FULL);
        CHECK(ck_delivery_is_done(delivery) && ck_delivery_failed(delivery) == 4);
        CHECK(slots[0].u.outcome.err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
        CHECK(slots[0].u.outcome.partition == 3 && slots[1].offset == 5);
        for (i = 2; i < 5; i++)
                CHECK(slots[i].u.outcome.err == RD_KAFKA_RESP_ERR__QUEUE_FULL);
        ck_delivery_release(delivery);
        ck_queue_destroy(queue);
}

static void test_event_arrives_once_if_requested_in_time(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *delivery = ck_delivery_new(queue, 1);
        int owner;
        ck_event_t *event;

        CHECK(ck_delivery_want(delivery, CK_DELIVERY_RELEASE, &owner) == 0);
        CHECK(ck_delivery_want(delivery, CK_DELIVERY_NOTIFY, NULL) ==
              CK_DELIVERY_RELEASE);
        ck_delivery_take(delivery, 1);
        ck_delivery_close(delivery, 0);
        CHECK(report(delivery, 0, 0, 0, 0, NULL) == delivery); /* ends the wait */
        event = ck_queue_pop(queue);
        CHECK(event && event->kind == CK_EVENT_DELIVERY);
        CHECK(ck_delivery_of_event(event, false) == &owner);
        ck_delivery_push_again(event);
        CHECK(ck_queue_pop(queue) == event);
        CHECK(ck_delivery_of_event(event, true) == &owner);
        CHECK(ck_delivery_of_event(event, true) == NULL);
        ck_event_destroy(event); /* it is embedded */
        CHECK(ck_delivery_want(delivery, CK_DELIVERY_NOTIFY, &owner) & CK_DELIVERY_DONE);
        CHECK(ck_queue_is_empty(queue));
        ck_delivery_release(delivery);

        delivery = ck_delivery_new(queue, 0);
        ck_delivery_close(delivery, 0);
        CHECK(ck_delivery_want(delivery, CK_DELIVERY_NOTIFY, &owner) == CK_DELIVERY_DONE);
        CHECK(ck_delivery_want(delivery, CK_DELIVERY_NOTIFY, &owner) == CK_DELIVERY_DONE);
        CHECK(ck_queue_is_empty(queue));
        ck_delivery_release(delivery);
        ck_queue_destroy(queue);
}

static void test_delivery_of_an_overflowing_size_is_refused(void) {
        ck_queue_t *queue = ck_queue_new();

        CHECK(ck_delivery_new(queue, SIZE_MAX / 16) == NULL);
        CHECK(ck_delivery_new(queue, SIZE_MAX) == NULL);
        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 0);
        ck_queue_destroy(queue);
}

static void test_records_in_flight_at_the_end_fail(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *one = ck_delivery_new(queue, 3), *two = ck_delivery_new(queue, 2);
        ck_delivery_t *open = ck_delivery_new(queue, 2),
                      *done = ck_delivery_new(queue, 1);

        ck_delivery_take(one, 3);
        ck_delivery_take(two, 2);
        ck_delivery_take(open, 1);
        ck_delivery_take(done, 1);
        ck_delivery_close(one, 0);
        ck_delivery_close(two, 0);
        ck_delivery_close(done, 0);
        report(one, 1, 0, 11, 0, NULL);
        report(done, 0, 0, 12, 0, NULL);
        ck_delivery_abandon_all(queue);
        CHECK(ck_delivery_is_done(one) && ck_delivery_failed(one) == 2);
        CHECK(ck_delivery_is_done(two) && ck_delivery_failed(two) == 2);
        CHECK(ck_delivery_slots(one)[0].u.outcome.err == RD_KAFKA_RESP_ERR__DESTROY);
        CHECK(ck_delivery_slots(one)[1].offset == 11);
        CHECK(!ck_delivery_is_done(open) && ck_delivery_failed(open) == 1);
        ck_delivery_close(open, RD_KAFKA_RESP_ERR__DESTROY);
        CHECK(ck_delivery_is_done(open) && ck_delivery_failed(open) == 2);
        CHECK(ck_delivery_failed(done) == 0);
        ck_delivery_release(one);
        ck_delivery_release(two);
        ck_delivery_release(open);
        ck_delivery_release(done);
        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 0);
        ck_queue_destroy(queue);
}

#define THREADS 4
#define RECORDS 100000

typedef struct reporter_s {
        ck_delivery_t *delivery;
        size_t first;
        _Atomic int *told;
} reporter_t;

static void *reporter_main(void *arg) {
        reporter_t *reporter = arg;
        size_t i;

        for (i = reporter->first; i < RECORDS; i += THREADS)
                if (report(reporter->delivery, i, 0, (int64_t)i, 0, reporter->delivery))
                        (*reporter->told)++;
        return NULL;
}

static void test_reports_of_many_threads_end_it_once(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *delivery = ck_delivery_new(queue, RECORDS);
        reporter_t reporters[THREADS];
        pthread_t threads[THREADS];
        _Atomic int told = 0;
        size_t i;

        ck_delivery_take(delivery, RECORDS);
        ck_delivery_close(delivery, 0);
        for (i = 0; i < THREADS; i++) {
                reporters[i] = (reporter_t){delivery, i, &told};
                CHECK(pthread_create(&threads[i], NULL, reporter_main, &reporters[i]) ==
                      0);
        }
        while (!ck_delivery_is_done(delivery))
                ck_delivery_sleep(queue, delivery, 10);
        for (i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        CHECK(told == 1);
        ck_delivery_release(delivery);
        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 0);
        ck_queue_destroy(queue);
}

typedef struct sleeper_s {
        ck_queue_t *queue;
        ck_delivery_t *delivery;
} sleeper_t;

static void *sleeper_main(void *arg) {
        sleeper_t *sleeper = arg;

        /* A guest is inside, so no other thread can serve. */
        CHECK(!ck_serving_begin(ck_queue_serving(sleeper->queue), -1, NULL,
                                ck_delivery_check_done, sleeper->delivery));
        CHECK(ck_delivery_is_done(sleeper->delivery));
        return NULL;
}

static void test_last_report_wakes_a_sleeping_thread(void) {
        enum { TIMES = 20 };
        ck_queue_t *queue = ck_queue_new();
        int64_t started = ck_runtime_now_ms();
        int i;

        CHECK(ck_serving_enter(ck_queue_serving(queue), NULL, -1));
        for (i = 0; i < TIMES; i++) {
                ck_delivery_t *delivery = ck_delivery_new(queue, 1);
                struct timespec moment = {.tv_nsec = 2000000};
                sleeper_t sleeper = {queue, delivery};
                pthread_t thread;

                ck_delivery_take(delivery, 1);
                ck_delivery_close(delivery, 0);
                CHECK(pthread_create(&thread, NULL, sleeper_main, &sleeper) == 0);
                nanosleep(&moment, NULL); /* it usually sleeps by then */
                report(delivery, 0, 0, 0, 0, NULL);
                pthread_join(thread, NULL);
                ck_delivery_release(delivery);
        }
        /* Without a wake-up each would take 100 ms. */
        CHECK(ck_runtime_now_ms() - started < TIMES * INT64_C(50));
        ck_serving_leave(ck_queue_serving(queue));
        ck_queue_destroy(queue);
}

typedef struct taker_s {
        ck_serving_t *serving;
        _Atomic int inside;
        _Atomic int most;
} taker_t;

static void *taker_main(void *arg) {
        taker_t *taker = arg;
        int i;

        for (i = 0; i < 2000;) {
                int inside;

                if (!ck_serving_begin(taker->serving, 1000, NULL, NULL, NULL))
                        continue;
                inside = ++taker->inside;
                if (inside > taker->most)
                        taker->most = inside;
                taker->inside--;
                ck_serving_end(taker->serving);
                i++;
        }
        return NULL;
}

static void test_one_thread_serves(void) {
        taker_t taker = {.serving = ck_serving_new()};
        pthread_t threads[THREADS];
        unsigned ended;
        size_t i;

        for (i = 0; i < THREADS; i++)
                CHECK(pthread_create(&threads[i], NULL, taker_main, &taker) == 0);
        for (i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        CHECK(taker.most == 1);
        CHECK(ck_serving_begin(taker.serving, 0, NULL, NULL, NULL));
        CHECK(!ck_serving_begin(taker.serving, 0, NULL, NULL, NULL));
        ended = ck_serving_count(taker.serving);
        CHECK(!ck_serving_begin(taker.serving, 20, &ended, NULL, NULL));
        ck_serving_end(taker.serving);
        /* Another thread has served since: the thread must check again first. */
        CHECK(!ck_serving_begin(taker.serving, 1000, &ended, NULL, NULL));
        ended = ck_serving_count(taker.serving);
        CHECK(ck_serving_begin(taker.serving, 1000, &ended, NULL, NULL));
        ck_serving_end(taker.serving);
        /* Guests enter one at a time. A guest that times out is forgotten. */
        CHECK(ck_serving_enter(taker.serving, NULL, 0));
        CHECK(!ck_serving_enter(taker.serving, NULL, 0));
        CHECK(!ck_serving_enter(taker.serving, NULL, 20));
        ck_serving_leave(taker.serving);
        CHECK(ck_serving_begin(taker.serving, 0, NULL, NULL, NULL));
        ck_serving_end(taker.serving);
        ck_serving_destroy(taker.serving);
}

typedef struct guest_s {
        ck_serving_t *serving;
        _Atomic bool waits;
        _Atomic bool in;
} guest_t;

static void *guest_main(void *arg) {
        guest_t *guest = arg;

        guest->waits = true;
        guest->in = ck_serving_enter(guest->serving, NULL, -1);
        return NULL;
}

static void test_kick_removes_waiting_guests(void) {
        guest_t guest = {.serving = ck_serving_new(), .in = true};
        struct timespec moment = {.tv_nsec = 2000000};
        pthread_t thread;

        CHECK(ck_serving_enter(guest.serving, NULL, 0));
        CHECK(pthread_create(&thread, NULL, guest_main, &guest) == 0);
        while (!guest.waits)
                nanosleep(&moment, NULL);
        nanosleep(&moment, NULL); /* it usually waits by then */
        while (guest.in) {
                ck_serving_interrupt(guest.serving);
                nanosleep(&moment, NULL);
        }
        pthread_join(thread, NULL);
        ck_serving_leave(guest.serving);
        ck_serving_destroy(guest.serving);
}

typedef struct looker_s {
        ck_serving_t *serving;
        _Atomic bool looks;
        _Atomic bool over;
} looker_t;

/* Runs with the lock of ck_serving. */
static bool looker_look(const void *arg) {
        looker_t *looker = (looker_t *)arg;

        looker->looks = true;
        while (!looker->over)
                usleep(100);
        return true;
}

static void *looker_main(void *arg) {
        looker_t *looker = arg;

        ck_serving_begin(looker->serving, 0, NULL, looker_look, looker);
        return NULL;
}

/* A thread holds the lock while another forks, so it stays locked in the child. */
static void test_forked_publisher_closes_its_delivery(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_delivery_t *delivery = ck_delivery_new(queue, 3);
        looker_t looker = {.serving = ck_queue_serving(queue)};
        pthread_t thread;
        pid_t child;
        int status;

        CHECK(pthread_create(&thread, NULL, looker_main, &looker) == 0);
        while (!looker.looks)
                usleep(100);
        if (!(child = fork())) {
                alarm(5);
                ck_delivery_close(delivery, RD_KAFKA_RESP_ERR__QUEUE_FULL);
                CHECK(ck_delivery_is_done(delivery) && ck_delivery_failed(delivery) == 3);
                ck_delivery_release(delivery);
                _exit(7);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        looker.over = true;
        pthread_join(thread, NULL);
        ck_delivery_close(delivery, 0);
        ck_delivery_release(delivery);
        ck_queue_destroy(queue);
}

int main(void) {
        test_delivery_is_done_with_its_last_report();
        test_last_report_ends_the_wait_for_its_delivery();
        test_untaken_and_refused_records_fail();
        test_event_arrives_once_if_requested_in_time();
        test_delivery_of_an_overflowing_size_is_refused();
        test_records_in_flight_at_the_end_fail();
        test_reports_of_many_threads_end_it_once();
        test_last_report_wakes_a_sleeping_thread();
        test_one_thread_serves();
        test_kick_removes_waiting_guests();
        test_forked_publisher_closes_its_delivery();
        return 0;
}
