#include <unistd.h>

#include "check.h"
#include "ck_call.h"
#include "ck_end.h"

enum { SLOW_MS = 1500 };

static rd_kafka_t *owner;
static rd_kafka_mock_cluster_t *mock;

static rd_kafka_t *new_client(void) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();

        check_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(mock));
        return check_client(RD_KAFKA_PRODUCER, conf);
}

static void await(ck_call_t *call) {
        int64_t started = ck_runtime_now_ms();

        while (!ck_call_wait(call, 100))
                CHECK(ck_runtime_now_ms() - started < 20000);
        CHECK(ck_call_wait(call, 0));
}

/* A thread drops its reference after it has announced the result. */
static void await_no_calls(void) {
        while (ck_runtime_alive(CK_KIND_CALL))
                usleep(1000);
}

static void test_call_returns_its_answer(void) {
        ck_loans_t *loans = ck_loans_new();
        rd_kafka_t *rk = new_client();
        ck_call_t *call = ck_call_new(CK_CALL_METADATA);

        CHECK(ck_call_start(call, rk, loans, 20000) == 0);
        await(call);
        CHECK(!call->err && call->metadata && call->metadata->broker_cnt == 1);
        CHECK(call->cluster_id && call->controller >= 0);
        ck_call_leave(call);

        call = ck_call_new(CK_CALL_WATERMARKS);
        call->topic = strdup("topic");
        CHECK(ck_call_start(call, rk, loans, -1) == 0);
        await(call);
        CHECK(!call->err && call->low == 0 && call->high == 0);
        ck_call_leave(call);
        CHECK(ck_loans_settle(loans));
        ck_end_now(rk, NULL, 0, NULL, loans);
        await_no_calls();
}

static void test_call_times_out(void) {
        ck_loans_t *loans = ck_loans_new();
        rd_kafka_t *rk = check_client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
        ck_call_t *call = ck_call_new(CK_CALL_METADATA);

        CHECK(ck_call_start(call, rk, loans, 50) == 0);
        await(call);
        CHECK(call->err == RD_KAFKA_RESP_ERR__TRANSPORT && !call->metadata);
        ck_call_leave(call);
        ck_end_now(rk, NULL, 0, NULL, loans);
}

static void has_ended(void *ended) {
        *(_Atomic bool *)ended = true;
}

static void test_handle_is_destroyed_after_its_last_call(void) {
        ck_loans_t *loans = ck_loans_new();
        rd_kafka_t *rk = new_client();
        ck_call_t *call = ck_call_new(CK_CALL_METADATA);
        _Atomic bool ended = false;
        int64_t started;

        rd_kafka_mem_free(NULL, rd_kafka_clusterid(rk, 20000)); /* connected */
        CHECK(rd_kafka_mock_broker_set_rtt(mock, -1, SLOW_MS) == 0);
        started = ck_runtime_now_ms();
        CHECK(ck_call_start(call, rk, loans, 20000) == 0);
        CHECK(!ck_call_wait(call, 50));
        ck_call_leave(call);
        CHECK(!ck_loans_settle(loans));
        CHECK(!ck_end_leave(ck_end_start(rk, NULL, 0, NULL, loans, has_ended, &ended)));
        CHECK(ck_runtime_now_ms() - started < SLOW_MS && !ended);
        while (!ended)
                usleep(1000);
        CHECK(ck_runtime_now_ms() - started >= SLOW_MS);
        await_no_calls();
        CHECK(rd_kafka_mock_broker_set_rtt(mock, -1, 0) == 0);
}

int main(void) {
        owner = check_client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
        mock = rd_kafka_mock_cluster_new(owner, 1);
        CHECK(rd_kafka_mock_topic_create(mock, "topic", 1, 1) == 0);
        test_call_returns_its_answer();
        test_call_times_out();
        test_handle_is_destroyed_after_its_last_call();
        rd_kafka_mock_cluster_destroy(mock);
        rd_kafka_destroy(owner);
        return 0;
}
