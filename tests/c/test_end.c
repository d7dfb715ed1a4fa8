#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "ck_end.h"

enum { LONG_MS = 20000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool resolving, resolved;

static void has_ended(void *ended) {
        *(_Atomic bool *)ended = true;
}

/* A name resolver that does not return until the test allows it. */
static int resolve(const char *node, const char *service, const struct addrinfo *hints,
                   struct addrinfo **res, void *opaque) {
        (void)service, (void)hints, (void)res, (void)opaque;
        if (!node)
                return 0;
        pthread_mutex_lock(&lock);
        resolving = true;
        pthread_cond_broadcast(&changed);
        while (!resolved)
                pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        return -1; /* no address */
}

static void test_end_of_a_handle_in_time(void) {
        rd_kafka_t *rk = check_client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
        ck_end_t *end;

        ck_runtime_count(CK_KIND_HANDLE, 1);
        end = ck_end_start(rk, NULL, 0, NULL, NULL, NULL, NULL);
        CHECK(ck_end_wait(end, LONG_MS));
        CHECK(ck_runtime_alive(CK_KIND_HANDLE) == 0);
        CHECK(ck_end_leave(end)); /* ended() is not called: it is NULL */
        CHECK(ck_end_all(LONG_MS));
}

static void test_end_of_a_handle_out_of_time(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        _Atomic bool ended = false;
        rd_kafka_t *rk;
        ck_end_t *end;

        check_set(conf, "bootstrap.servers", "broker.example:9092");
        rd_kafka_conf_set_resolve_cb(conf, resolve);
        rk = check_client(RD_KAFKA_PRODUCER, conf);
        pthread_mutex_lock(&lock);
        while (!resolving)
                pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);

        ck_runtime_count(CK_KIND_HANDLE, 1);
        end = ck_end_start(rk, NULL, 0, NULL, NULL, has_ended, &ended);
        CHECK(!ck_end_wait(end, 50));
        CHECK(!ck_end_leave(end));
        CHECK(!ck_end_all(50));
        CHECK(!ended && ck_runtime_alive(CK_KIND_HANDLE) == 1);

        pthread_mutex_lock(&lock);
        resolved = true;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        CHECK(ck_end_all(LONG_MS));
        CHECK(ended && ck_runtime_alive(CK_KIND_HANDLE) == 0);
}

int main(void) {
        test_end_of_a_handle_in_time();
        test_end_of_a_handle_out_of_time();
        return 0;
}
