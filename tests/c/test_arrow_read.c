/* Handmade arrays for the reading half of ck_arrow. */
#include "check.h"
#include "ck_arrow.h"

static void never_called(struct ArrowArray *array) {
        (void)array;
        CHECK(!"released by a reader");
}

static void never_called_either(struct ArrowSchema *schema) {
        (void)schema;
        CHECK(!"released by a reader");
}

static struct ArrowSchema schema_of(const char *format, const char *name) {
        struct ArrowSchema schema = {.format = format, .name = name};

        schema.release = never_called_either;
        return schema;
}

static struct ArrowArray array_of(int64_t length, int64_t offset, int64_t nulls,
                                  const void **buffers, int64_t n_buffers) {
        struct ArrowArray array = {
            .length = length, .offset = offset, .null_count = nulls};

        array.buffers = buffers;
        array.n_buffers = n_buffers;
        array.release = never_called;
        return array;
}

static bool is(ck_bytes_t bytes, const char *text) {
        if (!text)
                return !bytes.ptr;
        return bytes.ptr && bytes.len == strlen(text) &&
               !memcmp(bytes.ptr, text, bytes.len);
}

static void test_a_slice_counts_from_its_offset(void) {
        const int32_t offsets[] = {0, 1, 1, 4, 6, 6};
        const uint8_t validity[] = {0x1b}; /* row 2 is null */
        const void *buffers[] = {validity, offsets, "abbbcc"};
        struct ArrowSchema schema = schema_of("u", "");
        struct ArrowArray array = array_of(4, 1, -1, buffers, 3);
        ck_arrow_problem_t problem;
        ck_arrow_view_t view;
        ck_column_t column;

        CHECK(!ck_arrow_root(&schema, &array, &view, &problem));
        CHECK(!ck_arrow_column(&view, &column, &problem));
        CHECK(is(ck_column_get(&column, 0), ""));
        CHECK(is(ck_column_get(&column, 1), NULL));
        CHECK(is(ck_column_get(&column, 2), "cc"));
        CHECK(is(ck_column_get(&column, 3), ""));
        CHECK(ck_arrow_first_null(&view) == 1);
        array.null_count = 0; /* the producer says so, so the bitmap does not matter */
        CHECK(!ck_arrow_column(&view, &column, &problem));
        CHECK(is(ck_column_get(&column, 1), "bbb"));
}

static void test_views_lie_in_place_or_in_any_buffer(void) {
        ck_view_t views[3] = {{.len = 12}, {.len = 13}, {.len = 0}};
        const int64_t sizes[] = {1, 20};
        const void *buffers[] = {NULL, views, "x", "0123456789012345678", sizes};
        struct ArrowSchema schema = schema_of("vz", "");
        struct ArrowArray array = array_of(3, 0, 0, buffers, 5);
        ck_arrow_problem_t problem;
        ck_arrow_view_t view;
        ck_column_t column;

        memcpy(views[0].u.inlined, "abcdefghijkl", 12);
        views[1].u.ref.buffer = 1;
        views[1].u.ref.offset = 5;
        CHECK(!ck_arrow_root(&schema, &array, &view, &problem));
        CHECK(!ck_arrow_column(&view, &column, &problem));
        CHECK(is(ck_column_get(&column, 0), "abcdefghijkl"));
        CHECK(is(ck_column_get(&column, 1), "5678901234567"));
        CHECK(is(ck_column_get(&column, 2), ""));
}

static void test_the_fields_of_a_slice_are_sliced(void) {
        const char *fixed = "aabbccddee";
        const void *buffers[] = {NULL, fixed}, *none[] = {NULL};
        struct ArrowSchema child_schema = schema_of("w:2", "x");
        struct ArrowSchema *child_schemas[] = {&child_schema};
        struct ArrowArray child = array_of(4, 1, 0, buffers, 2), *children[] = {&child};
        struct ArrowSchema schema = schema_of("+s", "");
        struct ArrowArray array = array_of(2, 2, 0, none, 1);
        ck_arrow_problem_t problem;
        ck_arrow_view_t view, field;
        ck_column_t column;

        schema.n_children = array.n_children = 1;
        schema.children = child_schemas;
        array.children = children;
        CHECK(!ck_arrow_root(&schema, &array, &view, &problem));
        CHECK(ck_arrow_find(&schema, "x", 1) == 0);
        CHECK(ck_arrow_find(&schema, "xy", 2) == -1);
        CHECK(!ck_arrow_field(&view, 0, &field, &problem));
        CHECK(!ck_arrow_column(&field, &column, &problem));
        CHECK(is(ck_column_get(&column, 0), "dd"));
        CHECK(is(ck_column_get(&column, 1), "ee"));
        child.length = 3;
        CHECK(ck_arrow_field(&view, 0, &field, &problem) == CK_ARROW_BROKEN);
        child_schemas[0] = NULL; /* no name, which differs from an empty one */
        CHECK(ck_arrow_find(&schema, "", 0) == -1);
}

