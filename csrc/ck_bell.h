/*
 * ck_bell: one thread waits until another one rings.
 *
 * Ownership: the owner frees the bell when nobody waits or rings any more.
 * Threads: any. A ring that nobody waits for is kept for the next wait. Takes the bell's own lock and no
 * other, so it may be rung with the GIL held and must be waited for without.
 */
#ifndef CK_BELL_H
#define CK_BELL_H

#include "ck_runtime.h"

typedef struct ck_bell_s ck_bell_t;

/* A new bell, or NULL if memory is short. */
CK_EXPORT ck_bell_t *ck_bell_new(void);

/* NULL is fine. */
CK_EXPORT void ck_bell_destroy(ck_bell_t *bell);

/* Ends the wait, or the next one. Never waits itself. */
CK_EXPORT void ck_bell_ring(ck_bell_t *bell);

/* Waits for a ring, at most timeout_ms. */
CK_EXPORT void ck_bell_wait(ck_bell_t *bell, int timeout_ms);

#endif
