/*
 * ck_murmur2: the hash by which Kafka's Java client chooses a key's partition.
 *
 * librdkafka's partitioner returns a partition only, not the hash.
 * Threads: any. Locks: none.
 */
#ifndef CK_MURMUR2_H
#define CK_MURMUR2_H

#include "ck_runtime.h"

/* 32-bit MurmurHash2 with the Java client's seed. */
CK_EXPORT uint32_t ck_murmur2(const void *key, size_t len);

#endif
