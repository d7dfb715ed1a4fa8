#include "ck_publish.h"

#include "ck_produce.h"

/* Records for one rd_kafka_produce_batch(). The array fits on a small stack and into the
 * first-level cache, and the cost of each call is negligible. */
#define CK_PUBLISH_RUN 256

static inline rd_kafka_topic_t *ck_publish_rkt(const ck_publish_t *publish, size_t i) {
        return publish->rkts ? publish->rkts[i] : publish->rkt;
}

/* A number out of range becomes a partition that no topic has, so that librdkafka refuses
 * the record. */
static inline int32_t ck_publish_partition(const ck_publish_t *publish, size_t i) {
        int64_t partition = ck_numbers_get(&publish->partitions, i);

        return partition >= RD_KAFKA_PARTITION_UA && partition < INT32_MAX
                   ? (int32_t)partition
                   : INT32_MAX;
}

static inline void ck_publish_header(rd_kafka_headers_t *hdrs, ck_bytes_t name,
                                     ck_bytes_t value) {
        rd_kafka_header_add(hdrs, name.ptr ? name.ptr : "", (ssize_t)name.len, value.ptr,
                            (ssize_t)value.len);
}

/* The headers of record i, or NULL. */
static rd_kafka_headers_t *ck_publish_headers(const ck_headers_t *headers, size_t i) {
        rd_kafka_headers_t *hdrs;
        int64_t k, end;
        size_t n;

        ck_headers_pairs(headers, i, &k, &end);
        if (k == end && !headers->named_cnt)
                return NULL;
        hdrs = rd_kafka_headers_new(headers->named_cnt + (size_t)(end - k));
        for (n = 0; n < headers->named_cnt; n++)
                ck_publish_header(hdrs, headers->names[n],
                                  ck_column_get(&headers->named[n], i));
        for (; k < end; k++)
                ck_publish_header(hdrs, ck_column_get(&headers->keys, (size_t)k),
                                  ck_column_get(&headers->values, (size_t)k));
        return hdrs;
}

/* Produces one record, which may have headers and a timestamp. */
static rd_kafka_resp_err_t ck_publish_one(rd_kafka_t *rk, const ck_publish_t *publish,
                                          size_t i, rd_kafka_headers_t *hdrs,
                                          int64_t timestamp, ck_outcome_t *slot) {
        ck_bytes_t value = ck_column_get(&publish->values, i);
        ck_bytes_t key = ck_column_get(&publish->keys, i);
        ck_record_t record = {.value = value.ptr,
                              .value_len = value.len,
                              .key = key.ptr,
                              .key_len = key.len,
                              .headers = hdrs,
                              .timestamp = timestamp,
                              .partition = ck_publish_partition(publish, i)};
        rd_kafka_error_t *error = ck_produce_with_headers(
            rk, ck_publish_rkt(publish, i), &record,
            publish->borrow ? 0 : RD_KAFKA_MSG_F_COPY, ck_delivery_opaque(slot));
        rd_kafka_resp_err_t err = rd_kafka_error_code(error);

        if (error && hdrs)
                rd_kafka_headers_destroy(hdrs);
        rd_kafka_error_destroy(error);
        return err;
}

/* Whether the value of record i is larger than the whole queue. */
static bool ck_publish_never_fits(const ck_publish_t *publish, size_t i) {
        return publish->room > 0 &&
               ck_column_get(&publish->values, i).len > (size_t)publish->room;
}

/* Produces the records from publish->next up to `until`, which have the same topic and
 * partition and neither headers nor timestamps. Returns NO_ERROR or _QUEUE_FULL. */
