#include "ck_pipe.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct ck_pipe_s {
        int ends[2]; /* the reader, the writer */
        _Atomic int refs;
        atomic_bool notified; /* the pipe contains a byte of ck_pipe_notify() */
};

ck_pipe_t *ck_pipe_new(void) {
        ck_pipe_t *self = calloc(1, sizeof(*self));

        if (!self)
                return NULL;
        if (pipe2(self->ends, O_NONBLOCK | O_CLOEXEC)) {
                free(self);
                return NULL;
        }
        self->refs = 1;
        return self;
}

ck_pipe_t *ck_pipe_ref(ck_pipe_t *self) {
        atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
        return self;
}

void ck_pipe_unref(ck_pipe_t *self) {
        if (!self || atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
                return;
        close(self->ends[0]);
        close(self->ends[1]);
        free(self);
}

int ck_pipe_reader(const ck_pipe_t *self) {
        return self->ends[0];
}

int ck_pipe_writer(const ck_pipe_t *self) {
        return self->ends[1];
}

void ck_pipe_notify(ck_pipe_t *self) {
        if (atomic_exchange_explicit(&self->notified, true, memory_order_acq_rel))
                return;
        /* If it is full, it is readable anyway. */
        if (write(self->ends[1], "1", 1) < 0) {
        }
}

bool ck_pipe_empty(ck_pipe_t *self) {
        char bytes[512];
        bool any = false;

        while (read(self->ends[0], bytes, sizeof(bytes)) > 0)
                any = true;
        /* Only after the last byte, or the next notification would be lost. An earlier
         * notification wrote no byte, but the caller checks for its cause next. */
        atomic_exchange_explicit(&self->notified, false, memory_order_acq_rel);
        return any;
}
