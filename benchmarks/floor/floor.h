/*
 * Shared parts of the floor programs: the command line, the measured section and its
 * report.
 *
 * Every program is one fresh process that prints one JSON line on stdout, exactly like
 * the Python cases. Every error ends the process with a message on stderr, because a
 * benchmark that continues after an error measures something else.
 *
 * Threads: only the main thread calls these functions.
 */
#ifndef FLOOR_H
#define FLOOR_H

#include <librdkafka/rdkafka.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/* Messages between two calls of rd_kafka_poll(rk, 0), and messages in a warm-up. */
#define FLOOR_CHUNK 10000

/* Bytes of a key, and of each header's value in keyed records. */
#define FLOOR_KEY_SIZE 16

/* The first header of a keyed record has one of this many values; the second has the
 * record's key. */
#define FLOOR_TYPES 16

/* The command line: PROGRAM MODE TOPIC MESSAGES VALUE_SIZE PARTITIONS [KEY=VALUE ...] */
typedef struct floor_args {
        const char *mode;
        const char *topic;
        int64_t messages;
        size_t value_size;     /* bytes */
        int32_t partitions;    /* of the topic */
        rd_kafka_conf_t *conf; /* the caller owns it until rd_kafka_new() takes it */
} floor_args_t;

/* Clocks and resident memory at the start of the measured section. */
typedef struct floor_clock {
        long rss_kb;
        struct rusage usage;
        struct timespec wall;
} floor_clock_t;

/* Ends the process with a message. */
_Noreturn void floor_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parses the command line. Ends the process if it is wrong. */
void floor_parse(int argc, char **argv, floor_args_t *args);

/* Makes a producer from args->conf, and a handle of its topic. Ends the process on
 * failure. */
rd_kafka_t *floor_producer(floor_args_t *args, rd_kafka_topic_t **topic);

/* Returns `count` values of `size` bytes, one after the other. The caller frees them. */
char *floor_values(size_t count, size_t size);

/* Returns `count` different keys of FLOOR_KEY_SIZE bytes, one after the other. The caller
 * frees them. */
char *floor_keys(size_t count);

/* Sets `vu` to header number `which` (0 or 1) of a record, for rd_kafka_produceva(). */
void floor_header(rd_kafka_vu_t *vu, int which, const void *value, size_t size);

/* The time of a monotonic clock, in seconds. */
double floor_now(void);

/* Waits until all threads of this process have been idle for a while. */
void floor_wait_idle(void);

void floor_start(floor_clock_t *clock);

/* Prints the JSON line. `produced` is the number of new records in the topic, warm-up
 * included; the harness compares it with the topic's end offsets. `latencies` is NULL, or
 * has `messages` durations in seconds, which this function sorts. */
void floor_report(const floor_clock_t *clock, int64_t messages, int64_t produced,
                  double *latencies);

#endif
