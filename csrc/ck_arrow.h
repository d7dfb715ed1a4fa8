/*
 * ck_arrow: the Arrow C data interface, in both directions. Foreign arrays are read as
 * columns (ck_column.h) without a copy. Consumed messages become arrays that own their
 * buffers.
 *
 * The three structs have the layout of Arrow's specification of the C data and C stream
 * interfaces. A struct is live while its release callback is set. To move a struct, copy
 * it and clear the original's callback.
 *
 * Ownership: reading neither owns nor copies anything; the caller keeps the array live
 * while it reads the columns. A built array belongs to the code that calls its release
 * callback. It does not refer to a batch, a client or a Python object, so any thread may
 * release it at any time, without the GIL. Threads: reading takes no lock. Any number of
 * threads may build arrays of one batch, each with a reference to the batch. The headers
 * column takes the batch's lock once per row.
 *
 * Checked in a foreign array: it is live; it has the expected numbers of buffers and
 * children; offset and length are not negative; a child is as long as its parent
 * requires; required buffers are present; the first and last of the used offsets are
 * within bounds. Trusted, because only the producer knows it or because the check would
 * read every value: the sizes of buffers, that offsets never decrease, that views point
 * into their buffers, and that strings are UTF-8.
 */
#ifndef CK_ARROW_H
#define CK_ARROW_H

#include "ck_batch.h"
#include "ck_column.h"

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
        const char *format;
        const char *name;
        const char *metadata;
        int64_t flags;
        int64_t n_children;
        struct ArrowSchema **children;
        struct ArrowSchema *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
};

struct ArrowArray {
        int64_t length;
        int64_t null_count;
        int64_t offset;
        int64_t n_buffers;
        int64_t n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
        int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
        const char *(*get_last_error)(struct ArrowArrayStream *);
        void (*release)(struct ArrowArrayStream *);
        void *private_data;
};
#endif

/* ---- Reading ---- */

/* Why an array cannot be read. */
typedef enum ck_arrow_result_e {
        CK_ARROW_OK = 0,
        CK_ARROW_TYPE,   /* the type is not supported */
        CK_ARROW_BROKEN, /* the array breaks the interface's rules */
        CK_ARROW_ROW,    /* a row has a value that is not allowed */
        CK_ARROW_WIDEN,  /* no error: unsigned numbers, call ck_arrow_widen() */
} ck_arrow_result_t;

typedef struct ck_arrow_problem_s {
        const char *text;                 /* static, a sentence; NULL for a type */
        const struct ArrowSchema *schema; /* of the part at fault */
        int64_t row;                      /* the first row at fault, or -1 */
} ck_arrow_problem_t;

/* Rows of an array: `length` rows from `first` on, counted in the array's own buffers. To
 * inspect only the type, length is 0 and the array may be NULL. */
typedef struct ck_arrow_view_s {
        const struct ArrowSchema *schema;
        const struct ArrowArray *array;
        int64_t first;
        int64_t length;
} ck_arrow_view_t;

/* A view of all rows of a foreign array. */
CK_EXPORT ck_arrow_result_t ck_arrow_root(const struct ArrowSchema *schema,
                                          const struct ArrowArray *array,
                                          ck_arrow_view_t *view,
                                          ck_arrow_problem_t *problem);

/* The index of the struct's field with this name, which need not end in a NUL. -1: no
 * such field, -2: several. The schema must have passed ck_arrow_root(). */
CK_EXPORT int64_t ck_arrow_find(const struct ArrowSchema *schema, const char *name,
                                size_t len);

/* A view of field i of a struct, with the parent's rows. */
CK_EXPORT ck_arrow_result_t ck_arrow_field(const ck_arrow_view_t *parent, int64_t i,
                                           ck_arrow_view_t *view,
                                           ck_arrow_problem_t *problem);

/* The first row that is null in the view's own bitmap, or -1. */
CK_EXPORT int64_t ck_arrow_first_null(const ck_arrow_view_t *view);

