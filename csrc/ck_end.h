/*
 * ck_end: destroys an rd_kafka_t in its own thread.
 *
 * rd_kafka_destroy() may block for long: it joins threads that may be resolving a host
 * name or running a token callback. It also waits for loans (ck_loans) that the
 * application keeps. The thread that closes a handle therefore waits for the destruction
 * as long as it wants, and then leaves the rest to the new thread.
 *
 * Ownership: ck_end_start() takes over the rd_kafka_t, the closing queue and one
 * reference to the loans. ck_end_leave() releases the ck_end_t. Threads: any;
 * ck_end_wait(), ck_end_all() and ck_end_now() block. One lock for all, held for a few
 * instructions and never during a librdkafka call or ended(). A forked child starts
 * with a new lock and with no destruction in progress.
 */
#ifndef CK_END_H
#define CK_END_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>

#include "ck_loans.h"
#include "ck_runtime.h"

typedef struct ck_end_s ck_end_t;

/* Serves a closing consumer's queue, the one passed to rd_kafka_consumer_close_queue() or
 * rd_kafka_share_consumer_close_queue(): waits up to timeout_ms for its first entry, runs
 * the callbacks, and drops records. share is its rd_kafka_share_t (NULL: none). Returns
 * whether there may be more entries. */
CK_EXPORT bool ck_end_serve(rd_kafka_t *rk, rd_kafka_share_t *share,
                            rd_kafka_queue_t *closing, int timeout_ms);

/* Destroys the handle in this thread. share is its rd_kafka_share_t (NULL: none). First
 * serves `closing`, the queue passed to rd_kafka_consumer_close_queue() or
 * rd_kafka_share_consumer_close_queue(), until the consumer is closed (NULL: none). Then
 * waits until every loan has ended (NULL: none), and calls rd_kafka_destroy_flags(). The
 * callbacks run in this thread; the objects that they use must stay valid until then.
 * Subtracts one from the CK_KIND_HANDLE count at the end. */
CK_EXPORT void ck_end_now(rd_kafka_t *rk, rd_kafka_share_t *share, int flags,
                          rd_kafka_queue_t *closing, ck_loans_t *loans);

/* Starts a detached thread that calls ck_end_now(), and then ended(opaque) if
 * ck_end_leave() was called before. If memory or threads are short, returns NULL without
 * effect, and the caller keeps everything. */
CK_EXPORT ck_end_t *ck_end_start(rd_kafka_t *rk, rd_kafka_share_t *share, int flags,
                                 rd_kafka_queue_t *closing, ck_loans_t *loans,
                                 void (*ended)(void *opaque), void *opaque);

/* Waits for the destruction, at most timeout_ms. Returns whether it is done. */
CK_EXPORT bool ck_end_wait(ck_end_t *end, int timeout_ms);

/* Releases the ck_end_t. Returns whether the destruction is done; if not, the thread
 * calls ended(opaque) after it. */
CK_EXPORT bool ck_end_leave(ck_end_t *end);

/* Waits for all destructions in progress and their calls of ended(), at most timeout_ms.
 * Returns whether none is left. */
CK_EXPORT bool ck_end_all(int timeout_ms);

#endif
