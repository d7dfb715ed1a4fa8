/* The half of ck_arrow that builds arrays of consumed messages.
 *
 * Building takes one pass: it reads rows in blocks that fit into the processor's cache,
 * and appends each block to every column. Messages lie in cold memory, so a second pass,
 * for exact sizes, would cost more than growing buffers. Building estimates the final
 * buffer sizes from the mean so far, and the C library grows large buffers without a
 * copy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ck_arrow.h"
#include "ck_utf8.h"

enum {
        CK_ARROW_BLOCK = 128, /* rows */
        CK_ARROW_AHEAD = 8,   /* rows; how far messages are prefetched */
        CK_ARROW_ROUND = 64,  /* bytes; buffer sizes are multiples of this */
        CK_ARROW_BUFFERS = 3, /* the most buffers of an array built here */
};

/* Owned by an array built here: its buffers, and the structs of its children. */
typedef struct ck_arrow_node_s {
        const void *buffers[CK_ARROW_BUFFERS];
        size_t sizes[CK_ARROW_BUFFERS]; /* in bytes, while the array is built */
        struct ArrowArray *pointers[CK_ARROW_NAME__CNT];
        struct ArrowArray arrays[CK_ARROW_NAME__CNT];
} ck_arrow_node_t;

static void ck_arrow_release_array(struct ArrowArray *array) {
        ck_arrow_node_t *node = array->private_data;
        int64_t i;

        for (i = 0; i < array->n_children; i++)
                if (array->children[i]->release)
                        array->children[i]->release(array->children[i]);
        for (i = 0; i < array->n_buffers; i++)
                free((void *)node->buffers[i]);
        free(node);
        array->release = NULL;
}

/* Creates a live array without rows and with n children that are not live yet. Returns 0
 * or ENOMEM. */
static int ck_arrow_new_array(struct ArrowArray *array, int64_t buffers_cnt, size_t n) {
        ck_arrow_node_t *node = calloc(1, sizeof(*node));
        size_t i;

        memset(array, 0, sizeof(*array));
        if (!node)
                return ENOMEM;
        for (i = 0; i < n; i++)
                node->pointers[i] = &node->arrays[i];
        array->n_buffers = buffers_cnt;
        array->buffers = node->buffers;
        array->n_children = (int64_t)n;
        array->children = n ? node->pointers : NULL;
        array->private_data = node;
        array->release = ck_arrow_release_array;
        return 0;
}

/* Buffer i, grown to at least `size` bytes; NULL if memory is short. */
static void *ck_arrow_room(struct ArrowArray *array, int i, size_t size) {
        ck_arrow_node_t *node = array->private_data;
        void *grown;

        if (node->sizes[i] >= size && node->buffers[i])
                return (void *)node->buffers[i];
        size = (size / CK_ARROW_ROUND + 1) * CK_ARROW_ROUND;
        grown = realloc((void *)node->buffers[i], size);
        if (!grown)
                return NULL;
        node->buffers[i] = grown;
        node->sizes[i] = size;
        return grown;
}

/* Like ck_arrow_room(), for a buffer that grows with the rows: it needs `size` bytes now,
 * after `done` of cnt rows. */
static void *ck_arrow_grow(struct ArrowArray *array, int i, size_t size, size_t done,
                           size_t cnt) {
        const ck_arrow_node_t *node = array->private_data;
        double guess = (double)size * 1.0625 * (double)cnt / (double)(done ? done : 1);
        size_t least = node->sizes[i] + node->sizes[i] / 2;
        void *room;

        if (node->sizes[i] >= size && node->buffers[i])
                return (void *)node->buffers[i];
        /* Columns end at this size, except in tests, which lift the limit. */
        if (guess > (double)CK_ARROW_MAX_BYTES)
                guess = (double)CK_ARROW_MAX_BYTES;
        if ((double)least < guess)
                least = (size_t)guess;
        room = least > size ? ck_arrow_room(array, i, least) : NULL;
        return room ? room : ck_arrow_room(array, i, size);
}

/* A bitmap of at least cnt rows, with new bits set to one; NULL if memory is short. */
static uint8_t *ck_arrow_bitmap(struct ArrowArray *array, size_t cnt) {
        const ck_arrow_node_t *node = array->private_data;
        size_t before = node->sizes[0];
        uint8_t *validity = ck_arrow_room(array, 0, cnt / 8 + 1);

        if (validity)
                memset(validity + before, 0xff, node->sizes[0] - before);
        return validity;
}

