#include "floor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void floor_die(const char *format, ...) {
        va_list ap;
        va_start(ap, format);
        vfprintf(stderr, format, ap);
        va_end(ap);
        fputc('\n', stderr);
        exit(1);
}

static int64_t parse_count(const char *text, const char *what) {
        char *end;
        long long n = strtoll(text, &end, 10);
        if (*end || n <= 0)
                floor_die("%s: expected a positive number, got \"%s\"", what, text);
        return n;
}

void floor_parse(int argc, char **argv, floor_args_t *args) {
        char reason[256];
        if (argc < 6)
                floor_die(
                    "usage: %s MODE TOPIC MESSAGES VALUE_SIZE PARTITIONS [KEY=VALUE ...]",
                    argv[0]);
        args->mode = argv[1];
        args->topic = argv[2];
        args->messages = parse_count(argv[3], "MESSAGES");
        args->value_size = (size_t)parse_count(argv[4], "VALUE_SIZE");
        args->partitions = (int32_t)parse_count(argv[5], "PARTITIONS");
        args->conf = rd_kafka_conf_new();
        for (int i = 6; i < argc; i++) {
                char *equals = strchr(argv[i], '=');
                if (!equals)
                        floor_die("expected KEY=VALUE, got \"%s\"", argv[i]);
                *equals = '\0';
                if (rd_kafka_conf_set(args->conf, argv[i], equals + 1, reason,
                                      sizeof(reason)))
                        floor_die("%s", reason);
        }
}

rd_kafka_t *floor_producer(floor_args_t *args, rd_kafka_topic_t **topic) {
        char reason[256];
        rd_kafka_t *rk =
            rd_kafka_new(RD_KAFKA_PRODUCER, args->conf, reason, sizeof(reason));

        if (!rk)
                floor_die("%s", reason);
        *topic = rd_kafka_topic_new(rk, args->topic, NULL);
        if (!*topic)
                floor_die("%s: %s", args->topic, rd_kafka_err2str(rd_kafka_last_error()));
        return rk;
}

char *floor_values(size_t count, size_t size) {
        char *values = malloc(count * size);
        if (!values)
                floor_die("out of memory");
        for (size_t i = 0; i < count * size; i++)
                values[i] = (char)('a' + (i / size + i) % 26);
        return values;
}

char *floor_keys(size_t count) {
        char *keys = malloc(count * FLOOR_KEY_SIZE + 1);
        if (!keys)
                floor_die("out of memory");
        for (size_t i = 0; i < count; i++)
                snprintf(keys + i * FLOOR_KEY_SIZE, FLOOR_KEY_SIZE + 1, "%0*u",
                         FLOOR_KEY_SIZE, (unsigned)i);
        return keys;
}

void floor_header(rd_kafka_vu_t *vu, int which, const void *value, size_t size) {
        vu->vtype = RD_KAFKA_VTYPE_HEADER;
        vu->u.header.name = which ? "trace_id" : "message_type";
        vu->u.header.val = value;
        vu->u.header.size = (ssize_t)size;
}

double floor_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Resident memory in kB: "VmRSS" now, or "VmHWM", the peak of this program. (ru_maxrss
 * would start at the parent's value.) */
static long rss_kb(const char *which) {
        char line[256];
        long kb = 0;
        size_t length = strlen(which);
        FILE *status = fopen("/proc/self/status", "r");
        while (status && fgets(line, sizeof(line), status))
                if (!strncmp(line, which, length) && line[length] == ':') {
                        kb = strtol(line + length + 1, NULL, 10);
                        break;
                }
        if (status)
                fclose(status);
        return kb;
}

static double cpu_seconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void floor_wait_idle(void) {
        const struct timespec half_a_second = {.tv_nsec = 500000000};
        double before, after = 0;
        do {
                before = after;
                nanosleep(&half_a_second, NULL);
                after = cpu_seconds();
        } while (after - before > 0.01);
}

void floor_start(floor_clock_t *clock) {
        clock->rss_kb = rss_kb("VmRSS");
        clock_gettime(CLOCK_MONOTONIC, &clock->wall);
        getrusage(RUSAGE_SELF, &clock->usage);
}

static double seconds_since(const struct timeval *start, const struct timeval *now) {
        return (double)(now->tv_sec - start->tv_sec) +
               1e-6 * (double)(now->tv_usec - start->tv_usec);
}

static int compare_doubles(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

void floor_report(const floor_clock_t *clock, int64_t messages, int64_t produced,
                  double *latencies) {
        struct rusage now;
        getrusage(RUSAGE_SELF, &now);
        double wall = floor_now() -
                      ((double)clock->wall.tv_sec + 1e-9 * (double)clock->wall.tv_nsec);
        printf("{\"librdkafka\": \"%s\", \"messages\": %lld, \"produced\": %lld, "
               "\"cpu_user\": %.6f, \"cpu_sys\": %.6f, \"wall\": %.6f, "
               "\"start_rss_kb\": %ld, \"peak_rss_kb\": %ld",
               rd_kafka_version_str(), (long long)messages, (long long)produced,
               seconds_since(&clock->usage.ru_utime, &now.ru_utime),
               seconds_since(&clock->usage.ru_stime, &now.ru_stime), wall, clock->rss_kb,
               rss_kb("VmHWM"));
        if (latencies) {
                qsort(latencies, (size_t)messages, sizeof(*latencies), compare_doubles);
                printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p99_9_us\": %.1f",
                       1e6 * latencies[messages / 2],
                       1e6 * latencies[messages * 99 / 100],
                       1e6 * latencies[messages * 999 / 1000]);
        }
        printf("}\n");
}
