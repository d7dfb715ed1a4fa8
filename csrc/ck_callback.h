/*
 * ck_callback: the C functions librdkafka calls, and the waits during which it calls
 * them.
 *
 * Ownership: every callback's opaque is the ck_queue_t of its handle, which must outlive
 * the rd_kafka_t. The callbacks allocate the events they push. If memory is short, they
 * drop the event, but never a delivery report, which needs no memory. Threads: the
 * callbacks run on the thread that serves librdkafka, inside one of the waits below or
 * any other librdkafka call that serves callbacks (commit_transaction, ...). They do not
 * touch Python. The last report of a delivery takes the lock of the ck_serving_t for
 * a moment (ck_serving_remove()); the other callbacks take no cykafka lock.
 */
#ifndef CK_CALLBACK_H
#define CK_CALLBACK_H

#include "ck_delivery.h"
#include "ck_pipe.h"
#include "ck_queue.h"

/* dr_msg_cb: fills the ck_report_t that is the message's opaque and pushes it, or fills
 * the message's slot in its delivery. Counts failed messages without either in the queue,
 * see ck_queue_take_unreported(). */
CK_EXPORT void ck_callback_report(rd_kafka_t *rk, const rd_kafka_message_t *rkmessage,
                                  void *opaque);

/* error_cb: replaces a fatal error by its cause (rd_kafka_fatal_error). */
CK_EXPORT void ck_callback_error(rd_kafka_t *rk, int err, const char *reason,
                                 void *opaque);

/* throttle_cb */
CK_EXPORT void ck_callback_throttle(rd_kafka_t *rk, const char *broker_name,
                                    int32_t broker_id, int throttle_ms, void *opaque);

/* stats_cb: takes ownership of the JSON instead of copying it. */
CK_EXPORT int ck_callback_stats(rd_kafka_t *rk, char *json, size_t json_len,
                                void *opaque);

/* log_cb: writes to standard error as librdkafka does, without the user and the password
 * of a URL. Any thread. */
CK_EXPORT void ck_callback_print(const rd_kafka_t *rk, int level, const char *fac,
                                 const char *buf);

/* log_cb: a wait serves it when log.queue is set. Removes the user and the password of a
 * URL from the text. */
CK_EXPORT void ck_callback_log(const rd_kafka_t *rk, int level, const char *fac,
                               const char *buf);

/* offset_commit_cb */
CK_EXPORT void ck_callback_commit(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                                  rd_kafka_topic_partition_list_t *offsets, void *opaque);

/* The result of one rd_kafka_commit_queue(). Zero it first. The owner destroys the
 * list. */
typedef struct ck_commit_result_s {
        bool given;
        rd_kafka_resp_err_t err;
        rd_kafka_topic_partition_list_t *partitions; /* or NULL */
} ck_commit_result_t;

/* The cb of rd_kafka_commit_queue(), which fills the ck_commit_result_t that is its
 * opaque. Without this callback, librdkafka also passes the result to offset_commit_cb.
 */
CK_EXPORT void ck_callback_commit_result(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                                         rd_kafka_topic_partition_list_t *offsets,
                                         void *opaque);

/* Marks this thread as librdkafka's own (which runs the token refresh), or removes the
 * mark. */
CK_EXPORT void ck_callback_on_background(bool inside);

/* Whether this thread is librdkafka's own. Such a thread must not close a handle, because
 * the close waits for the thread. */
CK_EXPORT bool ck_callback_is_background(void);

/*
 * The waits. They return early when a callback pushes an event other than a delivery
 * report, so that its Python callback runs at once and not at the end of the wait. They
 * use rd_kafka_yield() for that. A yield must not reach rd_kafka_consume_batch_queue():
 * 2.15.1 then leaves its loop and loses the message that it has just taken. A
 * thread-local flag, set only here, prevents that.
 */

/* From now on, this thread notifies a pipe when it pushes an event to an empty queue, so
 * that an event loop runs the callbacks while the thread is in a long call. NULL ends
 * this. */
CK_EXPORT void ck_callback_listener(ck_pipe_t *listener);

/* Marks that this thread runs code inside a librdkafka call (a rebalance callback), or
 * removes the mark; returns the previous mark. While marked, events do not end a wait:
 * rd_kafka_yield() sets a flag of the thread and would end the outer call. */
CK_EXPORT bool ck_callback_inside(bool inside);

/* rd_kafka_poll. Returns the number of operations served. timeout in ms, -1: forever. The
 * first event ends the wait; with a timeout of 0, serves everything in the queue. */
CK_EXPORT int ck_callback_poll(rd_kafka_t *rk, int timeout_ms);

/* Serves the handle as ck_callback_poll() does, or waits while another thread does, up to
 * timeout_ms (-1: forever), or until goal is done (NULL: no goal). With `since`, also
 * returns once ck_serving_count() differs from *since, because another thread has served
 * (NULL: ignored). Returns the number of operations served. Takes the lock of ck_serving,
 * and does not hold it while it serves. */
CK_EXPORT int ck_callback_serve(rd_kafka_t *rk, ck_queue_t *queue,
                                const ck_delivery_t *goal, int timeout_ms,
                                const unsigned *since);

/* rd_kafka_flush. */
CK_EXPORT rd_kafka_resp_err_t ck_callback_flush(rd_kafka_t *rk, int timeout_ms);

/* rd_kafka_consumer_poll: a message the caller destroys, or NULL. */
CK_EXPORT rd_kafka_message_t *ck_callback_consume(rd_kafka_t *rk, int timeout_ms);

/* rd_kafka_consume_batch_queue: the number of messages, or -1. Events do not end it. */
CK_EXPORT ssize_t ck_callback_consume_batch(rd_kafka_queue_t *rkqu, int timeout_ms,
                                            rd_kafka_message_t **rkmessages, size_t size);

#endif
