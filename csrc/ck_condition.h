/*
 * ck_condition: a condition: one thread waits until another one signals.
 *
 * Ownership: the owner frees the condition when no thread waits or signals any more.
 * Threads: any. A signal without a waiter is kept for the next wait. Takes only the
 * condition's own lock, so a thread may signal with the GIL held, but must wait without
 * it.
 */
#ifndef CK_CONDITION_H
#define CK_CONDITION_H

#include "ck_runtime.h"

typedef struct ck_condition_s ck_condition_t;

/* A new condition, or NULL if memory is short. */
CK_EXPORT ck_condition_t *ck_condition_new(void);

/* NULL is fine. */
CK_EXPORT void ck_condition_destroy(ck_condition_t *condition);

/* Ends the current wait, or else the next one. Never waits itself. */
CK_EXPORT void ck_condition_signal(ck_condition_t *condition);

/* Waits for a signal, at most timeout_ms. */
CK_EXPORT void ck_condition_wait(ck_condition_t *condition, int timeout_ms);

#endif
