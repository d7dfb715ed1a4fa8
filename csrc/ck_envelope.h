/*
 * ck_envelope: reads the fields of pip-services message envelopes from records.
 *
 * The key is the envelope's id, the value its body; type and trace id are headers.
 *
 * Ownership: spans point to the caller's memory (header values, blocks of ck_pack).
 * Threads: any; nothing is shared. Does not touch Python objects or need the GIL.
 */
#ifndef CK_ENVELOPE_H
#define CK_ENVELOPE_H

#include <stddef.h>
#include <stdint.h>

#include "ck_batch.h"
#include "ck_pack.h"

/* The fields read from headers. A NULL ptr: null or missing. */
typedef struct ck_envelope_s {
        ck_bytes_t trace_id;
        ck_bytes_t message_type;
} ck_envelope_t;

/* Reads a record's type and trace id from one of its headers. Call it for each header in
 * order, beginning with an envelope of zeros and *rank 0. The trace id is the value of
 * `trace_id`, else of `correlation_id`. Of several headers with the same name, the first
 * takes precedence. */
CK_EXPORT void ck_envelope_header(ck_envelope_t *envelope, int *rank, ck_bytes_t name,
                                  ck_bytes_t value);

/* Reads the headers of cnt messages of a batch from start on, step apart, and packs them.
 * at[i] is their place in the block, or UINT32_MAX for a message without headers. Spans
 * point to the block, which the caller free()s; *block is NULL if no message has headers.
 * Returns 0 or ENOMEM. */
CK_EXPORT int ck_envelope_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step,
                                  size_t cnt, ck_envelope_t *envelopes, uint32_t *at,
                                  char **block);

#endif