static void test_invalid_data_is_refused(void) {
        const int32_t offsets[] = {0, 1, 2}, wrong[] = {2, 1, 0};
        const void *buffers[] = {NULL, offsets, "ab"};
        struct ArrowSchema schema = schema_of("z", "");
        struct ArrowArray array = array_of(2, 0, 0, buffers, 3);
        struct ArrowArray good = array;
        ck_arrow_problem_t problem;
        ck_arrow_view_t view;
        ck_column_t column;

        array.release = NULL;
        CHECK(ck_arrow_root(&schema, &array, &view, &problem) == CK_ARROW_BROKEN);
        array = good;
        array.offset = -1;
        CHECK(ck_arrow_root(&schema, &array, &view, &problem) == CK_ARROW_BROKEN);
        array = good;
        array.length = INT64_MAX;
        array.offset = INT64_MAX;
        CHECK(ck_arrow_root(&schema, &array, &view, &problem) == CK_ARROW_BROKEN);
        array = good;
        array.n_children = 1;
        CHECK(ck_arrow_root(&schema, &array, &view, &problem) == CK_ARROW_BROKEN);
        array = good;
        CHECK(!ck_arrow_root(&schema, &array, &view, &problem));
        array.n_buffers = 2;
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_BROKEN);
        array.n_buffers = 3;
        array.null_count = 1;
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_BROKEN);
        array.null_count = 0;
        buffers[1] = NULL;
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_BROKEN);
        buffers[1] = (const char *)offsets + 1;
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_BROKEN);
        buffers[1] = wrong;
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_BROKEN);
        buffers[1] = offsets;
        buffers[2] = NULL;
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_BROKEN);
        buffers[2] = "ab";
        CHECK(!ck_arrow_column(&view, &column, &problem));
        /* An empty array needs no buffers. */
        view.length = 0;
        buffers[1] = buffers[2] = NULL;
        CHECK(!ck_arrow_column(&view, &column, &problem));
        schema.format = "w:-1";
        view.length = 2;
        array.n_buffers = 2;
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_BROKEN);
        schema.format = "g";
        CHECK(ck_arrow_column(&view, &column, &problem) == CK_ARROW_TYPE);
}

static void test_numbers_keep_their_value_or_fail(void) {
        const uint8_t small[] = {1, 200}, validity[] = {0x01};
        const uint64_t large[] = {1, (uint64_t)1 << 63};
        const int64_t times[] = {-1, 1999};
        const void *buffers[] = {NULL, small};
        struct ArrowSchema schema = schema_of("C", "");
        struct ArrowArray array = array_of(2, 0, 0, buffers, 2);
        ck_numbers_t numbers = {.missing = -7};
        ck_arrow_problem_t problem;
        ck_arrow_view_t view;
        int64_t wide[2];

        CHECK(!ck_arrow_root(&schema, &array, &view, &problem));
        CHECK(ck_arrow_numbers(&view, false, &numbers, &problem) == CK_ARROW_WIDEN);
        CHECK(numbers.missing == -7);
        ck_arrow_widen(&view, -7, wide);
        CHECK(wide[0] == 1 && wide[1] == 200);
        /* Null values need not fit. */
        array.null_count = -1;
        buffers[0] = validity;
        CHECK(!ck_arrow_numbers(&view, false, &numbers, &problem));
        CHECK(ck_numbers_get(&numbers, 0) == 1 && ck_numbers_get(&numbers, 1) == -7);
        ck_arrow_widen(&view, -7, wide);
        CHECK(wide[1] == -7);
        schema.format = "L";
        buffers[1] = large;
        CHECK(!ck_arrow_numbers(&view, false, &numbers, &problem));
        array.null_count = 0;
        CHECK(ck_arrow_numbers(&view, false, &numbers, &problem) == CK_ARROW_ROW);
        CHECK(problem.row == 1);
        schema.format = "tsu:";
        buffers[1] = times;
        CHECK(ck_arrow_numbers(&view, false, &numbers, &problem) == CK_ARROW_TYPE);
        CHECK(!ck_arrow_numbers(&view, true, &numbers, &problem));
        CHECK(ck_numbers_get(&numbers, 0) == -1 && ck_numbers_get(&numbers, 1) == 1);
        schema.format = "tss:UTC";
        CHECK(!ck_arrow_numbers(&view, true, &numbers, &problem));
        CHECK(ck_numbers_get(&numbers, 0) == -1000);
}

