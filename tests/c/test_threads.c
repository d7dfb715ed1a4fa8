/* Concurrent operations of several threads on one handle, mainly for ThreadSanitizer: see
 * `make tsan`. A lock stands for Python's GIL where a header requires it. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "ck_arrow.h"
#include "ck_batch.h"
#include "ck_condition.h"
#include "ck_callback.h"
#include "ck_end.h"
#include "ck_publish.h"

static pthread_mutex_t gil = PTHREAD_MUTEX_INITIALIZER;

static void start(pthread_t *thread, void *(*run)(void *), void *arg) {
        CHECK(!pthread_create(thread, NULL, run, arg));
}

static void join(pthread_t thread) {
        CHECK(!pthread_join(thread, NULL));
}

/* -- one producer, many threads */

enum { PUBLISHERS = 3, GUESTS = 2, BATCHES = 40, RECORDS = 300 };

typedef struct shared_s {
        rd_kafka_t *rk;
        rd_kafka_queue_t *main_queue;
        rd_kafka_topic_t *rkt;
        ck_queue_t *queue;
        _Atomic int events_wanted, events;
        _Atomic int inside; /* guests */
        _Atomic int64_t delivered;
        _Atomic bool over;
} shared_t;

/* Like Python's dispatch(): one thread at a time. */
static void dispatch(shared_t *shared) {
        ck_event_t *event;

        pthread_mutex_lock(&gil);
        while ((event = ck_queue_pop(shared->queue))) {
                CHECK(event->kind == CK_EVENT_DELIVERY);
                CHECK(ck_delivery_of_event(event, true) == shared);
                CHECK(ck_delivery_is_done((ck_delivery_t *)event));
                ck_delivery_release(
                    (ck_delivery_t *)event); /* the reference of the event */
                shared->events++;
        }
        pthread_mutex_unlock(&gil);
}

/* Requests an event, from any thread. */
static void want(shared_t *shared, ck_delivery_t *delivery, int which) {
        pthread_mutex_lock(&gil);
        int before = ck_delivery_want(delivery, which, shared);
        if (!before) {
                ck_delivery_keep(delivery);
                shared->events_wanted++;
        }
        pthread_mutex_unlock(&gil);
}

static void publish_batch(shared_t *shared, int n) {
        ck_publish_t publish = {
            .cnt = RECORDS,
            .rkt = shared->rkt,
            .values = {.kind = CK_COLUMN_CONSTANT, .u.constant = {"value", 5}},
            .partitions = {.missing = n % 4}};
        ck_delivery_t *delivery = ck_delivery_new(shared->queue, RECORDS);
        rd_kafka_resp_err_t err;
        unsigned ended;
        size_t i;

        if (n % 3 == 0)
                want(shared, delivery, CK_DELIVERY_RELEASE);
        while (ended = ck_serving_count(ck_queue_serving(shared->queue)),
               (err = ck_publish(shared->rk, &publish, delivery, 1)))
                if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                        ck_callback_serve(shared->rk, shared->queue, NULL, 1000, &ended);
                        dispatch(shared);
                }
        if (n % 3 == 1)
                want(shared, delivery, CK_DELIVERY_NOTIFY);
        ck_delivery_close(delivery, RD_KAFKA_RESP_ERR__FAIL);
        if (n % 4 == 3) { /* dropped; its reports still arrive */
                shared->delivered += RECORDS;
                CHECK(ck_delivery_drop(delivery) == 0);
                ck_delivery_release(delivery);
                return;
        }
        if (n % 5 == 1)
                want(shared, delivery, CK_DELIVERY_NOTIFY | CK_DELIVERY_RELEASE);
        while (!ck_delivery_is_done(delivery)) {
                ck_callback_serve(shared->rk, shared->queue, delivery, 1000, NULL);
                dispatch(shared);
        }
        CHECK(ck_delivery_failed(delivery) == 0);
        for (i = 0; i < RECORDS; i++) {
                const ck_outcome_t *slot = &ck_delivery_slots(delivery)[i];

                CHECK(slot->offset >= 0 && slot->u.outcome.partition == n % 4);
        }
        shared->delivered += RECORDS;
        ck_delivery_release(delivery);
}

