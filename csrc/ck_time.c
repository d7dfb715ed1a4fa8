#include "ck_time.h"

#include <time.h>

#define CK_TIME_SECOND 1000000
#define CK_TIME_HOUR 3600
#define CK_TIME_DAY 86400
/* The days from 0001-01-01 to 1970-01-01, and to 10000-01-01. */
#define CK_TIME_EPOCH 719162
#define CK_TIME_END 3652059

static int64_t ck_time_floor(int64_t number, int64_t by) {
        return number / by - (number % by < 0);
}

/* -- the calendar */

static bool ck_time_is_leap(int year) {
        return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* The days of a year before a month. */
static int ck_time_before_month(int year, int month) {
        static const short before[] = {0,   31,  59,  90,  120, 151,
                                       181, 212, 243, 273, 304, 334};

        return before[month - 1] + (month > 2 && ck_time_is_leap(year));
}

/* Days from 0001-01-01 to the first of a year. */
static int64_t ck_time_before_year(int64_t year) {
        int64_t past = year - 1;

        return past * 365 + past / 4 - past / 100 + past / 400;
}

/* Splits a wall clock time, in microseconds as if it were UTC, into its fields. Returns
 * whether a datetime can hold it. */
static bool ck_time_wall(int64_t wall_us, ck_civil_t *civil) {
        int64_t seconds = ck_time_floor(wall_us, CK_TIME_SECOND);
        int64_t day = ck_time_floor(seconds, CK_TIME_DAY);
        int within = (int)(seconds - day * CK_TIME_DAY);
        int64_t year;

        civil->microsecond = (int)(wall_us - seconds * CK_TIME_SECOND);
        civil->second = within % 60;
        civil->minute = within / 60 % 60;
        civil->hour = within / CK_TIME_HOUR;
        civil->fold = 0;
        if ((day += CK_TIME_EPOCH) < 0 || day >= CK_TIME_END)
                return false;
        /* 400 years have 146097 days: the guess is right, or one too many or too few. */
        year = day * 400 / 146097 + 1;
        while (ck_time_before_year(year) > day)
                year--;
        while (ck_time_before_year(year + 1) <= day)
                year++;
        civil->year = (int)year;
        within = (int)(day - ck_time_before_year(year));
        civil->month = within / 29 + 1 > 12 ? 12 : within / 29 + 1;
        while (civil->month > 1 &&
               ck_time_before_month(civil->year, civil->month) > within)
                civil->month--;
        civil->day = within - ck_time_before_month(civil->year, civil->month) + 1;
        return true;
}

/* -- the local zone */

static int32_t ck_time_offset_at(int64_t seconds) {
        time_t instant = (time_t)seconds;
        struct tm tm;

        return localtime_r(&instant, &tm) ? (int32_t)tm.tm_gmtoff : 0;
}

/* The offset at an instant. *fold: the clock shows this time for the second time, because
 * it was set back within the last day by more than the time passed since. */
static int32_t ck_time_of_instant(int64_t seconds, bool *fold) {
        int32_t offset = ck_time_offset_at(seconds);
        int32_t set_back = ck_time_offset_at(seconds - CK_TIME_DAY) - offset;

        *fold =
            set_back > 0 && ck_time_offset_at(seconds - set_back) - offset == set_back;
        return offset;
}

/* Like ck_time_of_instant(), but caches the result for the hour if both ends of the hour
 * agree: zones do not change twice within an hour. */
static int32_t ck_time_remembered(ck_zone_t *zone, int64_t seconds, bool *fold) {
        int64_t hour = ck_time_floor(seconds, CK_TIME_HOUR);
        bool other;

        if (!zone->asked || zone->hour != hour) {
                zone->asked = true;
                zone->known = false;
                zone->hour = hour;
                return ck_time_of_instant(seconds, fold);
        }
        if (!zone->known) {
                zone->offset = ck_time_of_instant(hour * CK_TIME_HOUR, &zone->fold);
                zone->known = ck_time_of_instant(hour * CK_TIME_HOUR + CK_TIME_HOUR - 1,
                                                 &other) == zone->offset &&
                              other == zone->fold;
        }
        if (!zone->known)
                return ck_time_of_instant(seconds, fold);
        *fold = zone->fold;
        return zone->offset;
}

bool ck_time_local(ck_zone_t *zone, int64_t us, ck_civil_t *civil) {
        int64_t seconds = ck_time_floor(us, CK_TIME_SECOND);
        int32_t offset;
        bool fold;

        /* Beyond every datetime. This saves the C library call, and keeps the sums from
         * overflowing. */
        if (seconds < -(int64_t)(CK_TIME_EPOCH + 2) * CK_TIME_DAY ||
            seconds > (int64_t)(CK_TIME_END - CK_TIME_EPOCH + 2) * CK_TIME_DAY)
                return false;
        offset = ck_time_remembered(zone, seconds, &fold);
        if (!ck_time_wall(us + (int64_t)offset * CK_TIME_SECOND, civil))
                return false;
        civil->fold = fold;
        return true;
}
