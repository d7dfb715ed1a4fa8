/* Instants, wall clock times and their text. */
#include "ck_time.h"
#include "envelopes.h"

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
        /* A change of half an hour that is not on a full hour of UTC: an hour with a
         * change in it is not cached. */
        set_zone("LHST-10:30LHDT-11,M10.1.0,M4.1.0");
        CHECK(shows(1712415599, "2024-04-07 01:59:59", 0));
        CHECK(shows(1712415600, "2024-04-07 01:30:00", 1));
        CHECK(shows(1712417399, "2024-04-07 01:59:59", 1));
        CHECK(shows(1712417400, "2024-04-07 02:00:00", 0));
}

static int32_t offset_at(int month, int day, int hour, int minute, int fold) {
        ck_civil_t civil = {2024, month, day, hour, minute, 30, 5, 0};
        ck_zone_t zone = {0};
        int32_t offset = ck_time_offset(&zone, ck_time_of_wall(&civil), fold);
        int i;

        for (i = 0; i < 3; i++)
                CHECK(ck_time_offset(&zone, ck_time_of_wall(&civil), fold) == offset);
        return offset;
}

static void test_offsets_of_wall_clock_times(void) {
        set_zone("CET-1CEST,M3.5.0,M10.5.0/3");
        CHECK(offset_at(1, 1, 12, 0, 0) == 3600);
        CHECK(offset_at(7, 1, 12, 0, 1) == 7200);
        CHECK(offset_at(3, 31, 1, 59, 0) == 3600);
        CHECK(offset_at(3, 31, 2, 30, 0) == 3600); /* skipped */
        CHECK(offset_at(3, 31, 2, 30, 1) == 7200);
        CHECK(offset_at(3, 31, 3, 0, 0) == 7200);
        CHECK(offset_at(10, 27, 1, 59, 0) == 7200);
        CHECK(offset_at(10, 27, 2, 30, 0) == 7200); /* shown twice */
        CHECK(offset_at(10, 27, 2, 30, 1) == 3600);
        CHECK(offset_at(10, 27, 3, 0, 0) == 3600);
        set_zone("EST5EDT,M3.2.0,M11.1.0");
        CHECK(offset_at(11, 3, 1, 30, 0) == -4 * 3600);
        CHECK(offset_at(11, 3, 1, 30, 1) == -5 * 3600);
        set_zone("UTC0");
        CHECK(offset_at(3, 31, 2, 30, 0) == 0);
}

static void test_times_as_text(void) {
        static const struct {
                const char *text;
                int64_t us;
                bool local;
        } right[] = {
            {"1970-01-01T00:00:00Z", 0, false},
            {"1970-01-01t00:00:00z", 0, false},
            {"1970-01-01T01:00:00+01:00", 0, false},
            {"1970-01-01T01:00:00+01", 0, false},
            {"1970-01-01T01:30:00+0130", 0, false},
            {"1969-12-31T16:00:00-08:00", 0, false},
            {"1970-01-01T00:00:07+00:00:07", 0, false},
            {"1970-01-01 00:00", 0, true},
            {"1970-01-02", 86400000000, true},
            {"1970-01-01T00:00:01.5", 1500000, true},
            {"1970-01-01T00:00:01,25", 1250000, true},
            {"1970-01-01T00:00:00.1234567Z", 123456, false},
            {"1970-01-01T00:00:00.000001999Z", 1, false},
            {"0001-01-01T00:00:00", -62135596800000000, true},
            {"9999-12-31T23:59:59.999999Z", 253402300799999999, false},
            {"2024-02-29T00:00:00Z", 1709164800000000, false},
        };
        static const char *const wrong[] = {
            "",
            "now",
            "1970",
            "1970-01",
            "1970-01-01T",
            "1970-01-01T00",
            "1970-01-01T00:00:",
            "1970-13-01",
            "1970-00-01",
            "1970-01-00",
            "1970-01-32",
            "2023-02-29",
            "1900-02-29",
            "0000-01-01",
            "1970-01-01T24:00:00",
            "1970-01-01T00:60",
            "1970-01-01T00:00:60",
            "1970-01-01T00:00:00.",
            "1970-01-01T00:00:00+",
            "1970-01-01T00:00:00+1",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00+01:60",
            "1970-01-01T00:00:00Zz",
            "1970-01-01T00:00:00 Z",
            " 1970-01-01",
            "-970-01-01",
            "1970-01-01T00:00:00+01:00:",
        };
        char text[CK_TIME_MAX];
        int64_t us;
        bool local;
        size_t i;

        for (i = 0; i < COUNT(right); i++) {
                CHECK(ck_time_read(right[i].text, strlen(right[i].text), &us, &local));
                CHECK(us == right[i].us && local == right[i].local);
        }
        for (i = 0; i < COUNT(wrong); i++) {
                ck_bytes_t copy = copy_of(span(wrong[i]));

                CHECK(!ck_time_read(copy.ptr, copy.len, &us, &local));
                free((void *)copy.ptr);
        }
        CHECK(ck_time_write(text, 1500000, 3600) == 32);
        CHECK(!memcmp(text, "1970-01-01T00:00:01.500000+01:00", 32));
        CHECK(ck_time_write(text, 0, -(5 * 3600 + 30 * 60 + 7)) == 35);
        CHECK(!memcmp(text, "1970-01-01T00:00:00.000000-05:30:07", 35));
        CHECK(ck_time_write(text, INT64_MAX, 0) == 0);
}

int main(void) {
        test_local_times();
        test_offsets_of_wall_clock_times();
        test_times_as_text();
        return 0;
}