/* Sets row i to null; the array will have cnt rows. Returns 0 or ENOMEM. */
static int ck_arrow_set_null(struct ArrowArray *array, size_t i, size_t cnt) {
        uint8_t *validity = ck_arrow_bitmap(array, cnt);

        if (!validity)
                return ENOMEM;
        validity[i >> 3] &= (uint8_t)~(1U << (i & 7));
        array->null_count++;
        return 0;
}

/* Rows on their way from the batch into the columns. */
typedef struct ck_arrow_block_s {
        size_t cnt;
        size_t done; /* rows before it */
        size_t all;  /* rows there will be at most */
        ck_row_t rows[CK_ARROW_BLOCK];
        size_t topic_lens[CK_ARROW_BLOCK];
        rd_kafka_headers_t *headers[CK_ARROW_BLOCK];
} ck_arrow_block_t;

/* The number of bytes (of headers: also the number of headers) in the columns, or with
 * one more row. */
typedef struct ck_arrow_totals_s {
        size_t key;
        size_t value;
        size_t topic;
        size_t headers;
        size_t header_names;
        size_t header_values;
} ck_arrow_totals_t;

static bool ck_arrow_fit(const ck_arrow_totals_t *totals, unsigned wanted, size_t most) {
        return (!(wanted & 1U << CK_ARROW_KEY) || totals->key <= most) &&
               (!(wanted & 1U << CK_ARROW_VALUE) || totals->value <= most) &&
               (!(wanted & 1U << CK_ARROW_TOPIC) || totals->topic <= most) &&
               totals->headers <= most && totals->header_names <= most &&
               totals->header_values <= most;
}

/* Writes a name as UTF-8 if `into` is not NULL. Returns its length in UTF-8. Header names
 * should be UTF-8, but librdkafka does not check them. Replaces invalid bytes as Python's
 * decoder does with "replace". */
static size_t ck_arrow_utf8(const char *name, char *into) {
        const uint8_t *p = (const uint8_t *)name;
        const uint8_t *end = p + strlen(name);
        size_t length = 0;

        while (p < end) {
                int step = ck_utf8_step(p, end);
                const void *from = step > 0 ? (const void *)p : "\xef\xbf\xbd";
                size_t size = step > 0 ? (size_t)step : 3;

                if (into)
                        memcpy(into + length, from, size);
                length += size;
                p += step > 0 ? step : -step;
        }
        return length;
}

static void ck_arrow_count_headers(const rd_kafka_headers_t *headers,
                                   ck_arrow_totals_t *totals) {
        const char *name;
        const void *value;
        size_t size, i;

        if (!headers)
                return;
        for (i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
                totals->header_names += ck_arrow_utf8(name, NULL);
                totals->header_values += value ? size : 0;
        }
        totals->headers += i;
}

/* Takes rows from place `at` of the batch until the block is full, no row is left, or one
 * does not fit. */
static void ck_arrow_take(const ck_batch_t *batch, int64_t at, ptrdiff_t step,
                          unsigned wanted, size_t most, ck_arrow_totals_t *totals,
                          ck_arrow_block_t *block) {
        size_t want = block->all - block->done;
        const char *topic = NULL;
        size_t topic_len = 0;
        size_t i;

        if (want > CK_ARROW_BLOCK)
                want = CK_ARROW_BLOCK;
        for (i = 0; i < want; i++, at += step) {
                ck_row_t *row = &block->rows[i];
                ck_arrow_totals_t with = *totals;

                if (batch->rkmessages && i + CK_ARROW_AHEAD < want)
                        __builtin_prefetch(batch->rkmessages[(int64_t)batch->head + at +
                                                             CK_ARROW_AHEAD * step]);
                ck_batch_row(batch, (size_t)at, row);
                if (row->topic != topic) {
                        topic = row->topic;
                        topic_len = topic ? strlen(topic) : 0;
                }
                block->topic_lens[i] = topic_len;
                with.key += row->key ? row->key_len : 0;
                with.value += row->value ? row->value_len : 0;
                with.topic += topic_len;
                if (wanted & 1U << CK_ARROW_HEADERS) {
                        block->headers[i] = ck_batch_headers(batch, (size_t)at);
                        ck_arrow_count_headers(block->headers[i], &with);
                }
                if (!ck_arrow_fit(&with, wanted, most))
                        break;
                *totals = with;
        }
        block->cnt = i;
}

