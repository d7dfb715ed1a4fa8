#include "ck_envelope.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool ck_envelope_is_name(ck_bytes_t name, const char *expected, size_t len) {
        return name.len == len && memcmp(name.ptr, expected, len) == 0;
}

#define CK_ENVELOPE_IS(name, expected) \
        ck_envelope_is_name(name, expected, sizeof(expected) - 1)

/* The sources of a trace id, in ascending priority. */
enum { CK_RANK_TYPED = 1, CK_RANK_CORRELATION = 2, CK_RANK_TRACE = 4 };

void ck_envelope_header(ck_envelope_t *envelope, int *rank, ck_bytes_t name,
                        ck_bytes_t value) {
        int source;

        if (CK_ENVELOPE_IS(name, "message_type")) {
                if (!(*rank & CK_RANK_TYPED))
                        envelope->message_type = value;
                *rank |= CK_RANK_TYPED;
                return;
        }
        if (CK_ENVELOPE_IS(name, "trace_id")) {
                source = CK_RANK_TRACE;
        } else if (CK_ENVELOPE_IS(name, "correlation_id")) {
                source = CK_RANK_CORRELATION;
        } else {
                return;
        }
        /* Skip a null value. */
        if (value.ptr && source > (*rank & ~CK_RANK_TYPED)) {
                envelope->trace_id = value;
                *rank |= source;
        }
}

int ck_envelope_headers(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                        ck_envelope_t *envelopes, uint32_t *at, char **block) {
        ck_pack_t pack = {0};
        size_t i;

        memset(envelopes, 0, cnt * sizeof(*envelopes));
        *block = NULL;
        for (i = 0; i < cnt; i++) {
                const rd_kafka_headers_t *headers = ck_batch_headers(
                    batch, (size_t)((ptrdiff_t)start + (ptrdiff_t)i * step));

                at[i] = UINT32_MAX;
                if (headers && ck_pack_add(&pack, headers, &at[i])) {
                        ck_pack_destroy(&pack);
                        return ENOMEM;
                }
        }
        /* From here on the block does not move. */
        *block = ck_pack_take(&pack);
        for (i = 0; i < cnt; i++) {
                const char *place;
                uint32_t left;
                int rank = 0;

                if (at[i] == UINT32_MAX)
                        continue;
                place = *block + at[i];
                for (left = ck_pack_cnt(&place); left; left--) {
                        ck_bytes_t name, value;

                        ck_pack_next(&place, &name, &value);
                        ck_envelope_header(&envelopes[i], &rank, name, value);
                }
        }
        return 0;
}
