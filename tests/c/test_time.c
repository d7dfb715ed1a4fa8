/* Instants as wall clock times. */
#include <time.h>

#include "check.h"
#include "ck_time.h"

static void set_zone(const char *zone) {
        setenv("TZ", zone, 1);
        tzset();
}

static bool shows(int64_t seconds, const char *expected, int fold) {
        ck_zone_t zone = {0};
        char text[64];
        int i;

        for (i = 0; i < 4; i++) { /* computed, cached, and reused */
                ck_civil_t civil;

                if (!ck_time_local(&zone, seconds * 1000000 + 123456, &civil) ||
                    civil.fold != fold)
                        return false;
                snprintf(text, sizeof(text), "%04d-%02d-%02d %02d:%02d:%02d.%06d",
                         civil.year, civil.month, civil.day, civil.hour, civil.minute,
                         civil.second, civil.microsecond);
                if (strncmp(text, expected, strlen(expected)) != 0)
                        return false;
        }
        return true;
}

static void test_local_times(void) {
        ck_zone_t zone = {0};
        ck_civil_t civil;

        set_zone("UTC0");
        CHECK(shows(0, "1970-01-01 00:00:00.123456", 0));
        CHECK(shows(-1, "1969-12-31 23:59:59", 0));
        CHECK(shows(951782400, "2000-02-29 00:00:00", 0));
        CHECK(shows(1735689599, "2024-12-31 23:59:59", 0));
        CHECK(shows(-62135596800, "0001-01-01 00:00:00", 0));
        CHECK(shows(253402300799, "9999-12-31 23:59:59", 0));
        CHECK(!ck_time_local(&zone, -62135596801 * 1000000, &civil));
        CHECK(!ck_time_local(&zone, 253402300800 * 1000000, &civil));
        CHECK(!ck_time_local(&zone, INT64_MAX, &civil));
        CHECK(!ck_time_local(&zone, INT64_MIN, &civil));
        /* Clocks go forward on 2024-03-31 at 01:00 UTC, back on 2024-10-27 at 01:00 UTC.
         */
        set_zone("CET-1CEST,M3.5.0,M10.5.0/3");
        CHECK(shows(1711846799, "2024-03-31 01:59:59", 0));
        CHECK(shows(1711846800, "2024-03-31 03:00:00", 0));
        CHECK(shows(1729987200, "2024-10-27 02:00:00", 0));
        CHECK(shows(1729990799, "2024-10-27 02:59:59", 0));
        CHECK(shows(1729990800, "2024-10-27 02:00:00", 1));
        CHECK(shows(1729994399, "2024-10-27 02:59:59", 1));
        CHECK(shows(1729994400, "2024-10-27 03:00:00", 0));
        /* A change by half an hour that does not fall on a full UTC hour: ck_time must
         * not cache an hour with a change. */
        set_zone("LHST-10:30LHDT-11,M10.1.0,M4.1.0");
        CHECK(shows(1712415599, "2024-04-07 01:59:59", 0));
        CHECK(shows(1712415600, "2024-04-07 01:30:00", 1));
        CHECK(shows(1712417399, "2024-04-07 01:59:59", 1));
        CHECK(shows(1712417400, "2024-04-07 02:00:00", 0));
}

int main(void) {
        test_local_times();
        return 0;
}
