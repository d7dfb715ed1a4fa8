/* The half of ck_arrow that reads foreign arrays. */
#include <stdlib.h>
#include <string.h>

#include "ck_arrow.h"

static ck_arrow_result_t ck_arrow_fault(ck_arrow_problem_t *problem,
                                        ck_arrow_result_t result,
                                        const ck_arrow_view_t *view, const char *text,
                                        int64_t row) {
        problem->text = text;
        problem->schema = view->schema;
        problem->row = row;
        return result;
}

static ck_arrow_result_t ck_arrow_broken(ck_arrow_problem_t *problem,
                                         const ck_arrow_view_t *view, const char *text) {
        return ck_arrow_fault(problem, CK_ARROW_BROKEN, view, text, -1);
}

/* The checks that apply to arrays of every type. */
static ck_arrow_result_t ck_arrow_check(const ck_arrow_view_t *view,
                                        ck_arrow_problem_t *problem) {
        const struct ArrowSchema *schema = view->schema;
        const struct ArrowArray *array = view->array;

        if (!schema->release || !array->release)
                return ck_arrow_broken(problem, view, "it was released or moved");
        if (!schema->format)
                return ck_arrow_broken(problem, view, "its type is missing");
        if (array->length < 0 || array->offset < 0 ||
            array->length > INT64_MAX / 32 - array->offset)
                return ck_arrow_broken(problem, view,
                                       "its length or offset is out of range");
        if (schema->n_children < 0 || schema->n_children != array->n_children ||
            (schema->n_children && (!schema->children || !array->children)))
                return ck_arrow_broken(problem, view,
                                       "its children do not match its type");
        if (array->n_buffers < 0 || (array->n_buffers && !array->buffers))
                return ck_arrow_broken(problem, view, "its buffers are missing");
        return CK_ARROW_OK;
}

ck_arrow_result_t ck_arrow_root(const struct ArrowSchema *schema,
                                const struct ArrowArray *array, ck_arrow_view_t *view,
                                ck_arrow_problem_t *problem) {
        ck_arrow_view_t all = {schema, array, array->offset, array->length};

        *view = all;
        return ck_arrow_check(view, problem);
}

int64_t ck_arrow_find(const struct ArrowSchema *schema, const char *name, size_t len) {
        int64_t found = -1;
        int64_t i;

        for (i = 0; i < schema->n_children; i++) {
                const struct ArrowSchema *child = schema->children[i];
                const char *its = child && child->name ? child->name : "";

                if (!child || strlen(its) != len || memcmp(its, name, len) != 0)
                        continue;
                if (found >= 0)
                        return -2;
                found = i;
        }
        return found;
}

/* A child array. Row `first` of the parent is row `first` plus the child's own offset. */
static ck_arrow_result_t ck_arrow_child(const ck_arrow_view_t *parent, int64_t i,
                                        int64_t first, int64_t length,
                                        ck_arrow_view_t *view,
                                        ck_arrow_problem_t *problem) {
        ck_arrow_result_t result;

        view->schema = parent->schema->children[i];
        view->array = parent->array->children[i];
        if (!view->schema || !view->array)
                return ck_arrow_broken(problem, parent, "one of its children is missing");
        result = ck_arrow_check(view, problem);
        if (result)
                return result;
        if (first > view->array->length || length > view->array->length - first)
                return ck_arrow_broken(problem, view,
                                       "it has fewer rows than its parent array");
        view->first = view->array->offset + first;
        view->length = length;
        return CK_ARROW_OK;
}

ck_arrow_result_t ck_arrow_field(const ck_arrow_view_t *parent, int64_t i,
                                 ck_arrow_view_t *view, ck_arrow_problem_t *problem) {
        return ck_arrow_child(parent, i, parent->first, parent->length, view, problem);
}

/* The bitmap; NULL: no nulls. The number of buffers must have been checked. */
static const uint8_t *ck_arrow_validity(const ck_arrow_view_t *view) {
        if (view->array->null_count == 0 || view->array->n_buffers < 1)
                return NULL;
        return view->array->buffers[0];
}

/* The first null among rows [from, to) of a bitmap, or -1. */
static int64_t ck_arrow_null_between(const uint8_t *validity, int64_t from, int64_t to) {
        int64_t i = from;

        if (!validity)
                return -1;
        while (i < to) {
                if (!(i & 7) && to - i >= 8 && validity[i >> 3] == 0xff) {
                        i += 8;
                        continue;
                }
                if (!ck_column_valid(validity, i))
                        return i;
                i++;
        }
        return -1;
}

int64_t ck_arrow_first_null(const ck_arrow_view_t *view) {
        int64_t at = ck_arrow_null_between(ck_arrow_validity(view), view->first,
                                           view->first + view->length);

        return at < 0 ? -1 : at - view->first;
}