static void *publisher_main(void *arg) {
        int n;

        for (n = 0; n < BATCHES; n++)
                publish_batch(arg, n);
        return NULL;
}

static void *poller_main(void *arg) {
        shared_t *shared = arg;

        while (!shared->over) {
                ck_callback_serve(shared->rk, shared->queue, NULL, 20, NULL);
                dispatch(shared);
        }
        return NULL;
}

/* flush() and the transaction calls. */
static void *guest_main(void *arg) {
        shared_t *shared = arg;

        while (!shared->over) {
                if (!ck_serving_enter(ck_queue_serving(shared->queue), shared->main_queue,
                                      -1))
                        continue; /* the other guest has interrupted this one */
                CHECK(++shared->inside == 1);
                ck_callback_flush(shared->rk, 5);
                shared->inside--;
                ck_serving_leave(ck_queue_serving(shared->queue));
                ck_serving_interrupt(ck_queue_serving(shared->queue));
                ck_delivery_is_pending(shared->queue);
                dispatch(shared);
                usleep(2000);
        }
        return NULL;
}

static void test_threads_publish_and_wait_for_their_own(const char *room) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        shared_t shared = {.queue = ck_queue_new()};
        pthread_t publishers[PUBLISHERS], poller, guests[GUESTS];
        int i;

        check_set(conf, "test.mock.num.brokers", "1");
        check_set(conf, "linger.ms", "0");
        check_set(conf, "queue.buffering.max.messages", room);
        rd_kafka_conf_set_opaque(conf, shared.queue);
        rd_kafka_conf_set_dr_msg_cb(conf, ck_callback_report);
        shared.rk = check_client(RD_KAFKA_PRODUCER, conf);
        shared.main_queue = rd_kafka_queue_get_main(shared.rk);
        shared.rkt = rd_kafka_topic_new(shared.rk, "topic", NULL);
        for (i = 0; i < PUBLISHERS; i++)
                start(&publishers[i], publisher_main, &shared);
        start(&poller, poller_main, &shared);
        for (i = 0; i < GUESTS; i++)
                start(&guests[i], guest_main, &shared);
        for (i = 0; i < PUBLISHERS; i++)
                join(publishers[i]);
        while (ck_delivery_is_pending(shared.queue)) /* the dropped deliveries */
                usleep(1000);
        shared.over = true;
        join(poller);
        for (i = 0; i < GUESTS; i++)
                join(guests[i]);
        dispatch(&shared);
        CHECK(shared.delivered == (int64_t)PUBLISHERS * BATCHES * RECORDS);
        CHECK(shared.events_wanted > 0 && shared.events == shared.events_wanted);
        CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 0);
        rd_kafka_topic_destroy(shared.rkt);
        rd_kafka_queue_destroy(shared.main_queue);
        rd_kafka_destroy(shared.rk);
        ck_queue_destroy(shared.queue);
}

/* -- a delivery whose end, request, drop and last report coincide */

enum { ROUNDS = 3000, SIZE = 6 };

typedef struct round_s {
        ck_queue_t *queue;
        ck_delivery_t *delivery;
        pthread_barrier_t barrier;
        _Atomic int wanted, told;
        _Atomic bool over;
} round_t;

static void report(round_t *round, size_t i) {
        ck_outcome_t *slot = &ck_delivery_slots(round->delivery)[i];
        rd_kafka_message_t rkmessage = {
            .partition = 1, .offset = (int64_t)i, ._private = ck_delivery_opaque(slot)};

        ck_delivery_report(&rkmessage, NULL);
}

/* Each thread runs a round with the others, from barrier to barrier. */
static bool round_begins(round_t *round) {
        pthread_barrier_wait(&round->barrier);
        return !round->over;
}

static void round_ends(round_t *round) {
        pthread_barrier_wait(&round->barrier);
}

static void *reports_main(void *arg) {
        round_t *round = arg;

        while (round_begins(round)) {
                size_t i, done = 0, taken;

                /* Report the records taken so far, like librdkafka. */
                while (done < SIZE - 1) {
                        taken = ck_delivery_taken(round->delivery);
                        for (i = done; i < taken && i < SIZE - 1; i++)
                                report(round, i);
                        done = i > done ? i : done;
                }
                round_ends(round);
        }
        return NULL;
}