static void test_headers_start_at_the_first_pair_of_the_list(void) {
        const int32_t starts[] = {0, 1, 3, 3, 4}, key_ends[] = {0, 0, 1, 2, 3, 4};
        const uint8_t lists_valid[] = {0x0e}; /* list 0 is null despite its pairs */
        const uint8_t pairs_valid[] = {
            0x1d}; /* pair 1 is null too; it is pair 0 of the slice */
        const void *list_buffers[] = {lists_valid, starts},
                   *pair_buffers[] = {pairs_valid};
        const void *key_buffers[] = {NULL, key_ends, "abcd"},
                   *value_buffers[] = {NULL, "vwxyz"};
        struct ArrowSchema keys = schema_of("u", "key"),
                           values = schema_of("w:1", "value");
        struct ArrowSchema pairs = schema_of("+s", "element"),
                           lists = schema_of("+l", "");
        struct ArrowSchema *fields[] = {&values, &keys}, *items[] = {&pairs};
        struct ArrowArray key_array = array_of(5, 0, 0, key_buffers, 3);
        struct ArrowArray value_array = array_of(5, 0, 0, value_buffers, 2);
        struct ArrowArray pair_array = array_of(4, 1, -1, pair_buffers, 1);
        struct ArrowArray list_array = array_of(4, 0, 1, list_buffers, 2);
        struct ArrowArray *field_arrays[] = {&value_array, &key_array};
        struct ArrowArray *item_arrays[] = {&pair_array};
        ck_arrow_problem_t problem;
        ck_arrow_view_t view;
        ck_headers_t headers;

        pairs.n_children = pair_array.n_children = 2;
        pairs.children = fields;
        pair_array.children = field_arrays;
        lists.n_children = list_array.n_children = 1;
        lists.children = items;
        list_array.children = item_arrays;
        CHECK(!ck_arrow_root(&lists, &list_array, &view, &problem));
        CHECK(!ck_arrow_headers(&view, &headers, &problem));
        CHECK(!ck_column_valid(headers.validity, 0) &&
              ck_column_valid(headers.validity, 1));
        CHECK(is(ck_column_get(&headers.keys, 1), "b"));
        CHECK(is(ck_column_get(&headers.values, 1), "x"));
        CHECK(is(ck_column_get(&headers.keys, 3), "d"));
        CHECK(is(ck_column_get(&headers.values, 3), "z"));
        /* A null pair is an error only if its list is not null. */
        list_array.null_count = 0;
        CHECK(ck_arrow_headers(&view, &headers, &problem) == CK_ARROW_ROW &&
              problem.row == 0);
        list_array.null_count = 1;
        pair_array.length = 3;
        CHECK(ck_arrow_headers(&view, &headers, &problem) == CK_ARROW_BROKEN);
        pair_array.length = 5;
        CHECK(ck_arrow_headers(&view, &headers, &problem) == CK_ARROW_BROKEN);
        pair_array.length = 4;
        key_buffers[2] = "a\0cd";
        CHECK(ck_arrow_headers(&view, &headers, &problem) == CK_ARROW_ROW &&
              problem.row == 1);
        keys.format = "i";
        CHECK(ck_arrow_headers(&view, &headers, &problem) == CK_ARROW_TYPE);
}

int main(void) {
        test_a_slice_counts_from_its_offset();
        test_views_lie_in_place_or_in_any_buffer();
        test_the_fields_of_a_slice_are_sliced();
        test_invalid_data_is_refused();
        test_numbers_keep_their_value_or_fail();
        test_headers_start_at_the_first_pair_of_the_list();
        return 0;
}
