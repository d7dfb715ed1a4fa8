/*
 * ck_pipe: a pipe whose bytes wake an event loop.
 *
 * Each client has one. librdkafka's queues (rd_kafka_queue_io_event_enable) and finished
 * calls (ck_call) write to it. Neither end blocks.
 *
 * Ownership: reference-counted, because an abandoned call may outlive its client. The
 * last reference closes both ends. Threads: any. Takes no lock.
 */
#ifndef CK_PIPE_H
#define CK_PIPE_H

#include <stdbool.h>

#include "ck_runtime.h"

typedef struct ck_pipe_s ck_pipe_t;

/* A new pipe with one reference; NULL with errno if memory or descriptors are short. */
CK_EXPORT ck_pipe_t *ck_pipe_new(void);

/* Adds a reference, and returns the pipe. */
CK_EXPORT ck_pipe_t *ck_pipe_ref(ck_pipe_t *self);

/* NULL is fine. */
CK_EXPORT void ck_pipe_unref(ck_pipe_t *self);

/* The descriptors, which the pipe still owns. */
CK_EXPORT int ck_pipe_reader(const ck_pipe_t *self);
CK_EXPORT int ck_pipe_writer(const ck_pipe_t *self);

/* Makes the pipe readable. Does not write again until ck_pipe_empty(). */
CK_EXPORT void ck_pipe_notify(ck_pipe_t *self);

/* Reads all bytes. Returns whether there were any. The caller then checks why the pipe
 * was notified. */
CK_EXPORT bool ck_pipe_empty(ck_pipe_t *self);

#endif
