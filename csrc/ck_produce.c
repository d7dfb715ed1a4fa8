#include "ck_produce.h"

rd_kafka_error_t *ck_produce_any(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                                 const ck_record_t *record, int msgflags, void *opaque) {
        rd_kafka_vu_t vus[8];
        size_t cnt = 0;

        vus[cnt].vtype = RD_KAFKA_VTYPE_RKT;
        vus[cnt++].u.rkt = rkt;
        vus[cnt].vtype = RD_KAFKA_VTYPE_PARTITION;
        vus[cnt++].u.i32 = record->partition;
        vus[cnt].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
        vus[cnt++].u.i = msgflags;
        vus[cnt].vtype = RD_KAFKA_VTYPE_VALUE;
        vus[cnt].u.mem.ptr = (void *)record->value;
        vus[cnt++].u.mem.size = record->value_len;
        vus[cnt].vtype = RD_KAFKA_VTYPE_KEY;
        vus[cnt].u.mem.ptr = (void *)record->key;
        vus[cnt++].u.mem.size = record->key_len;
        vus[cnt].vtype = RD_KAFKA_VTYPE_OPAQUE;
        vus[cnt++].u.ptr = opaque;
        if (record->timestamp) {
                vus[cnt].vtype = RD_KAFKA_VTYPE_TIMESTAMP;
                vus[cnt++].u.i64 = record->timestamp;
        }
        if (record->headers) {
                vus[cnt].vtype = RD_KAFKA_VTYPE_HEADERS;
                vus[cnt++].u.headers = record->headers;
        }
        return rd_kafka_produceva(rk, vus, cnt);
}

rd_kafka_error_t *ck_produce(rd_kafka_t *rk, rd_kafka_topic_t *rkt,
                             const ck_record_t *record) {
        rd_kafka_error_t *error;

        /* Set first: the report may be filled before the call returns. */
        if (record->report)
                record->report->event.kind = CK_EVENT_FLYING;
        if (!record->headers && !record->timestamp &&
            rd_kafka_produce(rkt, record->partition, RD_KAFKA_MSG_F_COPY,
                             (void *)record->value, record->value_len, record->key,
                             record->key_len, record->report) == 0)
                return NULL;
        /* The quick call gives a code and no text. Producing again the long way returns
         * the error with its text and its properties, or queues the record after all. */
        error = ck_produce_any(rk, rkt, record, RD_KAFKA_MSG_F_COPY, record->report);
        if (error && record->report)
                record->report->event.kind = CK_EVENT_NONE;
        return error;
}