/* Checks the number of buffers, and that an array with nulls has a bitmap. */
static ck_arrow_result_t ck_arrow_buffers(const ck_arrow_view_t *view, int64_t least,
                                          bool more, ck_arrow_problem_t *problem) {
        const struct ArrowArray *array = view->array;

        if (more ? array->n_buffers < least : array->n_buffers != least)
                return ck_arrow_broken(problem, view,
                                       "its number of buffers does not match its type");
        if (array->null_count > 0 && !array->buffers[0])
                return ck_arrow_broken(problem, view,
                                       "it has nulls but no validity bitmap");
        return CK_ARROW_OK;
}

/* Reads the first and the last of n offsets of 4 or 8 bytes. Checks that they are within
 * 0 and `most`, if `most` is known. */
static ck_arrow_result_t ck_arrow_bounds(const ck_arrow_view_t *view, bool large,
                                         int64_t most, int64_t *begin, int64_t *end,
                                         ck_arrow_problem_t *problem) {
        const void *offsets = view->array->buffers[1];
        int64_t last = view->first + view->length;

        if (!offsets || (uintptr_t)offsets % (large ? sizeof(int64_t) : sizeof(int32_t)))
                return ck_arrow_broken(problem, view,
                                       "its offsets are missing or not aligned");
        *begin = large ? ((const int64_t *)offsets)[view->first]
                       : ((const int32_t *)offsets)[view->first];
        *end =
            large ? ((const int64_t *)offsets)[last] : ((const int32_t *)offsets)[last];
        if (*begin < 0 || *end < *begin || *end > most)
                return ck_arrow_broken(problem, view, "its offsets are out of bounds");
        return CK_ARROW_OK;
}

static ck_arrow_result_t ck_arrow_offsets(const ck_arrow_view_t *view, bool large,
                                          ck_column_t *column,
                                          ck_arrow_problem_t *problem) {
        const char *data;
        int64_t begin, end;
        ck_arrow_result_t result = ck_arrow_buffers(view, 3, false, problem);

        if (!result)
                result = ck_arrow_bounds(view, large, INT64_MAX, &begin, &end, problem);
        if (result)
                return result;
        data = view->array->buffers[2];
        if (!data && end)
                return ck_arrow_broken(problem, view, "its data is missing");
        if (!data)
                data = "";
        if (large) {
                column->kind = CK_COLUMN_OFFSETS64;
                column->u.offsets64.offsets = view->array->buffers[1];
                column->u.offsets64.data = data;
        } else {
                column->kind = CK_COLUMN_OFFSETS32;
                column->u.offsets32.offsets = view->array->buffers[1];
                column->u.offsets32.data = data;
        }
        return CK_ARROW_OK;
}

static ck_arrow_result_t ck_arrow_fixed(const ck_arrow_view_t *view, ck_column_t *column,
                                        ck_arrow_problem_t *problem) {
        char *end;
        long width = strtol(view->schema->format + 2, &end, 10);
        const char *base;
        ck_arrow_result_t result = ck_arrow_buffers(view, 2, false, problem);

        if (result)
                return result;
        base = view->array->buffers[1];
        if (end == view->schema->format + 2 || *end || width < 0 || width > INT32_MAX)
                return ck_arrow_broken(problem, view, "its type has no width");
        if (!base && width)
                return ck_arrow_broken(problem, view, "its data is missing");
        column->kind = CK_COLUMN_FIXED;
        column->u.fixed.base = base ? base : "";
        column->u.fixed.stride = width;
        column->u.fixed.width = (size_t)width;
        return CK_ARROW_OK;
}

static ck_arrow_result_t ck_arrow_views(const ck_arrow_view_t *view, ck_column_t *column,
                                        ck_arrow_problem_t *problem) {
        /* The bitmap, the views, their buffers, and the sizes of these buffers. */
        ck_arrow_result_t result = ck_arrow_buffers(view, 3, true, problem);

        if (result)
                return result;
        if (!view->array->buffers[1] ||
            (uintptr_t)view->array->buffers[1] % sizeof(int32_t))
                return ck_arrow_broken(problem, view,
                                       "its views are missing or not aligned");
        column->kind = CK_COLUMN_VIEWS;
        column->u.views.views = view->array->buffers[1];
        column->u.views.buffers = view->array->buffers + 2;
        return CK_ARROW_OK;
}

/* How the byte strings of a type are laid out; -1 for types of other values. */
static int ck_arrow_kind(const struct ArrowSchema *schema) {
        static const struct {
                char format[4];
                ck_column_kind_t kind;
        } kinds[] = {
            {"n", CK_COLUMN_NONE},      {"z", CK_COLUMN_OFFSETS32},
            {"u", CK_COLUMN_OFFSETS32}, {"Z", CK_COLUMN_OFFSETS64},
            {"U", CK_COLUMN_OFFSETS64}, {"vz", CK_COLUMN_VIEWS},
            {"vu", CK_COLUMN_VIEWS},
        };
        size_t i;

        if (!schema || !schema->format || schema->dictionary)
                return -1;
        if (!strncmp(schema->format, "w:", 2))
                return CK_COLUMN_FIXED;
        for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
                if (!strcmp(schema->format, kinds[i].format))
                        return (int)kinds[i].kind;
        return -1;
}