static rd_kafka_resp_err_t ck_publish_run(ck_publish_t *publish, ck_delivery_t *delivery,
                                          size_t until) {
        rd_kafka_message_t rkmessages[CK_PUBLISH_RUN];
        ck_outcome_t *slots = ck_delivery_slots(delivery);
        size_t first = publish->next, cnt = until - first, i;
        rd_kafka_topic_t *rkt = ck_publish_rkt(publish, first);
        int32_t partition = ck_publish_partition(publish, first);

        for (i = 0; i < cnt; i++) {
                rd_kafka_message_t *rkmessage = &rkmessages[i];
                ck_bytes_t value = ck_column_get(&publish->values, first + i);
                ck_bytes_t key = ck_column_get(&publish->keys, first + i);

                rkmessage->payload = (void *)value.ptr;
                rkmessage->len = value.len;
                rkmessage->key = (void *)key.ptr;
                rkmessage->key_len = key.len;
                rkmessage->_private = ck_delivery_opaque(&slots[first + i]);
        }
        ck_delivery_take(delivery, until);
        publish->next = until;
        if (rd_kafka_produce_batch(rkt, partition,
                                   publish->borrow ? 0 : RD_KAFKA_MSG_F_COPY, rkmessages,
                                   (int)cnt) == (int)cnt)
                return RD_KAFKA_RESP_ERR_NO_ERROR;
        for (i = 0; i < cnt; i++) {
                rd_kafka_resp_err_t err = rkmessages[i].err;

                if (!err)
                        continue;
                if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                        bool never = ck_publish_never_fits(publish, first + i);

                        /* librdkafka also refused all records after it. */
                        publish->next = first + i + never;
                        ck_delivery_untake(delivery, publish->next);
                        if (never)
                                ck_delivery_refuse(delivery, first + i, partition, err);
                        return never ? RD_KAFKA_RESP_ERR_NO_ERROR : err;
                }
                ck_delivery_refuse(delivery, first + i, partition, err);
        }
        return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* The end of the run that starts at publish->next. The run is empty if its first record
 * has headers or a timestamp; *hdrs and *timestamp are then set. */
static size_t ck_publish_reach(const ck_publish_t *publish, rd_kafka_headers_t **hdrs,
                               int64_t *timestamp) {
        size_t first = publish->next, end = publish->cnt, i;
        bool one_topic = !publish->rkts, one_partition = !publish->partitions.width;
        bool no_timestamps = !publish->timestamps.width && !publish->timestamps.missing;

        *hdrs = publish->headers ? ck_publish_headers(publish->headers, first) : NULL;
        *timestamp = ck_numbers_get(&publish->timestamps, first);
        if (*hdrs || *timestamp)
                return first;
        if (end - first > CK_PUBLISH_RUN)
                end = first + CK_PUBLISH_RUN;
        if (one_topic && one_partition && no_timestamps && !publish->headers)
                return end;
        for (i = first + 1; i < end; i++) {
                int64_t pair, last;

                if (!one_topic && publish->rkts[i] != publish->rkts[first])
                        break;
                if (!one_partition && ck_publish_partition(publish, i) !=
                                          ck_publish_partition(publish, first))
                        break;
                if (!no_timestamps && ck_numbers_get(&publish->timestamps, i))
                        break;
                if (!publish->headers)
                        continue;
                ck_headers_pairs(publish->headers, i, &pair, &last);
                if (publish->headers->named_cnt || pair != last)
                        break;
        }
        return i;
}

rd_kafka_resp_err_t ck_publish(rd_kafka_t *rk, ck_publish_t *publish,
                               ck_delivery_t *delivery, int slice_ms) {
        int64_t end = ck_runtime_now_ms() + slice_ms;
        size_t looked = publish->next;

        while (publish->next < publish->cnt) {
                size_t i = publish->next, until;
                rd_kafka_headers_t *hdrs;
                rd_kafka_resp_err_t err;
                int64_t timestamp;

                /* Read the clock once for many records. */
                if (i - looked >= CK_PUBLISH_RUN) {
                        if (ck_runtime_now_ms() >= end)
                                return RD_KAFKA_RESP_ERR__IN_PROGRESS;
                        looked = i;
                }
                if ((until = ck_publish_reach(publish, &hdrs, &timestamp)) > i) {
                        if ((err = ck_publish_run(publish, delivery, until)))
                                return err;
                        continue;
                }
                ck_delivery_take(delivery, i + 1);
                publish->next = i + 1;
                err = ck_publish_one(rk, publish, i, hdrs, timestamp,
                                     &ck_delivery_slots(delivery)[i]);
                if (!err)
                        continue;
                if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL &&
                    !ck_publish_never_fits(publish, i)) {
                        ck_delivery_untake(delivery, i);
                        publish->next = i;
                        return err;
                }
                ck_delivery_refuse(delivery, i, ck_publish_partition(publish, i), err);
        }
        return RD_KAFKA_RESP_ERR_NO_ERROR;
}
