#include "ck_checksum.h"

#define CK_CHECKSUM_SEED UINT64_C(0x5bd1e9955bd1e995)
/* Odd, so that multiplying is reversible, with its bits spread out. */
#define CK_CHECKSUM_FACTOR UINT64_C(0xd6e8feb86659fd93)

static inline uint64_t ck_checksum_mix(uint64_t hash, uint64_t word) {
        hash = (hash ^ word) * CK_CHECKSUM_FACTOR;
        return hash ^ (hash >> 32);
}

/* The length goes first: "ab", "c" is not "a", "bc"; a null is not an empty string. */
static uint64_t ck_checksum_bytes(uint64_t hash, ck_bytes_t bytes) {
        const char *at = bytes.ptr, *end;
        uint64_t word;

        if (!at)
                return ck_checksum_mix(hash, UINT64_MAX);
        end = at + bytes.len;
        hash = ck_checksum_mix(hash, bytes.len);
        for (; end - at >= (ptrdiff_t)sizeof(word); at += sizeof(word)) {
                memcpy(&word, at, sizeof(word));
                hash = ck_checksum_mix(hash, word);
        }
        if (at < end) {
                word = 0;
                memcpy(&word, at, (size_t)(end - at));
                hash = ck_checksum_mix(hash, word);
        }
        return hash;
}

/* A record without headers hashes like one with an empty list. */
static uint64_t ck_checksum_headers(uint64_t hash, const ck_headers_t *headers,
                                    size_t i) {
        int64_t k, end;

        ck_headers_pairs(headers, i, &k, &end);
        hash = ck_checksum_mix(hash, (uint64_t)(end - k));
        for (; k < end; k++) {
                size_t at_pair = (size_t)k;

                hash = ck_checksum_bytes(hash, ck_column_get(&headers->keys, at_pair));
                hash = ck_checksum_bytes(hash, ck_column_get(&headers->values, at_pair));
        }
        return hash;
}

uint64_t ck_checksum(const ck_checksum_t *records, uint64_t *size) {
        uint64_t sum = 0;
        size_t i;

        *size = 0;
        for (i = 0; i < records->cnt; i++) {
                ck_bytes_t key = ck_column_get(&records->keys, i);
                ck_bytes_t value = ck_column_get(&records->values, i);
                uint64_t hash = CK_CHECKSUM_SEED;
                int64_t number;

                *size += key.len + value.len;
                hash = ck_checksum_bytes(hash, key);
                hash = ck_checksum_bytes(hash, value);
                hash = ck_checksum_bytes(hash, ck_column_get(&records->topics, i));
                number = ck_numbers_get(&records->partitions, i);
                hash = ck_checksum_mix(hash, (uint64_t)number);
                number = ck_numbers_get(&records->timestamps, i);
                hash = ck_checksum_mix(hash, (uint64_t)number);
                if (records->headers)
                        hash = ck_checksum_headers(hash, records->headers, i);
                /* The last word has not reached all bits yet. */
                sum += ck_checksum_mix(hash, CK_CHECKSUM_SEED);
        }
        return sum;
}