static void *wants_main(void *arg) {
        round_t *round = arg;

        while (round_begins(round)) {
                int before =
                    ck_delivery_want(round->delivery, CK_DELIVERY_RELEASE, round);
                int again = ck_delivery_want(round->delivery, CK_DELIVERY_NOTIFY, round);

                CHECK(before == 0 || before == CK_DELIVERY_DONE);
                CHECK(before ? again == before : again & CK_DELIVERY_RELEASE);
                round->wanted += !before;
                round_ends(round);
        }
        return NULL;
}

static void *looks_main(void *arg) {
        round_t *round = arg;
        unsigned n = 0;

        while (round_begins(round)) {
                size_t taken = ck_delivery_taken(round->delivery), i;

                for (i = 0; i < taken; i++)
                        if (ck_delivery_slots(round->delivery)[i].offset !=
                            CK_OUTCOME_IN_FLIGHT)
                                CHECK(
                                    ck_delivery_slots(round->delivery)[i].u.outcome.err <=
                                    0);
                CHECK(ck_delivery_failed(round->delivery) <= 1);
                ck_delivery_is_pending(round->queue);
                if (++n % 4 == 0)
                        ck_delivery_drop(round->delivery);
                while (!ck_delivery_is_done(round->delivery))
                        ck_delivery_sleep(round->queue, round->delivery, 100);
                round_ends(round);
        }
        return NULL;
}

static void test_end_and_request_coincide(void) {
        round_t round = {.queue = ck_queue_new()};
        pthread_t threads[3];
        ck_event_t *event;
        int n;

        CHECK(!pthread_barrier_init(&round.barrier, NULL, 4));
        start(&threads[0], reports_main, &round);
        start(&threads[1], wants_main, &round);
        start(&threads[2], looks_main, &round);
        for (n = 0; n < ROUNDS; n++) {
                int wanted = round.wanted;

                round.delivery = ck_delivery_new(round.queue, SIZE);
                pthread_barrier_wait(&round.barrier);
                ck_delivery_take(round.delivery, 2);
                ck_delivery_take(round.delivery, SIZE - 1);
                ck_delivery_close(round.delivery, RD_KAFKA_RESP_ERR__QUEUE_FULL);
                pthread_barrier_wait(&round.barrier);
                CHECK(ck_delivery_is_done(round.delivery));
                CHECK(ck_delivery_failed(round.delivery) == 1);
                event = ck_queue_pop(round.queue);
                CHECK((event != NULL) == (round.wanted > wanted));
                CHECK(!event || ck_delivery_of_event(event, true) == &round);
                CHECK(!ck_queue_pop(round.queue));
                ck_delivery_release(round.delivery);
                CHECK(ck_runtime_alive(CK_KIND_DELIVERY) == 0);
        }
        round.over = true;
        pthread_barrier_wait(&round.barrier);
        for (n = 0; n < 3; n++)
                join(threads[n]);
        pthread_barrier_destroy(&round.barrier);
        ck_queue_destroy(round.queue);
}

/* -- unreported failures */

static void *unreported_main(void *arg) {
        int i;

        for (i = 0; i < 5000; i++)
                ck_queue_add_unreported(arg, "topic", RD_KAFKA_RESP_ERR__MSG_TIMED_OUT,
                                        1);
        return NULL;
}

static void test_unreported_failures_of_many_threads_are_counted(void) {
        ck_queue_t *queue = ck_queue_new();
        pthread_t threads[3];
        ck_event_t *first;
        int64_t total = 0;
        int i;

        for (i = 0; i < 3; i++)
                start(&threads[i], unreported_main, queue);
        for (i = 0; i < 1000; i++) {
                total += ck_queue_take_unreported(queue, &first);
                ck_event_destroy(first);
        }
        for (i = 0; i < 3; i++)
                join(threads[i]);
        total += ck_queue_take_unreported(queue, &first);
        ck_event_destroy(first);
        CHECK(total == 15000);
        ck_queue_destroy(queue);
        CHECK(ck_runtime_alive(CK_KIND_EVENT) == 0);
}

