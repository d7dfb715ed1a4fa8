/*
 * ck_share: a member of a share group (KIP-932).
 *
 * librdkafka's handle of a share consumer, the rd_kafka_share_t, wraps an rd_kafka_t. Its
 * own functions read and acknowledge records; everything else (metadata, credentials,
 * callbacks) uses the rd_kafka_t, which librdkafka passes to on_new() interceptors.
 *
 * Ownership: the rd_kafka_share_t owns the rd_kafka_t; ck_end destroys both. Threads: a
 * share consumer belongs to one thread at a time. librdkafka refuses a second thread
 * (_CONFLICT) while a call is in progress. The callback runs on the thread that serves
 * the consumer.
 */
#ifndef CK_SHARE_H
#define CK_SHARE_H

#include "ck_batch.h"

/* rd_kafka_share_consumer_new(). *rk becomes its rd_kafka_t. NULL on failure: errstr and
 * rd_kafka_last_error() say why, and the caller keeps conf. The acknowledgement commit
 * callback pushes one CK_EVENT_ACKNOWLEDGED for each partition to the ck_queue_t that is
 * conf's opaque, and drops it if memory is short. It stays for the consumer's life,
 * because librdkafka aborts the process if a result arrives after its removal. */
CK_EXPORT rd_kafka_share_t *ck_share_new(rd_kafka_conf_t *conf, rd_kafka_t **rk,
                                         char *errstr, size_t errstr_size);

/* rd_kafka_share_poll() into an empty batch, which then owns the messages, errors
 * included. Sends the acknowledgements of earlier messages. rd_kafka_queue_yield() of the
 * consumer's queue ends the wait. The caller destroys the error. If memory is short, the
 * batch keeps the messages, and the next call adds them. */
CK_EXPORT rd_kafka_error_t *ck_share_poll(rd_kafka_share_t *share, int timeout_ms,
                                          ck_batch_t *batch);

/* Removes the errors from a batch that ck_share_poll() has filled; loans, which may be
 * NULL, counts it until its messages are returned. */
CK_EXPORT void ck_share_take(ck_batch_t *batch, ck_loans_t *loans);

/* Acknowledges cnt messages of a batch from start on, step apart. Stops at the first
 * message that librdkafka refuses, and sets *err. Returns the number of acknowledged
 * messages. Takes no lock. */
CK_EXPORT size_t ck_share_acknowledge(rd_kafka_share_t *share, const ck_batch_t *batch,
                                      size_t start, ptrdiff_t step, size_t cnt,
                                      rd_kafka_share_AcknowledgeType_t type,
                                      rd_kafka_resp_err_t *err);

/* Serves a closing consumer's queue, and waits up to timeout_ms for its first entry.
 * Runs the callbacks and drops records, which the group delivers again. Returns false if
 * the queue is empty. Not rd_kafka_queue_poll_callback(): it aborts the process when it
 * finds records. */
CK_EXPORT bool ck_share_serve(rd_kafka_t *rk, rd_kafka_queue_t *closing, int timeout_ms);

#endif
