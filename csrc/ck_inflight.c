#include "ck_inflight.h"

#include <stdint.h>
#include <stdlib.h>

/* A block's address is a multiple of its size, so that a report finds its block. */
enum { BLOCK = 1 << 16 };

typedef struct ck_block_s {
        struct ck_block_s *next;
        ck_inflight_t *inflight;
        size_t used; /* the number of reports ever taken from it */
} ck_block_t;

struct ck_inflight_s {
        ck_block_t *blocks; /* the newest first */
        ck_event_t *free;
        size_t size;
        size_t per_block;
        size_t taken;
};

static ck_report_t *ck_inflight_at(const ck_inflight_t *inflight, ck_block_t *block,
                                   size_t i) {
        return (ck_report_t *)((char *)(block + 1) + i * inflight->size);
}

ck_inflight_t *ck_inflight_new(size_t size) {
        ck_inflight_t *inflight = calloc(1, sizeof(*inflight));

        if (!inflight)
                return NULL;
        inflight->size = size;
        inflight->per_block = (BLOCK - sizeof(ck_block_t)) / size;
        return inflight;
}

void ck_inflight_destroy(ck_inflight_t *inflight) {
        ck_block_t *block;

        if (!inflight)
                return;
        while ((block = inflight->blocks)) {
                inflight->blocks = block->next;
                free(block);
        }
        free(inflight);
}

ck_report_t *ck_inflight_take(ck_inflight_t *inflight) {
        ck_event_t *event = inflight->free;
        ck_block_t *block = inflight->blocks;
        ck_report_t *report;

        if (event) {
                inflight->free = event->next;
                inflight->taken++;
                return (ck_report_t *)event;
        }
        if (!block || block->used == inflight->per_block) {
                if (!(block = aligned_alloc(BLOCK, BLOCK)))
                        return NULL;
                block->next = inflight->blocks;
                block->inflight = inflight;
                block->used = 0;
                inflight->blocks = block;
        }
        report = ck_inflight_at(inflight, block, block->used++);
        report->event.kind = CK_EVENT_NONE;
        inflight->taken++;
        return report;
}

void ck_inflight_give(ck_report_t *report) {
        ck_block_t *block =
            (ck_block_t *)((char *)report - ((uintptr_t)report & (BLOCK - 1)));
        ck_inflight_t *inflight = block->inflight;

        report->event.kind = CK_EVENT_NONE;
        report->event.next = inflight->free;
        inflight->free = &report->event;
        if (--inflight->taken || !inflight->blocks->next)
                return;
        /* All reports of a burst have arrived. Keep one block for records sent one by
         * one. */
        while (inflight->blocks->next) {
                block = inflight->blocks;
                inflight->blocks = block->next;
                free(block);
        }
        inflight->blocks->used = 0;
        inflight->free = NULL;
}

ck_event_t *ck_inflight_lost(ck_inflight_t *inflight) {
        ck_event_t *lost = NULL;
        ck_block_t *block;
        size_t i;

        /* From last to first, because each report goes to the front of the list. */
        for (block = inflight->blocks; block; block = block->next)
                for (i = block->used; i-- > 0;) {
                        ck_report_t *report = ck_inflight_at(inflight, block, i);
                        if (report->event.kind != CK_EVENT_IN_FLIGHT)
                                continue;
                        *report = (ck_report_t){
                            .event = {.next = lost,
                                      .kind = CK_EVENT_REPORT,
                                      .code = RD_KAFKA_RESP_ERR__PURGE_INFLIGHT},
                            .offset = RD_KAFKA_OFFSET_INVALID,
                            .timestamp = -1,
                            .latency = -1,
                            .partition = RD_KAFKA_PARTITION_UA,
                            .leader_epoch = -1};
                        lost = &report->event;
                }
        return lost;
}