/* Appends keys, values or topics; the column then has `total` bytes. */
static inline int ck_arrow_put_bytes(struct ArrowArray *array,
                                     const ck_arrow_block_t *block, ck_arrow_name_t name,
                                     size_t total) {
        int32_t *offsets = ck_arrow_room(array, 1, (block->all + 1) * sizeof(*offsets));
        char *data = ck_arrow_grow(array, 2, total, block->done + block->cnt, block->all);
        size_t used, i;

        if (!offsets || !data)
                return ENOMEM;
        offsets += block->done;
        used = (size_t)offsets[0];
        for (i = 0; i < block->cnt; i++) {
                const ck_row_t *row = &block->rows[i];
                const void *ptr = name == CK_ARROW_KEY     ? row->key
                                  : name == CK_ARROW_VALUE ? row->value
                                                           : row->topic;
                size_t len = name == CK_ARROW_KEY     ? row->key_len
                             : name == CK_ARROW_VALUE ? row->value_len
                                                      : block->topic_lens[i];

                if (ptr) {
                        memcpy(data + used, ptr, len);
                        used += len;
                } else if (ck_arrow_set_null(array, block->done + i, block->all))
                        return ENOMEM;
                offsets[i + 1] = (int32_t)used;
        }
        return 0;
}

/* Appends partitions or timestamp types. */
static inline int ck_arrow_put_int32(struct ArrowArray *array,
                                     const ck_arrow_block_t *block,
                                     ck_arrow_name_t name) {
        int32_t *numbers = ck_arrow_room(array, 1, block->all * sizeof(*numbers));
        size_t i;

        if (!numbers)
                return ENOMEM;
        numbers += block->done;
        for (i = 0; i < block->cnt; i++) {
                const ck_row_t *row = &block->rows[i];

                if (name == CK_ARROW_PARTITION)
                        numbers[i] = row->partition;
                else if (name == CK_ARROW_DELIVERY_COUNT)
                        numbers[i] = row->delivery_count;
                else
                        numbers[i] =
                            row->timestamp_type - (int32_t)RD_KAFKA_TIMESTAMP_CREATE_TIME;
        }
        return 0;
}

/* Appends offsets or timestamps. A timestamp out of Arrow's range becomes null. */
static inline int ck_arrow_put_int64(struct ArrowArray *array,
                                     const ck_arrow_block_t *block,
                                     ck_arrow_name_t name) {
        int64_t *numbers = ck_arrow_room(array, 1, block->all * sizeof(*numbers));
        size_t i;

        if (!numbers)
                return ENOMEM;
        numbers += block->done;
        for (i = 0; i < block->cnt; i++) {
                const ck_row_t *row = &block->rows[i];

                if (name == CK_ARROW_OFFSET) {
                        numbers[i] = row->offset;
                } else if (row->timestamp_type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE ||
                           row->timestamp == -1 ||
                           __builtin_mul_overflow(row->timestamp, 1000, &numbers[i])) {
                        numbers[i] = 0;
                        if (ck_arrow_set_null(array, block->done + i, block->all))
                                return ENOMEM;
                }
        }
        return 0;
}

/* Appends headers; the column then has totals->headers of them. */
static int ck_arrow_put_headers(struct ArrowArray *array, const ck_arrow_block_t *block,
                                const ck_arrow_totals_t *totals) {
        struct ArrowArray *pairs = array->children[0];
        struct ArrowArray *keys = pairs->children[0];
        struct ArrowArray *values = pairs->children[1];
        size_t done = block->done + block->cnt;
        size_t offsets_size = (totals->headers + 1) * sizeof(int32_t);
        int32_t *starts = ck_arrow_room(array, 1, (block->all + 1) * sizeof(int32_t));
        int32_t *key_ends = ck_arrow_grow(keys, 1, offsets_size, done, block->all);
        int32_t *value_ends = ck_arrow_grow(values, 1, offsets_size, done, block->all);
        char *key_data = ck_arrow_grow(keys, 2, totals->header_names, done, block->all);
        char *value_data =
            ck_arrow_grow(values, 2, totals->header_values, done, block->all);
        size_t at, i, j;

        if (!starts || !key_ends || !value_ends || !key_data || !value_data ||
            (values->null_count && !ck_arrow_bitmap(values, totals->headers)))
                return ENOMEM;
        starts += block->done;
        at = (size_t)starts[0];
        for (i = 0; i < block->cnt; i++) {
                const rd_kafka_headers_t *headers = block->headers[i];
                const char *name;
                const void *value;
                size_t size;

                if (!headers && ck_arrow_set_null(array, block->done + i, block->all))
                        return ENOMEM;
                for (j = 0; headers &&
                            !rd_kafka_header_get_all(headers, j, &name, &value, &size);
                     j++, at++) {
                        key_ends[at + 1] =
                            key_ends[at] +
                            (int32_t)ck_arrow_utf8(name, key_data + key_ends[at]);
                        value_ends[at + 1] = value_ends[at] + (value ? (int32_t)size : 0);
                        if (value)
                                memcpy(value_data + value_ends[at], value, size);
                        else if (ck_arrow_set_null(values, at, totals->headers))
                                return ENOMEM;
                }
                starts[i + 1] = (int32_t)at;
        }
        pairs->length = keys->length = values->length = (int64_t)at;
        return 0;
}

