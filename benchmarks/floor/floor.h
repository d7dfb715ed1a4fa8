/*
 * What the floor programs share: reading the command line, the measured section and its
 * report.
 *
 * Every program is one fresh process that prints one JSON line on stdout, exactly as the
 * Python cases do. Anything unexpected ends the process with a message on stderr: a
 * benchmark that goes on after an error measures something else.
 *
 * Threads: all functions are for the main thread.
 */
#ifndef FLOOR_H
#define FLOOR_H

#include <librdkafka/rdkafka.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/* Messages between two calls of rd_kafka_poll(rk, 0), and messages of a warm-up. */
#define FLOOR_CHUNK 10000

/* Bytes of a key; the headers of a keyed record carry as many. */
#define FLOOR_KEY_SIZE 16

/* The first header of keyed records has one of so many keys, the second the record's. */
#define FLOOR_TYPES 16

/* The command line: PROGRAM MODE TOPIC MESSAGES VALUE_SIZE PARTITIONS [KEY=VALUE ...] */
typedef struct floor_args {
        const char *mode;
        const char *topic;
        int64_t messages;
        size_t value_size;     /* bytes */
        int32_t partitions;    /* of the topic */
        rd_kafka_conf_t *conf; /* owned by the caller until rd_kafka_new() takes it */
} floor_args_t;

/* Clocks and resident memory at the start of the measured section. */
typedef struct floor_clock {
        long rss_kb;
        struct rusage usage;
        struct timespec wall;
} floor_clock_t;

/* Ends the process with a message. */
_Noreturn void floor_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reads the command line; ends the process when it is wrong. */
void floor_parse(int argc, char **argv, floor_args_t *args);

/* Makes a producer of args->conf, and the handle of its topic; ends the process when that
 * fails. */
rd_kafka_t *floor_producer(floor_args_t *args, rd_kafka_topic_t **topic);

/* `count` values of `size` bytes, one after the other; the caller frees. */
char *floor_values(size_t count, size_t size);

/* `count` different keys of FLOOR_KEY_SIZE bytes, one after the other; the caller frees.
 */
char *floor_keys(size_t count);

/* Makes `vu` the header number `which` (0 or 1) of a record for rd_kafka_produceva(). */
void floor_header(rd_kafka_vu_t *vu, int which, const void *value, size_t size);

/* Seconds of a monotonic clock. */
double floor_now(void);

/* Waits until no thread of this process has used the CPU for a while. */
void floor_wait_idle(void);

void floor_start(floor_clock_t *clock);

/* Prints the JSON line. `produced` is what the topic has got more, warm-up included; the
 * harness compares it with the topic's end offsets. `latencies` are `messages` durations
 * in seconds, or NULL; they are sorted in place. */
void floor_report(const floor_clock_t *clock, int64_t messages, int64_t produced,
                  double *latencies);

#endif
