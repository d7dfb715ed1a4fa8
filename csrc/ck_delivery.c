#include "ck_delivery.h"

#include <stdlib.h>
#include <string.h>

/* Added to the count of failures by ck_delivery_drop(). */
#define CK_DELIVERY_DROPPED ((int64_t)1 << 62)

struct ck_delivery_s {
        ck_event_t event; /* first: the event's address is the delivery's */
        ck_link_t link;   /* in the list of ck_serving, until it is done */
        ck_queue_t *queue;
        void *owner;
        uint32_t generation; /* the process that created it */
        size_t cnt;
        _Atomic size_t taken;
        /* The number of missing outcomes, plus one for the publisher. */
        _Atomic size_t pending;
        _Atomic int64_t failed;
        _Atomic int state; /* CK_DELIVERY_... */
        _Atomic int references;
        ck_outcome_t slots[];
};

_Static_assert(sizeof(ck_outcome_t) == 16, "16 bytes a record");
_Static_assert(_Alignof(ck_outcome_t) % 2 == 0, "the opaque of a slot is odd");

ck_delivery_t *ck_delivery_new(ck_queue_t *queue, size_t cnt) {
        ck_delivery_t *delivery;
        size_t size;

        if (__builtin_mul_overflow(cnt, sizeof(ck_outcome_t), &size) ||
            __builtin_add_overflow(size, sizeof(*delivery), &size))
                return NULL;
        /* The slots stay uninitialized; ck_delivery_take() writes them. */
        if (!(delivery = malloc(size)))
                return NULL;
        memset(delivery, 0, sizeof(*delivery));
        delivery->event.kind = CK_EVENT_DELIVERY;
        delivery->queue = queue;
        delivery->generation = ck_runtime_generation;
        delivery->cnt = cnt;
        delivery->pending = cnt + 1;
        delivery->references = 2;
        ck_serving_add(ck_queue_serving(queue), &delivery->link);
        ck_runtime_count(CK_KIND_DELIVERY, 1);
        return delivery;
}

void ck_delivery_keep(ck_delivery_t *delivery) {
        atomic_fetch_add_explicit(&delivery->references, 1, memory_order_relaxed);
}

void ck_delivery_release(ck_delivery_t *delivery) {
        if (!delivery ||
            atomic_fetch_sub_explicit(&delivery->references, 1, memory_order_acq_rel) > 1)
                return;
        free(delivery);
        ck_runtime_count(CK_KIND_DELIVERY, -1);
}

size_t ck_delivery_cnt(const ck_delivery_t *delivery) {
        return delivery->cnt;
}

ck_outcome_t *ck_delivery_slots(ck_delivery_t *delivery) {
        return delivery->slots;
}

size_t ck_delivery_taken(const ck_delivery_t *delivery) {
        return atomic_load_explicit(&delivery->taken, memory_order_acquire);
}

/* Call it when every record has its outcome. Returns the requests. */
static int ck_delivery_finish(ck_delivery_t *delivery) {
        ck_queue_t *queue = delivery->queue;
        int wanted = atomic_fetch_or(&delivery->state, CK_DELIVERY_DONE);

        if (wanted)
                ck_queue_push(queue, &delivery->event);
        /* In a forked child, a publisher closes the delivery that the parent began. The
         * list is the parent's, and a thread that does not exist here may hold its lock.
         * The child never reads the list. */
        if (delivery->generation == ck_runtime_generation)
                ck_serving_remove(ck_queue_serving(queue), &delivery->link);
        ck_delivery_release(delivery);
        return wanted;
}

/* Subtracts n outcomes from the missing ones. Returns whether the delivery is done now,
 * and the requests in *wanted. */
static bool ck_delivery_settle(ck_delivery_t *delivery, size_t n, int *wanted) {
        if (atomic_fetch_sub_explicit(&delivery->pending, n, memory_order_acq_rel) != n)
                return false;
        *wanted = ck_delivery_finish(delivery);
        return true;
}

static void ck_delivery_fill(ck_outcome_t *slot, int32_t partition,
                             rd_kafka_resp_err_t err, int64_t offset) {
        slot->u.outcome.partition = partition;
        slot->u.outcome.err = err;
        atomic_store_explicit(&slot->offset, offset, memory_order_release);
}

void ck_delivery_take(ck_delivery_t *delivery, size_t until) {
        size_t i;

        for (i = atomic_load_explicit(&delivery->taken, memory_order_relaxed); i < until;
             i++) {
                delivery->slots[i].u.delivery = delivery;
                atomic_store_explicit(&delivery->slots[i].offset, CK_OUTCOME_IN_FLIGHT,
                                      memory_order_relaxed);
        }
        atomic_store_explicit(&delivery->taken, until, memory_order_release);
}

void ck_delivery_untake(ck_delivery_t *delivery, size_t from) {
        atomic_store_explicit(&delivery->taken, from, memory_order_release);
}

void ck_delivery_refuse(ck_delivery_t *delivery, size_t i, int32_t partition,
                        rd_kafka_resp_err_t err) {
        ck_delivery_fill(&delivery->slots[i], partition, err, RD_KAFKA_OFFSET_INVALID);
        atomic_fetch_add_explicit(&delivery->failed, 1, memory_order_relaxed);
        /* The publisher's own count keeps `pending` above zero. */
        atomic_fetch_sub_explicit(&delivery->pending, 1, memory_order_relaxed);
}

