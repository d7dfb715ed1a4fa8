/*
 * ck_envelope: message envelopes (of pip-services) as records, and records as envelopes.
 *
 * Form `headers`: the key is the envelope's id, the value its body; type and trace id are
 * headers. Form `json`: the value is a JSON object of all fields, with the body as
 * base64. Either form may also have a header `traceparent` (W3C Trace Context).
 *
 * Ownership: spans point to the caller's memory (columns, values, blocks of ck_pack) or
 * to an arena, which the caller free()s. Threads: any; nothing is shared. No Python
 * object is touched, so no GIL is needed.
 */
#ifndef CK_ENVELOPE_H
#define CK_ENVELOPE_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_batch.h"
#include "ck_column.h"
#include "ck_pack.h"
#include "ck_time.h"

/* -- encoding */

/* The sent time of an envelope: a wall clock time (as in ck_time.h) and its offset from
 * UTC. */
typedef enum ck_sent_kind_e {
        CK_SENT_NOT = 0, /* no sent time: use now */
        CK_SENT_LOCAL,   /* a local time; ck_envelope_encode() looks up its offset */
        CK_SENT_OFFSET,
} ck_sent_kind_t;

typedef struct ck_sent_s {
        int64_t wall_us;
        int32_t offset; /* seconds, less than a day */
        uint8_t kind;
        uint8_t fold; /* of a local time */
} ck_sent_t;

/* Columns of envelopes: cnt spans each; a null has a NULL ptr. The texts are UTF-8. */
typedef struct ck_envelopes_s {
        size_t cnt;
        const ck_bytes_t *message_ids;
        const ck_bytes_t *trace_ids;
        const ck_bytes_t *message_types;
        const ck_bytes_t *bodies;
        const ck_sent_t *sent;
        int64_t now_us; /* microseconds, UTC: the sent time of envelopes without one */
} ck_envelopes_t;

/* Writes the JSON of each envelope into one arena, and its span to values. 0, or
 * ENOMEM. */
CK_EXPORT int ck_envelope_encode(const ck_envelopes_t *envelopes, char **arena,
                                 ck_bytes_t *values);

/* The length of a traceparent. */
#define CK_TRACEPARENT 55

/* Headers `traceparent` for those of cnt trace ids that are 32 hexadecimal digits, not
 * all zero. They are written one after the other to arena (cnt * CK_TRACEPARENT bytes of
 * the caller), values and starts (cnt + 1). The span ids come from seed. */
CK_EXPORT void ck_envelope_traceparents(const ck_bytes_t *trace_ids, size_t cnt,
                                        uint64_t seed, char *arena, ck_bytes_t *values,
                                        int64_t *starts);

/* -- decoding */

/* The fields read from a record. A NULL ptr: null or missing. */
typedef struct ck_envelope_s {
        ck_bytes_t message_id;
        ck_bytes_t trace_id;
        ck_bytes_t message_type;
        ck_bytes_t body;
        int64_t sent_us;     /* microseconds */
        bool is_sent;        /* the record has a sent time, in UTC */
        bool is_local;       /* or, with is_local, a wall clock time */
        const char *problem; /* static; NULL: none */
        const char *field;   /* the field at fault, or NULL */
        size_t at;           /* the problem's byte in the value */
} ck_envelope_t;

/* Reads a record's type and trace id from one of its headers. Call it for each header in
 * order, beginning with an envelope of zeros and *rank 0. The trace id is that of
 * `trace_id`, else of `correlation_id`, else, if traceparent, of `traceparent`. Of
 * several headers with the same name the first counts. */
CK_EXPORT void ck_envelope_header(ck_envelope_t *envelope, int *rank, bool traceparent,
                                  ck_bytes_t name, ck_bytes_t value);

/* Reads the headers of cnt messages of a batch from start on, step apart, and packs them.
 * at[i] is their place in the block, or UINT32_MAX for a message without headers. Spans
 * point to the block, which the caller free()s; *block is NULL if no message has headers.
 * 0, or ENOMEM. */
CK_EXPORT int ck_envelope_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step,
                                  size_t cnt, bool traceparent, ck_envelope_t *envelopes,
                                  uint32_t *at, char **block);

/* Reads cnt JSON values. A null or missing field leaves the one in envelopes unchanged (a
 * trace id from the headers, say). Spans point to the values or to the arena, and *arena
 * is never NULL on success. 0, or ENOMEM. */
CK_EXPORT int ck_envelope_decode(const ck_bytes_t *values, size_t cnt,
                                 ck_envelope_t *envelopes, char **arena);

#endif
