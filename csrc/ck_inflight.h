/*
 * ck_inflight: the memory of the delivery reports that a producer's records carry through
 * librdkafka.
 *
 * When a producer is destroyed, librdkafka drops the records in flight without a report.
 * Each of their reports holds references, which cykafka must still drop. A producer's
 * reports therefore lie in its own blocks, where it can find the lost reports; reports
 * that arrive cost nothing extra. New reports reuse the memory of finished reports. When
 * no report is in flight, ck_inflight frees all blocks but one.
 *
 * Ownership: a report belongs to its taker until ck_inflight_give().
 * ck_inflight_destroy() frees the blocks. Threads: one at a time, in cykafka the thread
 * with the GIL. librdkafka's callback fills a report but calls nothing here. No locks.
 */
#ifndef CK_INFLIGHT_H
#define CK_INFLIGHT_H

#include <stddef.h>

#include "ck_queue.h"

typedef struct ck_inflight_s ck_inflight_t;

/* For objects of size bytes, each beginning with a report. NULL if memory is short. */
CK_EXPORT ck_inflight_t *ck_inflight_new(size_t size);

/* Frees the memory of all reports, released or not. NULL is fine. */
CK_EXPORT void ck_inflight_destroy(ck_inflight_t *inflight);

/* Memory for a report. NULL if memory is short. */
CK_EXPORT ck_report_t *ck_inflight_take(ck_inflight_t *inflight);

/* Releases a report, lost or not, so that its memory can be reused. */
CK_EXPORT void ck_inflight_give(ck_report_t *report);

/* Call it when no thread serves librdkafka any more. Returns the reports that librdkafka
 * still had (ck_produce() marks them) and that will not arrive, linked by `next`; NULL if
 * there are none. They have the outcome of records purged in flight. They come in the
 * order of their ck_inflight_take(), except where memory was reused. The caller calls
 * ck_inflight_give() for each of them. */
CK_EXPORT ck_event_t *ck_inflight_lost(ck_inflight_t *inflight);

#endif
