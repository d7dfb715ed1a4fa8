/*
 * ck_runtime: process-wide state: the fork generation, the count of live objects and the
 * clock.
 *
 * Ownership: nothing here is owned or freed. Threads: any thread may call any function.
 * The generation changes only in a forked child, which has one thread.
 */
#ifndef CK_RUNTIME_H
#define CK_RUNTIME_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define CK_EXPORT __attribute__((visibility("default")))

/* Starts at 1 and grows by one in every forked child, so 0 never names a living process.
 * Comparing two integers therefore distinguishes an inherited handle from a handle that
 * this process created. librdkafka's threads do not exist in a child, where a call into
 * an inherited handle could block forever. */
CK_EXPORT extern uint32_t ck_runtime_generation;

/* Whether the interpreter is ending. From then on, librdkafka's threads must not wait
 * for the GIL. Set once, with the GIL. */
CK_EXPORT extern bool ck_runtime_exiting;

/* Kinds of objects that cykafka counts, so that tests can detect leaks. */
typedef enum ck_kind_e {
        CK_KIND_HANDLE = 0, /* rd_kafka_t */
        CK_KIND_TOPIC,      /* rd_kafka_topic_t held by a producer */
        CK_KIND_EVENT,      /* events not yet passed to a callback */
        CK_KIND_FETCHED,    /* rd_kafka_message_t taken from librdkafka */
        CK_KIND_DELIVERY,   /* deliveries of batches */
        CK_KIND_CALL,       /* calls of ck_call, each with its own thread */
        CK_KIND__CNT
} ck_kind_t;

/* Messages in flight that have a delivery callback. Not atomic, because it changes twice
 * per message: only the thread that holds the GIL may access it. */
CK_EXPORT extern int64_t ck_runtime_reports;

/* Adds delta to the number of live objects of a kind. Atomic, takes no lock. */
CK_EXPORT void ck_runtime_count(ck_kind_t kind, int64_t delta);

/* The number of live objects of a kind. */
CK_EXPORT int64_t ck_runtime_alive(ck_kind_t kind);

/* Starts a detached thread that receives no signals. Returns 0 or an errno. */
CK_EXPORT int ck_runtime_spawn(void *(*run)(void *), void *arg);

/* The version of the package. */
CK_EXPORT const char *ck_runtime_version(void);

/* The path of the librdkafka that the process has loaded; NULL if the loader does not
 * know it. The text lives as long as the process. */
CK_EXPORT const char *ck_runtime_librdkafka(void);

/* Whether that librdkafka lies beside this library and was built with it, with all
 * cykafka patches. */
CK_EXPORT int ck_runtime_is_patched(void);

/* Milliseconds of the monotonic clock. */
CK_EXPORT int64_t ck_runtime_now_ms(void);

/* The time of that clock `ms` milliseconds from now. */
CK_EXPORT struct timespec ck_runtime_after(int64_t ms);

/* Initializes a condition whose timed waits use that clock. */
CK_EXPORT void ck_runtime_cond_init(pthread_cond_t *cond);

#endif
