/*
 * ck_murmur2: the hash from which Kafka's Java client computes a key's partition.
 *
 * librdkafka's partitioner returns only a partition, not the hash.
 * Threads: any. Locks: none.
 */
#ifndef CK_MURMUR2_H
#define CK_MURMUR2_H

#include "ck_runtime.h"

/* 32-bit MurmurHash2 with the Java client's seed. */
CK_EXPORT uint32_t ck_murmur2(const void *key, size_t len);

#endif
