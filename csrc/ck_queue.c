#include "ck_queue.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ck_queue_s {
        ck_serving_t *serving;
        _Atomic int refs;
        void *slots[CK_SLOT__CNT];
        /* Pushed events, newest first. */
        _Atomic(ck_event_t *) incoming;
        /* Taken over by the popping thread, oldest first. */
        ck_event_t *ready;
        _Atomic int64_t unreported;
        _Atomic(ck_event_t *) first_unreported;
};

ck_queue_t *ck_queue_new(void) {
        ck_queue_t *queue = calloc(1, sizeof(*queue));

        if (queue && !(queue->serving = ck_serving_new())) {
                free(queue);
                return NULL;
        }
        if (queue)
                queue->refs = 1;
        return queue;
}

void ck_queue_keep(ck_queue_t *queue) {
        atomic_fetch_add_explicit(&queue->refs, 1, memory_order_relaxed);
}

bool ck_queue_is_last(const ck_queue_t *queue) {
        return atomic_load_explicit(&queue->refs, memory_order_acquire) == 1;
}

ck_serving_t *ck_queue_serving(const ck_queue_t *queue) {
        return queue->serving;
}

void ck_queue_attach(ck_queue_t *queue, ck_slot_t slot, void *object) {
        queue->slots[slot] = object;
}

void *ck_queue_attached(const ck_queue_t *queue, ck_slot_t slot) {
        return queue->slots[slot];
}

void ck_queue_destroy(ck_queue_t *queue) {
        ck_event_t *event;

        if (!queue ||
            atomic_fetch_sub_explicit(&queue->refs, 1, memory_order_acq_rel) != 1)
                return;
        while ((event = ck_queue_pop(queue)))
                ck_event_destroy(event);
        ck_event_destroy(queue->first_unreported);
        ck_serving_destroy(queue->serving);
        free(queue);
}

bool ck_queue_push(ck_queue_t *queue, ck_event_t *event) {
        ck_event_t *head = atomic_load_explicit(&queue->incoming, memory_order_relaxed);

        do {
                event->next = head;
        } while (!atomic_compare_exchange_weak_explicit(
            &queue->incoming, &head, event, memory_order_release, memory_order_relaxed));
        return !head;
}

ck_event_t *ck_queue_pop(ck_queue_t *queue) {
        ck_event_t *event = queue->ready;

        if (!event) {
                ck_event_t *newest;

                if (!atomic_load_explicit(&queue->incoming, memory_order_relaxed))
                        return NULL;
                /* Takes all at once, so pushers never use a node freed here. */
                newest = atomic_exchange_explicit(&queue->incoming, NULL,
                                                  memory_order_acquire);
                while (newest) {
                        ck_event_t *older = newest->next;
                        newest->next = event;
                        event = newest;
                        newest = older;
                }
                if (!event)
                        return NULL;
        }
        queue->ready = event->next;
        event->next = NULL;
        return event;
}

bool ck_queue_is_empty(const ck_queue_t *queue) {
        return !queue->ready &&
               !atomic_load_explicit(&queue->incoming, memory_order_relaxed);
}

int64_t ck_queue_length(const ck_queue_t *queue) {
        /* The callers count and pop with the GIL, so every node stays valid here. */
        const ck_event_t *event =
            atomic_load_explicit(&queue->incoming, memory_order_acquire);
        int64_t length = 0;

        for (; event; event = event->next)
                length++;
        for (event = queue->ready; event; event = event->next)
                length++;
        return length;
}

void ck_queue_add_unreported(ck_queue_t *queue, const char *topic,
                             rd_kafka_resp_err_t err, int64_t cnt) {
        ck_event_t *none = NULL;
        ck_notice_t *notice;

        if (atomic_fetch_add_explicit(&queue->unreported, cnt, memory_order_relaxed) > 0)
                return;
        if (!(notice = ck_event_new(CK_EVENT_ERROR, topic)))
                return;
        notice->event.code = err;
        if (!atomic_compare_exchange_strong_explicit(&queue->first_unreported, &none,
                                                     &notice->event, memory_order_release,
                                                     memory_order_relaxed))
                ck_event_destroy(&notice->event);
}

int64_t ck_queue_take_unreported(ck_queue_t *queue, ck_event_t **first) {
        *first = atomic_exchange_explicit(&queue->first_unreported, NULL,
                                          memory_order_acquire);
        return atomic_exchange_explicit(&queue->unreported, 0, memory_order_relaxed);
}

ck_notice_t *ck_event_new(ck_event_kind_t kind, const char *text) {
        ck_notice_t *notice = calloc(1, sizeof(*notice));

        if (!notice)
                return NULL;
        notice->event.kind = kind;
        if (text) {
                notice->text_len = strlen(text);
                notice->text = strdup(text);
                if (!notice->text) {
                        free(notice);
                        return NULL;
                }
        }
        ck_runtime_count(CK_KIND_EVENT, 1);
        return notice;
}

void ck_event_destroy(ck_event_t *event) {
        ck_notice_t *notice;

        if (!event || event->kind == CK_EVENT_REPORT || event->kind == CK_EVENT_DELIVERY)
                return; /* embedded: its owner frees it */
        notice = (ck_notice_t *)event;
        free(notice->text);
        free(notice->facility);
        if (notice->partitions)
                rd_kafka_topic_partition_list_destroy(notice->partitions);
        ck_runtime_count(CK_KIND_EVENT, -1);
        free(notice);
}
