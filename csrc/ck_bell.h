/*
 * ck_bell: one thread waits until another one rings.
 *
 * Ownership: the owner frees the bell when no thread waits or rings any more. Threads:
 * any. A ring without a waiter is kept for the next wait. Takes only the bell's own lock,
 * so a thread may ring with the GIL held, but must wait without it.
 */
#ifndef CK_BELL_H
#define CK_BELL_H

#include "ck_runtime.h"

typedef struct ck_bell_s ck_bell_t;

/* A new bell, or NULL if memory is short. */
CK_EXPORT ck_bell_t *ck_bell_new(void);

/* NULL is fine. */
CK_EXPORT void ck_bell_destroy(ck_bell_t *bell);

/* Ends the current wait, or else the next one. Never waits itself. */
CK_EXPORT void ck_bell_ring(ck_bell_t *bell);

/* Waits for a ring, at most timeout_ms. */
CK_EXPORT void ck_bell_wait(ck_bell_t *bell, int timeout_ms);

#endif