/* -- batches that are read, detached and closed at once */

enum { TOTAL = 300, READERS = 3 };

typedef struct storage_s {
        ck_batch_t *batch; /* under the GIL, as in Python's Storage */
        _Atomic bool over;
} storage_t;

static const ck_arrow_name_t names[] = {CK_ARROW_KEY, CK_ARROW_VALUE, CK_ARROW_OFFSET,
                                        CK_ARROW_HEADERS};

static void read_batch(const ck_batch_t *batch, int n) {
        int64_t offsets[TOTAL];
        struct ArrowArray array;
        size_t built, i, len;
        ck_row_t row;

        CHECK(batch->cnt - batch->head == TOTAL);
        switch (n % 4) {
        case 0:
                ck_batch_numbers(batch, 0, 1, TOTAL, CK_NUMBER_OFFSET, offsets);
                for (i = 0; i < TOTAL; i++)
                        CHECK(offsets[i] == (int64_t)i);
                break;
        case 1:
                CHECK(ck_arrow_build(batch, 0, 1, TOTAL, names, 4, CK_ARROW_MAX_BYTES,
                                     &built, &array) == 0);
                CHECK(built == TOTAL && array.length == TOTAL);
                array.release(&array);
                break;
        case 2:
                for (i = 0; i < TOTAL; i++) {
                        rd_kafka_headers_t *headers = ck_batch_headers(batch, i);

                        CHECK((headers != NULL) == (i % 3 == 0));
                        ck_batch_row(batch, i, &row);
                        CHECK(row.offset == (int64_t)i && !strcmp(row.topic, "topic"));
                }
                break;
        default:
                for (i = 0; i < TOTAL; i++)
                        CHECK(ck_batch_value(batch, i, &len) && len == 5);
        }
}

static void *reader_main(void *arg) {
        storage_t *storage = arg;
        int n;

        for (n = 0; !storage->over; n++) {
                pthread_mutex_lock(&gil);
                ck_batch_t *batch = storage->batch;
                ck_batch_ref(batch);
                pthread_mutex_unlock(&gil);
                read_batch(batch, n);
                ck_batch_unref(batch);
        }
        return NULL;
}

/* Views of the bytes. */
static void *pinner_main(void *arg) {
        storage_t *storage = arg;

        while (!storage->over) {
                pthread_mutex_lock(&gil);
                ck_batch_t *batch = storage->batch;
                ck_batch_pin(batch);
                pthread_mutex_unlock(&gil);
                read_batch(batch, 3);
                ck_batch_unpin(batch);
        }
        return NULL;
}

static rd_kafka_t *new_filled_cluster(rd_kafka_mock_cluster_t **mock) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_t *producer;
        rd_kafka_topic_t *rkt;
        int i;

        check_set(conf, "linger.ms", "0");
        producer = check_client(RD_KAFKA_PRODUCER, conf);
        *mock = rd_kafka_mock_cluster_new(producer, 1);
        CHECK(rd_kafka_mock_topic_create(*mock, "topic", 1, 1) == 0);
        CHECK(rd_kafka_brokers_add(producer, rd_kafka_mock_cluster_bootstraps(*mock)) >
              0);
        rkt = rd_kafka_topic_new(producer, "topic", NULL);
        for (i = 0; i < TOTAL; i++) {
                rd_kafka_headers_t *headers = i % 3 ? NULL : rd_kafka_headers_new(1);

                if (headers)
                        rd_kafka_header_add(headers, "name", -1, "v", 1);
                CHECK(rd_kafka_producev(
                          producer, RD_KAFKA_V_RKT(rkt), RD_KAFKA_V_PARTITION(0),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                          RD_KAFKA_V_VALUE("value", 5), RD_KAFKA_V_KEY("k", 1),
                          RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END) == 0);
        }
        rd_kafka_topic_destroy(rkt);
        CHECK(rd_kafka_flush(producer, 10000) == 0);
        return producer;
}