void ck_delivery_close(ck_delivery_t *delivery, rd_kafka_resp_err_t err) {
        size_t taken = atomic_load_explicit(&delivery->taken, memory_order_relaxed);
        size_t left = delivery->cnt - taken;
        size_t i;
        int wanted;

        for (i = taken; i < delivery->cnt; i++)
                ck_delivery_fill(&delivery->slots[i], RD_KAFKA_PARTITION_UA, err,
                                 RD_KAFKA_OFFSET_INVALID);
        atomic_store_explicit(&delivery->taken, delivery->cnt, memory_order_release);
        atomic_fetch_add_explicit(&delivery->failed, (int64_t)left, memory_order_relaxed);
        ck_delivery_settle(delivery, left + 1, &wanted);
}

const ck_delivery_t *ck_delivery_report(const rd_kafka_message_t *rkmessage,
                                        const ck_delivery_t *goal) {
        ck_outcome_t *slot = (ck_outcome_t *)((char *)rkmessage->_private - 1);
        ck_delivery_t *delivery = slot->u.delivery;
        int wanted;

        ck_delivery_fill(slot, rkmessage->partition, rkmessage->err, rkmessage->offset);
        if (rkmessage->err &&
            atomic_fetch_add_explicit(&delivery->failed, 1, memory_order_relaxed) >=
                CK_DELIVERY_DROPPED)
                ck_queue_add_unreported(delivery->queue,
                                        rd_kafka_topic_name(rkmessage->rkt),
                                        rkmessage->err, 1);
        if (!ck_delivery_settle(delivery, 1, &wanted))
                return NULL;
        /* The delivery may be freed by now: only compare its address. */
        return wanted & CK_DELIVERY_NOTIFY || delivery == goal ? delivery : NULL;
}

int ck_delivery_want(ck_delivery_t *delivery, int which, void *owner) {
        int before = atomic_load(&delivery->state);

        if (before & CK_DELIVERY_DONE)
                return before;
        /* Set it before ck_delivery_finish() can see the request. */
        if (!before)
                delivery->owner = owner;
        before = atomic_fetch_or(&delivery->state, which);
        if (before == CK_DELIVERY_DONE)
                atomic_store(&delivery->state, CK_DELIVERY_DONE); /* it was done first */
        return before;
}

void *ck_delivery_of_event(ck_event_t *event, bool release) {
        ck_delivery_t *delivery = (ck_delivery_t *)event;
        void *owner = delivery->owner;

        if (release)
                delivery->owner = NULL;
        return owner;
}

void ck_delivery_push_again(ck_event_t *event) {
        ck_queue_push(((ck_delivery_t *)event)->queue, event);
}

bool ck_delivery_is_done(const ck_delivery_t *delivery) {
        return atomic_load(&delivery->state) & CK_DELIVERY_DONE;
}

int64_t ck_delivery_failed(const ck_delivery_t *delivery) {
        return atomic_load_explicit(&delivery->failed, memory_order_relaxed) &
               ~CK_DELIVERY_DROPPED;
}

int64_t ck_delivery_drop(ck_delivery_t *delivery) {
        return atomic_fetch_or(&delivery->failed, CK_DELIVERY_DROPPED) &
               ~CK_DELIVERY_DROPPED;
}

bool ck_delivery_check_done(const void *delivery) {
        return ck_delivery_is_done(delivery);
}

void ck_delivery_sleep(ck_queue_t *queue, const ck_delivery_t *delivery, int timeout_ms) {
        ck_serving_sleep(ck_queue_serving(queue), timeout_ms, ck_delivery_check_done,
                         delivery);
}

bool ck_delivery_is_pending(const ck_queue_t *queue) {
        return ck_serving_next(ck_queue_serving(queue), NULL) != NULL;
}

void ck_delivery_abandon_all(ck_queue_t *queue) {
        ck_link_t *link = NULL;

        while ((link = ck_serving_next(ck_queue_serving(queue), link))) {
                ck_delivery_t *delivery =
                    (ck_delivery_t *)((char *)link - offsetof(ck_delivery_t, link));
                size_t taken = ck_delivery_taken(delivery), lost = 0, i;
                ck_link_t *before = link->before;
                int wanted;

                for (i = 0; i < taken; i++) {
                        ck_outcome_t *slot = &delivery->slots[i];
                        if (atomic_load(&slot->offset) != CK_OUTCOME_IN_FLIGHT)
                                continue;
                        ck_delivery_fill(slot, RD_KAFKA_PARTITION_UA,
                                         RD_KAFKA_RESP_ERR__DESTROY,
                                         RD_KAFKA_OFFSET_INVALID);
                        lost++;
                }
                atomic_fetch_add_explicit(&delivery->failed, (int64_t)lost,
                                          memory_order_relaxed);
                /* A delivery that is still not done waits for its publisher to close it:
                 * it stays in the list. */
                if (lost && ck_delivery_settle(delivery, lost, &wanted))
                        link = before;
        }
}