/* Writes the first offset, zero. */
static int ck_arrow_start(struct ArrowArray *array, size_t rows) {
        int32_t *offsets = ck_arrow_room(array, 1, (rows + 1) * sizeof(*offsets));

        if (!offsets)
                return ENOMEM;
        offsets[0] = 0;
        return 0;
}

/* Creates the array of one column, without rows. */
static int ck_arrow_begin(struct ArrowArray *array, ck_arrow_name_t name, size_t all) {
        switch (name) {
        case CK_ARROW_KEY:
        case CK_ARROW_VALUE:
        case CK_ARROW_TOPIC:
                if (ck_arrow_new_array(array, 3, 0) || !ck_arrow_room(array, 2, 1))
                        return ENOMEM;
                return ck_arrow_start(array, all);
        case CK_ARROW_HEADERS: {
                struct ArrowArray *pairs;

                if (ck_arrow_new_array(array, 2, 1) || ck_arrow_start(array, all))
                        return ENOMEM;
                pairs = array->children[0];
                if (ck_arrow_new_array(pairs, 1, 2) ||
                    ck_arrow_begin(pairs->children[0], CK_ARROW_KEY, 0))
                        return ENOMEM;
                return ck_arrow_begin(pairs->children[1], CK_ARROW_VALUE, 0);
        }
        default:
                if (ck_arrow_new_array(array, 2, 0) || !ck_arrow_room(array, 1, 1))
                        return ENOMEM;
                return 0;
        }
}

static int ck_arrow_put(struct ArrowArray *array, ck_arrow_name_t name,
                        const ck_arrow_block_t *block, const ck_arrow_totals_t *totals) {
        array->length = (int64_t)(block->done + block->cnt);
        switch (name) {
        case CK_ARROW_KEY:
                return ck_arrow_put_bytes(array, block, CK_ARROW_KEY, totals->key);
        case CK_ARROW_VALUE:
                return ck_arrow_put_bytes(array, block, CK_ARROW_VALUE, totals->value);
        case CK_ARROW_TOPIC:
                return ck_arrow_put_bytes(array, block, CK_ARROW_TOPIC, totals->topic);
        case CK_ARROW_PARTITION:
                return ck_arrow_put_int32(array, block, CK_ARROW_PARTITION);
        case CK_ARROW_TIMESTAMP_TYPE:
                return ck_arrow_put_int32(array, block, CK_ARROW_TIMESTAMP_TYPE);
        case CK_ARROW_DELIVERY_COUNT:
                return ck_arrow_put_int32(array, block, CK_ARROW_DELIVERY_COUNT);
        case CK_ARROW_OFFSET:
                return ck_arrow_put_int64(array, block, CK_ARROW_OFFSET);
        case CK_ARROW_TIMESTAMP:
                return ck_arrow_put_int64(array, block, CK_ARROW_TIMESTAMP);
        default:
                return ck_arrow_put_headers(array, block, totals);
        }
}

int ck_arrow_build(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                   const ck_arrow_name_t *names, size_t names_cnt, size_t max_bytes,
                   size_t *built, struct ArrowArray *out) {
        ck_arrow_totals_t totals = {0};
        ck_arrow_block_t block;
        unsigned wanted = 0;
        size_t i;

        block.done = 0;
        block.all = cnt;
        if (ck_arrow_new_array(out, 1, names_cnt))
                return ENOMEM;
        for (i = 0; i < names_cnt; i++) {
                wanted |= 1U << names[i];
                if (ck_arrow_begin(out->children[i], names[i], cnt))
                        goto fail;
        }
        while (block.done < cnt) {
                size_t left = cnt - block.done;

                ck_arrow_take(batch, (int64_t)start + (int64_t)block.done * step, step,
                              wanted, max_bytes, &totals, &block);
                for (i = 0; i < names_cnt; i++)
                        if (ck_arrow_put(out->children[i], names[i], &block, &totals))
                                goto fail;
                block.done += block.cnt;
                if (block.cnt < left && block.cnt < CK_ARROW_BLOCK)
                        break; /* a row did not fit */
        }
        out->length = (int64_t)block.done;
        *built = block.done;
        return 0;
fail:
        out->release(out);
        return ENOMEM;
}
