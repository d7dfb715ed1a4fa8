/*
 * ck_loans: how many batches hold messages that librdkafka has lent a consumer.
 *
 * rd_kafka_destroy() must not run before the last message is given back: it would wait for it, and
 * 2.14.2 may free the handle while a thread is still inside of rd_kafka_message_destroy(). So whoever
 * destroys a consumer waits here first.
 *
 * A batch that is only read, copied or freed gives its messages back within that call: waiting for it ends.
 * A pinned one is kept by the application for as long as it likes (views of its bytes): whoever must not wait
 * so long leaves the rest to a thread of its own, see ck_callback_destroy().
 *
 * Ownership: counted; the consumer and each batch that holds messages have one reference.
 * Threads: any. A lock is held for a few instructions. Not to be called in a forked child, where the lock may
 * be held by a thread that does not exist.
 */
#ifndef CK_LOANS_H
#define CK_LOANS_H

#include <stdbool.h>

#include "ck_runtime.h"

typedef struct ck_loans_s ck_loans_t;

/* A new count, of nothing, with one reference; NULL if memory is short. */
CK_EXPORT ck_loans_t *ck_loans_new(void);

/* Gives a reference back. NULL is fine. */
CK_EXPORT void ck_loans_destroy(ck_loans_t *loans);

/* A batch holds messages now (and a reference). */
CK_EXPORT void ck_loans_add(ck_loans_t *loans);

/* It has given its messages back (and its reference). */
CK_EXPORT void ck_loans_sub(ck_loans_t *loans);

/* The application keeps messages of a batch that holds some; and does no longer. */
CK_EXPORT void ck_loans_pin(ck_loans_t *loans);
CK_EXPORT void ck_loans_unpin(ck_loans_t *loans);

/* Waits until no batch holds messages, or one is pinned. Whether none does. NULL: true. */
CK_EXPORT bool ck_loans_settle(ck_loans_t *loans);

/* Waits until no batch holds messages, pinned or not. NULL is fine. */
CK_EXPORT void ck_loans_wait(ck_loans_t *loans);

#endif
