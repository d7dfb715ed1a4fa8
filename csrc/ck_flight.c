#include "ck_flight.h"

#include <stdint.h>
#include <stdlib.h>

/* A block's address is a multiple of its size, so that a report finds its block. */
enum { BLOCK = 1 << 16 };

typedef struct ck_block_s {
        struct ck_block_s *next;
        ck_flight_t *flight;
        size_t used; /* the number of its reports that were ever taken */
} ck_block_t;

struct ck_flight_s {
        ck_block_t *blocks; /* the newest first */
        ck_event_t *free;
        size_t size;
        size_t per_block;
        size_t taken;
};

static ck_report_t *ck_flight_at(const ck_flight_t *flight, ck_block_t *block, size_t i) {
        return (ck_report_t *)((char *)(block + 1) + i * flight->size);
}

ck_flight_t *ck_flight_new(size_t size) {
        ck_flight_t *flight = calloc(1, sizeof(*flight));

        if (!flight)
                return NULL;
        flight->size = size;
        flight->per_block = (BLOCK - sizeof(ck_block_t)) / size;
        return flight;
}

void ck_flight_destroy(ck_flight_t *flight) {
        ck_block_t *block;

        if (!flight)
                return;
        while ((block = flight->blocks)) {
                flight->blocks = block->next;
                free(block);
        }
        free(flight);
}

ck_report_t *ck_flight_take(ck_flight_t *flight) {
        ck_event_t *event = flight->free;
        ck_block_t *block = flight->blocks;
        ck_report_t *report;

        if (event) {
                flight->free = event->next;
                flight->taken++;
                return (ck_report_t *)event;
        }
        if (!block || block->used == flight->per_block) {
                if (!(block = aligned_alloc(BLOCK, BLOCK)))
                        return NULL;
                block->next = flight->blocks;
                block->flight = flight;
                block->used = 0;
                flight->blocks = block;
        }
        report = ck_flight_at(flight, block, block->used++);
        report->event.kind = CK_EVENT_NONE;
        flight->taken++;
        return report;
}

void ck_flight_give(ck_report_t *report) {
        ck_block_t *block =
            (ck_block_t *)((char *)report - ((uintptr_t)report & (BLOCK - 1)));
        ck_flight_t *flight = block->flight;

        report->event.kind = CK_EVENT_NONE;
        report->event.next = flight->free;
        flight->free = &report->event;
        if (--flight->taken || !flight->blocks->next)
                return;
        /* All reports of a burst have arrived. One block is kept for records sent one by
         * one. */
        while (flight->blocks->next) {
                block = flight->blocks;
                flight->blocks = block->next;
                free(block);
        }
        flight->blocks->used = 0;
        flight->free = NULL;
}

ck_event_t *ck_flight_lost(ck_flight_t *flight) {
        ck_event_t *lost = NULL;
        ck_block_t *block;
        size_t i;

        /* From last to first, because each report goes to the front of the list. */
        for (block = flight->blocks; block; block = block->next)
                for (i = block->used; i-- > 0;) {
                        ck_report_t *report = ck_flight_at(flight, block, i);
                        if (report->event.kind != CK_EVENT_FLYING)
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
