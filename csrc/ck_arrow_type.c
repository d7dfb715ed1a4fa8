/* The types of the arrays that ck_arrow builds, and the stream that returns them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ck_arrow.h"

static const struct ck_arrow_type_s {
        const char *name;
        const char *format;
} ck_arrow_types[CK_ARROW_NAME__CNT] = {
    [CK_ARROW_KEY] = {"key", "z"},
    [CK_ARROW_VALUE] = {"value", "z"},
    [CK_ARROW_TOPIC] = {"topic", "u"},
    [CK_ARROW_PARTITION] = {"partition", "i"},
    [CK_ARROW_OFFSET] = {"offset", "l"},
    [CK_ARROW_TIMESTAMP] = {"timestamp", "tsu:UTC"},
    [CK_ARROW_TIMESTAMP_TYPE] = {"timestampType", "i"},
    [CK_ARROW_HEADERS] = {"headers", "+l"},
    [CK_ARROW_DELIVERY_COUNT] = {"deliveryCount", "i"},
};

const char *ck_arrow_name(ck_arrow_name_t name) {
        return ck_arrow_types[name].name;
}

/* A schema's children: the structs, which the receiver may move away one by one, and
 * pointers to them. */
typedef struct ck_arrow_schemas_s {
        struct ArrowSchema *pointers[CK_ARROW_NAME__CNT];
        struct ArrowSchema schemas[CK_ARROW_NAME__CNT];
} ck_arrow_schemas_t;

static void ck_arrow_release_schema(struct ArrowSchema *schema) {
        int64_t i;

        for (i = 0; i < schema->n_children; i++)
                if (schema->children[i]->release)
                        schema->children[i]->release(schema->children[i]);
        free(schema->private_data);
        schema->release = NULL;
}

/* Creates a live schema with n children that are not live yet. Returns 0 or ENOMEM. */
static int ck_arrow_new_schema(struct ArrowSchema *schema, const char *name,
                               const char *format, size_t n) {
        ck_arrow_schemas_t *children = NULL;
        size_t i;

        memset(schema, 0, sizeof(*schema));
        if (n) {
                children = calloc(1, sizeof(*children));
                if (!children)
                        return ENOMEM;
                for (i = 0; i < n; i++)
                        children->pointers[i] = &children->schemas[i];
                schema->children = children->pointers;
        }
        schema->format = format;
        schema->name = name;
        schema->flags = ARROW_FLAG_NULLABLE;
        schema->n_children = (int64_t)n;
        schema->private_data = children;
        schema->release = ck_arrow_release_schema;
        return 0;
}

static int ck_arrow_headers_schema(struct ArrowSchema *list) {
        struct ArrowSchema *pair = list->children[0];

        if (ck_arrow_new_schema(pair, "element", "+s", 2) ||
            ck_arrow_new_schema(pair->children[0], "key", "u", 0) ||
            ck_arrow_new_schema(pair->children[1], "value", "z", 0))
                return ENOMEM;
        return 0;
}

int ck_arrow_schema(const ck_arrow_name_t *names, size_t names_cnt,
                    struct ArrowSchema *out) {
        size_t i;

        if (ck_arrow_new_schema(out, "", "+s", names_cnt))
                return ENOMEM;
        /* Not nullable: a batch has no null rows. */
        out->flags = 0;
        for (i = 0; i < names_cnt; i++) {
                struct ArrowSchema *child = out->children[i];
                bool headers = names[i] == CK_ARROW_HEADERS;

                if (ck_arrow_new_schema(child, ck_arrow_types[names[i]].name,
                                        ck_arrow_types[names[i]].format, headers) ||
                    (headers && ck_arrow_headers_schema(child))) {
                        out->release(out);
                        return ENOMEM;
                }
        }
        return 0;
}

/* A stream of finished arrays. */
typedef struct ck_arrow_queue_s {
        ck_arrow_name_t names[CK_ARROW_NAME__CNT];
        size_t names_cnt;
        const char *error;
        struct ArrowArray *arrays;
        size_t cnt;
        size_t next;
} ck_arrow_queue_t;

static int ck_arrow_queue_schema(struct ArrowArrayStream *stream,
                                 struct ArrowSchema *out) {
        ck_arrow_queue_t *queue = stream->private_data;
        int error = ck_arrow_schema(queue->names, queue->names_cnt, out);

        queue->error = error ? "out of memory" : NULL;
        return error;
}

static int ck_arrow_queue_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
        ck_arrow_queue_t *queue = stream->private_data;

        queue->error = NULL;
        memset(out, 0, sizeof(*out)); /* not live: the end */
        if (queue->next < queue->cnt)
                *out = queue->arrays[queue->next++];
        return 0;
}

static const char *ck_arrow_queue_error(struct ArrowArrayStream *stream) {
        return ((const ck_arrow_queue_t *)stream->private_data)->error;
}

static void ck_arrow_queue_destroy(ck_arrow_queue_t *queue) {
        size_t i;

        for (i = queue->next; i < queue->cnt; i++)
                queue->arrays[i].release(&queue->arrays[i]);
        free(queue->arrays);
        free(queue);
}

static void ck_arrow_queue_release(struct ArrowArrayStream *stream) {
        ck_arrow_queue_destroy(stream->private_data);
        stream->release = NULL;
}

int ck_arrow_stream(const ck_batch_t *batch, size_t start, ptrdiff_t step, size_t cnt,
                    const ck_arrow_name_t *names, size_t names_cnt, size_t max_bytes,
                    struct ArrowArrayStream *out) {
        ck_arrow_queue_t *queue = calloc(1, sizeof(*queue));
        size_t done = 0;
        int error = ENOMEM;

        memset(out, 0, sizeof(*out));
        if (!queue)
                return ENOMEM;
        if (names_cnt)
                memcpy(queue->names, names, names_cnt * sizeof(*names));
        queue->names_cnt = names_cnt;
        while (done < cnt) {
                struct ArrowArray *grown =
                    realloc(queue->arrays, (queue->cnt + 1) * sizeof(*grown));
                size_t built;

                if (!grown)
                        goto fail;
                queue->arrays = grown;
                if (ck_arrow_build(batch, (size_t)((int64_t)start + (int64_t)done * step),
                                   step, cnt - done, names, names_cnt, max_bytes, &built,
                                   &grown[queue->cnt]))
                        goto fail;
                queue->cnt++;
                done += built;
                if (!built) {
                        error = EOVERFLOW;
                        goto fail;
                }
        }
        out->get_schema = ck_arrow_queue_schema;
        out->get_next = ck_arrow_queue_next;
        out->get_last_error = ck_arrow_queue_error;
        out->release = ck_arrow_queue_release;
        out->private_data = queue;
        return 0;
fail:
        ck_arrow_queue_destroy(queue);
        return error;
}
