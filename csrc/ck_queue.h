/*
 * ck_queue: events on their way from librdkafka's C callbacks to Python's.
 *
 * The callbacks that librdkafka serves (delivery reports, errors, statistics, ...) are C
 * functions that never take the GIL: they push an event here. The thread that serves
 * librdkafka pops the events afterwards, with the GIL, and runs the Python callbacks.
 *
 * Ownership: a queue is reference-counted and starts with one reference. A pushed event
 * belongs to the queue until ck_queue_pop() returns it. Events of the kinds
 * CK_EVENT_REPORT and CK_EVENT_DELIVERY are embedded in the caller's record or delivery;
 * ck_event_destroy() frees all others. Threads: any thread may push and drop a reference,
 * lock-free, and call ck_queue_add_unreported(). All other functions are for one thread
 * at a time (in cykafka: the thread with the GIL).
 */
#ifndef CK_QUEUE_H
#define CK_QUEUE_H

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ck_runtime.h"
#include "ck_serving.h"

typedef enum ck_event_kind_e {
        CK_EVENT_NONE = 0,     /* not in a queue */
        CK_EVENT_REPORT,       /* ck_report_t: a message has its outcome */
        CK_EVENT_ERROR,        /* code, fatal, text */
        CK_EVENT_THROTTLE,     /* code: broker id, number: ms, text: broker name */
        CK_EVENT_STATS,        /* text: JSON */
        CK_EVENT_LOG,          /* code: syslog level, facility, text */
        CK_EVENT_COMMIT,       /* code, partitions */
        CK_EVENT_ACKNOWLEDGED, /* code, one partition, text: its offsets, as int64_t */
        CK_EVENT_DELIVERY,     /* ck_delivery_t: a batch is done */
        CK_EVENT_IN_FLIGHT, /* ck_report_t: librdkafka has the message; never in a queue
                             */
} ck_event_kind_t;

/* The head of every event. It is small because every record in flight has one. */
typedef struct ck_event_s {
        struct ck_event_s *next;
        ck_event_kind_t kind;
        int32_t code;
} ck_event_t;

/* Every event except reports and deliveries. */
typedef struct ck_notice_s {
        ck_event_t event;
        char *text; /* owned, or NULL */
        size_t text_len;
        int64_t number;
        bool fatal;
        char *facility;                              /* owned, or NULL */
        rd_kafka_topic_partition_list_t *partitions; /* owned, or NULL */
} ck_notice_t;

/* The outcome of one produced message. It is the first member of its owner, whose address
 * is the message's opaque in librdkafka. It must stay alive until ck_queue_pop() returns
 * it. */
typedef struct ck_report_s {
        ck_event_t event; /* code: the delivery error */
        int64_t offset;
        int64_t timestamp; /* ms */
        int64_t latency;   /* us, -1 if not known */
        int32_t partition;
        int32_t leader_epoch;
        int32_t timestamp_type;
} ck_report_t;

typedef struct ck_queue_s ck_queue_t;

/* Objects that callbacks find through the queue, which is their opaque. */
typedef enum ck_slot_e {
        CK_SLOT_CLIENT = 0, /* for rebalance_cb */
        CK_SLOT_TOKENS,     /* for oauthbearer_token_refresh_cb */
        CK_SLOT_INFLIGHT,   /* the ck_inflight_t of a producer's reports */
        CK_SLOT_HANDLE,     /* the closed Handle that runs the callbacks at the end */
        CK_SLOT__CNT
} ck_slot_t;

/* A new, empty queue with one reference, or NULL if memory is short. */
CK_EXPORT ck_queue_t *ck_queue_new(void);

/* Keeps a pointer for callbacks. The queue does not dereference it; it must be valid
 * while callbacks may run. */
CK_EXPORT void ck_queue_attach(ck_queue_t *queue, ck_slot_t slot, void *object);

/* The object that ck_queue_attach() keeps, or NULL. */
CK_EXPORT void *ck_queue_attached(const ck_queue_t *queue, ck_slot_t slot);

/* Chooses the thread that serves the queue's handle. Lives as long as the queue. */
CK_EXPORT ck_serving_t *ck_queue_serving(const ck_queue_t *queue);

/* Adds a reference, for an rd_kafka_t that may outlive its serving object. */
CK_EXPORT void ck_queue_keep(ck_queue_t *queue);

/* Whether only one reference is left. Then its owner pops the remaining events. */
CK_EXPORT bool ck_queue_is_last(const ck_queue_t *queue);

/* Drops a reference. The last drop frees the queue and its remaining events, except
 * embedded ones: pop those first. NULL is fine. */
CK_EXPORT void ck_queue_destroy(ck_queue_t *queue);

/* Appends an event. Returns whether none was pushed since the last pop. Any thread; takes
 * no lock. */
CK_EXPORT bool ck_queue_push(ck_queue_t *queue, ck_event_t *event);

/* The oldest event, or NULL. Events that one thread pushed keep their order. */
CK_EXPORT ck_event_t *ck_queue_pop(ck_queue_t *queue);

/* Whether the queue has no event. */
CK_EXPORT bool ck_queue_is_empty(const ck_queue_t *queue);

/* The number of events. Counts them one by one, because a counter would cost more
 * than the push. */
CK_EXPORT int64_t ck_queue_length(const ck_queue_t *queue);

/* Counts cnt messages that failed and have no callback; topic and err belong to the first
 * one. Any thread. */
CK_EXPORT void ck_queue_add_unreported(ck_queue_t *queue, const char *topic,
                                       rd_kafka_resp_err_t err, int64_t cnt);

/* The number of such messages since the last call. *first becomes the error of the first
 * one, a ck_notice_t with the topic as text, which the caller destroys; NULL if there was
 * none or memory was short. */
CK_EXPORT int64_t ck_queue_take_unreported(ck_queue_t *queue, ck_event_t **first);

/* A zeroed notice of a kind with a copy of text (or none), or NULL if memory is short. */
CK_EXPORT ck_notice_t *ck_event_new(ck_event_kind_t kind, const char *text);

/* Frees what the event owns and, unless it is embedded, the event. NULL is fine. */
CK_EXPORT void ck_event_destroy(ck_event_t *event);

#endif
