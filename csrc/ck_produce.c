#include "ck_produce.h"

rd_kafka_error_t *ck_produce(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                             const ck_record_t *record) {
        rd_kafka_error_t *error;

        /* Set first: the report may be filled before the call returns. */
        if (record->report)
                record->report->event.kind = CK_EVENT_IN_FLIGHT;
        if (!record->headers && !record->timestamp &&
            rd_kafka_produce(rkt, record->partition, RD_KAFKA_MSG_F_COPY,
                             (void *)record->value, record->value_len, record->key,
                             record->key_len, record->report) == 0)
                return NULL;
        /* rd_kafka_produce() reports only a code. Producing again with the slower call
         * returns the error with its text and properties, or queues the record after
         * all. */
        error =
            ck_produce_with_headers(rk, rkt, record, RD_KAFKA_MSG_F_COPY, record->report);
        if (error && record->report)
                record->report->event.kind = CK_EVENT_NONE;
        return error;
}
