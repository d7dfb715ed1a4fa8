/*
 * ck_runtime: what the whole process shares: the fork generation, the count of live objects
 * and the clock.
 *
 * Ownership: nothing here is owned or freed. Threads: every function may be called from any
 * thread; the generation changes only in the child of a fork, which has one thread.
 */
#ifndef CK_RUNTIME_H
#define CK_RUNTIME_H

#include <stdint.h>

#define CK_EXPORT __attribute__((visibility("default")))

/* Starts at 1 and grows by one in every forked child, so that 0 never names a living process
 * and an inherited handle is told from one of our own by comparing two integers: librdkafka's
 * threads do not exist in a child, and any call into an inherited handle could wait forever. */
CK_EXPORT extern uint32_t ck_runtime_generation;

/* Kinds of objects that are counted, so that a test can see that none was left behind. */
typedef enum ck_kind_e {
        CK_KIND_HANDLE = 0, /* rd_kafka_t */
        CK_KIND_TOPIC,      /* rd_kafka_topic_t held by a producer */
        CK_KIND_EVENT,      /* events not yet handed to a callback */
        CK_KIND_REPORT,     /* messages in flight that have a delivery callback */
        CK_KIND_FETCHED,    /* rd_kafka_message_t taken from librdkafka */
        CK_KIND_DELIVERY,    /* ledgers of batches */
        CK_KIND__CNT
} ck_kind_t;

/* Messages in flight that have a delivery callback. Not atomic, for it changes twice a message: only
 * the thread that holds the GIL may touch it. */
CK_EXPORT extern int64_t ck_runtime_reports;

/* Adds delta to the number of live objects of a kind. Atomic, takes no lock. */
CK_EXPORT void ck_runtime_count(ck_kind_t kind, int64_t delta);

/* The number of live objects of a kind. */
CK_EXPORT int64_t ck_runtime_alive(ck_kind_t kind);

/* The version of the package. */
CK_EXPORT const char *ck_runtime_version(void);

/* Milliseconds of a clock that never goes back. */
CK_EXPORT int64_t ck_runtime_now_ms(void);

#endif
