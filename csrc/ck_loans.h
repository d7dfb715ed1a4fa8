/*
 * ck_loans: counts what must end before cykafka destroys a handle: batches of messages
 * that a consumer has on loan from librdkafka, and librdkafka calls in their own threads
 * (ck_call).
 *
 * rd_kafka_destroy() must not run before the last message is returned: it would wait for
 * the message, and 2.15.1 may free the handle while a thread is still inside
 * rd_kafka_message_destroy(). Nor may it run during a call. The thread that destroys a
 * handle therefore waits here first.
 *
 * A call that reads, copies or frees a batch returns its messages before it ends, so the
 * wait for it is short. A pinned loan may last: the application may keep views of a
 * batch's bytes forever, and a call lasts until the brokers respond. A thread that must
 * not wait that long leaves the destruction to another thread, see ck_end.h.
 *
 * Ownership: reference-counted; the handle and each loan have one reference. Threads:
 * any. A lock is held for a few instructions. Do not call it in a forked child: a thread
 * that does not exist there may hold the lock.
 */
#ifndef CK_LOANS_H
#define CK_LOANS_H

#include <stdbool.h>

#include "ck_runtime.h"

typedef struct ck_loans_s ck_loans_t;

/* A new count of zero loans, with one reference; NULL if memory is short. */
CK_EXPORT ck_loans_t *ck_loans_new(void);

/* Drops a reference. NULL is fine. */
CK_EXPORT void ck_loans_destroy(ck_loans_t *loans);

/* Adds a loan and a reference: a batch now has messages, or a call has started. */
CK_EXPORT void ck_loans_add(ck_loans_t *loans);

/* Drops a loan and a reference: the messages are returned, or the call has ended. */
CK_EXPORT void ck_loans_sub(ck_loans_t *loans);

/* Pins a loan, which may then last, or unpins it. */
CK_EXPORT void ck_loans_pin(ck_loans_t *loans);
CK_EXPORT void ck_loans_unpin(ck_loans_t *loans);

/* Waits until all loans have ended or one is pinned. Returns whether all have ended, or
 * true for NULL. */
CK_EXPORT bool ck_loans_settle(ck_loans_t *loans);

/* Waits until all loans have ended, pinned loans included. NULL is fine. */
CK_EXPORT void ck_loans_wait(ck_loans_t *loans);

#endif
