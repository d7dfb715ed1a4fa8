/*
 * ck_msgref: a shared reference to a message that librdkafka keeps because of its
 * headers.
 *
 * Extracting the headers of each message would cost more than the rest of a poll, and few
 * applications read them. So librdkafka keeps the message until the Message reads the
 * headers or is freed, or the consumer returns it: such a message pins a fetch buffer,
 * and rd_kafka_destroy() waits for it. The consumer and the Message have no pointer to
 * each other; both refer to a ck_msgref_t.
 *
 * Ownership: two owners, the consumer and the Message; the last one frees it. Threads:
 * one at a time, in cykafka the thread with the GIL. No locks; ck_msgref_return() and
 * ck_msgref_drop() take librdkafka's. Fork: a child may read the headers, because
 * librdkafka parses them without a lock, with malloc() alone, in memory that the child
 * has a copy of. It never destroys messages, because they belong to the parent.
 */
#ifndef CK_MSGREF_H
#define CK_MSGREF_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

#include "ck_runtime.h"

typedef struct ck_msgref_s {
        rd_kafka_message_t *rkmessage; /* NULL after its return */
        rd_kafka_headers_t *headers;   /* taken out of the message, or NULL */
        uint32_t generation;           /* the process that fetched it */
        uint32_t refs;
} ck_msgref_t;

/* A new ck_msgref_t, which the consumer owns, without a message; NULL if memory is
 * short. */
CK_EXPORT ck_msgref_t *ck_msgref_new(void);

/* Takes the headers out of the message and returns the message to librdkafka. Does
 * nothing if the message was returned before. */
CK_EXPORT void ck_msgref_return(ck_msgref_t *ref);

/* Removes one owner. */
CK_EXPORT void ck_msgref_unref(ck_msgref_t *ref);

/* Whether only the consumer owns it, so that the consumer can reuse it. */
static inline bool ck_msgref_is_free(const ck_msgref_t *ref) {
        return ref->refs == 1;
}

/* Takes ownership of a message; the Message becomes the second owner. Only if
 * ck_msgref_is_free(). */
static inline void ck_msgref_put(ck_msgref_t *ref, rd_kafka_message_t *rkmessage) {
        ref->rkmessage = rkmessage;
        ref->generation = ck_runtime_generation;
        ref->refs = 2;
}

/* The headers, which the caller owns from now on; NULL if there are none. Returns the
 * message to librdkafka. */
static inline rd_kafka_headers_t *ck_msgref_take_headers(ck_msgref_t *ref) {
        rd_kafka_headers_t *headers;

        ck_msgref_return(ref);
        headers = ref->headers;
        ref->headers = NULL;
        return headers;
}

/* For the Message, when it no longer needs the headers. */
static inline void ck_msgref_drop(ck_msgref_t *ref) {
        if (ref->rkmessage && ref->generation == ck_runtime_generation)
                rd_kafka_message_destroy(ref->rkmessage);
        ref->rkmessage = NULL;
        if (ref->headers)
                rd_kafka_headers_destroy(ref->headers);
        ref->headers = NULL;
        ck_msgref_unref(ref);
}

#endif
