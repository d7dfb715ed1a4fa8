#include <string.h>

#include "check.h"
#include "ck_inflight.h"

typedef struct sent_s {
        ck_report_t report;
        int number;
} sent_t;

enum { MANY = 5000 };

static sent_t *take(ck_inflight_t *inflight, int number) {
        sent_t *sent = (sent_t *)ck_inflight_take(inflight);

        CHECK(sent && sent->report.event.kind == CK_EVENT_NONE);
        memset(&sent->report.offset, 0xff, sizeof(*sent) - offsetof(ck_report_t, offset));
        sent->number = number;
        return sent;
}

static void test_reports_do_not_overlap(void) {
        ck_inflight_t *inflight = ck_inflight_new(sizeof(sent_t));
        static sent_t *all[MANY];
        int round, i;

        for (round = 0; round < 3; round++) {
                for (i = 0; i < MANY; i++)
                        all[i] = take(inflight, i);
                for (i = 0; i < MANY; i++)
                        CHECK(all[i]->number == i);
                /* Return every second report and take it again. */
                for (i = 0; i < MANY; i += 2)
                        ck_inflight_give(&all[i]->report);
                for (i = 0; i < MANY; i += 2)
                        all[i] = take(inflight, i);
                for (i = 0; i < MANY; i++)
                        CHECK(all[i]->number == i);
                for (i = 0; i < MANY; i++)
                        ck_inflight_give(&all[i]->report);
        }
        CHECK(!ck_inflight_lost(inflight));
        ck_inflight_destroy(inflight);
}

static void test_lost_reports_are_found_once(void) {
        ck_inflight_t *inflight = ck_inflight_new(sizeof(sent_t));
        ck_event_t *lost, *next;
        static bool seen[MANY];
        int i, before = -1, cnt = 0;

        for (i = 0; i < MANY; i++) {
                sent_t *sent = take(inflight, i);
                if (i % 5 == 0)
                        continue; /* not yet with librdkafka */
                sent->report.event.kind = CK_EVENT_IN_FLIGHT;
                if (i % 5 == 1)
                        sent->report.event.kind = CK_EVENT_REPORT; /* it arrived */
                if (i % 5 == 2)
                        ck_inflight_give(&sent->report); /* arrived and handled */
        }
        lost = ck_inflight_lost(inflight);
        CHECK(!ck_inflight_lost(inflight));
        for (; lost; lost = next) {
                int number = ((sent_t *)lost)->number;

                next = lost->next;
                CHECK(lost->kind == CK_EVENT_REPORT);
                CHECK(lost->code == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT);
                CHECK(((ck_report_t *)lost)->partition == RD_KAFKA_PARTITION_UA);
                CHECK(((ck_report_t *)lost)->offset == RD_KAFKA_OFFSET_INVALID);
                CHECK(number % 5 > 2 && !seen[number]);
                seen[number] = true;
                cnt++;
                /* Number 3 of each five reuses the memory of number 2. */
                CHECK(number > before);
                before = number;
                ck_inflight_give((ck_report_t *)lost);
        }
        CHECK(cnt == MANY / 5 * 2);
        ck_inflight_destroy(inflight);
}

int main(void) {
        test_reports_do_not_overlap();
        test_lost_reports_are_found_once();
        return 0;
}
