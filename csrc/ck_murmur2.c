#include "ck_murmur2.h"

#define CK_MURMUR2_SEED UINT32_C(0x9747b28c)
#define CK_MURMUR2_FACTOR UINT32_C(0x5bd1e995)

/* Little-endian, on every processor. */
static inline uint32_t ck_murmur2_word(const unsigned char *at, size_t len) {
        uint32_t word = 0;

        while (len--)
                word = word << 8 | at[len];
        return word;
}

uint32_t ck_murmur2(const void *key, size_t len) {
        const unsigned char *at = key, *words = at + (len & ~(size_t)3);
        uint32_t hash = CK_MURMUR2_SEED ^ (uint32_t)len;
        uint32_t word;

        for (; at < words; at += sizeof(word)) {
                word = ck_murmur2_word(at, sizeof(word)) * CK_MURMUR2_FACTOR;
                word = (word ^ word >> 24) * CK_MURMUR2_FACTOR;
                hash = hash * CK_MURMUR2_FACTOR ^ word;
        }
        if (len & 3)
                hash = (hash ^ ck_murmur2_word(at, len & 3)) * CK_MURMUR2_FACTOR;
        hash = (hash ^ hash >> 13) * CK_MURMUR2_FACTOR;
        return hash ^ hash >> 15;
}