/* Byte strings: binary and string of every layout, fixed_size_binary, null. */
CK_EXPORT ck_arrow_result_t ck_arrow_column(const ck_arrow_view_t *view,
                                            ck_column_t *column,
                                            ck_arrow_problem_t *problem);

/* Integers and, if `times`, timestamps, converted to ms. Leaves numbers->missing
 * unchanged. CK_ARROW_WIDEN: the type is unsigned, and some numbers do not fit into the
 * signed type of the same width; use ck_arrow_widen(). */
CK_EXPORT ck_arrow_result_t ck_arrow_numbers(const ck_arrow_view_t *view, bool times,
                                             ck_numbers_t *numbers,
                                             ck_arrow_problem_t *problem);

/* Writes view->length numbers of an unsigned type of up to 32 bits, `missing` for a null.
 */
CK_EXPORT void ck_arrow_widen(const ck_arrow_view_t *view, int64_t missing,
                              int64_t *into);

/* Lists (list, large_list, map) of name and value; in a list the struct's fields are
 * `key` and `value`. A null list has no pairs. */
CK_EXPORT ck_arrow_result_t ck_arrow_headers(const ck_arrow_view_t *view,
                                             ck_headers_t *headers,
                                             ck_arrow_problem_t *problem);

/* ---- Building ---- */

/* The columns of Spark's Kafka source, with its names and types; and one of share groups,
 * which comes last. */
typedef enum ck_arrow_name_e {
        CK_ARROW_KEY = 0,        /* binary */
        CK_ARROW_VALUE,          /* binary */
        CK_ARROW_TOPIC,          /* string */
        CK_ARROW_PARTITION,      /* int32 */
        CK_ARROW_OFFSET,         /* int64 */
        CK_ARROW_TIMESTAMP,      /* timestamp[us, tz=UTC]; null if not known */
        CK_ARROW_TIMESTAMP_TYPE, /* int32: -1 none, 0 the producer's, 1 the broker's */
        CK_ARROW_HEADERS, /* list<element: struct<key: string, value: binary>>; null if
                             none */
        CK_ARROW_DELIVERY_COUNT, /* int32: of a share group, or -1 */
        CK_ARROW_NAME__CNT
} ck_arrow_name_t;

/* The most bytes a column without 64-bit offsets can hold. */
#define CK_ARROW_MAX_BYTES ((size_t)INT32_MAX)

/* The name of a column, static. */
CK_EXPORT const char *ck_arrow_name(ck_arrow_name_t name);

/* Writes the struct type with these columns (at most CK_ARROW_NAME__CNT), all nullable.
 * Returns 0, or ENOMEM and leaves *out not live. */
CK_EXPORT int ck_arrow_schema(const ck_arrow_name_t *names, size_t names_cnt,
                              struct ArrowSchema *out);

/* Copies the messages start, start + step, ... of a batch (at most cnt, indexed as in
 * ck_batch_row()) into an array, as long as every column stays within max_bytes. *built
 * is the number of messages copied; it is 0 only if a single message is too big. Returns
 * 0, or ENOMEM and leaves *out not live. */
CK_EXPORT int ck_arrow_build(const ck_batch_t *batch, size_t start, ptrdiff_t step,
                             size_t cnt, const ck_arrow_name_t *names, size_t names_cnt,
                             size_t max_bytes, size_t *built, struct ArrowArray *out);

/* Like ck_arrow_build(), but creates a stream of as many arrays as necessary. Builds all
 * of them now, so that the caller may release the batch. Returns 0, ENOMEM, or EOVERFLOW
 * if a single message is too big. After an error *out is not live. */
CK_EXPORT int ck_arrow_stream(const ck_batch_t *batch, size_t start, ptrdiff_t step,
                              size_t cnt, const ck_arrow_name_t *names, size_t names_cnt,
                              size_t max_bytes, struct ArrowArrayStream *out);

#endif
