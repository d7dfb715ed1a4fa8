/*
 * ck_time: converts instants to local wall clock times and back, and both from and to
 * text (ISO 8601).
 *
 * The offset from UTC comes from the C library, which takes a lock and searches for it. A
 * ck_zone_t caches it for hours in which it does not change. Use a zone for one call
 * only: the process may change TZ and call tzset() between two calls.
 *
 * Microseconds are counted from 1970: in UTC, or, for a wall clock time, as if it were
 * UTC. Threads: one at a time for each zone.
 */
#ifndef CK_TIME_H
#define CK_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_runtime.h"

/* The cached offset of the hour of the last look-up. All zeros: none. */
typedef struct ck_zone_hour_s {
        bool asked; /* looked up once: a single look-up of an hour is not worth caching */
        bool known; /* offset and fold hold for the whole hour */
        bool fold;
        int32_t offset; /* seconds east of UTC */
        int64_t hour;
} ck_zone_hour_t;

typedef struct ck_zone_s {
        ck_zone_hour_t instants;
        ck_zone_hour_t walls[2]; /* by fold */
} ck_zone_t;

/* A wall clock time, as Python's datetime has it. */
typedef struct ck_civil_s {
        int year, month, day, hour, minute, second, microsecond;
        int fold; /* 1: the second time that the clock shows it */
} ck_civil_t;

/* The most that ck_time_write() writes. */
#define CK_TIME_MAX 36

/* The local wall clock time of an instant. Returns whether a datetime can hold it: years
 * 1 to 9999. */
CK_EXPORT bool ck_time_local(ck_zone_t *zone, int64_t us, ck_civil_t *civil);

/* Splits a wall clock time into its fields. Returns the same. */
CK_EXPORT bool ck_time_wall(int64_t wall_us, ck_civil_t *civil);

/* Microseconds of a wall clock time, whose fields are in their ranges. */
CK_EXPORT int64_t ck_time_of_wall(const ck_civil_t *civil);

/* The local offset from UTC, in seconds, at a wall clock time. If the clock shows that
 * time twice, fold chooses the first (0) or the second (1). If the clock skips it, the
 * offset is that before (fold 0) or after (fold 1) the gap. */
CK_EXPORT int32_t ck_time_offset(ck_zone_t *zone, int64_t wall_us, int fold);

/* Writes YYYY-MM-DDTHH:MM:SS.ffffff+HH:MM, with :SS appended if the offset (within a day)
 * has seconds; no NUL at the end. Returns the length, at most CK_TIME_MAX; 0 if the year
 * is out of range. */
CK_EXPORT size_t ck_time_write(char *into, int64_t wall_us, int32_t offset);

/* Reads a date and time in the format of ISO 8601 and RFC 3339. *local: the text has no
 * offset, and *us is a wall clock time; otherwise *us is UTC. Digits beyond microseconds
 * are dropped. Returns whether the text is valid. */
CK_EXPORT bool ck_time_read(const char *text, size_t len, int64_t *us, bool *local);

#endif