ck_arrow_result_t ck_arrow_column(const ck_arrow_view_t *view, ck_column_t *column,
                                  ck_arrow_problem_t *problem) {
        int kind = ck_arrow_kind(view->schema);
        ck_arrow_result_t result;

        memset(column, 0, sizeof(*column)); /* CK_COLUMN_NONE */
        if (kind < 0)
                return ck_arrow_fault(problem, CK_ARROW_TYPE, view, NULL, -1);
        if (kind == CK_COLUMN_NONE || !view->length)
                return CK_ARROW_OK; /* empty buffers may be missing */
        if (kind == CK_COLUMN_FIXED)
                result = ck_arrow_fixed(view, column, problem);
        else if (kind == CK_COLUMN_VIEWS)
                result = ck_arrow_views(view, column, problem);
        else
                result =
                    ck_arrow_offsets(view, kind == CK_COLUMN_OFFSETS64, column, problem);
        if (result)
                return result;
        column->validity = ck_arrow_validity(view);
        column->first = view->first;
        return CK_ARROW_OK;
}

/* The first valid row whose number would be negative if it were read as signed, or -1. */
static int64_t ck_arrow_first_beyond(const ck_numbers_t *numbers, int64_t length) {
        ck_numbers_t valid = *numbers;
        int64_t i;

        valid.missing = 0;
        for (i = 0; i < length; i++)
                if (ck_numbers_get(&valid, (size_t)i) < 0)
                        return i;
        return -1;
}

/* The width of an integer's or timestamp's format in bytes, 0 for others. */
static int ck_arrow_width(const char *format, bool times) {
        static const char formats[] = "cCsSiIlL";
        const char *place;

        if (format[0] && !format[1] && (place = strchr(formats, format[0])))
                return 1 << ((place - formats) / 2);
        if (times && !strncmp(format, "ts", 2) && format[2] &&
            strchr("smun", format[2]) && format[3] == ':')
                return 8;
        return 0;
}

ck_arrow_result_t ck_arrow_numbers(const ck_arrow_view_t *view, bool times,
                                   ck_numbers_t *numbers, ck_arrow_problem_t *problem) {
        const char *format = view->schema->format;
        int64_t missing = numbers->missing;
        int64_t beyond;
        ck_arrow_result_t result;
        int width;

        memset(numbers, 0, sizeof(*numbers));
        numbers->missing = missing;
        if (view->schema->dictionary)
                return ck_arrow_fault(problem, CK_ARROW_TYPE, view, NULL, -1);
        if (!strcmp(format, "n"))
                return CK_ARROW_OK;
        width = ck_arrow_width(format, times);
        if (!width)
                return ck_arrow_fault(problem, CK_ARROW_TYPE, view, NULL, -1);
        if (!view->length)
                return CK_ARROW_OK;
        result = ck_arrow_buffers(view, 2, false, problem);
        if (result)
                return result;
        numbers->base = view->array->buffers[1];
        if (!numbers->base)
                return ck_arrow_broken(problem, view, "its data is missing");
        numbers->width = width;
        numbers->stride = width;
        numbers->validity = ck_arrow_validity(view);
        numbers->first = view->first;
        if (format[0] == 't') {
                numbers->multiply = format[2] == 's' ? 1000 : 0;
                numbers->divide = format[2] == 'u'   ? 1000
                                  : format[2] == 'n' ? 1000000
                                                     : 0;
        } else if (format[0] < 'a') { /* capital letters are unsigned */
                beyond = ck_arrow_first_beyond(numbers, view->length);
                if (beyond >= 0)
                        return ck_arrow_fault(
                            problem, width < 8 ? CK_ARROW_WIDEN : CK_ARROW_ROW, view,
                            "the number is too large for an int64", beyond);
        }
        return CK_ARROW_OK;
}

void ck_arrow_widen(const ck_arrow_view_t *view, int64_t missing, int64_t *into) {
        int width = ck_arrow_width(view->schema->format, false);
        const uint8_t *validity = ck_arrow_validity(view);
        ck_numbers_t numbers = {.width = width,
                                .base = view->array->buffers[1],
                                .stride = width,
                                .first = view->first};
        int64_t mask = ((int64_t)1 << width * 8) - 1;
        int64_t i;

        for (i = 0; i < view->length; i++)
                into[i] = ck_column_valid(validity, view->first + i)
                              ? ck_numbers_get(&numbers, (size_t)i) & mask
                              : missing;
}

