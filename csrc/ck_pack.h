/*
 * ck_pack: the headers of several consumed messages, packed into one block of memory.
 *
 * A Message owns its headers. Copying librdkafka's list costs four allocations and four
 * frees per message. Packing the headers with the neighbors' headers costs one copy of
 * their bytes; cykafka creates Python objects only on demand.
 *
 * Ownership: a pack owns its block until ck_pack_destroy() or ck_pack_take(). Threads:
 * one at a time for each pack; any number may read a block.
 */
#ifndef CK_PACK_H
#define CK_PACK_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_column.h"
#include "ck_runtime.h"

/* Messages per block. Keeping one message pins the headers of this many messages. */
#define CK_PACK_MESSAGES 64

typedef struct ck_pack_s {
        char *block;
        size_t len;
        size_t size; /* room in the block */
} ck_pack_t;

/* Adds a message's headers. *at is their place in the block. Returns 0 or ENOMEM. */
CK_EXPORT int ck_pack_add(ck_pack_t *pack, const rd_kafka_headers_t *headers,
                          uint32_t *at);

/* The block, shrunk to its content, which the caller free()s; the pack is empty again.
 * NULL if nothing was added. */
CK_EXPORT char *ck_pack_take(ck_pack_t *pack);

/* Frees the block. */
CK_EXPORT void ck_pack_destroy(ck_pack_t *pack);

/* The number of headers at *place, which advances to the first. */
CK_EXPORT uint32_t ck_pack_cnt(const char **place);

/* The header at *place, which advances to the next. The name ends in a NUL, which its
 * length does not count. */
CK_EXPORT void ck_pack_next(const char **place, ck_bytes_t *name, ck_bytes_t *value);

#endif
