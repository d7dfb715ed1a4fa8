/*
 * ck_lent: a message that librdkafka has lent the application because of its headers.
 *
 * Extracting the headers of each message would cost more than the rest of a poll, and few
 * applications read them. So librdkafka keeps the message until the borrower reads the
 * headers or is freed, or the lender recalls it: a lent message pins a fetch buffer, and
 * rd_kafka_destroy() waits for it. Lender and borrower have no pointer to each other;
 * both have a reference to a ck_lent_t.
 *
 * Ownership: two references, the lender's (a consumer) and the borrower's (a Message);
 * the last one frees it. Threads: one at a time, for us the thread with the GIL. No
 * locks; ck_lent_return() and ck_lent_drop() take librdkafka's. Fork: a child may read
 * the headers, because librdkafka parses them without a lock, with malloc() alone, in
 * memory that the child has a copy of. It destroys no message, because they belong to the
 * parent.
 */
#ifndef CK_LENT_H
#define CK_LENT_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stdint.h>

#include "ck_runtime.h"

typedef struct ck_lent_s {
        rd_kafka_message_t *rkmessage; /* NULL once it was returned */
        rd_kafka_headers_t *headers;   /* taken out of the message, or NULL */
        uint32_t generation;           /* the process that borrowed it */
        uint32_t refs;
} ck_lent_t;

/* A new ck_lent_t with the lender's reference and no message, or NULL if memory is
 * short. */
CK_EXPORT ck_lent_t *ck_lent_new(void);

/* Takes the headers out of the message and returns the message to librdkafka. Does
 * nothing if the message was returned before. */
CK_EXPORT void ck_lent_return(ck_lent_t *lent);

/* Drops a reference. */
CK_EXPORT void ck_lent_unref(ck_lent_t *lent);

/* Whether only the lender has a reference, so that it can be used again. */
static inline bool ck_lent_is_free(const ck_lent_t *lent) {
        return lent->refs == 1;
}

/* Takes ownership of a message and lends it; one reference becomes the borrower's. Only
 * if ck_lent_is_free(). */
static inline void ck_lent_put(ck_lent_t *lent, rd_kafka_message_t *rkmessage) {
        lent->rkmessage = rkmessage;
        lent->generation = ck_runtime_generation;
        lent->refs = 2;
}

/* The headers, which the caller owns from now on; NULL if there are none. Returns the
 * message to librdkafka. */
static inline rd_kafka_headers_t *ck_lent_take_headers(ck_lent_t *lent) {
        rd_kafka_headers_t *headers;

        ck_lent_return(lent);
        headers = lent->headers;
        lent->headers = NULL;
        return headers;
}

/* The borrower drops its reference: it does not need the headers any more. */
static inline void ck_lent_drop(ck_lent_t *lent) {
        if (lent->rkmessage && lent->generation == ck_runtime_generation)
                rd_kafka_message_destroy(lent->rkmessage);
        lent->rkmessage = NULL;
        if (lent->headers)
                rd_kafka_headers_destroy(lent->headers);
        lent->headers = NULL;
        ck_lent_unref(lent);
}

#endif
