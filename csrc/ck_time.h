/*
 * ck_time: converts instants to local wall clock times.
 *
 * The offset from UTC comes from the C library, which takes a lock and searches for it. A
 * ck_zone_t caches it for an hour in which it does not change. Use a zone for one call
 * only: the process may change TZ and call tzset() between two calls.
 *
 * Microseconds are counted from 1970 in UTC. Threads: one at a time for each zone.
 */
#ifndef CK_TIME_H
#define CK_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "ck_runtime.h"

/* The offset cached for the hour of the last look-up. All zeros: none. */
typedef struct ck_zone_s {
        bool asked; /* looked up once: a single look-up of an hour is not worth caching */
        bool known; /* offset and fold hold for the whole hour */
        bool fold;
        int32_t offset; /* seconds east of UTC */
        int64_t hour;
} ck_zone_t;

/* A wall clock time, with the fields of Python's datetime. */
typedef struct ck_civil_s {
        int year, month, day, hour, minute, second, microsecond;
        int fold; /* 1: the clock shows this time for the second time */
} ck_civil_t;

/* The local wall clock time of an instant. Returns whether a datetime can hold it: years
 * 1 to 9999. */
CK_EXPORT bool ck_time_local(ck_zone_t *zone, int64_t us, ck_civil_t *civil);

#endif