/* The first record with a null header, or -1. Reads the bitmap of the pairs or of their
 * names, whose bit `first` belongs to pair 0. With `all`, every pair is null. Ignores the
 * pairs of a null list. */
static int64_t ck_arrow_null_header(const ck_headers_t *headers, int64_t length, bool all,
                                    const uint8_t *validity, int64_t first) {
        int64_t begin, end, i;

        for (i = 0; (all || validity) && i < length; i++) {
                ck_headers_pairs(headers, (size_t)i, &begin, &end);
                if (all ? end > begin
                        : ck_arrow_null_between(validity, first + begin, first + end) >=
                              0)
                        return i;
        }
        return -1;
}

/* The first record with a header whose name contains a NUL (C would end there), or -1. */
static int64_t ck_arrow_nul_in_name(const ck_headers_t *headers, int64_t length) {
        int64_t begin, end, i;

        for (i = 0; i < length; i++)
                for (ck_headers_pairs(headers, (size_t)i, &begin, &end); begin < end;
                     begin++) {
                        ck_bytes_t name = ck_column_get(&headers->keys, (size_t)begin);
                        if (memchr(name.ptr, '\0', name.len))
                                return i;
                }
        return -1;
}

/* Whether a type can hold headers. Writes the indexes of name and value in a pair. */
static bool ck_arrow_are_headers(const struct ArrowSchema *schema, int64_t *key,
                                 int64_t *value) {
        bool map = !strcmp(schema->format, "+m");
        const struct ArrowSchema *pair;

        if (schema->dictionary || schema->n_children != 1 || !schema->children ||
            (!map && strcmp(schema->format, "+l") != 0 &&
             strcmp(schema->format, "+L") != 0))
                return false;
        pair = schema->children[0];
        if (!pair || !pair->format || strcmp(pair->format, "+s") != 0 ||
            pair->dictionary || pair->n_children < 2 || !pair->children)
                return false;
        *key = map ? 0 : ck_arrow_find(pair, "key", 3);
        *value = map ? 1 : ck_arrow_find(pair, "value", 5);
        return *key >= 0 && *value >= 0 && ck_arrow_kind(pair->children[*key]) >= 0 &&
               ck_arrow_kind(pair->children[*value]) >= 0;
}

ck_arrow_result_t ck_arrow_headers(const ck_arrow_view_t *view, ck_headers_t *headers,
                                   ck_arrow_problem_t *problem) {
        bool large = !strcmp(view->schema->format, "+L");
        ck_arrow_view_t pairs, names, values;
        int64_t begin, end, key, value, row;
        ck_arrow_result_t result;

        memset(headers, 0, sizeof(*headers));
        if (!strcmp(view->schema->format, "n") && !view->schema->dictionary)
                return CK_ARROW_OK;
        if (!ck_arrow_are_headers(view->schema, &key, &value))
                return ck_arrow_fault(problem, CK_ARROW_TYPE, view, NULL, -1);
        if (!view->length)
                return CK_ARROW_OK;
        result = ck_arrow_child(view, 0, 0, 0, &pairs, problem);
        if (result)
                return result;
        pairs.length = pairs.array->length;
        result = ck_arrow_buffers(&pairs, 1, false, problem);
        if (!result)
                result = ck_arrow_field(&pairs, key, &names, problem);
        if (!result)
                result = ck_arrow_column(&names, &headers->keys, problem);
        if (!result)
                result = ck_arrow_field(&pairs, value, &values, problem);
        if (!result)
                result = ck_arrow_column(&values, &headers->values, problem);
        if (result)
                return result;
        result = ck_arrow_buffers(view, 2, false, problem);
        if (!result)
                result =
                    ck_arrow_bounds(view, large, pairs.length, &begin, &end, problem);
        if (result)
                return result;
        headers->starts64 = large ? view->array->buffers[1] : NULL;
        headers->starts32 = large ? NULL : view->array->buffers[1];
        headers->validity = ck_arrow_validity(view);
        headers->first = view->first;
        row = ck_arrow_null_header(headers, view->length, false,
                                   ck_arrow_validity(&pairs), pairs.first);
        if (row >= 0)
                return ck_arrow_fault(problem, CK_ARROW_ROW, view, "a header is null",
                                      row);
        row = ck_arrow_null_header(headers, view->length,
                                   headers->keys.kind == CK_COLUMN_NONE,
                                   headers->keys.validity, names.first);
        if (row >= 0)
                return ck_arrow_fault(problem, CK_ARROW_ROW, view,
                                      "a header name is null", row);
        row = ck_arrow_nul_in_name(headers, view->length);
        if (row >= 0)
                return ck_arrow_fault(problem, CK_ARROW_ROW, view,
                                      "a header name contains a NUL character", row);
        return CK_ARROW_OK;
}
