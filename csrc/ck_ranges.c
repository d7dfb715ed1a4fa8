#include "ck_ranges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Messages per step while the mean size is unknown. */
#define CK_RANGES_FIRST 256

ck_ranges_t *ck_ranges_new(size_t cnt) {
        ck_ranges_t *ranges;

        if (cnt > (SIZE_MAX - sizeof(*ranges)) / sizeof(ck_range_t))
                return NULL;
        ranges = calloc(1, sizeof(*ranges) + cnt * sizeof(ck_range_t));
        if (ranges)
                ranges->cnt = cnt;
        return ranges;
}

void ck_ranges_destroy(ck_ranges_t *ranges) {
        size_t i;

        if (!ranges)
                return;
        for (i = 0; i < ranges->cnt; i++)
                free(ranges->ranges[i].topic);
        free(ranges);
}

int ck_ranges_set(ck_ranges_t *ranges, size_t i, const char *topic, int32_t partition,
                  int64_t start, int64_t end) {
        ck_range_t *range = &ranges->ranges[i];

        range->topic = strdup(topic);
        if (!range->topic)
                return ENOMEM;
        range->partition = partition;
        range->next = start;
        range->end = end;
        range->eof = -1;
        if (start < end)
                ranges->left++;
        return 0;
}

static int ck_range_cmp(const void *a, const void *b) {
        const ck_range_t *left = a, *right = b;

        if (left->partition != right->partition)
                return left->partition < right->partition ? -1 : 1;
        return strcmp(left->topic, right->topic);
}

size_t ck_ranges_sort(ck_ranges_t *ranges) {
        size_t i;

        qsort(ranges->ranges, ranges->cnt, sizeof(*ranges->ranges), ck_range_cmp);
        for (i = 1; i < ranges->cnt; i++)
                if (!ck_range_cmp(&ranges->ranges[i - 1], &ranges->ranges[i]))
                        return i;
        return 0;
}

ck_range_t *ck_ranges_find(ck_ranges_t *ranges, const char *topic, int32_t partition) {
        ck_range_t key = {.topic = (char *)topic, .partition = partition};
        ck_range_t *found;

        if (ranges->last < ranges->cnt) {
                found = &ranges->ranges[ranges->last];
                if (found->partition == partition && !strcmp(found->topic, topic))
                        return found;
        }
        found = bsearch(&key, ranges->ranges, ranges->cnt, sizeof(*ranges->ranges),
                        ck_range_cmp);
        if (found)
                ranges->last = (size_t)(found - ranges->ranges);
        return found;
}

void ck_ranges_advance(ck_ranges_t *ranges, ck_range_t *range, int64_t next) {
        if (next <= range->next || range->next >= range->end)
                return;
        range->next = next < range->end ? next : range->end;
        if (range->next == range->end)
                ranges->left--;
}

/* Whether a message is a record within its range. The end of a partition is not a record,
 * but may finish the range. Not for messages with another error. */
static bool ck_ranges_want(ck_ranges_t *ranges, ck_range_t *range,
                           const rd_kafka_message_t *rkmessage) {
        int64_t next, offset = rkmessage->offset;

        if (!range)
                return false;
        next = range->next;
        range->met = true;
        if (rkmessage->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
                range->eof = offset;
                /* The partition may still grow up to the range's end. */
                if (offset >= range->end)
                        ck_ranges_advance(ranges, range, range->end);
                return false;
        }
        ck_ranges_advance(ranges, range, offset + 1);
        return offset >= next && offset < range->end;
}

size_t ck_ranges_sift(ck_ranges_t *ranges, rd_kafka_message_t **rkmessages, size_t cnt,
                      size_t *bytes) {
        const rd_kafka_topic_t *rkt = NULL;
        ck_range_t *range = NULL;
        int32_t partition = -1;
        size_t kept = 0, size = 0, rows = 0;
        size_t i;

        for (i = 0; i < cnt; i++) {
                rd_kafka_message_t *rkmessage = rkmessages[i];

                if (rkmessage->err &&
                    rkmessage->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
                        rkmessages[kept++] = rkmessage;
                        continue;
                }
                /* Messages arrive in runs of one partition. The topic lives as long as
                 * its message. */
                if (rkmessage->rkt != rkt || rkmessage->partition != partition) {
                        range =
                            ck_ranges_find(ranges, rd_kafka_topic_name(rkmessage->rkt),
                                           rkmessage->partition);
                        partition = rkmessage->partition;
                }
                rkt = rkmessage->rkt;
                if (ck_ranges_want(ranges, range, rkmessage)) {
                        size += rkmessage->len + rkmessage->key_len;
                        rows++;
                        rkmessages[kept++] = rkmessage;
                } else {
                        rd_kafka_message_destroy(rkmessage);
                        rkt = NULL;
                }
        }
        ranges->rows += rows;
        ranges->bytes += size;
        *bytes += size;
        return kept;
}

void ck_ranges_catch_up(ck_ranges_t *ranges, rd_kafka_t *rk) {
        rd_kafka_topic_partition_list_t *positions;
        size_t i;
        int j;

        positions = rd_kafka_topic_partition_list_new((int)ranges->left);
        for (i = 0; i < ranges->cnt; i++) {
                ck_range_t *range = &ranges->ranges[i];

                if (range->met && range->next < range->end)
                        rd_kafka_topic_partition_list_add(positions, range->topic,
                                                          range->partition);
        }
        if (positions->cnt && !rd_kafka_position(rk, positions))
                for (j = 0; j < positions->cnt; j++) {
                        const rd_kafka_topic_partition_t *at = &positions->elems[j];
                        ck_range_t *range =
                            ck_ranges_find(ranges, at->topic, at->partition);

                        if (range && !at->err)
                                ck_ranges_advance(ranges, range, at->offset);
                }
        rd_kafka_topic_partition_list_destroy(positions);
}

size_t ck_ranges_step(const ck_ranges_t *ranges, size_t want, size_t room) {
        size_t step = CK_RANGES_FIRST;

        if (ranges->rows)
                step = (size_t)((double)room /
                                ((double)ranges->bytes / (double)ranges->rows + 1)) +
                       1;
        return step < want ? step : want;
}
