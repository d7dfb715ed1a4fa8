#include "ck_loans.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

struct ck_loans_s {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        int64_t refs;
        int64_t open;
        int64_t pinned;
};

ck_loans_t *ck_loans_new(void) {
        ck_loans_t *loans = calloc(1, sizeof(*loans));

        if (!loans)
                return NULL;
        pthread_mutex_init(&loans->lock, NULL);
        pthread_cond_init(&loans->changed, NULL);
        loans->refs = 1;
        return loans;
}

/* Adds to the counts, and frees them with the last reference. */
static void ck_loans_change(ck_loans_t *loans, int refs, int open, int pinned) {
        bool last;

        pthread_mutex_lock(&loans->lock);
        loans->refs += refs;
        loans->open += open;
        loans->pinned += pinned;
        last = loans->refs == 0;
        pthread_cond_broadcast(&loans->changed);
        pthread_mutex_unlock(&loans->lock);
        if (!last)
                return;
        pthread_cond_destroy(&loans->changed);
        pthread_mutex_destroy(&loans->lock);
        free(loans);
}

void ck_loans_destroy(ck_loans_t *loans) {
        if (loans)
                ck_loans_change(loans, -1, 0, 0);
}

void ck_loans_add(ck_loans_t *loans) {
        ck_loans_change(loans, 1, 1, 0);
}

void ck_loans_sub(ck_loans_t *loans) {
        ck_loans_change(loans, -1, -1, 0);
}

void ck_loans_pin(ck_loans_t *loans) {
        ck_loans_change(loans, 0, 0, 1);
}

void ck_loans_unpin(ck_loans_t *loans) {
        ck_loans_change(loans, 0, 0, -1);
}

bool ck_loans_settle(ck_loans_t *loans) {
        bool none;

        if (!loans)
                return true;
        pthread_mutex_lock(&loans->lock);
        while (loans->open && !loans->pinned)
                pthread_cond_wait(&loans->changed, &loans->lock);
        none = !loans->open;
        pthread_mutex_unlock(&loans->lock);
        return none;
}

void ck_loans_wait(ck_loans_t *loans) {
        if (!loans)
                return;
        pthread_mutex_lock(&loans->lock);
        while (loans->open)
                pthread_cond_wait(&loans->changed, &loans->lock);
        pthread_mutex_unlock(&loans->lock);
}
