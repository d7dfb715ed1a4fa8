#include "ck_flight.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* A block's address is a multiple of its size, so that a report finds its block. When so
 * many blocks are in use, the next ones come in chunks of as many. */
enum { BLOCK = 1 << 16, CHUNK_BLOCKS = 32 };

typedef struct ck_block_s {
        struct ck_block_s *next;
        ck_flight_t *flight;
        size_t used; /* how many of its reports were ever taken */
        bool first;  /* whether it is the first block of its allocation */
} ck_block_t;

struct ck_flight_s {
        ck_block_t *blocks; /* the newest first */
        size_t block_cnt;
        char *chunk; /* the rest of the last allocation: so many blocks */
        size_t chunk_cnt;
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
                if (block->first)
                        free(block);
        }
        free(flight);
}

/* A new block. With many reports in flight, the first touch of their memory is the
 * largest part of their cost: a page fault each 4 KiB. Chunks have the size and the
 * alignment of a huge page, so that one page fault serves a whole chunk. */
static ck_block_t *ck_flight_grow(ck_flight_t *flight) {
        bool first = !flight->chunk_cnt;
        ck_block_t *block;

        if (first) {
                size_t cnt = flight->block_cnt < CHUNK_BLOCKS ? 1 : CHUNK_BLOCKS;
                if (!(flight->chunk = aligned_alloc(cnt * BLOCK, cnt * BLOCK)))
                        return NULL;
#ifdef MADV_HUGEPAGE
                if (cnt > 1)
                        madvise(flight->chunk, cnt * BLOCK, MADV_HUGEPAGE);
#endif
                flight->chunk_cnt = cnt;
        }
        block = (ck_block_t *)flight->chunk;
        flight->chunk += BLOCK;
        flight->chunk_cnt--;
        block->next = flight->blocks;
        block->flight = flight;
        block->used = 0;
        block->first = first;
        flight->blocks = block;
        flight->block_cnt++;
        return block;
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
        if ((!block || block->used == flight->per_block) &&
            !(block = ck_flight_grow(flight)))
                return NULL;
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
                if (block->first)
                        free(block);
        }
        flight->block_cnt = 1;
        flight->chunk_cnt = 0;
        flight->blocks->used = 0;
        flight->free = NULL;
}

ck_event_t *ck_flight_lost(ck_flight_t *flight) {
        ck_event_t *lost = NULL;
        ck_block_t *block;
        size_t i;

        for (block = flight->blocks; block; block = block->next)
                for (i = 0; i < block->used; i++) {
                        ck_event_t *event = &ck_flight_at(flight, block, i)->event;
                        if (event->kind != CK_EVENT_FLYING)
                                continue;
                        event->kind = CK_EVENT_NONE;
                        event->next = lost;
                        lost = event;
                }
        return lost;
}
