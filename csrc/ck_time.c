#include "ck_time.h"

#include <string.h>
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

static int ck_time_days_in(int year, int month) {
        return month == 12 ? 31
                           : ck_time_before_month(year, month + 1) -
                                 ck_time_before_month(year, month);
}

/* Days from 0001-01-01 to the first of a year. */
static int64_t ck_time_before_year(int64_t year) {
        int64_t past = year - 1;

        return past * 365 + past / 4 - past / 100 + past / 400;
}

bool ck_time_wall(int64_t wall_us, ck_civil_t *civil) {
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

int64_t ck_time_of_wall(const ck_civil_t *civil) {
        int64_t days = ck_time_before_year(civil->year) +
                       ck_time_before_month(civil->year, civil->month) + civil->day - 1 -
                       CK_TIME_EPOCH;

        return (days * CK_TIME_DAY + civil->hour * (int64_t)CK_TIME_HOUR +
                civil->minute * INT64_C(60) + civil->second) *
                   CK_TIME_SECOND +
               civil->microsecond;
}

/* -- the local zone */

static int32_t ck_time_offset_at(int64_t seconds) {
        time_t instant = (time_t)seconds;
        struct tm tm;

        return localtime_r(&instant, &tm) ? (int32_t)tm.tm_gmtoff : 0;
}

/* The offset at an instant. *fold: the clock shows this time for the second time, because
 * it was set back within the last day by more than the time passed since. */
static int32_t ck_time_of_instant(int64_t seconds, int unused, bool *fold) {
        int32_t offset = ck_time_offset_at(seconds);
        int32_t set_back = ck_time_offset_at(seconds - CK_TIME_DAY) - offset;

        (void)unused;
        *fold =
            set_back > 0 && ck_time_offset_at(seconds - set_back) - offset == set_back;
        return offset;
}

/* The offset at a wall clock time: the offset of a day before or after, if it is
 * consistent with this time. */
static int32_t ck_time_of_wall_seconds(int64_t wall, int want_fold, bool *unused) {
        int32_t before = ck_time_offset_at(wall - ck_time_offset_at(wall) - CK_TIME_DAY);
        int32_t behind = ck_time_offset_at(wall - ck_time_offset_at(wall) + CK_TIME_DAY);
        bool fits_before = ck_time_offset_at(wall - before) == before;
        bool fits_behind = ck_time_offset_at(wall - behind) == behind;

        *unused = false;
        if (fits_before != fits_behind)
                return fits_before ? before : behind;
        /* Both fit: shown twice, or no change is near. None fits: skipped. */
        return want_fold ? behind : before;
}

/* The result of `ask` for seconds, cached for the hour if it is the same at both ends: no
 * zone changes twice within an hour. */
static int32_t ck_time_remembered(ck_zone_hour_t *known, int64_t seconds, int argument,
                                  bool *fold, int32_t (*ask)(int64_t, int, bool *)) {
        int64_t hour = ck_time_floor(seconds, CK_TIME_HOUR);
        bool other;

        if (!known->asked || known->hour != hour) {
                known->asked = true;
                known->known = false;
                known->hour = hour;
                return ask(seconds, argument, fold);
        }
        if (!known->known) {
                known->offset = ask(hour * CK_TIME_HOUR, argument, &known->fold);
                known->known = ask(hour * CK_TIME_HOUR + CK_TIME_HOUR - 1, argument,
                                   &other) == known->offset &&
                               other == known->fold;
        }
        if (!known->known)
                return ask(seconds, argument, fold);
        *fold = known->fold;
        return known->offset;
}

bool ck_time_local(ck_zone_t *zone, int64_t us, ck_civil_t *civil) {
        int64_t seconds = ck_time_floor(us, CK_TIME_SECOND);
        int32_t offset;
        bool fold;

        /* No datetime is so far from 1970. This saves the call of the C library, and no
         * sum can overflow. */
        if (seconds < -(int64_t)(CK_TIME_EPOCH + 2) * CK_TIME_DAY ||
            seconds > (int64_t)(CK_TIME_END - CK_TIME_EPOCH + 2) * CK_TIME_DAY)
                return false;
        offset =
            ck_time_remembered(&zone->instants, seconds, 0, &fold, ck_time_of_instant);
        if (!ck_time_wall(us + (int64_t)offset * CK_TIME_SECOND, civil))
                return false;
        civil->fold = fold;
        return true;
}

int32_t ck_time_offset(ck_zone_t *zone, int64_t wall_us, int fold) {
        bool unused;

        return ck_time_remembered(&zone->walls[fold != 0],
                                  ck_time_floor(wall_us, CK_TIME_SECOND), fold, &unused,
                                  ck_time_of_wall_seconds);
}

/* -- text */

static char *ck_time_digits(char *into, int number, int width) {
        int i;

        for (i = width - 1; i >= 0; i--) {
                into[i] = (char)('0' + number % 10);
                number /= 10;
        }
        return into + width;
}

size_t ck_time_write(char *into, int64_t wall_us, int32_t offset) {
        int east = offset < 0 ? -offset : offset;
        ck_civil_t civil;
        char *at = into;

        if (!ck_time_wall(wall_us, &civil))
                return 0;
        at = ck_time_digits(at, civil.year, 4);
        *at++ = '-';
        at = ck_time_digits(at, civil.month, 2);
        *at++ = '-';
        at = ck_time_digits(at, civil.day, 2);
        *at++ = 'T';
        at = ck_time_digits(at, civil.hour, 2);
        *at++ = ':';
        at = ck_time_digits(at, civil.minute, 2);
        *at++ = ':';
        at = ck_time_digits(at, civil.second, 2);
        *at++ = '.';
        at = ck_time_digits(at, civil.microsecond, 6);
        *at++ = offset < 0 ? '-' : '+';
        at = ck_time_digits(at, east / CK_TIME_HOUR, 2);
        *at++ = ':';
        at = ck_time_digits(at, east / 60 % 60, 2);
        if (east % 60) {
                *at++ = ':';
                at = ck_time_digits(at, east % 60, 2);
        }
        return (size_t)(at - into);
}

/* The number of `width` digits at *at, which moves on; -1 if there are none. */
static int ck_time_number(const char **at, const char *end, int width) {
        int number = 0;

        if (end - *at < width)
                return -1;
        while (width--) {
                if (**at < '0' || **at > '9')
                        return -1;
                number = number * 10 + (*(*at)++ - '0');
        }
        return number;
}

static bool ck_time_take(const char **at, const char *end, char one, char other) {
        if (*at == end || (**at != one && **at != other))
                return false;
        ++*at;
        return true;
}

/* The digits of a fraction, as microseconds; -1 if there are none. */
static int ck_time_fraction(const char **at, const char *end) {
        int us = 0, digits = 0;

        for (; *at < end && **at >= '0' && **at <= '9'; ++*at, digits++)
                if (digits < 6)
                        us = us * 10 + (**at - '0');
        if (!digits)
                return -1;
        for (; digits < 6; digits++)
                us *= 10;
        return us;
}

/* An offset (Z, +HH, +HHMM, +HH:MM, +HH:MM:SS), in seconds. */
static bool ck_time_read_offset(const char **at, const char *end, int64_t *seconds) {
        int sign, hours, minutes = 0, rest = 0;
        bool colon;

        if (ck_time_take(at, end, 'Z', 'z')) {
                *seconds = 0;
                return true;
        }
        sign = **at == '-' ? -1 : 1;
        if (!ck_time_take(at, end, '+', '-') || (hours = ck_time_number(at, end, 2)) < 0)
                return false;
        if (*at < end) {
                colon = ck_time_take(at, end, ':', ':');
                if ((minutes = ck_time_number(at, end, 2)) < 0)
                        return false;
                if (colon && ck_time_take(at, end, ':', ':') &&
                    (rest = ck_time_number(at, end, 2)) < 0)
                        return false;
        }
        *seconds = sign * (hours * (int64_t)CK_TIME_HOUR + minutes * INT64_C(60) + rest);
        return hours < 24 && minutes < 60 && rest < 60;
}

bool ck_time_read(const char *text, size_t len, int64_t *us, bool *local) {
        const char *at = text, *end = text + len;
        ck_civil_t civil = {0};
        int64_t offset = 0;

        if ((civil.year = ck_time_number(&at, end, 4)) < 1 ||
            !ck_time_take(&at, end, '-', '-') ||
            (civil.month = ck_time_number(&at, end, 2)) < 1 || civil.month > 12 ||
            !ck_time_take(&at, end, '-', '-') ||
            (civil.day = ck_time_number(&at, end, 2)) < 1 ||
            civil.day > ck_time_days_in(civil.year, civil.month))
                return false;
        *local = true;
        if (at == end) {
                *us = ck_time_of_wall(&civil);
                return true;
        }
        if ((!ck_time_take(&at, end, 'T', 't') && !ck_time_take(&at, end, ' ', ' ')) ||
            (civil.hour = ck_time_number(&at, end, 2)) < 0 || civil.hour > 23 ||
            !ck_time_take(&at, end, ':', ':') ||
            (civil.minute = ck_time_number(&at, end, 2)) < 0 || civil.minute > 59)
                return false;
        if (ck_time_take(&at, end, ':', ':')) {
                if ((civil.second = ck_time_number(&at, end, 2)) < 0 || civil.second > 59)
                        return false;
                if (ck_time_take(&at, end, '.', ',') &&
                    (civil.microsecond = ck_time_fraction(&at, end)) < 0)
                        return false;
        }
        if (at < end) {
                *local = false;
                if (!ck_time_read_offset(&at, end, &offset) || at != end)
                        return false;
        }
        *us = ck_time_of_wall(&civil) - offset * CK_TIME_SECOND;
        return true;
}