static rd_kafka_t *new_consumer(rd_kafka_mock_cluster_t *mock) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_topic_partition_list_t *partitions;
        rd_kafka_t *consumer;

        check_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(mock));
        check_set(conf, "group.id", "g");
        check_set(conf, "enable.auto.commit", "false");
        consumer = check_client(RD_KAFKA_CONSUMER, conf);
        CHECK(rd_kafka_poll_set_consumer(consumer) == 0);
        partitions = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(partitions, "topic", 0)->offset = 0;
        CHECK(rd_kafka_assign(consumer, partitions) == 0);
        rd_kafka_topic_partition_list_destroy(partitions);
        return consumer;
}

static ck_batch_t *take_all(rd_kafka_t *consumer, ck_loans_t *loans) {
        rd_kafka_queue_t *rkqu = rd_kafka_queue_get_consumer(consumer);
        ck_batch_t *gathered = ck_batch_new(TOTAL), *batch;

        while (gathered->cnt < TOTAL)
                ck_batch_accept(gathered, ck_batch_fill(gathered, rkqu, 10000,
                                                        TOTAL - gathered->cnt));
        batch = ck_batch_take(gathered, TOTAL, loans);
        ck_batch_destroy(gathered);
        rd_kafka_queue_destroy(rkqu);
        return batch;
}

static void has_ended(void *ended) {
        *(_Atomic bool *)ended = true;
}

static void test_batch_is_detached_and_its_consumer_closed_under_readers(void) {
        rd_kafka_mock_cluster_t *mock;
        rd_kafka_t *producer = new_filled_cluster(&mock);
        int round;

        for (round = 0; round < 4; round++) {
                ck_loans_t *loans = ck_loans_new();
                _Atomic bool ended = false;
                rd_kafka_t *consumer = new_consumer(mock);
                storage_t storage = {.batch = take_all(consumer, loans)};
                pthread_t readers[READERS], pinner;
                ck_batch_t *copy, *before;
                int i;

                for (i = 0; i < READERS; i++)
                        start(&readers[i], reader_main, &storage);
                start(&pinner, pinner_main, &storage);
                usleep(20000);
                pthread_mutex_lock(&gil);
                before = storage.batch;
                ck_batch_ref(before);
                pthread_mutex_unlock(&gil);
                copy = ck_batch_copy(before);
                pthread_mutex_lock(&gil);
                storage.batch = copy;
                pthread_mutex_unlock(&gil);
                ck_batch_unref(before);
                ck_batch_unref(before);
                if (round % 2) { /* in another thread, as if views were left */
                        if (ck_end_leave(ck_end_start(
                                consumer, NULL, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE,
                                NULL, loans, has_ended, &ended)))
                                ended = true;
                } else {
                        ck_loans_wait(loans);
                        CHECK(ck_loans_settle(loans));
                        ck_end_now(consumer, NULL, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE,
                                   NULL, loans);
                        ended = true;
                }
                usleep(20000);
                storage.over = true;
                for (i = 0; i < READERS; i++)
                        join(readers[i]);
                join(pinner);
                ck_batch_unref(storage.batch);
                while (!ended) /* the other thread has destroyed it too */
                        usleep(1000);
        }
        CHECK(ck_runtime_alive(CK_KIND_FETCHED) == 0);
        rd_kafka_mock_cluster_destroy(mock);
        rd_kafka_destroy(producer);
        CHECK(rd_kafka_thread_cnt() == 0); /* the consumers' threads have ended too */
}

/* -- the condition */

static void *ringer_main(void *arg) {
        ck_condition_signal(arg);
        return NULL;
}

static void test_ring_ends_the_wait(void) {
        ck_condition_t *condition = ck_condition_new();
        int64_t started = ck_runtime_now_ms();
        pthread_t thread;
        int i;

        for (i = 0; i < 200; i++) {
                start(&thread, ringer_main, condition);
                ck_condition_wait(condition, 60000);
                join(thread);
        }
        CHECK(ck_runtime_now_ms() - started < 60000);
        ck_condition_destroy(condition);
}

int main(void) {
        test_ring_ends_the_wait();
        test_unreported_failures_of_many_threads_are_counted();
        test_end_and_request_coincide();
        test_threads_publish_and_wait_for_their_own("100000");
        test_threads_publish_and_wait_for_their_own("500");
        test_batch_is_detached_and_its_consumer_closed_under_readers();
        return 0;
}
