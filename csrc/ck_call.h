/*
 * ck_call: a blocking librdkafka call to the brokers, in its own thread.
 *
 * librdkafka cannot cancel such a call. So the caller waits here, and may leave at any
 * time (Ctrl-C, a close() by another thread). The call then runs to its end, and cykafka
 * drops its result. The call is a pinned loan (ck_loans), so cykafka destroys the handle
 * only after the call has returned.
 *
 * librdkafka gets a timeout of at most a minute, except for the kinds that run once. So
 * an abandoned call ends within a minute, or when its own timeout expires. If the call
 * or one of its requests (socket.timeout.ms) times out while its caller waits, the
 * thread repeats the call until the caller's deadline.
 *
 * Ownership: reference-counted; the caller and the thread have one reference each. The
 * call owns its arguments and results, except the events, which outlive it. It frees the
 * results that were not taken (and set to NULL). Threads: the caller's alone before
 * ck_call_start(), the thread's until ck_call_wait() is true, then the caller's again.
 * Waiting takes the lock of a condition. The thread does not exist in a forked child:
 * there the caller may only leave.
 */
#ifndef CK_CALL_H
#define CK_CALL_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

#include "ck_condition.h"
#include "ck_loans.h"
#include "ck_pipe.h"
#include "ck_queue.h"

typedef enum ck_call_kind_e {
        CK_CALL_METADATA =
            0,          /* topic, or NULL for all -> metadata, cluster_id, controller */
        CK_CALL_GROUPS, /* topic: a group's name, or NULL for all -> groups */
        CK_CALL_COMMITTED,    /* partitions -> their offsets */
        CK_CALL_TIMES,        /* partitions, whose offsets are times -> their offsets */
        CK_CALL_WATERMARKS,   /* topic, partition -> low, high */
        CK_CALL_ENDS,         /* partitions, committed_only -> ends, or error */
        CK_CALL_SEEK,         /* partitions -> each partition's err, error; runs once */
        CK_CALL_SEND_OFFSETS, /* partitions, group -> error; runs once */
        CK_CALL_SHARE_COMMIT, /* share -> partitions, each one's err, error; runs once */
        /* events -> entered, error; these run once */
        CK_CALL_FLUSH,
        CK_CALL_INIT_TRANSACTIONS,
        CK_CALL_COMMIT_TRANSACTION,
        CK_CALL_ABORT_TRANSACTION,
} ck_call_kind_t;

typedef struct ck_call_s {
        ck_call_kind_t kind;
        /* Arguments. */
        char *topic;
        int32_t partition;
        rd_kafka_topic_partition_list_t *partitions;
        rd_kafka_consumer_group_metadata_t *group;
        rd_kafka_share_t *share;
        bool committed_only; /* whether isolation.level is read_committed */
        ck_queue_t *events;  /* the handle's; its ck_serving_t is entered as a guest */
        ck_pipe_t *notify; /* notified when the call is done; NULL: none. A reference. */
        /* Results. */
        bool entered; /* false: a close ended the wait for the serving thread */
        rd_kafka_resp_err_t err;
        rd_kafka_error_t *error;
        const struct rd_kafka_metadata *metadata;
        const struct rd_kafka_group_list *groups;
        char *cluster_id;
        int32_t controller;
        int64_t low;
        int64_t high;
        /* The first offsets, and the offsets after the last. They lack the partitions
         * whose brokers did not respond. */
        rd_kafka_topic_partition_list_t *ends[2];
        /* Internal. */
        rd_kafka_t *rk;
        ck_loans_t *loans;
        ck_condition_t *condition; /* signaled when the call is done */
        int64_t deadline;          /* -1: never */
        _Atomic bool done;
        _Atomic bool left; /* the caller has left */
        _Atomic int refs;
} ck_call_t;

/* A call without arguments, with one reference; NULL if memory is short. */
CK_EXPORT ck_call_t *ck_call_new(ck_call_kind_t kind);

/* Starts the call in a new thread; timeout in ms, -1: forever. Only once per call. loans
 * are the handle's. Returns 0, or an errno if the thread cannot start or memory is
 * short. */
CK_EXPORT int ck_call_start(ck_call_t *call, rd_kafka_t *rk, ck_loans_t *loans,
                            int64_t timeout_ms);

/* Runs the call in this thread, instead of ck_call_start(). */
CK_EXPORT void ck_call_now(ck_call_t *call, rd_kafka_t *rk, int timeout_ms);

/* Waits up to timeout_ms. Returns whether the call has its result. */
CK_EXPORT bool ck_call_wait(ck_call_t *call, int timeout_ms);

/* Adds a reference, for a second thread that waits. */
CK_EXPORT void ck_call_keep(ck_call_t *call);

/* Drops the caller's reference. An unfinished call is not repeated. NULL is fine. */
CK_EXPORT void ck_call_leave(ck_call_t *call);

#endif
