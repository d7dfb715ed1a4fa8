#include <pthread.h>

#include "check.h"
#include "ck_queue.h"

enum { THREADS = 4, EVENTS = 20000 };

static void test_pop_yields_events_in_their_order(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_notice_t *notice;
        int i;

        CHECK(ck_queue_pop(queue) == NULL);
        for (i = 0; i < 5; i++) {
                notice = ck_event_new(CK_EVENT_STATS, "text");
                notice->number = i;
                ck_queue_push(queue, &notice->event);
        }
        CHECK(ck_queue_length(queue) == 5);
        for (i = 0; i < 3; i++) {
                notice = (ck_notice_t *)ck_queue_pop(queue);
                CHECK(notice->number == i);
                CHECK(notice->text_len == 4 && strcmp(notice->text, "text") == 0);
                ck_event_destroy(&notice->event);
        }
        /* Later events follow those already taken over. */
        notice = ck_event_new(CK_EVENT_STATS, NULL);
        notice->number = 5;
        ck_queue_push(queue, &notice->event);
        for (i = 3; i < 6; i++) {
                notice = (ck_notice_t *)ck_queue_pop(queue);
                CHECK(notice->number == i);
                ck_event_destroy(&notice->event);
        }
        CHECK(ck_queue_length(queue) == 0);
        ck_queue_destroy(queue);
}

static void test_destroy_frees_what_is_left(void) {
        ck_queue_t *queue = ck_queue_new();

        ck_queue_push(queue, &ck_event_new(CK_EVENT_LOG, "left")->event);
        ck_queue_push(queue, &ck_event_new(CK_EVENT_ERROR, NULL)->event);
        CHECK(ck_runtime_alive(CK_KIND_EVENT) == 2);
        ck_queue_destroy(queue);
        CHECK(ck_runtime_alive(CK_KIND_EVENT) == 0);
        ck_queue_destroy(NULL);
        ck_event_destroy(NULL);
}

static void test_unreported_failures_are_counted_once(void) {
        ck_queue_t *queue = ck_queue_new();
        ck_event_t *first;

        ck_queue_add_unreported(queue, "a", RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, 1);
        ck_queue_add_unreported(queue, "b", RD_KAFKA_RESP_ERR__PURGE_QUEUE, 1);
        CHECK(ck_queue_take_unreported(queue, &first) == 2);
        CHECK(first && first->code == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT);
        CHECK(first && strcmp(((ck_notice_t *)first)->text, "a") == 0);
        ck_event_destroy(first);
        CHECK(ck_queue_take_unreported(queue, &first) == 0 && first == NULL);
        ck_queue_add_unreported(queue, "c", RD_KAFKA_RESP_ERR__PURGE_QUEUE, 1);
        ck_queue_destroy(queue);
        CHECK(ck_runtime_alive(CK_KIND_EVENT) == 0);
}

static void test_attached_objects_are_found(void) {
        ck_queue_t *queue = ck_queue_new();
        int object;

        CHECK(ck_queue_attached(queue, CK_SLOT_TOKENS) == NULL);
        ck_queue_attach(queue, CK_SLOT_TOKENS, &object);
        CHECK(ck_queue_attached(queue, CK_SLOT_TOKENS) == &object);
        CHECK(ck_queue_attached(queue, CK_SLOT_CLIENT) == NULL);
        ck_queue_destroy(queue);
}

typedef struct pusher_s {
        ck_queue_t *queue;
        int number;
} pusher_t;

static void *push_events(void *arg) {
        pusher_t *pusher = arg;
        int i;

        for (i = 0; i < EVENTS; i++) {
                ck_notice_t *notice = ck_event_new(CK_EVENT_STATS, NULL);
                notice->event.code = pusher->number;
                notice->number = i;
                ck_queue_push(pusher->queue, &notice->event);
        }
        return NULL;
}

static void test_pushing_threads_lose_nothing_and_keep_their_order(void) {
        ck_queue_t *queue = ck_queue_new();
        pthread_t threads[THREADS];
        pusher_t pushers[THREADS];
        int64_t next[THREADS] = {0};
        int popped = 0;
        int i;

        for (i = 0; i < THREADS; i++) {
                pushers[i] = (pusher_t){queue, i};
                CHECK(pthread_create(&threads[i], NULL, push_events, &pushers[i]) == 0);
        }
        while (popped < THREADS * EVENTS) {
                ck_notice_t *notice = (ck_notice_t *)ck_queue_pop(queue);
                if (!notice)
                        continue;
                CHECK(notice->number == next[notice->event.code]);
                next[notice->event.code]++;
                popped++;
                ck_event_destroy(&notice->event);
        }
        for (i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        CHECK(ck_queue_pop(queue) == NULL);
        CHECK(ck_queue_length(queue) == 0);
        ck_queue_destroy(queue);
        CHECK(ck_runtime_alive(CK_KIND_EVENT) == 0);
}

int main(void) {
        test_pop_yields_events_in_their_order();
        test_destroy_frees_what_is_left();
        test_unreported_failures_are_counted_once();
        test_attached_objects_are_found();
        test_pushing_threads_lose_nothing_and_keep_their_order();
        return 0;
}
